"""The cheapest fleets of one, two, three … pools, and what each further pool gains.

Exact: boundaries and γs are chosen together, over all bin edges and steps of γ, and every pool is
sized as those of a plan are. With up to two pools this finds what `plan` finds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from fleetopt.errors import ConfigError
from fleetopt.planner.chains import Chains
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.cuts import Cuts, cuts
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.infeasible import infeasible, unplannable
from fleetopt.planner.outcome import Infeasible
from fleetopt.planner.pool_chain import Cut, PoolChain, pool_chain
from fleetopt.planner.request import PlanRequest, SloScope
from fleetopt.planner.workload import Workload

__all__ = ["Cut", "ManyPools", "PoolChain", "PoolCount", "many_pools"]

DEFAULT_MOST_POOLS: Final = 4
POOLS_LIMIT: Final = 16
WORTH_GAIN_RATIO: Final = 0.01
"""A further pool is one more boundary to move and one more fleet to watch."""

_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class PoolCount:
    """The cheapest fleet of exactly so many pools, against the cheapest one of fewer.

    A negative gain is what a further pool costs more; None where one side has no fleet. Costs
    and gains are in the unit that was minimised.
    """

    pools: int
    found: PoolChain | Infeasible
    gain_per_h: float | None
    gain_ratio: float | None

    @property
    def cost_per_h(self) -> float:
        """What this fleet costs; infinite where there is none."""
        return self.found.minimised_per_h if isinstance(self.found, PoolChain) else math.inf


@dataclass(frozen=True)
class ManyPools:
    """The cheapest fleet of each number of pools, from one on, and the one that is worth it."""

    minimised: CostUnit
    counts: tuple[PoolCount, ...]
    worth: PoolChain
    worth_gain_ratio: float
    unservable_share: float

    def at_most_per_h(self, pools: int) -> float:
        """What the cheapest fleet of at most so many pools costs; infinite where there is none."""
        return min(one.cost_per_h for one in self.counts[:pools])


def many_pools(
    workload: Workload,
    request: PlanRequest,
    most_pools: int = DEFAULT_MOST_POOLS,
    engines: Sequence[EngineProfile] = (),
    worth_gain_ratio: float = WORTH_GAIN_RATIO,
) -> ManyPools | Infeasible:
    """The cheapest fleets of one to `most_pools` pools, or why there is none at all.

    Parameters
    ----------
    workload : Workload
        Lengths before compression, and the rate to plan for.
    request : PlanRequest
        Without a pinned boundary. Its short pool's engine serves all pools but the last.
    most_pools : int
        1 … 16.
    engines : sequence of EngineProfile
        Each pool gets the one of these that serves it for the least. None: those of the request.
    worth_gain_ratio : float
        The fleet that is worth it is the one of the fewest pools after which none saves this
        share of the cost for each further pool.

    Returns
    -------
    ManyPools or Infeasible
        Infeasible where no number of pools has a fleet; what could be reached is told of one
        and two pools.

    Raises
    ------
    ConfigError
        If an argument is out of range.

    Examples
    --------
    >>> from fleetopt.planner.request import Admission
    >>> from fleetopt.planner.target import TtftTarget
    >>> a100 = EngineProfile("a100", "a100", "llama", 1, 8e-3, 0, 8e-8, 0, 0, 512, 2**20, 2.21)
    >>> request = PlanRequest(a100, a100, 65536, TtftTarget(60.0), Admission.RESERVED)
    >>> traffic = Workload.from_cdf([(2048, 0.9), (65536, 1.0)], 0.2, 9.0)
    >>> found = many_pools(traffic, request, 3)
    >>> [round(one.cost_per_h, 2) for one in found.counts], len(found.worth.pools)
    ([61.88, 44.2, 44.2], 2)
    """
    if not 1 <= most_pools <= POOLS_LIMIT:
        raise ConfigError(f"most_pools is {most_pools}; expected 1 to {POOLS_LIMIT}")
    if request.boundary_tokens is not None:
        raise ConfigError(
            f"boundary_tokens is {request.boundary_tokens}; leave it out: all boundaries of "
            "many pools are chosen together"
        )
    if request.slo_scope is SloScope.FLEET:
        raise ConfigError(
            "slo_scope is fleet; expected pool: each of many pools meets the target by itself"
        )
    below, last = tuple(engines), tuple(engines)
    if not engines:
        below, last = (request.short_profile,), (request.long_profile,)
    refused = [unplannable(workload, replace(request, long_profile=engine)) for engine in last]
    if refused[0] and all(refused):
        return refused[0]
    made = cuts(workload, request, below, last)
    chains = Chains(made.least(), made.price)
    found = [chains.cheapest(pools) for pools in range(1, most_pools + 1)]
    fleets = [pool_chain(made, nodes) if nodes else None for nodes in found]
    worth = _worth(fleets, worth_gain_ratio)
    if worth is None:
        return _infeasible(workload, made, (1, 2))
    return ManyPools(
        minimised=request.minimise,
        counts=tuple(_count(workload, made, fleets[:pools]) for pools in range(1, most_pools + 1)),
        worth=worth,
        worth_gain_ratio=worth_gain_ratio,
        unservable_share=made.last[0].unservable_share,
    )


def _count(workload: Workload, made: Cuts, fleets: Sequence[PoolChain | None]) -> PoolCount:
    """The last of these fleets against the others, which have fewer pools."""
    *fewer, fleet = fleets
    pools = len(fleets)
    if fleet is None:
        return PoolCount(pools, _infeasible(workload, made, (pools,)), None, None)
    before = min((one.minimised_per_h for one in fewer if one), default=None)
    if before is None:
        return PoolCount(pools, fleet, None, None)
    gain = before - fleet.minimised_per_h
    if abs(gain) < _ROUNDING * before:
        gain = 0.0
    return PoolCount(pools, fleet, gain, gain / before)


def _worth(fleets: Sequence[PoolChain | None], gain_ratio: float) -> PoolChain | None:
    """The fleet of the fewest pools after which no further pools save enough each."""
    for number, fleet in enumerate(fleets):
        if fleet is None:
            continue
        enough = gain_ratio * fleet.minimised_per_h
        saved = (
            (fleet.minimised_per_h - other.minimised_per_h) / further
            for further, other in enumerate(fleets[number + 1 :], start=1)
            if other
        )
        if all(each < enough for each in saved):
            return fleet
    return None


def _infeasible(workload: Workload, made: Cuts, pools: Sequence[int]) -> Infeasible:
    """Why no fleet has so many pools: of the engines, the one that comes nearest to the target."""
    request = made.request
    reasons = []
    for below, last in product(made.below, made.last):
        engines = below.request.short_profile, last.request.long_profile
        of = replace(request, short_profile=engines[0], long_profile=engines[1])
        grid = build(workload, of)
        one = np.array([ONE_POOL], dtype=np.intp)
        cells = [one if number == 1 else grid.cells for number in pools]
        reasons.append(infeasible(grid, np.concatenate(cells)))
    nearest = min(
        reasons, key=lambda one: one.tightest_slo.base_s if one.tightest_slo else math.inf
    )
    if max(pools) <= 2:
        return nearest
    limit = request.max_replicas
    most = "" if limit is None else f" with at most {limit} replicas in each"
    message = f"no {max(pools)} pools{most} can meet {request.targets_text}"
    return Infeasible(nearest.reason, message)
