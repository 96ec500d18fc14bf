"""Targets end to end and between tokens: predictions, sizes, reasons, and what is out of reach."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleetopt.errors import ConfigError
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.length_points import length_points
from fleetopt.planner.moments import COMPLETION, COUNT, PROMPT
from fleetopt.planner.outcome import Binding, Infeasible, InfeasibleReason, Plan, ReasonCode
from fleetopt.planner.plan import plan
from fleetopt.planner.pool import further_shares, least_replicas
from fleetopt.planner.recommendation import PoolRecord
from fleetopt.planner.record import infeasible_record, pool_record
from fleetopt.planner.report import pool_plan
from fleetopt.planner.simulate.fleet import SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.simulation import simulate
from fleetopt.planner.target import VIOLATIONS_MAX, E2eTarget, TtftTarget, gap_text, parse_gap_s
from fleetopt.planner.workload import Workload
from tests.planner.examples import (
    H100,
    PAPER,
    PATIENT,
    Tokens,
    chat,
    code,
    engines,
    long_context,
    request_for,
    workloads,
)
from tests.planner.simulate.examples import poisson

CASES = [
    (H100, chat(), 20.0, 4, 150),
    (H100, chat(), 60.0, 8, 150),
    (H100, code(), 30.0, 8, 100),
    (H100, long_context(12_000), 8.0, 16, 20),
    (PAPER, chat(), 60.0, 4, 120),
]


def found(request_changes: dict[str, object], rate: float = 100.0) -> Plan:
    planned = plan(
        Workload.from_requests(*chat(), rate), request_for(H100, "2s", **request_changes)
    )
    assert isinstance(planned, Plan)
    return planned


@pytest.mark.parametrize(("engine", "traffic", "rate", "replicas", "slots"), CASES)
def test_predictions_are_near_the_simulation_and_rather_above(
    engine: EngineProfile, traffic: tuple[Tokens, Tokens], rate: float, replicas: int, slots: int
) -> None:
    workload = Workload.from_requests(*traffic, rate)
    grid = build(workload, request_for(engine))
    pools = grid.long_pools(np.array([ONE_POOL]))
    predicted = pool_plan("short", pools, 32_768, replicas, grid)
    only = SimulatedPool("short", engine, 32_768, replicas, slots, is_paged=False)
    fleet = SimulatedFleet(only, None, 32_768, 32_768, 0.0, TtftTarget(60.0))
    seen = simulate(fleet, poisson(traffic, rate, 20_000)).pools[0]
    assert seen.e2e is not None
    assert seen.inter_token is not None
    assert 0.95 * seen.inter_token.p99_s <= predicted.itl_p99_s <= 1.25 * seen.inter_token.p99_s
    assert 0.93 * seen.e2e.p99_s <= predicted.e2e_p99_s <= 1.35 * seen.e2e.p99_s


def test_a_target_end_to_end_binds_and_one_replica_less_breaks_it() -> None:
    target = E2eTarget(2.0, 0.025)
    planned = found({"slo_e2e_p99": target})
    assert planned.minimised_per_h > found({}).minimised_per_h
    assert Binding.END_TO_END in {pool.binding for pool in planned.pools}
    assert ReasonCode.END_TO_END_BINDS in planned.reasons


@pytest.mark.parametrize("gap_s", [0.03, 0.06, 0.1])
def test_a_target_between_tokens_binds_and_is_met(gap_s: float) -> None:
    planned = found({"slo_itl_p99_s": gap_s})
    assert planned.minimised_per_h > found({}).minimised_per_h
    assert Binding.BETWEEN_TOKENS in {pool.binding for pool in planned.pools}
    assert ReasonCode.BETWEEN_TOKENS_BINDS in planned.reasons
    assert all(pool.itl_p99_s <= gap_s * (1.0 + 1e-3) for pool in planned.pools)


def test_a_constant_target_end_to_end_is_the_predicted_p99_at_most() -> None:
    planned = found({"slo_e2e_p99": E2eTarget(30.0)})
    assert all(pool.e2e_p99_s <= 30.0 * (1.0 + 1e-3) for pool in planned.pools)


def test_loose_targets_change_nothing() -> None:
    loose = found({"slo_e2e_p99": E2eTarget(3_000.0), "slo_itl_p99_s": 100.0})
    assert loose == found({})


@pytest.mark.parametrize(
    "changes", [{"slo_itl_p99_s": 0.1}, {"slo_e2e_p99": E2eTarget(2.0, 0.025)}]
)
def test_each_count_is_the_fewest(changes: dict[str, object]) -> None:
    request = request_for(H100, "2s", boundary_tokens=32_768, **changes)
    workload = Workload.from_requests(*chat(), 100.0)
    planned = plan(workload, request)
    assert isinstance(planned, Plan)
    grid = build(workload, request)
    pools = grid.long_pools(np.array([ONE_POOL]))

    def share(replicas: int) -> float:
        count = np.array([float(replicas)])
        return float(np.maximum(*further_shares(pools, count, request, grid.bursts))[0])

    assert share(planned.short_replicas) <= VIOLATIONS_MAX < share(planned.short_replicas - 1)


@given(workloads(), engines(), st.floats(1e-3, 0.3), st.floats(0.1, 60.0), st.floats(0.0, 0.1))
@PATIENT
def test_more_replicas_never_break_a_target(
    workload: Workload, engine: EngineProfile, gap_s: float, base_s: float, slope_s: float
) -> None:
    request = request_for(engine, slo_itl_p99_s=gap_s, slo_e2e_p99=E2eTarget(base_s, slope_s))
    grid = build(workload, request)
    pools = grid.long_pools(np.array([ONE_POOL]))
    least = least_replicas(pools.load, request)
    assume(np.isfinite(least).all())
    counts = np.unique(np.ceil(least[0] * np.geomspace(1.0, 64.0, 24)))
    many = pools.take(np.zeros(counts.size, dtype=np.intp))
    for share in further_shares(many, counts, request, grid.bursts):
        held = np.minimum(share, 0.5)  # above half of all, one is as bad as the other
        assert (np.diff(held) <= 1e-9).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"slo_e2e_p99": E2eTarget(1.0)}, InfeasibleReason.E2E_UNREACHABLE),
        ({"slo_e2e_p99": E2eTarget(0.05, 0.013)}, InfeasibleReason.E2E_UNREACHABLE),
        ({"slo_itl_p99_s": 0.005}, InfeasibleReason.ITL_UNREACHABLE),
    ],
)
def test_what_is_out_of_reach_names_the_tightest_that_is_not(
    changes: dict[str, object], reason: InfeasibleReason
) -> None:
    workload = Workload.from_requests(*chat(), 50.0)
    request = request_for(H100, "2s", **changes)
    refused = plan(workload, request)
    assert isinstance(refused, Infeasible)
    assert refused.reason is reason
    record = infeasible_record(refused)
    if reason is InfeasibleReason.E2E_UNREACHABLE:
        assert refused.tightest_e2e is not None
        assert record.tightest_e2e == str(refused.tightest_e2e)
        assert str(refused.tightest_e2e) in refused.message
        eased = replace(request, slo_e2e_p99=refused.tightest_e2e)
        tighter = E2eTarget(
            refused.tightest_e2e.base_s - 0.003, refused.tightest_e2e.per_completion_token_s
        )
        assert isinstance(plan(workload, replace(request, slo_e2e_p99=tighter)), Infeasible)
    else:
        assert refused.tightest_itl_s is not None
        assert record.tightest_itl == gap_text(refused.tightest_itl_s)
        assert gap_text(refused.tightest_itl_s) in refused.message
        eased = replace(request, slo_itl_p99_s=refused.tightest_itl_s)
    assert refused.tightest_slo is None
    assert isinstance(plan(workload, eased), Plan)


def test_points_keep_the_means_of_their_bins() -> None:
    values = Workload.from_requests(*chat(), 1.0).moments.values.sum(axis=0).T
    points = length_points(values)
    bins = values.shape[1]
    for row, of_points in ((PROMPT, points.tokens), (COMPLETION, points.completion)):
        mean = np.bincount(points.bin, of_points * points.weight, bins)
        used = values[COUNT] > 0.0
        exact = values[row][used] / values[COUNT][used]
        assert mean[used] == pytest.approx(exact, rel=0.02, abs=2.0)
    total = np.bincount(points.bin, points.weight, bins)
    assert total[values[COUNT] > 0.0] == pytest.approx(1.0)


def test_a_record_from_before_these_targets_still_decodes() -> None:
    record = msgspec.to_builtins(pool_record(found({}).short))
    del record["e2e_p99_s"], record["itl_p99_s"]
    decoded = msgspec.convert(record, PoolRecord)
    assert decoded.e2e_p99_s is None
    assert decoded.itl_p99_s is None


@pytest.mark.parametrize("text", ["", "fast", "0s", "-1ms", "1s+2ms/token"])
def test_what_is_no_time_between_tokens_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^slo_itl_p99 is"):
        parse_gap_s(text)


@pytest.mark.parametrize("text", ["", "fast", "0s", "-1s", "1s+2"])
def test_what_is_no_target_end_to_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^slo_e2e_p99 is"):
        E2eTarget.parse(text)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_between_tokens_out_of_range_is_refused_by_name(value: float) -> None:
    with pytest.raises(ConfigError, match=r"^slo_itl_p99_s is"):
        request_for(H100, slo_itl_p99_s=value)


@given(st.integers(1, 10**6), st.integers(0, 10**5))
def test_what_is_written_is_read_back(base_us: int, slope_ns: int) -> None:
    target = E2eTarget(base_us / 1e6, slope_ns / 1e9)
    again = E2eTarget.parse(str(target))
    assert again.base_s == pytest.approx(target.base_s)
    assert again.per_completion_token_s == pytest.approx(target.per_completion_token_s)
    assert parse_gap_s(gap_text(target.base_s)) == pytest.approx(target.base_s)


def test_nobody_who_fits_waits_for_no_chunk() -> None:
    """All requests are longer than the long context: the pool has nothing to prefill."""
    workload = Workload.from_requests([40_000], [10], 1.0)
    request = request_for(H100, slo_itl_p99_s=1.0, slo_e2e_p99=E2eTarget(60.0))
    grid = build(workload, request)
    pools = grid.long_pools(np.array([ONE_POOL]))
    for share in further_shares(pools, np.array([1.0]), request, grid.bursts):
        assert (share <= VIOLATIONS_MAX).all()
