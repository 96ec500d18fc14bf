"""The replanner: what it publishes, holds, moves and tells, event by event."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetopt.errors import ConfigError, InputError
from fleetopt.planner.drift import DriftRule
from fleetopt.planner.fixed import needed_at
from fleetopt.planner.plan import Admission, Plan, loads, plan, plan_pinned
from fleetopt.planner.recommendation import (
    AlertKind,
    Confidence,
    DriftState,
    PlanRecord,
    PublishReason,
    Recommendation,
    Status,
)
from fleetopt.planner.replanner import (
    Event,
    Idle,
    Observed,
    Publish,
    ReplanConfig,
    ReplannerState,
    Silent,
    Trigger,
    overloaded,
    resume,
    step,
)
from fleetopt.planner.target import TtftTarget
from tests.planner.traffic import (
    CONFIG,
    ENGINE,
    NO_TRAFFIC,
    REQUEST,
    START_S,
    Fleet,
    long_traffic,
    observed,
    requests,
    short_traffic,
    window,
)

NOTHING = Observed(None, None)
IMPOSSIBLE = replace(CONFIG, request=replace(REQUEST, slo_ttft_p99=TtftTarget(0.001)))


def planned(rate_per_s: float = 100.0, config: ReplanConfig = CONFIG) -> Fleet:
    """A fleet with its first plan, for short traffic."""
    fleet = Fleet(config)
    fleet.see(short_traffic(rate_per_s), 0)
    return fleet


# The first plan


@pytest.mark.parametrize("event", [NOTHING, Observed(NO_TRAFFIC, window(0))])
def test_before_the_first_data_there_is_no_plan_and_no_alarm(event: Observed) -> None:
    assert step(ReplannerState(), event, START_S, CONFIG) == (ReplannerState(), ())


def test_a_fleet_that_never_spoke_is_told_of_once_and_not_planned() -> None:
    state, effects = step(ReplannerState(), Silent(START_S), START_S + 300.0, CONFIG)
    (alert,) = effects
    assert not isinstance(alert, Publish)
    assert alert.kind is AlertKind.TRAFFIC_UNKNOWN
    assert state.last is None
    assert step(state, Silent(START_S), START_S + 330.0, CONFIG) == (state, ())


def test_the_first_data_give_the_best_plan() -> None:
    first = planned().last
    best = plan(short_traffic(), REQUEST)
    assert isinstance(best, Plan)
    assert first.revision == 1
    assert first.status is Status.OK
    assert first.reasons == (PublishReason.INTERVAL, PublishReason.FIRST_PLAN)
    assert (first.boundary_tokens, first.gamma) == (best.boundary_tokens, best.gamma)
    assert (first.short_replicas, first.long_replicas) == (best.short_replicas, best.long_replicas)
    assert first.cost_usd_per_h == pytest.approx(best.cost_usd_per_h)
    assert first.valid_until_s == first.computed_at_s + CONFIG.valid_for_s


def test_a_plan_on_few_requests_says_so() -> None:
    fleet = Fleet()
    fleet.see(short_traffic(), 0, samples=200)
    assert fleet.last.confidence is Confidence.LOW
    assert fleet.last.drift.state is DriftState.INSUFFICIENT_DATA
    assert PublishReason.INSUFFICIENT_DATA in fleet.last.reasons


# Unknown is not zero


@pytest.mark.parametrize(
    "event", [NOTHING, Observed(NO_TRAFFIC, window(1)), Silent(START_S + 10.0)]
)
def test_unknown_traffic_holds_the_last_plan_and_marks_it_stale(event: Event) -> None:
    fleet = planned()
    before = fleet.last
    state, effects = step(fleet.state, event, START_S + 500.0, CONFIG)
    publish, alert = effects
    assert isinstance(publish, Publish)
    after = publish.recommendation
    assert not isinstance(alert, Publish)
    assert alert.kind is AlertKind.TRAFFIC_UNKNOWN
    assert after == replace(
        before,
        revision=before.revision + 1,
        status=Status.STALE,
        published_at_s=START_S + 500.0,
        reasons=(PublishReason.TRAFFIC_UNKNOWN, PublishReason.HELD_LAST_PLAN),
        alerts=after.alerts,
    )
    assert step(state, event, START_S + 530.0, CONFIG) == (state, ())


def test_traffic_that_returns_is_planned_again() -> None:
    fleet = planned()
    fleet.take(NOTHING, START_S + 500.0)
    fleet.see(short_traffic(), 10)
    assert fleet.last.status is Status.OK
    assert PublishReason.TRAFFIC_RETURNED in fleet.last.reasons
    assert [effect.kind for effect in fleet.resolved] == [AlertKind.TRAFFIC_UNKNOWN]
    assert fleet.last.alerts == ()


# The boundary


def test_the_boundary_moves_on_the_second_window_and_says_why() -> None:
    fleet = planned()
    old = fleet.last.boundary_tokens
    fleet.see(long_traffic(), 1)
    assert fleet.last.boundary_tokens == old
    assert fleet.last.drift.state is DriftState.SUSPECTED
    assert fleet.last.regret_ratio is not None
    assert fleet.last.regret_ratio > CONFIG.drift.max_regret
    fleet.see(long_traffic(), 2)
    new = fleet.last.boundary_tokens
    assert new != old
    assert {PublishReason.DRIFT_DETECTED, PublishReason.BOUNDARY_MOVED} <= {*fleet.last.reasons}
    (alert,) = fleet.raised
    details = dict(alert.details)
    assert alert.kind is AlertKind.BOUNDARY_DRIFT
    assert f"from {old} to {new} tokens" in alert.text
    assert details["regret_ratio"] == fleet.last.regret_ratio
    assert float(details["saving_usd_per_h"]) > 0.0
    assert int(details["p50_tokens_after"]) > int(details["p50_tokens_before"])
    assert fleet.last.active == fleet.last.optimal
    assert fleet.last.boundary_since_s == fleet.last.computed_at_s


def test_replanning_twice_within_a_slice_moves_nothing() -> None:
    fleet = planned()
    old = fleet.last.boundary_tokens
    for _ in range(5):
        fleet.see(long_traffic(), 1)
    assert fleet.last.boundary_tokens == old
    assert fleet.last.drift.windows_in_row == 1


def test_few_requests_never_move_the_boundary() -> None:
    fleet = planned()
    old = fleet.last.boundary_tokens
    for index in range(1, 6):
        fleet.see(long_traffic(), index, samples=1_499)
        assert fleet.last.boundary_tokens == old
        assert fleet.last.drift.state is DriftState.INSUFFICIENT_DATA


def test_the_drift_alert_is_cleared_by_another_window() -> None:
    fleet = planned()
    for index in (1, 2):
        fleet.see(long_traffic(), index)
    fleet.see(long_traffic(), 2)
    assert fleet.resolved == []
    fleet.see(long_traffic(), 3)
    assert [effect.kind for effect in fleet.resolved] == [AlertKind.BOUNDARY_DRIFT]
    assert PublishReason.DRIFT_CLEARED in fleet.last.reasons
    assert fleet.last.boundary_lengths is not None


def test_a_boundary_that_can_no_longer_serve_is_left_at_once() -> None:
    free = plan(long_traffic(), REQUEST)
    pinned = plan_pinned(long_traffic(), REQUEST, planned().last.boundary_tokens or 0)
    assert isinstance(free, Plan)
    assert isinstance(pinned, Plan)
    most = max(free.short_replicas, free.long_replicas)
    assert most < max(pinned.short_replicas, pinned.long_replicas)
    fleet = planned(config=replace(CONFIG, request=replace(REQUEST, max_replicas=most)))
    fleet.see(long_traffic(), 1, samples=10)
    assert fleet.last.boundary_tokens == free.boundary_tokens
    assert PublishReason.PINNED_BOUNDARY_INFEASIBLE in fleet.last.reasons
    assert fleet.last.regret_ratio is None
    (alert,) = fleet.raised
    assert "can no longer serve" in alert.text


def test_from_one_pool_to_two_is_a_move_of_the_boundary() -> None:
    statistical = replace(REQUEST, admission=Admission.STATISTICAL, gamma_max=1.0)
    fleet = planned(config=replace(CONFIG, request=statistical))
    assert fleet.last.boundary_tokens == REQUEST.long_context_tokens
    assert (fleet.last.gamma, fleet.last.long_replicas) == (1.0, 0)
    fleet.config = CONFIG
    fleet.see(short_traffic(), 1)
    assert fleet.last.long_replicas == 0
    fleet.see(short_traffic(), 2)
    assert fleet.last.long_replicas != 0
    assert [alert.kind for alert in fleet.raised] == [AlertKind.BOUNDARY_DRIFT]


def test_a_new_long_context_places_the_boundary_anew() -> None:
    fleet = planned()
    fleet.config = replace(CONFIG, request=replace(REQUEST, long_context_tokens=4_096))
    fleet.see(requests(200), 1)
    assert PublishReason.CONFIGURATION_CHANGED in fleet.last.reasons
    assert (fleet.last.boundary_tokens or 0) <= 4_096


# Replicas


def test_counts_grow_at_once_and_stay_inside_the_dead_band() -> None:
    fleet = planned(1_000.0)
    low = fleet.counts
    fleet.see(short_traffic(1_100.0), 1)
    high = fleet.counts
    assert high > low
    for index in range(2, 10):
        fleet.see(short_traffic(1_000.0 if index % 2 else 1_100.0), index)
        assert fleet.counts == high
    assert PublishReason.REPLICAS_HELD_IN_DEAD_BAND in fleet.last.reasons
    fleet.see(short_traffic(700.0), 10)
    assert PublishReason.REPLICAS_SHRANK in fleet.last.reasons
    assert sum(n or 0 for n in fleet.counts) < sum(n or 0 for n in low)


def test_figures_are_those_of_the_published_replicas() -> None:
    fleet = planned(1_100.0)
    fleet.see(short_traffic(1_000.0), 1)
    active = fleet.last.active
    assert active is not None
    assert active.long is not None
    assert active.short.replicas > active.short.needed_replicas
    assert (active.short.utilization, active.long.utilization) == pytest.approx(
        loads(
            short_traffic(1_000.0),
            REQUEST,
            active.boundary_tokens,
            active.gamma,
            active.short.replicas,
            active.long.replicas,
        )
    )
    assert active.gpus == active.short.replicas + active.long.replicas
    assert active.gpu_cost_usd_per_h == pytest.approx(active.gpus * ENGINE.price_usd_per_gpu_h)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(
    median=st.sampled_from([400, 800, 1_500, 3_000]),
    rate=st.floats(1.0, 2_000.0),
    swings=st.lists(st.floats(1.0, 1.13), min_size=3, max_size=8),
)
def test_a_load_that_swings_inside_the_dead_band_flaps_no_counts(
    median: int, rate: float, swings: list[float]
) -> None:
    fleet = Fleet()
    seen: list[PlanRecord] = []
    for index, swing in enumerate(swings):
        fleet.see(requests(median).scaled_to(rate * swing), index)
        assert fleet.last.active is not None
        seen.append(fleet.last.active)
    for earlier, later in pairwise(seen):
        if (earlier.boundary_tokens, earlier.gamma) == (later.boundary_tokens, later.gamma):
            assert later.short.replicas >= earlier.short.replicas
            assert later.long_replicas >= earlier.long_replicas


def test_a_larger_limit_than_published_is_cut_to_it() -> None:
    fleet = planned(1_000.0)
    fleet.see(short_traffic(950.0), 1)
    assert fleet.last.active is not None
    needed = fleet.last.active.short.needed_replicas
    fleet.config = replace(CONFIG, request=replace(REQUEST, max_replicas=needed))
    fleet.see(short_traffic(950.0), 2)
    assert fleet.last.short_replicas == needed


def test_another_engine_gets_the_replicas_that_it_needs() -> None:
    fleet = planned(1_000.0)
    larger = replace(ENGINE, name="a100/llama/large", kv_capacity_tokens=2**23)
    fleet.config = replace(
        CONFIG, request=replace(REQUEST, short_profile=larger, long_profile=larger)
    )
    fleet.see(short_traffic(990.0), 1)
    active = fleet.last.active
    assert active is not None
    assert active.short.profile == larger.name
    assert active.short.replicas == active.short.needed_replicas


# Load


def test_an_overload_is_seen_and_answered_at_once() -> None:
    fleet = planned(100.0)
    assert not overloaded(fleet.state, short_traffic(100.0), REQUEST)
    assert overloaded(fleet.state, short_traffic(200.0), REQUEST)
    low = fleet.counts
    fleet.see(short_traffic(200.0), 0, Trigger.LOAD)
    assert fleet.last.reasons[0] is PublishReason.LOAD_CROSSED_LIMIT
    assert fleet.counts > low
    assert not overloaded(fleet.state, short_traffic(200.0), REQUEST)


def test_a_load_event_never_shrinks_and_says_nothing_when_nothing_changes() -> None:
    fleet = planned(1_000.0)
    before = fleet.state
    assert fleet.see(short_traffic(300.0), 1, Trigger.LOAD) is None
    assert (fleet.state, fleet.effects) == (before, ())


def test_unknown_traffic_is_no_overload() -> None:
    assert not overloaded(ReplannerState(), short_traffic(), REQUEST)
    fleet = planned()
    assert not overloaded(fleet.state, None, REQUEST)
    assert not overloaded(fleet.state, NO_TRAFFIC, REQUEST)


def test_idle_traffic_keeps_the_plan_fresh_and_ends_the_alarm() -> None:
    fleet = planned()
    fleet.take(NOTHING, START_S + 500.0)
    before = fleet.last
    assert before.status is Status.STALE
    now_s = START_S + 530.0
    fleet.take(Idle(window(0)), now_s)
    after = fleet.last
    assert after.status is Status.OK
    assert after.alerts == ()
    assert PublishReason.IDLE_CONFIRMED in after.reasons
    assert after.active == before.active
    assert after.valid_until_s == now_s + CONFIG.valid_for_s


def test_idle_traffic_before_the_first_plan_plans_nothing() -> None:
    assert step(ReplannerState(), Idle(window(0)), START_S, CONFIG) == (ReplannerState(), ())


# Infeasible


def test_a_target_out_of_reach_is_published_as_such_without_counts() -> None:
    fleet = Fleet(IMPOSSIBLE)
    fleet.see(short_traffic(), 0)
    assert fleet.last.status is Status.INFEASIBLE
    assert fleet.counts == (None, None)
    assert fleet.last.infeasible is not None
    tightest = fleet.last.infeasible.tightest_slo
    assert tightest is not None
    assert isinstance(
        plan(short_traffic(), replace(REQUEST, slo_ttft_p99=TtftTarget.parse(tightest))), Plan
    )
    (alert,) = fleet.raised
    assert alert.kind is AlertKind.SLO_INFEASIBLE
    assert tightest in alert.text
    fleet.see(short_traffic(), 1)
    assert fleet.raised == []
    assert fleet.last.revision == 2


def test_an_infeasible_target_holds_the_last_good_counts() -> None:
    fleet = planned()
    good = fleet.last
    fleet.config = IMPOSSIBLE
    fleet.see(short_traffic(), 1)
    assert fleet.last.status is Status.INFEASIBLE
    assert fleet.last.active == good.active
    assert PublishReason.HELD_LAST_PLAN in fleet.last.reasons
    assert fleet.see(short_traffic(), 1, Trigger.LOAD) is None
    fleet.config = CONFIG
    again = fleet.see(short_traffic(), 2)
    assert again is not None
    assert again.status is Status.OK
    assert PublishReason.SLO_FEASIBLE_AGAIN in fleet.last.reasons
    assert [effect.kind for effect in fleet.resolved] == [AlertKind.SLO_INFEASIBLE]


def test_silence_after_an_infeasible_start_invents_no_counts() -> None:
    fleet = Fleet(IMPOSSIBLE)
    fleet.see(short_traffic(), 0)
    fleet.take(NOTHING, START_S + 500.0)
    assert fleet.last.status is Status.INFEASIBLE
    assert fleet.last.reasons == (PublishReason.TRAFFIC_UNKNOWN,)
    assert fleet.counts == (None, None)


# Laws over any sequence of events

WORKLOADS = st.builds(
    lambda median, rate: requests(median).scaled_to(rate),
    st.sampled_from([300, 800, 5_000]),
    st.floats(0.5, 3_000.0),
)
EVENTS = st.one_of(
    st.just(NOTHING),
    st.builds(Silent, st.floats(0.0, 1e9)),
    st.builds(
        observed,
        WORKLOADS,
        st.integers(0, 5),
        st.sampled_from(Trigger),
        st.sampled_from([200, 5_000]),
    ),
)
CONFIGS = st.sampled_from([CONFIG, CONFIG, CONFIG, IMPOSSIBLE])


def _replayed(recommendation: Recommendation | None) -> ReplannerState:
    """What another owner makes of the publication that it reads."""
    if recommendation is None:
        return resume(None)
    text = msgspec.json.encode(recommendation)
    return resume(msgspec.json.decode(text, type=Recommendation))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(EVENTS, CONFIGS), max_size=8))
def test_laws_of_every_step(steps: list[tuple[Event, ReplanConfig]]) -> None:
    state = ReplannerState()
    for index, (event, config) in enumerate(steps):
        now_s = START_S + 60.0 * index
        before, (state, effects) = state, step(state, event, now_s, config)
        assert (state, effects) == step(before, event, now_s, config)
        if before.last is not None:
            assert (state, effects) == step(_replayed(before.last), event, now_s, config)
        published = [e.recommendation for e in effects if isinstance(e, Publish)]
        assert len(published) <= 1
        if not published:
            assert state.last == before.last
            continue
        (now,) = published
        assert isinstance(effects[0], Publish)
        assert now == state.last
        assert now.alerts == state.alerts
        assert now.revision == (before.last.revision + 1 if before.last else 1)
        assert now.regret_ratio is None or now.regret_ratio >= 0.0
        if now.status is not Status.OK:
            held = before.last.active if before.last else None
            assert now.active == held
            continue
        assert isinstance(event, Observed)
        assert event.workload is not None
        _is_enough(now, event, config)


def _is_enough(now: Recommendation, event: Observed, config: ReplanConfig) -> None:
    """The published counts carry the workload within the limits, at the published B and γ."""
    workload, active = event.workload, now.active
    assert workload is not None
    assert active is not None
    needed = needed_at(workload, config.request, active.boundary_tokens, active.gamma)
    assert needed is not None
    assert active.short.replicas >= needed.short_replicas >= 1
    assert active.long_replicas >= needed.long_replicas
    utilizations = loads(
        workload,
        config.request,
        active.boundary_tokens,
        active.gamma,
        active.short.replicas,
        active.long_replicas,
    )
    assert max(utilizations) <= config.request.max_utilization * (1 + 1e-9)
    pinned = plan_pinned(workload, config.request, active.boundary_tokens)
    assert isinstance(pinned, Plan)
    assert active.cost_usd_per_h >= pinned.cost_usd_per_h * (1 - 1e-9)


# What is refused


def test_another_fleets_state_is_refused() -> None:
    with pytest.raises(InputError, match=r"'chat'.*'code'"):
        step(planned().state, NOTHING, START_S, replace(CONFIG, fleet="code"))


def test_a_workload_without_evidence_is_refused() -> None:
    with pytest.raises(InputError, match="without its evidence"):
        step(ReplannerState(), Observed(short_traffic(), None), START_S, CONFIG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fleet": ""}, "fleet is empty"),
        ({"valid_for_s": 0.0}, "valid_for_s is 0.0"),
        ({"shrink_utilization": 0.85}, "less than max_utilization=0.85"),
        ({"request": replace(REQUEST, boundary_tokens=4_096)}, "leave it out"),
    ],
)
def test_a_configuration_out_of_range_is_refused(change: dict[str, object], message: str) -> None:
    values = {"fleet": "chat", "request": REQUEST, "drift": DriftRule(), **change}
    with pytest.raises(ConfigError, match=message):
        ReplanConfig(**values)  # type: ignore[arg-type]


def test_the_dead_band_follows_its_setting() -> None:
    assert CONFIG.dead_band_ratio == pytest.approx(0.85 / 0.75)
    assert replace(CONFIG, shrink_utilization=0.5).dead_band_ratio == pytest.approx(1.7)
