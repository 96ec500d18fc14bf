"""What every (B, γ) costs, each sized exactly: the search shows only the cheapest."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.cost import SECONDS_PER_HOUR, CostUnit, Rate
from fleetopt.planner.grid import Array, Grid, Index, build
from fleetopt.planner.moments import COUNT
from fleetopt.planner.pool import Pools, size
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.workload import Workload

_AT_ONCE: Final = 256
"""Cells that are sized together: more no longer fit into a processor's cache."""


@dataclass(frozen=True, eq=False)
class CostMap:
    """Costs of two pools over both choices; arrays have shape (gammas, boundaries)."""

    boundaries_tokens: tuple[int, ...]  # rising, all below the long context
    gammas: tuple[float, ...]  # rising from 1
    unit: CostUnit
    cost_per_h: Array  # compression included; infinite where no fleet meets the target
    is_choice: NDArray[np.bool_]  # false where γB is over the long context; the cost is infinite


def cost_map(workload: Workload, request: PlanRequest) -> CostMap:
    """The cheapest fleet at every boundary and γ, by exact sizes.

    Parameters
    ----------
    workload : Workload
        With requests in it.
    request : PlanRequest
        A pinned boundary does not narrow the map.

    Returns
    -------
    CostMap
        Its lowest cost is the plan's, unless one pool or a pinned boundary was chosen.

    Notes
    -----
    620 cells (γ up to 2, 32,768 tokens) take 0.03 to 0.1 s, 2,408 (γ up to 16, 131,072 tokens)
    up to 0.5 s.
    """
    grid = build(workload, request)
    cost = np.full(grid.steps * grid.rows, np.inf)
    is_choice = np.zeros(cost.size, dtype=np.bool_)
    is_choice[grid.cells] = True
    for first in range(0, grid.cells.size, _AT_ONCE):
        cells = grid.cells[first : first + _AT_ONCE]
        cost[cells] = _cost_per_h(grid, cells)
    shape = (grid.steps, grid.rows)
    return CostMap(
        boundaries_tokens=tuple(int(tokens) for tokens in grid.boundaries[1:]),
        gammas=tuple(grid.boundary_and_gamma(step * grid.rows)[1] for step in range(grid.steps)),
        unit=request.minimise,
        cost_per_h=cost.reshape(shape)[:, 1:],
        is_choice=is_choice.reshape(shape)[:, 1:],
    )


def _cost_per_h(grid: Grid, cells: Index) -> Array:
    request = grid.request
    short, long = grid.both_sums(cells)
    cost: Array = grid.moved[COUNT][cells] * (request.compression_penalty * SECONDS_PER_HOUR)
    cost += _pools_per_h(grid, grid.short_pools(cells, short), request.short_rate)
    cost += _pools_per_h(grid, grid.long_pools(cells, long), request.long_rate)
    return cost


def _pools_per_h(grid: Grid, pools: Pools, rate: Rate) -> Array:
    count = size(pools, grid.request, grid.bursts)
    return np.asarray(count * rate.per_replica + pools.load * rate.per_load)
