"""Regret, windows in a row, and the dead band."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.errors import ConfigError, InputError
from fleetopt.planner.drift import (
    NO_DRIFT,
    DriftRule,
    can_stay,
    is_confirmed,
    observe_regret,
    pool_loads,
    regret_ratio,
    resize,
)
from fleetopt.planner.plan import Plan, plan
from fleetopt.planner.recommendation import Drift, DriftState
from fleetopt.planner.record import plan_record
from tests.planner.traffic import REQUEST, short_traffic, window

RULE = DriftRule()
USD = st.floats(1e-3, 1e9)


def drifts(regrets: list[float], *, samples: int = 1_500, every: int = 1) -> list[Drift]:
    """What the rule says after each of these windows."""
    drift, said = NO_DRIFT, []
    for index, regret in enumerate(regrets):
        drift = observe_regret(RULE, drift, regret, window(index * every, samples=samples))
        said.append(drift)
    return said


@given(pinned=USD, optimal=USD, price=st.floats(0.1, 10.0))
def test_regret_is_a_share_that_no_currency_changes(
    pinned: float, optimal: float, price: float
) -> None:
    regret = regret_ratio(pinned, optimal)
    assert regret >= 0.0
    assert regret_ratio(pinned * price, optimal * price) == pytest.approx(
        regret, rel=1e-9, abs=1e-9
    )
    if pinned >= optimal:
        assert optimal * (1.0 + regret) == pytest.approx(pinned)


@pytest.mark.parametrize("cost", [math.nan, math.inf, -1.0])
def test_regret_of_no_cost_is_refused(cost: float) -> None:
    with pytest.raises(InputError, match="pinned cost"):
        regret_ratio(cost, 1.0)
    with pytest.raises(InputError, match="optimal cost"):
        regret_ratio(1.0, cost)


def test_a_free_fleet_has_no_regret_to_speak_of() -> None:
    with pytest.raises(InputError, match="> 0"):
        regret_ratio(0.0, 0.0)


def test_drift_takes_two_windows_in_a_row() -> None:
    once, twice = drifts([0.05, 0.05])
    assert (once.state, once.windows_in_row) == (DriftState.SUSPECTED, 1)
    assert not is_confirmed(RULE, once)
    assert is_confirmed(RULE, twice)


def test_ticks_within_one_slice_are_one_window() -> None:
    assert [d.windows_in_row for d in drifts([0.05] * 5, every=0)] == [1] * 5


def test_a_window_under_the_limit_breaks_the_row() -> None:
    assert [d.windows_in_row for d in drifts([0.05, 0.03, 0.05])] == [1, 0, 1]


def test_too_few_requests_decide_nothing() -> None:
    said = drifts([0.5] * 4, samples=1_499)
    assert {d.state for d in said} == {DriftState.INSUFFICIENT_DATA}
    assert not any(is_confirmed(RULE, d) for d in said)
    assert "1499 requests" in said[-1].text
    assert "1500" in said[-1].text


def test_too_few_requests_break_the_row() -> None:
    (first,) = drifts([0.05])
    few = observe_regret(RULE, first, 0.05, window(1, samples=10))
    again = observe_regret(RULE, few, 0.05, window(2, samples=1_500))
    assert again.windows_in_row == 1


def test_a_moved_boundary_is_judged_on_another_window() -> None:
    moved = Drift(
        state=DriftState.MOVED,
        windows_in_row=0,
        counted_to_s=window(5).window_to_s,
        text="moved",
    )
    assert observe_regret(RULE, moved, 0.0, window(5, samples=2_000)) == moved
    assert observe_regret(RULE, moved, 0.5, window(5, samples=2_000)) == moved
    assert observe_regret(RULE, moved, 0.0, window(6, samples=2_000)).state is DriftState.NONE


def test_windows_may_be_asked_to_lie_further_apart() -> None:
    rule = replace(RULE, confirm_advance_s=300.0)
    first = observe_regret(rule, NO_DRIFT, 0.05, window(0, samples=2_000))
    near = observe_regret(rule, first, 0.05, window(4, samples=2_000))
    far = observe_regret(rule, near, 0.05, window(5, samples=2_000))
    assert (near.windows_in_row, far.windows_in_row) == (1, 2)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.sampled_from([10, 2_000]))))
def test_a_row_never_counts_more_windows_than_there_were(
    steps: list[tuple[float, int, int]],
) -> None:
    drift, index = NO_DRIFT, 0
    over = 0
    for regret, advance, samples in steps:
        index += advance
        drift = observe_regret(RULE, drift, regret, window(index, samples=samples))
        is_over = regret > RULE.max_regret and samples >= RULE.min_samples
        over = over + 1 if is_over else 0
        assert drift.windows_in_row <= over
        assert (drift.windows_in_row > 0) == is_over


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_regret", 0.0),
        ("max_regret", math.nan),
        ("min_samples", 0),
        ("confirm_windows", 0),
        ("confirm_advance_s", 0.0),
        ("confirm_advance_s", math.inf),
    ],
)
def test_a_rule_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected"):
        replace(RULE, **{field: value})


COUNT = st.integers(0, 10_000)


@given(published=COUNT, needed=COUNT, more=st.integers(0, 1_000))
def test_a_pool_gets_what_it_needs_and_never_more_than_it_has_or_needs(
    published: int, needed: int, more: int
) -> None:
    count = resize(published, needed, needed + more)
    assert needed <= count <= max(published, needed)


@given(load=st.floats(0.01, 500.0), swings=st.lists(st.floats(1.0, 0.849 / 0.75), min_size=2))
def test_a_swing_inside_the_dead_band_never_shrinks_a_pool(
    load: float, swings: list[float]
) -> None:
    def needed(load: float) -> int:
        return max(1, math.ceil(load / 0.85))

    count, counts = 0, []
    for swing in swings:
        now = load * swing
        count = resize(count, needed(now), needed(now * 0.85 / 0.75))
        counts.append(count)
    assert counts == sorted(counts)


def test_a_pool_shrinks_once_the_rest_would_run_below_the_dead_band() -> None:
    published = 10
    for load, expected in ((6.76, 10), (6.74, 8)):
        needed, higher = math.ceil(load / 0.85), math.ceil(load / 0.75)
        assert resize(published, needed, higher) == expected


def test_loads_at_the_planned_counts_are_the_planned_utilisation() -> None:
    workload = short_traffic(500.0)
    chosen = plan(workload, REQUEST)
    assert isinstance(chosen, Plan)
    assert chosen.long is not None
    loads = pool_loads(plan_record(chosen), workload, REQUEST)
    assert loads == pytest.approx((chosen.short.utilization, chosen.long.utilization))
    doubled = pool_loads(plan_record(chosen), short_traffic(1_000.0), REQUEST)
    assert doubled == pytest.approx([2 * load for load in loads or ()])


def test_a_boundary_above_a_new_long_context_can_not_stay() -> None:
    chosen = plan(short_traffic(), REQUEST)
    assert isinstance(chosen, Plan)
    record = plan_record(chosen)
    assert can_stay(record, REQUEST)
    smaller = replace(REQUEST, long_context_tokens=record.boundary_tokens)
    assert not can_stay(record, smaller)
    assert pool_loads(record, short_traffic(), smaller) is None
