"""Every row of the log is accepted, late, known already or refused: nothing is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetopt.connectors.sketch_store import StoredCover
from fleetopt.connectors.wire import Rejection
from fleetopt.pipeline import checkpoint
from fleetopt.pipeline import window as window_module
from fleetopt.pipeline.fold import DeadLetter, fold
from fleetopt.pipeline.window import FleetMeta, PartitionWindows, WindowConfig
from tests.pipeline.log_messages import (
    FLEETS,
    START_S,
    LogMessage,
    as_json,
    as_msgpack,
    batch,
    log_of,
    logs,
    record,
)

CONFIG = WindowConfig(slice_s=10, slices=6, allowed_lateness_s=25.0)
MAX_FUTURE_S = 300.0
CHAT = FLEETS[0]


def folded(*values: bytes | None, timestamp_s: float | None = None) -> PartitionWindows:
    windows = PartitionWindows(CONFIG)
    fold(windows, log_of(*values, timestamp_s=timestamp_s), MAX_FUTURE_S)
    return windows


def meta_of(windows: PartitionWindows, fleet: str = CHAT) -> FleetMeta:
    return windows.fleets[fleet].meta


def reasons(letters: list[DeadLetter]) -> list[Rejection]:
    return [letter.rejected.reason for letter in letters]


@settings(max_examples=200)
@given(log=logs())
def test_every_row_is_counted_once(log: list[LogMessage]) -> None:
    windows = PartitionWindows(CONFIG)
    letters = fold(windows, log, MAX_FUTURE_S)
    metas = [fleet.meta for fleet in windows.fleets.values()]
    counted = sum(meta.accepted + meta.late + meta.duplicated for meta in metas)
    rejected = sum(windows.rejected.values())
    assert counted + rejected == sum(message.rows for message in log)
    assert sum(letter.rejected.rows for letter in letters) == rejected
    assert windows.position == len(log)
    for fleet in windows.fleets.values():
        held = sum(sketch.arrival_count for sketch in fleet.slices.values())
        assert held <= fleet.meta.accepted


@given(log=logs())
def test_folding_in_one_go_or_message_by_message_is_the_same(log: list[LogMessage]) -> None:
    at_once, one_by_one = PartitionWindows(CONFIG), PartitionWindows(CONFIG)
    letters = fold(at_once, log, MAX_FUTURE_S)
    assert [x for message in log for x in fold(one_by_one, [message], MAX_FUTURE_S)] == letters
    assert at_once.fleets.keys() == one_by_one.fleets.keys()
    assert (at_once.sources, at_once.rejected) == (one_by_one.sources, one_by_one.rejected)
    for name, fleet in at_once.fleets.items():
        other = one_by_one.fleets[name]
        assert fleet.meta == other.meta
        assert fleet.slices.keys() == other.slices.keys()
        for index, sketch in fleet.slices.items():
            assert sketch.moments == other.slices[index].moments
            assert sketch.arrivals.tolist() == other.slices[index].arrivals.tolist()
            np.testing.assert_array_equal(sketch.ratios, other.slices[index].ratios)
            np.testing.assert_array_equal(sketch.outcomes, other.slices[index].outcomes)


@given(log=logs())
def test_what_is_covered_already_is_passed_over(log: list[LogMessage]) -> None:
    windows, again = PartitionWindows(CONFIG), PartitionWindows(CONFIG)
    fold(windows, log, MAX_FUTURE_S)
    half = len(log) // 2
    fold(again, log[:half], MAX_FUTURE_S)
    fold(again, log, MAX_FUTURE_S)
    assert fold(again, log, MAX_FUTURE_S) == []
    assert again.position == windows.position
    assert {name: fleet.meta for name, fleet in again.fleets.items()} == {
        name: fleet.meta for name, fleet in windows.fleets.items()
    }
    assert again.rejected == windows.rejected


extremes = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=3), st.none(), st.booleans()
)


@given(
    values=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                lambda name, cell, each: as_msgpack(each | {name: cell}),
                st.sampled_from(["fleet", "arrival_s", "prompt_tokens", "src", "seq", "until_s"]),
                extremes,
                st.sampled_from([record(1.0), batch([1.0, 2.0], src="a", seq=1)]),
            ),
            st.builds(
                lambda name, cell: as_msgpack(batch([1.0, 2.0]) | {name: [cell, 1]}),
                st.sampled_from(["ts", "p", "o", "c", "q", "s"]),
                extremes,
            ),
        ),
        max_size=6,
    )
)
def test_whatever_is_in_the_log_the_state_can_be_stored(values: list[bytes]) -> None:
    windows = folded(*values)
    assert windows.position == len(values)
    changes = checkpoint.changes(windows)
    cover = StoredCover(
        windows.position,
        checkpoint.sources_bytes(windows),
        checkpoint.rejected_bytes(windows),
        {name: change.meta for name, change in changes.items()},
    )
    slices = {name: change.slices for name, change in changes.items()}
    restored = checkpoint.restore(CONFIG, cover, slices)
    assert restored.rejected == windows.rejected
    assert restored.fleets.keys() == windows.fleets.keys()


@pytest.mark.parametrize("encode", [as_json, as_msgpack])
def test_records_and_batches_of_a_fleet_go_together(
    encode: Callable[[object], bytes],
) -> None:
    windows = folded(encode(record(1.0)), encode(batch([2.0, 3.0])), encode([record(4.0)] * 2))
    assert meta_of(windows).accepted == 5


def test_a_batch_sent_twice_is_counted_once() -> None:
    sent = as_msgpack(batch([1.0, 2.0], src="a", seq=5))
    earlier = as_msgpack(batch([3.0], src="a", seq=4))
    windows = folded(sent, sent, earlier)
    assert (meta_of(windows).accepted, meta_of(windows).duplicated) == (2, 3)


def test_a_number_counts_per_source_over_all_fleets() -> None:
    windows = folded(
        as_msgpack(batch([1.0], FLEETS[0], src="a", seq=1)),
        as_msgpack(batch([1.0], FLEETS[1], src="a", seq=2)),
        as_msgpack(batch([1.0], FLEETS[0], src="b", seq=1)),
    )
    assert [meta_of(windows, fleet).accepted for fleet in FLEETS] == [2, 1]


def test_the_order_of_the_log_decides_what_is_late() -> None:
    in_time = folded(as_json(record(5.0)), as_json(batch([100.0])))
    assert (meta_of(in_time).accepted, meta_of(in_time).late) == (2, 0)
    too_late = folded(as_json(batch([100.0])), as_json(record(5.0)), as_json(batch([6.0])))
    assert (meta_of(too_late).accepted, meta_of(too_late).late) == (1, 2)


def test_a_heartbeat_closes_after_what_stood_before_it() -> None:
    heartbeat = as_json({"v": 1, "fleet": CHAT, "until_s": START_S + 30.0})
    windows = folded(as_json(record(5.0)), heartbeat, as_json(record(6.0)), as_json(record(31.0)))
    meta = meta_of(windows)
    assert (meta.accepted, meta.late, meta.until_s) == (2, 1, START_S + 30.0)
    first = int(START_S // CONFIG.slice_s)
    assert set(windows.fleets[CHAT].slices) == {first, first + 1, first + 2, first + 3}


# What is refused


@pytest.mark.parametrize("ahead_s", [MAX_FUTURE_S + 1, 1e6])
def test_an_arrival_from_the_future_is_refused_and_moves_nothing(ahead_s: float) -> None:
    windows = PartitionWindows(CONFIG)
    log = log_of(
        as_json(record(5.0)),
        as_json(record(ahead_s)),
        as_json(batch([6.0, ahead_s, 7.0, ahead_s])),
        as_json({"v": 1, "fleet": CHAT, "until_s": START_S + ahead_s}),
        as_json(record(4.0)),
        timestamp_s=0.0,
    )
    letters = fold(windows, log, MAX_FUTURE_S)
    assert reasons(letters) == [Rejection.FUTURE_ARRIVAL] * 3
    assert [letter.offset for letter in letters] == [1, 2, 3]
    assert json.loads(letters[1].rejected.value)["ts"] == [START_S + ahead_s] * 2
    assert windows.rejected == {"future_arrival": 4}
    meta = meta_of(windows)
    assert (meta.accepted, meta.late, meta.newest_s, meta.until_s) == (4, 0, START_S + 7.0, 0.0)


def test_an_arrival_as_late_as_accepted_is_accepted() -> None:
    windows = folded(as_json(record(MAX_FUTURE_S)), timestamp_s=0.0)
    assert meta_of(windows).accepted == 1


def test_without_a_timestamp_there_is_no_future() -> None:
    windows = folded(as_json(record(1e6)))
    assert meta_of(windows).accepted == 1


def test_a_fleet_too_many_is_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "MAX_FLEETS", 2)
    windows = PartitionWindows(CONFIG)
    log = log_of(
        as_json(record(1.0, "a")),
        as_json(record(1.0, "b")),
        as_json(record(1.0, "c")),
        as_json(batch([1.0, 2.0], "d")),
        as_json(batch([1.0, 2.0], "a")),
    )
    letters = fold(windows, log, MAX_FUTURE_S)
    assert reasons(letters) == [Rejection.TOO_MANY_FLEETS] * 2
    assert windows.rejected == {"too_many_fleets": 3}
    assert set(windows.fleets) == {"a", "b"}
    assert windows.fleets["a"].meta.accepted == 3


def test_a_refused_row_can_be_sent_again_once_mended() -> None:
    windows = PartitionWindows(CONFIG)
    (letter,) = fold(windows, log_of(as_json(batch([1e6, 2e6])), timestamp_s=0.0), MAX_FUTURE_S)
    sent_again = [LogMessage(1, letter.rejected.value, round((START_S + 2e6) * 1e3))]
    assert fold(windows, sent_again, MAX_FUTURE_S) == []
    assert meta_of(windows).accepted == 2


def test_a_leap_of_years_in_one_fetch_keeps_a_window() -> None:
    windows = PartitionWindows(CONFIG)
    log = [
        LogMessage(at, as_msgpack(batch([at * 1e6 + row * 1e3 for row in range(250)])))
        for at in range(40)
    ]
    fold(windows, log, MAX_FUTURE_S)
    assert meta_of(windows).accepted == 10_000
    assert len(windows.fleets[CHAT].slices) <= CONFIG.slices + 4


def test_our_own_clock_bounds_arrivals_too() -> None:
    windows = PartitionWindows(CONFIG)
    ahead = log_of(as_json(record(5.0)))
    arrival_s = record(5.0)["arrival_s"]
    letters = fold(windows, ahead, 10.0, received_s=arrival_s - 11.0)
    assert [letter.rejected.reason.value for letter in letters] == ["future_arrival"]
    assert "chat" not in windows.fleets
