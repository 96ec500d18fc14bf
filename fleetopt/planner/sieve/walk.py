"""One policy's way through a grid, and how far its decisions were from the oracle's."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.allocation import Allocation, allocate, allocation_of
from fleetopt.planner.sieve.decision import Verdict
from fleetopt.planner.sieve.evidence import Evidence
from fleetopt.planner.sieve.policies import Policy, as_seen_by, choose
from fleetopt.planner.sieve.sieve import Sieve
from fleetopt.planner.sieve.table import Table

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Walk:
    """What a policy measured until it was certain, and until its decision was the oracle's."""

    gpu_s_to_oracle: float
    """Until the decision was the oracle's and stayed so."""

    gpu_s_to_oracle_by_class: Array  # shape (classes,)
    gpu_s_to_stop: float
    """Until nothing within the intervals could gain more than the tolerance, or all was run."""

    regret_fulfilment: float  # at the stop: what the oracle gives the worst class more
    regret_per_s: float  # at the stop: what the oracle serves more in all
    is_wrong_certificate: bool
    """The verdict at the stop is certified, and false."""


def walk(policy: Policy, sieve: Sieve, table: Table, seed: int, same: float) -> Walk:
    """Follow a policy through a table's runs, in the random order of a seed.

    Parameters
    ----------
    policy
        Whom to follow. All decide from the same intervals; only what they measure differs.
    sieve
        The decision to make.
    table
        What every run would find.
    seed
        Which repeat is made first, and what comes first among equals.
    same
        A decision is the oracle's if both goals are less than this share of demand below it.
    """
    grid, sees, next_run = sieve.grid, as_seen_by(policy, sieve), choose(policy)
    generator = np.random.default_rng(seed)
    order = generator.permutation(grid.offered_per_s.size * grid.repeats)
    repeats = generator.permuted(
        np.broadcast_to(np.arange(grid.repeats), (*grid.shape, grid.repeats)), axis=3
    )
    oracle = allocate(table.usable_per_s, grid, sieve.budget)
    evidence, spent = Evidence.none(grid), np.zeros(grid.shape[0])
    wrong_until, stop = np.zeros(grid.shape[0]), None
    while True:
        state = sees.state(evidence)
        chosen = allocation_of(state.decision.conservative.replicas, table.usable_per_s, grid)
        is_same = _is_same(chosen, oracle, grid.demand_per_s, same)
        if stop is None and sees.is_certain(state):
            stop = (spent.sum(), chosen, state.decision.verdict)
        point = None if stop is not None and is_same else next_run(sees, state, order)
        if point is None:
            break
        run = table.run(point, int(repeats[point][evidence.runs[point]]))
        evidence = evidence.plus(run)
        spent[point.request_class] += run.cost_gpu_s
        if not is_same:
            wrong_until = spent.copy()
    gpu_s, final, verdict = stop or (spent.sum(), chosen, state.decision.verdict)
    return Walk(
        float(wrong_until.sum()),
        wrong_until,
        float(gpu_s),
        max(0.0, oracle.min_fulfilment - final.min_fulfilment),
        oracle.total_served_per_s - final.total_served_per_s,
        _is_wrong(verdict, final, oracle),
    )


def _is_same(chosen: Allocation, oracle: Allocation, demand_per_s: Array, same: float) -> bool:
    return (
        chosen.min_fulfilment >= oracle.min_fulfilment - same
        and chosen.total_served_per_s >= oracle.total_served_per_s - same * demand_per_s.sum()
    )


def _is_wrong(verdict: Verdict, chosen: Allocation, oracle: Allocation) -> bool:
    if verdict is Verdict.FEASIBLE:
        return chosen.min_fulfilment < 1.0
    return verdict is Verdict.INFEASIBLE and oracle.min_fulfilment >= 1.0
