"""The tightest targets that fleets can meet with as many replicas as they may have."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.end_to_end import served_s
from fleetopt.planner.grid import ONE_POOL, Grid, Index
from fleetopt.planner.inter_token import gap_p99_s
from fleetopt.planner.pool import MOST_PER_LOAD, Pools, gaps_at, least_replicas, queues_at
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.target import VIOLATIONS_MAX
from fleetopt.planner.ttft import Queues, exceedance, own_time_s

Array = NDArray[np.float64]

LONGEST_S: Final = 3600.0
_HALVINGS: Final = 24
"""An hour halved so often is 0.2 ms: below the step that is told."""

_STEP_S: Final = 0.001
_ROUNDING: Final = 1e-6


class Limit(StrEnum):
    """What is held to a target."""

    TTFT = "ttft"
    E2E = "e2e"
    GAP = "gap"


@dataclass(frozen=True)
class Reach:
    """The tightest base of each target that a fleet has, for every cell; infinite is none."""

    base_s: Mapping[Limit, Array]

    def missed(self, request: PlanRequest) -> frozenset[Limit]:
        """Targets that no cell meets."""
        return frozenset(limit for limit in self.base_s if not self._met(limit, request).any())

    def tightest_s(self, limit: Limit, request: PlanRequest) -> float | None:
        """In whole milliseconds; of those cells that meet the other targets, if there are any."""
        others = np.ones(self.base_s[limit].size, dtype=np.bool_)
        for other in self.base_s:
            if other is not limit:
                others &= self._met(other, request)
        best = float(self.base_s[limit][others if others.any() else slice(None)].min())
        return math.ceil(best / _STEP_S + _ROUNDING) * _STEP_S if math.isfinite(best) else None

    def _met(self, limit: Limit, request: PlanRequest) -> NDArray[np.bool_]:
        return np.asarray(self.base_s[limit] <= _asked_s(limit, request))


def reach(grid: Grid, cells: Index) -> Reach:
    """Only the smallest and the largest γ of every boundary are tried."""
    step = cells // grid.rows
    ends = cells[(step == 0) | (step == grid.steps - 1)]
    base_s = _bases_s(grid, grid.long_pools(ends))
    two = np.flatnonzero(ends != ONE_POOL)
    if two.size:
        for limit, short_s in _bases_s(grid, grid.short_pools(ends[two])).items():
            base_s[limit][two] = np.maximum(base_s[limit][two], short_s)
    return Reach(base_s)


def _asked_s(limit: Limit, request: PlanRequest) -> float:
    if limit is Limit.TTFT:
        return request.slo_ttft_p99.base_s
    if limit is Limit.E2E:
        return math.inf if request.slo_e2e_p99 is None else request.slo_e2e_p99.base_s
    return math.inf if request.slo_itl_p99_s is None else request.slo_itl_p99_s


def _bases_s(grid: Grid, pools: Pools) -> dict[Limit, Array]:
    """Smallest base of each target of each pool; infinite where not even an hour is enough."""
    request: PlanRequest = grid.request
    floor = least_replicas(pools.load, request)
    most = np.minimum(floor * MOST_PER_LOAD, float(request.max_replicas or math.inf))
    possible = np.isfinite(floor) & (floor <= most)
    count = np.where(possible, most, 1.0)
    state = queues_at(pools, count, request, grid.bursts)
    busy = pools.sums.per_s[REQUESTS] > 0.0
    own = own_time_s(pools.mix, state.field, pools.engine)
    lead = request.slo_ttft_p99.per_prompt_token_s * pools.mix.tokens - own
    found = {Limit.TTFT: _base_s(state, lead, pools.mix.share, possible, busy)}
    if not request.has_further_targets:
        return found
    gaps = gaps_at(pools, count, request, grid.bursts, state)
    if request.slo_e2e_p99 is not None:
        lengths = pools.lengths.mix()
        served = served_s(lengths, state.field, gaps, pools.engine)
        lead = request.slo_e2e_p99.per_completion_token_s * lengths.completion - served
        found[Limit.E2E] = _base_s(state, lead, lengths.prompts.share, possible, busy)
    if request.slo_itl_p99_s is not None:
        gap_s = np.where(busy, gap_p99_s(gaps, pools.mix, pools.engine), 0.0)
        found[Limit.GAP] = np.where(possible, gap_s, np.inf)
    return found


def _base_s(
    state: Queues, lead: Array, share: Array, possible: NDArray[np.bool_], busy: NDArray[np.bool_]
) -> Array:
    def meets(base_s: Array) -> NDArray[np.bool_]:
        over = (share * exceedance(state, base_s[:, None] + lead)).sum(axis=1)
        return np.asarray((over <= VIOLATIONS_MAX) | ~busy)

    return _smallest(meets, possible)


def _smallest(meets: Callable[[Array], NDArray[np.bool_]], possible: NDArray[np.bool_]) -> Array:
    low, high = np.zeros(possible.size), np.full(possible.size, LONGEST_S)
    reachable = possible & meets(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        met = meets(middle)
        high = np.where(met, middle, high)
        low = np.where(met, low, middle)
    return np.where(reachable, high, np.inf)
