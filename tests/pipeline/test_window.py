"""Which slice a request falls in, which are late, and that neither depends on the batching."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetopt.connectors.columns import RequestColumns
from fleetopt.pipeline.sketch import cells_in
from fleetopt.pipeline.window import (
    MAX_FLEETS,
    MAX_PROMISING,
    MAX_SOURCES,
    FleetMeta,
    FleetWindow,
    PartitionWindows,
    WindowConfig,
)

CONFIG = WindowConfig(slice_s=10, slices=6, allowed_lateness_s=25.0)
MAX_HELD = CONFIG.slices + int(CONFIG.allowed_lateness_s // CONFIG.slice_s) + 2
"""Slices that a plan may look at, and those still open."""


def columns(arrivals_s: Iterable[float], measured: bool = True) -> RequestColumns:
    arrival_s = np.array(list(arrivals_s), dtype=np.float64)
    rows = len(arrival_s)
    tokens = (np.arange(rows, dtype=np.int64) * 37) % 1_000 + 1
    return RequestColumns(
        arrival_s, tokens, tokens // 3, np.zeros(rows, dtype=np.int8), np.full(rows, measured)
    )


class Reference:
    """One request at a time, every slice kept: what a window must agree with."""

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        self.newest_s = self.until_s = 0.0
        self.accepted = self.late = 0
        self.counts: dict[int, int] = {}
        self.tokens: dict[int, int] = {}

    @property
    def watermark_s(self) -> float:
        return max(self.newest_s - self.config.allowed_lateness_s, self.until_s)

    def add(self, arrival_s: float, tokens: int) -> None:
        index = int(arrival_s // self.config.slice_s)
        if (index + 1) * self.config.slice_s <= self.watermark_s:
            self.late += 1
        else:
            self.accepted += 1
            self.counts[index] = self.counts.get(index, 0) + 1
            self.tokens[index] = self.tokens.get(index, 0) + tokens
        self.newest_s = max(self.newest_s, arrival_s)


class Stored:
    """What the store would hold: changed slices written over, expired ones deleted."""

    def __init__(self) -> None:
        self.slices: dict[int, bytes] = {}

    def store(self, window: FleetWindow) -> None:
        for index in window.changed:
            self.slices[index] = window.slices[index].to_bytes()
        self.slices = {at: data for at, data in self.slices.items() if at >= window.oldest}
        window.stored()


arrivals = st.lists(
    st.one_of(
        st.floats(1.0, 300.0),
        st.integers(0, 60).map(lambda edge: 10.0 * edge or 1.0),
        st.floats(1e4, 1e4 + 100.0),
    ),
    max_size=40,
)


@given(stream=arrivals, cuts=st.lists(st.integers(0, 40), max_size=6), store_between=st.booleans())
@example(stream=[1.0, 10.0, 35.0, 9.999, 10.0, 1.0], cuts=[2], store_between=True)
def test_batching_changes_nothing(
    stream: list[float], cuts: list[int], store_between: bool
) -> None:
    reference = Reference(CONFIG)
    rows = columns(stream)
    for arrival_s, prompt, completion in zip(
        stream, rows.prompt_tokens, rows.completion_tokens, strict=True
    ):
        reference.add(arrival_s, int(prompt + completion))
    window, stored = FleetWindow(CONFIG), Stored()
    held: dict[int, tuple[int, float]] = {}
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(bounds):
        window.update(rows.take(slice(start, end)))
        for index, sketch in window.slices.items():
            moments = sketch.moments.values
            held[index] = (sketch.arrival_count, float(moments[:, :, 1:3].sum()))
        if store_between:
            stored.store(window)
    assert (window.meta.accepted, window.meta.late) == (reference.accepted, reference.late)
    assert window.meta.newest_s == reference.newest_s
    expected = {
        index: (count, reference.tokens[index])
        for index, count in reference.counts.items()
        if index >= window.oldest
    }
    assert {at: value for at, value in held.items() if at >= window.oldest} == expected
    if store_between:
        assert set(stored.slices) == set(expected)


@given(stream=arrivals, promises=st.lists(st.tuples(st.integers(0, 40), st.floats(1, 400))))
def test_promises_between_requests_are_batched_alike(
    stream: list[float], promises: list[tuple[int, float]]
) -> None:
    at_once, one_by_one, reference = FleetWindow(CONFIG), FleetWindow(CONFIG), Reference(CONFIG)
    rows = columns(stream)
    cuts = sorted({0, len(stream), *(min(at, len(stream)) for at, _ in promises)})
    for at, start in enumerate(cuts):
        for _, until_s in (promise for promise in promises if promise[0] == start):
            for window in (at_once, one_by_one):
                window.promise(until_s)
            reference.until_s = max(reference.until_s, until_s)
        end = cuts[at + 1] if at + 1 < len(cuts) else start
        at_once.update(rows.take(slice(start, end)))
        for row in range(start, end):
            one_by_one.update(rows.take(slice(row, row + 1)))
            reference.add(stream[row], 0)
    assert at_once.meta == one_by_one.meta
    assert (at_once.meta.accepted, at_once.meta.late) == (reference.accepted, reference.late)
    assert at_once.slices.keys() == one_by_one.slices.keys()
    for index, sketch in at_once.slices.items():
        assert sketch.moments == one_by_one.slices[index].moments
        assert sketch.arrivals.tolist() == one_by_one.slices[index].arrivals.tolist()


# Edges


@pytest.mark.parametrize(
    ("arrival_s", "index"), [(9.999999, 0), (10.0, 1), (19.999999, 1), (1.7e9, 170_000_000)]
)
def test_a_slice_begins_at_its_edge(arrival_s: float, index: int) -> None:
    window = FleetWindow(CONFIG)
    window.update(columns([arrival_s]))
    assert set(window.slices) == {index}


@pytest.mark.parametrize("slice_s", [1, 7, 60, 61, 3_599, 3_600])
@pytest.mark.parametrize("start", [0, 1, 472_000])
def test_the_last_moment_of_a_slice_is_in_its_last_cell(slice_s: int, start: int) -> None:
    window = FleetWindow(WindowConfig(slice_s=slice_s))
    begin_s = float(start * slice_s)
    last_s = float(np.nextafter(begin_s + slice_s, 0.0))
    window.update(columns([max(begin_s, 1e-9), last_s]))
    (sketch,) = window.slices.values()
    assert (sketch.arrivals[0], sketch.arrivals[-1]) == (
        (1, 1) if cells_in(slice_s) > 1 else (2, 2)
    )


def test_a_slice_closes_when_the_watermark_is_at_its_end_and_not_before() -> None:
    window = FleetWindow(CONFIG)
    window.update(columns([5.0, 34.999]))
    window.update(columns([9.0]))
    assert (window.meta.late, window.open_indices()) == (0, [0, 3])
    window.update(columns([35.0]))
    assert window.open_indices() == [3]
    window.update(columns([9.999]))
    assert window.meta.late == 1
    window.update(columns([10.0]))
    assert window.meta.late == 1


def test_without_allowed_lateness_the_newest_slice_is_open() -> None:
    window = FleetWindow(WindowConfig(slice_s=10, slices=6, allowed_lateness_s=0.0))
    window.update(columns([15.0, 11.0, 20.0, 19.9]))
    assert (window.meta.late, window.open_indices()) == (1, [2])


def test_nothing_stored_is_nothing_changed() -> None:
    window = FleetWindow(CONFIG)
    window.update(columns([5.0, 15.0, 45.0]))
    assert window.changed == {0, 1, 4}
    window.stored()
    assert (window.changed, set(window.slices)) == (set(), {4})
    window.update(columns([]))
    assert window.changed == set()


def test_failed_requests_are_accepted_and_counted_as_unmeasured() -> None:
    window = FleetWindow(CONFIG)
    window.update(columns([5.0, 6.0], measured=False))
    assert (window.meta.accepted, window.meta.unmeasured) == (2, 2)
    assert window.slices[0].arrival_count == 2


# Promises


def test_a_promise_makes_silence_known_and_closes() -> None:
    window = FleetWindow(CONFIG)
    window.update(columns([5.0]))
    window.promise(39.0)
    assert sorted(window.slices) == [0, 1, 2]
    assert [window.slices[index].arrival_count for index in (0, 1, 2)] == [1, 0, 0]
    assert window.open_indices() == []
    window.update(columns([29.0, 30.0]))
    assert (window.meta.late, window.meta.accepted) == (1, 2)


def test_steady_promises_leave_no_slice_unknown() -> None:
    """A request between two promises must not hide the idle slice before it."""
    window, stored = FleetWindow(CONFIG), Stored()
    for second in range(1, 200):
        if second % 50 == 0:
            window.update(columns([float(second)]))
        window.promise(float(second))
        if second % 3 == 0:
            stored.store(window)
    stored.store(window)
    assert sorted(stored.slices) == list(range(19 - CONFIG.slices, 19))


def test_a_promise_never_overwrites_a_closed_slice() -> None:
    window, stored = FleetWindow(CONFIG), Stored()
    window.promise(1.0)
    window.update(columns([5.0, 15.0, 25.0, 75.0]))
    stored.store(window)
    before = dict(stored.slices)
    window.promise(99.0)
    assert window.changed.isdisjoint(range(5))
    stored.store(window)
    assert {index: stored.slices[index] for index in before if index in stored.slices} == {
        index: data for index, data in before.items() if index in stored.slices
    }


def test_a_promise_of_the_past_changes_nothing() -> None:
    window = FleetWindow(CONFIG)
    window.promise(100.0)
    window.stored()
    meta = FleetMeta(until_s=100.0, promises={"": 100.0})
    for until_s in (100.0, 50.0):
        window.promise(until_s)
    assert (window.meta, window.changed) == (meta, set())


def test_a_first_promise_vouches_for_one_slice() -> None:
    window = FleetWindow(CONFIG)
    window.promise(105.0)
    assert sorted(window.slices) == [9]


def test_of_several_sources_the_one_furthest_behind_counts() -> None:
    """One gateway's word must not make another's requests late."""
    window = FleetWindow(CONFIG)
    window.promise(40.0, "a")
    window.promise(41.0, "b")
    window.promise(60.0, "a")
    assert window.meta.until_s == 41.0
    window.update(columns([45.0]))
    assert (window.meta.accepted, window.meta.late) == (1, 0)
    window.promise(55.0, "b")
    assert window.meta.until_s == 55.0


def test_a_source_that_joins_behind_the_others_takes_nothing_back() -> None:
    window = FleetWindow(CONFIG)
    window.promise(60.0, "a")
    window.promise(40.0, "b")
    assert window.meta.until_s == 60.0
    window.promise(64.0, "a")
    assert window.meta.until_s == 60.0
    window.promise(62.0, "b")
    assert window.meta.until_s == 62.0


def test_a_source_that_ended_is_waited_for_no_longer_than_the_allowed_lateness() -> None:
    window = FleetWindow(CONFIG)
    window.promise(40.0, "ended")
    for until_s in (40.0, 50.0, 65.0):
        window.promise(until_s, "a")
        assert window.meta.until_s == 40.0
    window.promise(66.0, "a")
    assert window.meta.until_s == 66.0
    assert window.meta.promises == {"a": 66.0}


@given(
    promises=st.lists(st.tuples(st.floats(1.0, 500.0), st.integers(0, 3)), max_size=30),
)
def test_what_is_promised_never_falls_and_never_outruns_its_sources(
    promises: list[tuple[float, int]],
) -> None:
    window = FleetWindow(CONFIG)
    before_s = newest_s = 0.0
    for until_s, source in promises:
        window.promise(until_s, str(source))
        newest_s = max(newest_s, until_s)
        assert before_s <= window.meta.until_s <= newest_s
        assert window.meta.until_s >= newest_s - CONFIG.allowed_lateness_s
        before_s = window.meta.until_s


def test_sources_that_promise_can_not_fill_the_memory() -> None:
    window = FleetWindow(CONFIG)
    for at in range(10 * MAX_PROMISING):
        window.promise(100.0 + at / 1e6, f"s{at}")
    assert len(window.meta.promises) == MAX_PROMISING


# Bounds


def test_a_leap_of_years_keeps_a_window_and_counts_every_request() -> None:
    window = FleetWindow(CONFIG)
    window.update(columns(1.0 + 10.0 * np.arange(200_000)))
    assert (window.meta.accepted, window.meta.late) == (200_000, 0)
    assert len(window.slices) <= MAX_HELD
    assert window.changed == set(window.slices)
    assert max(window.slices) == 199_999


@given(
    stream=st.lists(st.floats(1.0, 1e10, exclude_max=True), max_size=60),
    promise_s=st.floats(1.0, 1e10),
)
def test_whatever_comes_the_slices_held_are_bounded(stream: list[float], promise_s: float) -> None:
    window = FleetWindow(CONFIG)
    for start in range(0, len(stream), 7):
        window.update(columns(stream[start : start + 7]))
        assert len(window.slices) <= MAX_HELD
        assert window.changed <= set(window.slices)
    window.promise(promise_s)
    assert len(window.slices) <= MAX_HELD
    assert window.meta.accepted + window.meta.late == len(stream)


def test_records_of_a_past_time_for_a_new_fleet_are_as_good_as_any() -> None:
    window = FleetWindow(CONFIG)
    window.update(columns([5.0, 6.0]))
    assert (window.meta.accepted, sorted(window.slices)) == (2, [0])


def test_a_clock_that_runs_backwards_makes_late_requests_only() -> None:
    window = FleetWindow(CONFIG)
    window.update(columns(np.arange(1_000.0, 1.0, -10.0)))
    assert window.meta.newest_s == 1_000.0
    assert window.meta.accepted + window.meta.late == 100
    assert window.meta.accepted == 4, "those whose slice ends after 975"


def test_names_can_not_fill_the_memory() -> None:
    windows = PartitionWindows(CONFIG)
    for at in range(MAX_FLEETS):
        assert windows.fleet(f"f{at}") is not None
    assert windows.fleet("one-more") is None
    assert windows.fleet("f0") is not None


# Sources


def test_a_batch_sent_twice_is_known() -> None:
    windows = PartitionWindows(CONFIG)
    assert [windows.is_repeated("a", seq) for seq in (1, 2, 2, 1, 3)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert not windows.is_repeated("b", 1)
    assert not any(windows.is_repeated("", 0) for _ in range(3)), "no source, nothing to tell by"


def test_the_source_that_was_silent_longest_is_forgotten_first() -> None:
    windows = PartitionWindows(CONFIG)
    for at in range(MAX_SOURCES):
        windows.is_repeated(f"s{at}", 1)
    windows.is_repeated("s0", 2)
    windows.is_repeated("new", 1)
    assert len(windows.sources) == MAX_SOURCES
    assert windows.is_repeated("s0", 2)
    assert not windows.is_repeated("s1", 1)
