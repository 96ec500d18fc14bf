"""Every (B, γ) at once: the work, the slots and the load of both pools of every cell.

B and γB lie on bin edges, so each pool's work is a difference of cumulative sums over bins.
Rows are boundaries (bin edges below C_l), columns are steps j of γ = 2^(j/8).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.band import compressed, fitting_share
from fleetopt.planner.bins import BINS_PER_OCTAVE, EDGES_TOKENS, bin_holding
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.moments import MOMENTS, Compressibility
from fleetopt.planner.pool import Pools
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import WORK, load, slots, work
from fleetopt.planner.ttft import PromptMix
from fleetopt.planner.workload import Workload

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class PoolGrid:
    """One of the two pools in every cell, flat: cell = row · columns + column."""

    engine: EngineProfile
    per_s: Array  # (cells, 7)
    slot_count: Array  # (cells,)
    load: Array  # (cells,)


@dataclass(frozen=True)
class Grid:
    """All cells of one workload and request."""

    request: PlanRequest
    dispersion: float
    columns: int  # steps of γ, γ = 1 included
    moments: Array  # (bins, 6), per second, of what fits C_l
    unservable_per_s: float
    movable: Array  # (rows, columns − 1, 6), moments that each step adds to the compressed
    moved: Array  # (cells, 6), moments of the compressed before compression
    short: PoolGrid
    long: PoolGrid
    one: Pools

    @property
    def rows(self) -> int:
        """Boundaries below the long context."""
        return self.moments.shape[0] - 1

    def cell(self, row: int, column: int) -> int:
        """Flat index of a cell."""
        return row * self.columns + column

    def short_pools(self, cells: Index) -> Pools:
        """Short pools of these cells, compressed requests included."""
        row = cells // self.columns
        bins = np.arange(self.moments.shape[0])
        moved = self.moved[cells]
        arrived = compressed(moved, EDGES_TOKENS[row].astype(np.float64))
        counts = np.where(bins <= row[:, None], self.moments[:, 0], 0.0)
        return _pools(self.short, cells, self.moments, counts, arrived[:, None])

    def long_pools(self, cells: Index) -> Pools:
        """Long pools of these cells, without what was compressed."""
        row, column = cells // self.columns, cells % self.columns
        bins = np.arange(self.moments.shape[0])
        counts = np.where(bins > row[:, None], self.moments[:, 0], 0.0)
        if self.columns > 1:
            step = np.arange(self.columns - 1)
            taken = np.zeros((cells.size, bins.size + self.columns))
            np.put_along_axis(
                taken,
                row[:, None] + 1 + step,
                self.movable[row, :, 0] * (step < column[:, None]),
                axis=1,
            )
            counts = np.maximum(counts - taken[:, : bins.size], 0.0)
        return _pools(self.long, cells, self.moments, counts, np.zeros((cells.size, 0, MOMENTS)))


def build(workload: Workload, request: PlanRequest) -> Grid:
    """Work, slots and load of every cell of a workload with requests in it."""
    top = bin_holding(request.long_context_tokens)
    columns = int(math.log2(request.gamma_max) * BINS_PER_OCTAVE + 1e-9) + 1
    values = workload.moments.values
    count = values[:, :, 0].sum()
    values = values[:, : top + 1] * (workload.arrival_rate_per_s / count)
    moments = values.sum(axis=0)
    unknown = request.compressible_share * values[Compressibility.UNKNOWN]
    compressible = values[Compressibility.COMPRESSIBLE] + unknown
    length = _length(moments)
    edges = EDGES_TOKENS[:top].astype(np.float64)
    movable, band = _movable(moments, compressible, edges, columns)
    moved = _steps(movable)
    short_work = np.cumsum(work(moments, length, request.short_profile), axis=0)[:top, None]
    short_work = short_work + work(
        compressed(moved, edges[:, None]), edges[:, None], request.short_profile
    )
    per_bin = work(moments, length, request.long_profile)
    whole = per_bin.sum(axis=0)
    taken = _steps(work(movable, length[band], request.long_profile))
    long_work = (whole - np.cumsum(per_bin, axis=0)[:top])[:, None] - taken
    return Grid(
        request=request,
        dispersion=workload.dispersion,
        columns=columns,
        moments=moments,
        unservable_per_s=max(workload.arrival_rate_per_s - float(moments[:, 0].sum()), 0.0),
        movable=movable,
        moved=moved.reshape(-1, MOMENTS),
        short=_pool_grid(short_work, edges[:, None], request.short_profile, request),
        long=_pool_grid(
            np.maximum(long_work, 0.0),
            np.float64(request.long_context_tokens),
            request.long_profile,
            request,
        ),
        one=one_pool(moments, whole, request),
    )


def one_pool(moments: Array, whole: Array, request: PlanRequest) -> Pools:
    """The single pool that serves all that fits C_l."""
    context = np.float64(request.long_context_tokens)
    grid = _pool_grid(whole[None, None], context, request.long_profile, request)
    none = np.zeros((1, 0, MOMENTS))
    return _pools(grid, np.zeros(1, dtype=np.intp), moments, moments[None, :, 0], none)


def _length(moments: Array) -> Array:
    """ΣL² / ΣL per bin: the length that a bin's tokens belong to."""
    squares = moments[:, 3] + 2.0 * moments[:, 4] + moments[:, 5]
    return np.asarray(squares / np.maximum(moments[:, 1] + moments[:, 2], 1e-300))


