"""Policies on whole tables: what they cost, and the trap that only some see."""

import numpy as np
import pytest

from fleetopt.planner.sieve.compare import compare
from fleetopt.planner.sieve.grid import Configuration, Grid, RequestClass
from fleetopt.planner.sieve.policies import Policy
from fleetopt.planner.sieve.sieve import Sieve
from fleetopt.planner.sieve.table import Table
from fleetopt.planner.sieve.walk import walk
from tests.planner.sieve.examples import world

SAME = 0.01


@pytest.mark.parametrize("policy", Policy)
def test_a_walk_ends_and_never_costs_more_than_everything(policy: Policy) -> None:
    drawn = world(3, 16)
    grid = drawn.table.grid
    found = walk(policy, Sieve(grid, 16, prior=drawn.prior), drawn.table, 1, SAME)
    everything = grid.repeats * grid.cost_gpu_s.sum()
    assert 0.0 < found.gpu_s_to_oracle <= everything * (1.0 + 1e-12)
    assert 0.0 < found.gpu_s_to_stop <= everything * (1.0 + 1e-12)
    assert found.gpu_s_to_oracle == pytest.approx(found.gpu_s_to_oracle_by_class.sum())


@pytest.mark.parametrize("budget", [16, 32])
@pytest.mark.parametrize("has_prior", [True, False])
def test_the_sieve_needs_less_than_uniform_random(budget: int, has_prior: bool) -> None:
    drawn = world(5, budget)
    sieve = Sieve(drawn.table.grid, budget, prior=drawn.prior if has_prior else None)
    found, everything = compare(
        [Policy.SIEVE, Policy.EXHAUSTIVE], sieve, drawn.table, orders=12, same=SAME
    )
    assert found.saving.low > 0.0
    assert found.gpu_s_to_oracle.mean < everything.gpu_s_to_oracle.mean
    assert found.worst_regret_fulfilment <= sieve.tolerance
    assert found.wrong_certificates == 0


def trap() -> Table:
    """Two GPUs serve most requests per second, but their slowest ones come too late."""
    capacity = np.array([[[1.0], [5.0]]]) * np.array([0.5, 0.75, 1.0])
    p99 = np.array([[[10.0, 12.0, 15.0], [46.4, 47.0, 48.0]]])
    grid = Grid(
        (RequestClass("chat", 16.0, 30.0),),
        (Configuration("tp1", 1), Configuration("tp2", 2)),
        capacity,
        np.full(capacity.shape, 60.0),
    )
    return Table(grid, capacity[..., None], p99[..., None])


def test_only_who_looks_at_the_tail_avoids_the_trap() -> None:
    table = trap()
    sieve = Sieve(table.grid, 16)
    caught = walk(Policy.CAPACITY, sieve, table, 0, SAME)
    warned = walk(Policy.SIEVE, sieve, table, 0, SAME)
    assert caught.regret_fulfilment == pytest.approx(1.0)
    assert warned.regret_fulfilment <= sieve.tolerance
    assert not warned.is_wrong_certificate
