"""A target for all requests of a fleet together, against every pair of counts there is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from fleetopt.errors import ConfigError
from fleetopt.planner.figures import fleet_at
from fleetopt.planner.grid import ONE_POOL, Grid, build
from fleetopt.planner.many_pools import many_pools
from fleetopt.planner.outcome import Plan
from fleetopt.planner.plan import plan
from fleetopt.planner.pool import late_shares, least_replicas
from fleetopt.planner.request import PlanRequest, SloScope
from fleetopt.planner.search import cells_at, cheapest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.simulate.draw import resampled_stream
from fleetopt.planner.simulate.fleet import SimulatedFleet
from fleetopt.planner.simulate.simulation import simulate
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.workload import Workload
from tests.planner.examples import (
    H100,
    PATIENT,
    code,
    long_context,
    request_for,
    requests,
    workloads,
)


def by_enumeration(grid: Grid, cell: int, most: int) -> float:
    """The lowest cost of one cell over all pairs of up to `most` more replicas than the least."""
    request = grid.request
    cells = np.array([cell])
    sides = (grid.short_pools(cells), grid.long_pools(cells))
    requests_per_s = np.array([float(one.sums.per_s[REQUESTS, 0]) for one in sides])
    weights = requests_per_s / requests_per_s.sum()
    least = [int(least_replicas(one.load, request)[0]) for one in sides]
    over = [
        np.stack(
            [
                late_shares(one, np.full(1, float(first + more)), request, grid.bursts)[:, 0]
                for more in range(most)
            ]
        )
        for one, first in zip(sides, least, strict=True)
    ]
    rates = (request.short_rate, request.long_rate)
    fixed = grid.moved[0, cell] * request.compression_penalty * 3_600
    fixed += sum(rate.per_load * float(one.load[0]) for rate, one in zip(rates, sides, strict=True))
    best = np.inf
    for short in range(most):
        for long in range(most):
            late = weights[0] * over[0][short] + weights[1] * over[1][long]
            if np.all(late <= 0.01):
                paid = (least[0] + short) * rates[0].per_replica
                paid += (least[1] + long) * rates[1].per_replica
                best = min(best, paid + fixed)
    return best


@pytest.mark.parametrize("target", ["700ms", "1s", "3s", "200ms+0.15ms/token"])
@pytest.mark.parametrize("rate", [2.0, 12.0])
def test_no_pair_of_counts_is_cheaper(target: str, rate: float) -> None:
    request = request_for(H100, target, slo_scope=SloScope.FLEET, gamma_max=1.0)
    grid = build(Workload.from_requests(*long_context(4_000), rate), request)
    cells = cells_at(grid, None)
    two = cells[cells != ONE_POOL]
    best = min(by_enumeration(grid, int(cell), 14) for cell in two[::5])
    found = cheapest(grid, two[::5])
    if found is None:
        assert not np.isfinite(best)
    else:
        assert found.cost_per_h == pytest.approx(best, rel=1e-9)


@settings(PATIENT, max_examples=40)
@given(workloads(), requests())
def test_a_fleet_never_costs_more_than_its_pools_apart(
    workload: Workload, request: PlanRequest
) -> None:
    apart = plan(workload, request)
    together = plan(workload, replace(request, slo_scope=SloScope.FLEET))
    if isinstance(apart, Plan):
        assert isinstance(together, Plan)
        assert together.minimised_per_h <= apart.minimised_per_h * (1.0 + 1e-9)
    if isinstance(together, Plan):
        assert together.ttft_violation_share <= 0.01 * (1.0 + 1e-6)


def test_the_shares_of_both_pools_add_up() -> None:
    workload = Workload.from_requests(*code(4_000), 50.0)
    request = request_for(H100, "1s")
    found = fleet_at(workload, request, 4_096, 1.0, (6, 4))
    assert found.long is not None
    rates = [one.arrival_rate_per_s for one in (found.short, found.long)]
    late = [one.ttft_violation_share for one in (found.short, found.long)]
    assert found.ttft_violation_share == pytest.approx(np.average(late, weights=rates))


def test_a_pool_that_few_requests_reach_may_be_later() -> None:
    """Nobody can prefill the longest prompts in time, but these are fewer than one in a hundred."""
    prompt = np.concatenate([np.full(995, 400), np.full(5, 30_000)])
    workload = Workload.from_requests(prompt, np.full(1_000, 100), 40.0)
    request = request_for(H100, "600ms", gamma_max=1.0, boundary_tokens=1_024)
    apart = plan(workload, request)
    together = plan(workload, replace(request, slo_scope=SloScope.FLEET))
    assert not isinstance(apart, Plan)
    assert isinstance(together, Plan)
    assert together.long is not None
    assert together.long.ttft_violation_share == pytest.approx(1.0)
    assert together.short.ttft_violation_share < 0.006


def test_a_simulation_keeps_the_target_of_all_requests_together() -> None:
    prompt, completion = long_context(20_000)
    request = request_for(H100, "5s", slo_scope=SloScope.FLEET, gamma_max=1.0)
    found = plan(Workload.from_requests(prompt, completion, 20.0), request)
    assert isinstance(found, Plan)
    nothing = np.zeros(prompt.size, dtype=np.int64)
    recorded = RequestStream(
        np.arange(prompt.size, dtype=float), prompt, completion, nothing, nothing
    )
    stream = resampled_stream(recorded, 20.0, 12_000, 5)
    pools = simulate(SimulatedFleet.of_plan(found, request), stream).pools
    late = sum(one.ttft_violation_share * one.requests for one in pools)
    assert late / sum(one.requests for one in pools) <= 0.013


def test_more_pools_than_two_have_a_target_each() -> None:
    workload = Workload.from_requests(*code(1_000), 20.0)
    with pytest.raises(ConfigError, match="slo_scope"):
        many_pools(workload, request_for(H100, "1s", slo_scope=SloScope.FLEET), 3)
