"""What a plan depends on, and whether pools answer as their profiles say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleetopt.planner.drift import DriftRule
from fleetopt.planner.effects import Observed, RaiseAlert, ResolveAlert
from fleetopt.planner.fixed import best
from fleetopt.planner.profile_check import MIN_REQUESTS
from fleetopt.planner.profile_effects import profile_effects, worsened
from fleetopt.planner.recommendation import AlertKind, CheckState, Recommendation
from fleetopt.planner.replanner import ReplanConfig, ReplannerState, step
from fleetopt.planner.ttft_counts import TtftCounts, ttft_cells, ttft_counts
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, chat, request_for
from tests.planner.traffic import window

REQUEST = request_for(H100, "1s")
CONFIG = ReplanConfig(
    fleet="chat", request=REQUEST, drift=DriftRule(confirm_advance_s=120.0, confirm_windows=2)
)
WORKLOAD = Workload.from_requests(*chat(4_000), 200.0)


def ttfts(recommendation: Recommendation, factor: float, requests: int = 4_000) -> TtftCounts:
    """Times to first token whose P99s are the predicted ones times a factor."""
    active = recommendation.active
    assert active is not None
    counts = []
    for row, pool in enumerate((active.short, active.long)):
        if pool is not None and pool.ttft_p99_s is not None:
            seconds = np.linspace(0.05, 1.0, requests) * pool.ttft_p99_s * factor / 0.99
            counts.append(ttft_counts(ttft_cells(seconds, np.full(requests, row))))
    return np.asarray(np.sum(counts, axis=0))


class Seen:
    """A fleet that is planned, window by window."""

    def __init__(self) -> None:
        self.state = ReplannerState()
        self.alerts: list[RaiseAlert | ResolveAlert] = []

    @property
    def last(self) -> Recommendation:
        assert self.state.last is not None
        return self.state.last

    def see(self, index: int, factor: float | None, requests: int = 4_000) -> None:
        counts = None if factor is None or not index else ttfts(self.last, factor, requests)
        event = Observed(WORKLOAD, window(index, WORKLOAD), ttfts=counts)
        now_s = window(index).window_to_s
        self.state, effects = step(self.state, event, now_s, CONFIG)
        self.alerts += [one for one in effects if isinstance(one, RaiseAlert | ResolveAlert)]

    def kinds(self) -> list[AlertKind]:
        return [one.kind for one in self.alerts]


def test_slow_first_tokens_are_told_once_with_what_to_measure() -> None:
    fleet = Seen()
    for index in range(0, 12, 2):
        fleet.see(index, 4.0)
    assert fleet.kinds() == [AlertKind.PROFILE_MISMATCH]
    (alert,) = fleet.alerts
    assert isinstance(alert, RaiseAlert)
    assert H100.name in alert.text
    assert "Worth measuring" in alert.text
    assert "replica is missing" in alert.text
    assert dict(alert.details)["pool"] == "short"
    assert any(one.state is CheckState.OUTSIDE for one in fleet.last.profile_checks)
    for index in range(12, 16, 2):
        fleet.see(index, 1.0)
    assert fleet.kinds() == [AlertKind.PROFILE_MISMATCH] * 2
    assert isinstance(fleet.alerts[1], ResolveAlert)


def test_first_tokens_that_are_too_fast_are_told_too() -> None:
    fleet = Seen()
    for index in range(0, 8, 2):
        fleet.see(index, 0.2)
    assert fleet.kinds() == [AlertKind.PROFILE_MISMATCH]


def test_what_is_predicted_is_no_news() -> None:
    fleet = Seen()
    for index in range(0, 12, 2):
        fleet.see(index, 1.0)
    assert fleet.kinds() == []
    assert {one.state for one in fleet.last.profile_checks} == {CheckState.INSIDE}


def test_one_window_alone_is_a_suspicion() -> None:
    fleet = Seen()
    fleet.see(0, None)
    fleet.see(2, 4.0)
    fleet.see(3, 4.0)  # less than two slices later: the same evidence again
    assert {one.state for one in fleet.last.profile_checks} == {CheckState.SUSPECTED}
    assert fleet.kinds() == []


@pytest.mark.parametrize(("factor", "requests"), [(None, 1), (4.0, MIN_REQUESTS - 1)])
def test_unknown_first_tokens_say_nothing(factor: float | None, requests: int) -> None:
    fleet = Seen()
    for index in range(0, 8, 2):
        fleet.see(index, factor, requests)
    assert fleet.kinds() == []
    assert {one.state for one in fleet.last.profile_checks} <= {CheckState.UNKNOWN}


def test_a_recommendation_says_what_it_depends_on() -> None:
    fleet = Seen()
    fleet.see(0, None)
    effects = fleet.last.depends_on
    assert 0 < len(effects) <= 3
    ratios = [one.cost_ratio for one in effects if one.cost_ratio is not None]
    assert ratios == sorted(ratios, reverse=True)
    assert all(0.0 < one < 0.3 for one in ratios)
    fleet.see(2, None)
    assert fleet.last.depends_on == effects


def test_an_effect_is_what_planning_anew_costs() -> None:
    effects = profile_effects(WORKLOAD, REQUEST)
    large = WORKLOAD.scaled_to(20_000.0)
    now = best(large, REQUEST, None)
    assert now is not None
    for one in effects:
        worse = worsened(H100, one.figure, 1.1)
        assert worse is not None
        then = best(large, replace(REQUEST, short_profile=worse, long_profile=worse), None)
        assert then is not None
        assert one.cost_ratio == pytest.approx(then.cost_per_h / now.cost_per_h - 1.0, abs=0.03)


def test_less_cache_is_worse_and_nothing_stays_nothing() -> None:
    fewer = worsened(H100, "kv_capacity_tokens", 1.1)
    assert fewer is not None
    assert fewer.kv_capacity_tokens < H100.kv_capacity_tokens
    assert worsened(replace(H100, per_sequence_s=0.0), "per_sequence_s", 1.1) is None
