"""Pace and multiplier: due times follow the record, and m times the traffic has its lengths."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError
from fleetopt.pipeline.pacing import Pacer, multiplied, parse_speed
from fleetopt.pipeline.replay import HEARTBEAT_S, TICK_S, Replay, Timestamps, limited

EPOCH_S = 1_700_000_000.0


def requests(arrivals_s: list[float], fleet: str = "f") -> list[RequestLog]:
    return [
        RequestLog(fleet, str(at), EPOCH_S + arrival_s, 100 + at, 10)
        for at, arrival_s in enumerate(arrivals_s)
    ]


@pytest.mark.parametrize(
    ("text", "speed"), [("1", 1), ("10", 10), ("2.5x", 2.5), ("max", math.inf)]
)
def test_speeds(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "fast", ""])
def test_a_wrong_speed_says_what_is_accepted(text: str) -> None:
    with pytest.raises(InputError, match="such as 1 or 10, or max"):
        parse_speed(text)


def test_due_times_keep_gaps_divided_by_the_speed() -> None:
    pacer = Pacer(first_arrival_s=EPOCH_S, started_at_s=50.0, speed=4.0)
    assert [pacer.due_s(EPOCH_S + gap) for gap in (0, 4, 10)] == [50.0, 51.0, 52.5]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0, 100), st.integers(0, 39))
def test_due_count_is_what_a_walk_finds(gaps: list[float], now_s: float, start: int) -> None:
    records = requests(sorted(gaps))
    start = min(start, len(records))
    pacer = Pacer(EPOCH_S, 0.0, 2.0)
    due = [record for record in records[start:] if pacer.due_s(record.arrival_s) <= now_s]
    assert pacer.due_count(records, start, now_s) == len(due)


@given(st.integers(1, 400), st.sampled_from([0.1, 0.25, 0.5, 1.5, 2.0, 2.5, 3.7, 10.0]))
def test_every_request_is_sent_floor_or_ceiling_times(count: int, multiplier: float) -> None:
    records = requests([at * 0.9 for at in range(count)])
    sent = [record for chunk in multiplied([records], multiplier) for record in chunk]
    times = Counter(record.prompt_tokens for record in sent)
    assert len(sent) == math.floor(count * multiplier + 1e-9)
    assert {times[record.prompt_tokens] for record in records} <= {
        math.floor(multiplier),
        math.floor(multiplier) + 1,
    }
    assert len({record.request_id for record in sent}) == len(sent)
    assert [record.arrival_s for record in sent] == sorted(record.arrival_s for record in sent)
    if sent:
        assert sent[0].arrival_s >= records[0].arrival_s
        assert sent[-1].arrival_s <= records[-1].arrival_s + 0.9


def test_a_whole_multiplier_multiplies_every_length_exactly() -> None:
    rng = np.random.default_rng(3)
    records = requests(np.sort(rng.uniform(0, 300, 2_000)).tolist())
    sent = [record for chunk in multiplied([records], 3.0) for record in chunk]
    once = Counter(record.prompt_tokens for record in records)
    assert Counter(record.prompt_tokens for record in sent) == dict.fromkeys(once, 3)


def test_each_minute_gets_its_own_rate() -> None:
    records = requests([*np.linspace(0, 39, 400).tolist(), *np.linspace(40, 99, 60).tolist()])
    sent = [record for chunk in multiplied([records], 2.5) for record in chunk]
    # EPOCH_S is 20 s into a minute: the first block has 400 requests, the second 60.
    first = [record for record in sent if record.arrival_s < EPOCH_S + 40]
    assert (len(first), len(sent) - len(first)) == (1_000, 150)


def test_copies_are_no_burstier_than_the_record() -> None:
    rng = np.random.default_rng(5)
    records = requests(np.sort(rng.uniform(0, 3_600, 18_000)).tolist())  # Poisson, 5/s
    sent = [record for chunk in multiplied([records], 8.0) for record in chunk]
    counts = np.bincount([int(record.arrival_s - EPOCH_S) for record in sent])
    # Copies sent together would have a dispersion of 8.
    assert 0.85 < counts.var() / counts.mean() < 1.25


def test_one_passes_chunks_through_untouched() -> None:
    chunk = requests([0.0, 1.0])
    (same,) = multiplied([chunk], 1.0)
    assert same is chunk


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_a_wrong_multiplier_is_refused(multiplier: float) -> None:
    with pytest.raises(InputError, match="expected a number above 0"):
        list(multiplied([], multiplier))


def test_a_limit_cuts_across_chunks() -> None:
    chunks = [requests([0, 1]), requests([2, 3]), requests([4, 5])]
    assert [len(chunk) for chunk in limited(chunks, 3)] == [2, 1]
    assert [len(chunk) for chunk in limited(chunks, None)] == [2, 2, 2]


class FakeClock:
    """Time that passes only by sleeping."""

    def __init__(self, now_s: float) -> None:
        self.time_s = now_s

    def now_s(self) -> float:
        return self.time_s

    async def sleep(self, duration_s: float) -> None:
        assert duration_s > 0
        self.time_s += duration_s


class Recorder:
    """A sink that notes what comes and when."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.sent: list[tuple[float, RequestLog]] = []
        self.groups: list[tuple[str, int]] = []
        self.heartbeats: list[tuple[float, str, float]] = []
        self.flushed = False

    async def send(self, fleet: str, records: list[RequestLog]) -> None:
        self.groups.append((fleet, len(records)))
        self.sent += [(self.clock.now_s(), record) for record in records]

    async def heartbeat(self, fleet: str, until_s: float) -> None:
        self.heartbeats.append((self.clock.now_s(), fleet, until_s))

    async def flush(self) -> None:
        self.flushed = True