def _movable(
    moments: Array, compressible: Array, edges: Array, columns: int
) -> tuple[Array, Index]:
    """Moments that each step of γ adds to the band's compressed requests, and their bins."""
    top = edges.size
    band = np.arange(top)[:, None] + np.arange(1, columns)
    inside = band <= top
    band = np.minimum(band, top)
    share = fitting_share(moments[band], edges[:, None]) * inside
    return share[..., None] * compressible[band], band


def _steps(added: Array) -> Array:
    """Cumulative sums over steps of γ, with γ = 1 in front."""
    total = np.zeros((added.shape[0], added.shape[1] + 1, added.shape[2]))
    np.cumsum(added, axis=1, out=total[:, 1:])
    return total


def _pool_grid(
    per_s: Array, context_tokens: Array | np.float64, engine: EngineProfile, request: PlanRequest
) -> PoolGrid:
    slot_count = slots(per_s, np.asarray(context_tokens), engine, request)
    slot_count = np.broadcast_to(slot_count, per_s.shape[:2])
    loads = load(per_s, slot_count, engine)
    return PoolGrid(engine, per_s.reshape(-1, WORK), slot_count.ravel(), loads.ravel())


def _pools(grid: PoolGrid, cells: Index, moments: Array, counts: Array, extra: Array) -> Pools:
    """Pools with prompts at mean ± deviation of every bin, and of every extra group."""
    low, high = _two_points(moments)
    extra_low, extra_high = _two_points(extra)
    size = (cells.size, low.size)
    tokens = np.concatenate(
        [np.broadcast_to(low, size), np.broadcast_to(high, size), extra_low, extra_high], axis=1
    )
    weight = np.concatenate([counts, counts, extra[..., 0], extra[..., 0]], axis=1)
    share = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    return Pools(
        grid.engine,
        grid.per_s[cells],
        grid.slot_count[cells],
        grid.load[cells],
        PromptMix(tokens, share),
    )


def _two_points(moments: Array) -> tuple[Array, Array]:
    """Prompt lengths mean ∓ standard deviation: the two points with the same two moments."""
    count = np.maximum(moments[..., 0], 1e-300)
    mean = moments[..., 1] / count
    deviation = np.sqrt(np.maximum(moments[..., 3] / count - mean * mean, 0.0))
    return np.maximum(mean - deviation, 0.0), mean + deviation
