"""Replicas that are up are whole, for the plan as for the simulation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.availability import replicas_for, replicas_up
from fleetopt.planner.plan import Plan, loads, plan
from fleetopt.planner.simulate.draw import poisson_stream
from fleetopt.planner.simulate.fleet import SimulatedFleet
from fleetopt.planner.simulate.simulation import simulate
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, request_for


@given(st.integers(0, 100_000), st.floats(0.01, 1.0))
def test_the_fewest_replicas_have_as_many_up_as_asked_for(up: int, availability: float) -> None:
    needed = replicas_for(float(up), availability)
    assert replicas_up(needed, availability) >= up
    assert up < 2 or replicas_up(needed - 1.0, availability) < up
    assert needed == math.floor(needed)


@pytest.mark.parametrize("availability", [0.5, 0.7, 0.9, 0.97])
def test_a_small_fleet_holds_its_load_with_the_replicas_that_are_up(availability: float) -> None:
    workload = Workload.from_requests([600] * 9 + [14_000], [150] * 9 + [300], 20.0)
    request = request_for(H100, "2s", node_availability=availability, gamma_max=1.0)
    found = plan(workload, request)
    assert isinstance(found, Plan)
    seen = simulate(SimulatedFleet.of_plan(found, request), poisson_stream(workload, 20_000, 1))
    assert not seen.is_diverging
    for predicted, pool in zip(found.pools, seen.pools, strict=True):
        assert pool.utilization == pytest.approx(predicted.utilization, rel=0.05)
        assert pool.ttft is not None
        assert pool.ttft.p99_s < 2.0


def test_a_fleet_of_any_size_is_as_loaded_as_what_of_it_is_up() -> None:
    workload = Workload.from_requests([600] * 9 + [14_000], [150] * 9 + [300], 20.0)
    all_up, some_down = request_for(H100), request_for(H100, node_availability=0.9)
    (three, _), (two, _), (one, _) = (
        loads(workload, all_up, 32_768, 1.0, count, 0) for count in (3, 2, 1)
    )
    assert loads(workload, some_down, 32_768, 1.0, 4, 0) == (three, 0.0)
    assert loads(workload, some_down, 32_768, 1.0, 3, 0) == (two, 0.0)
    assert loads(workload, some_down, 32_768, 1.0, 1, 0) == (one, 0.0)
    assert loads(workload, some_down, 32_768, 1.0, 0, 0) == (math.inf, 0.0)