def run(
    chunks: list[list[RequestLog]], speed: float, timestamps: Timestamps, now_s: float = 5e9
) -> Recorder:
    clock = FakeClock(now_s)
    sink = Recorder(clock)
    replay = Replay(sink, speed=speed, timestamps=timestamps, slice_s=60, clock=clock)
    replayed = asyncio.run(replay.run(chunks))
    assert replayed.records == sum(map(len, chunks)) == len(sink.sent)
    assert sink.flushed
    return sink


@given(st.lists(st.floats(0, 20), min_size=1, max_size=30), st.sampled_from([0.5, 1.0, 10.0]))
def test_requests_are_sent_when_due_within_a_tick(gaps: list[float], speed: float) -> None:
    records = requests(sorted(gaps))
    sink = run([records], speed, Timestamps.RECORDED)
    for at_s, record in sink.sent:
        due_s = 5e9 + (record.arrival_s - records[0].arrival_s) / speed
        assert -1e-5 <= at_s - due_s <= TICK_S + 1e-5
    assert [record for _, record in sink.sent] == records


def test_now_gives_each_request_its_due_time_and_no_promise_beyond_it() -> None:
    sink = run([requests([0.0, 4.0, 8.0])], 4.0, Timestamps.NOW)
    assert [record.arrival_s for _, record in sink.sent] == [5e9, 5e9 + 1, 5e9 + 2]
    assert sink.heartbeats[-1][2] == 5e9 + 2
    assert all(until_s <= at_s for at_s, _, until_s in sink.heartbeats)


def test_recorded_ends_with_the_last_slice_closed_for_every_fleet() -> None:
    chunks = [requests([0.0, 1.0], "a"), requests([70.0], "b")]
    sink = run(chunks, math.inf, Timestamps.RECORDED)
    # EPOCH_S is 20 s into a minute, so 70 s later is 30 s into the minute after next.
    assert [beat[1:] for beat in sink.heartbeats] == [("a", EPOCH_S + 100), ("b", EPOCH_S + 100)]
    assert sink.clock.now_s() == 5e9


def test_a_long_silence_has_heartbeats_that_never_overtake_the_next_request() -> None:
    sink = run([requests([0.0, 10.0])], 1.0, Timestamps.RECORDED)
    during = sink.heartbeats[:-1]
    assert len(during) >= 10 / HEARTBEAT_S - 2
    assert all(EPOCH_S <= until_s <= EPOCH_S + 10.0 for _, _, until_s in during)


def test_promises_come_with_the_traffic_and_are_kept() -> None:
    records = requests([at / 10 for at in range(100)])
    for timestamps in Timestamps:
        sink = run([records], 1.0, timestamps)
        assert len(sink.heartbeats) >= 9
        for at_s, _, until_s in sink.heartbeats:
            later = [record for sent_s, record in sink.sent if sent_s > at_s]
            assert all(record.arrival_s >= until_s for record in later)


def test_fleets_are_sent_apart_in_order() -> None:
    mixed = [RequestLog("ab"[at % 2], str(at), EPOCH_S + at / 10, 100, 10) for at in range(20)]
    sink = run([mixed], math.inf, Timestamps.RECORDED)
    assert sink.groups == [("a", 10), ("b", 10)]
