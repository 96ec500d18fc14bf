"""Every (B, γ) at once: the work, the slots and the load of both pools of every cell.

B and γB lie on bin edges, so each pool's work is a difference of cumulative sums over bins.
A cell is (step, row): γ = 2^(step/8), and row r is the boundary below bin r, so that bins 0 …
r − 1 are short. Row 0 has no boundary: its long pool is the one pool that serves everything.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.band import compressed, fitting_share
from fleetopt.planner.bins import BINS_PER_OCTAVE, EDGES_TOKENS, bin_holding
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.moments import MOMENTS, Compressibility
from fleetopt.planner.pool import Pools
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import CONTEXT_SQ, REQUESTS, WORK, load, slots, work
from fleetopt.planner.ttft import PromptMix
from fleetopt.planner.workload import Workload

Array = NDArray[np.float64]
Index = NDArray[np.intp]

__all__ = ["ONE_POOL", "Array", "Grid", "Index", "PoolGrid", "build"]

ONE_POOL = 0
"""The cell (0, 0)."""

_ROUNDING: Final = 1e-12
"""A smaller share of the requests than this is what is left of none after subtraction."""


@dataclass(frozen=True)
class PoolGrid:
    """One of the two pools in every cell; cell = step · rows + row."""

    engine: EngineProfile
    per_s: Array  # (7, cells)
    slot_count: Array  # (cells,)
    load: Array  # (cells,)


@dataclass(frozen=True)
class Grid:
    """All cells of one workload and request; rates are per second."""

    request: PlanRequest
    dispersion: float
    steps: int  # of γ, γ = 1 included
    moments: Array  # (6, bins), of what fits C_l
    boundaries: Array  # (rows,), B in tokens; 1 in row 0
    arrival_rate_per_s: float
    movable: Array  # (steps − 1, rows), requests that each step adds to the compressed
    moved: Array  # (6, cells), the compressed requests before compression
    short: PoolGrid
    long: PoolGrid

    @property
    def rows(self) -> int:
        """Boundaries below the long context, and none."""
        return self.boundaries.size

    @property
    def cells(self) -> Index:
        """Cells that are two pools with γB ≤ C_l."""
        step, row = np.divmod(np.arange(self.steps * self.rows), self.rows)
        return np.flatnonzero((row > 0) & (row + step <= self.rows))

    @property
    def unservable_share(self) -> float:
        """Share of the requests that are longer than C_l."""
        served = float(self.moments[0].sum()) / self.arrival_rate_per_s
        return 1.0 - served if served < 1.0 - 1e-12 else 0.0

    def boundary_and_gamma(self, cell: int) -> tuple[int, float]:
        """B and γ of a two-pool cell."""
        step, row = divmod(cell, self.rows)
        return int(self.boundaries[row]), float(2.0 ** (step / BINS_PER_OCTAVE))

    def row_of(self, boundary_tokens: int) -> int:
        """The row whose boundary this bin edge is."""
        return bin_holding(boundary_tokens) + 1

    def short_pools(self, cells: Index) -> Pools:
        """Short pools of these cells, compressed requests included."""
        row = cells % self.rows
        counts = np.where(np.arange(self.rows) < row[:, None], self.moments[0], 0.0)
        arrived = compressed(self.moved[:, cells], self.boundaries[row])
        return _pools(self.short, cells, self.moments, counts, arrived[..., None])

    def long_pools(self, cells: Index) -> Pools:
        """Long pools of these cells, without what was compressed."""
        step, row = np.divmod(cells, self.rows)
        counts = np.where(np.arange(self.rows) < row[:, None], 0.0, self.moments[0])
        if step.any():
            taken = np.zeros((cells.size, self.rows + self.steps))
            steps = np.arange(self.steps - 1)
            moved = self.movable[:, row].T * (steps < step[:, None])
            np.put_along_axis(taken, row[:, None] + steps, moved, axis=1)
            counts = np.maximum(counts - taken[:, : self.rows], 0.0)
        return _pools(self.long, cells, self.moments, counts, np.zeros((MOMENTS, cells.size, 0)))


def build(workload: Workload, request: PlanRequest) -> Grid:
    """Work, slots and load of every cell of a workload with requests in it."""
    rows = bin_holding(request.long_context_tokens) + 1
    steps = int(math.log2(request.gamma_max) * BINS_PER_OCTAVE + 1e-9) + 1
    values = workload.moments.values
    per_request = workload.arrival_rate_per_s / values[:, :, 0].sum()
    values = values[:, :rows].transpose(0, 2, 1) * per_request
    moments = values.sum(axis=0)
    boundaries = np.ones(rows)
    boundaries[1:] = EDGES_TOKENS[: rows - 1]
    movable = _movable(values, moments, boundaries, steps, request)
    taken = np.zeros((WORK, steps, rows))
    np.cumsum(movable, axis=1, out=taken[:, 1:])
    moved, moved_context_sq = taken[:MOMENTS], taken[MOMENTS]
    length = _length(moments)
    short_work = work(compressed(moved, boundaries), boundaries, request.short_profile)
    short_work += _below(work(moments, length, request.short_profile))[:, None]
    per_bin = work(moments, length, request.long_profile)
    long_work = -work(moved, np.zeros(1), request.long_profile)
    long_work[CONTEXT_SQ] = -moved_context_sq
    long_work += (per_bin.sum(axis=1, keepdims=True) - _below(per_bin))[:, None]
    rest = np.maximum(long_work, 0.0) * (long_work[REQUESTS] > _ROUNDING * moments[0].sum())
    context = np.full(1, float(request.long_context_tokens))
    return Grid(
        request=request,
        dispersion=workload.dispersion,
        steps=steps,
        moments=moments,
        boundaries=boundaries,
        arrival_rate_per_s=workload.arrival_rate_per_s,
        movable=movable[0],
        moved=moved.reshape(MOMENTS, -1),
        short=_pool_grid(short_work, boundaries, request.short_profile, request),
        long=_pool_grid(rest, context, request.long_profile, request),
    )


def _length(moments: Array) -> Array:
    """ΣL² / ΣL per bin: the length that a bin's tokens belong to."""
    squares = moments[3] + 2.0 * moments[4] + moments[5]
    return np.asarray(squares / np.maximum(moments[1] + moments[2], 1e-300))


def _below(per_bin: Array) -> Array:
    """Sums over the bins below each row's boundary."""
    total = np.zeros_like(per_bin)
    np.cumsum(per_bin[:, :-1], axis=1, out=total[:, 1:])
    return total


def _movable(
    values: Array, moments: Array, boundaries: Array, steps: int, request: PlanRequest
) -> Array:
    """What each step of γ adds to the compressed, shape (7, steps − 1, rows).

    Six moments before compression and the squared context on the long engine. Step s of row r
    adds the requests of bin r + s that may and can be compressed.
    """
    rows = boundaries.size
    count = np.maximum(moments[0], 1e-300)
    mean = moments[2] / count
    padded = np.zeros((9, rows + steps))
    compressible = values[Compressibility.COMPRESSIBLE]
    compressible = compressible + request.compressible_share * values[Compressibility.UNKNOWN]
    padded[:MOMENTS, :rows] = compressible
    padded[MOMENTS, :rows] = work(compressible, _length(moments), request.long_profile)[CONTEXT_SQ]
    padded[7, :rows] = mean
    padded[8, :rows] = np.maximum(moments[5] / count - mean * mean, 0.0)
    band = np.lib.stride_tricks.sliding_window_view(padded, rows, axis=1)[:, : steps - 1]
    share = fitting_share(band[7], band[8], boundaries)
    share[:, 0] = 0.0
    return np.asarray(band[:7] * share)


def _pool_grid(
    per_s: Array, context_tokens: Array, engine: EngineProfile, request: PlanRequest
) -> PoolGrid:
    slot_count = np.broadcast_to(slots(per_s, context_tokens, engine, request), per_s.shape[1:])
    loads = load(per_s, slot_count, engine)
    return PoolGrid(engine, per_s.reshape(WORK, -1), slot_count.ravel(), loads.ravel())


def _pools(grid: PoolGrid, cells: Index, moments: Array, counts: Array, extra: Array) -> Pools:
    """Pools with prompts at mean ∓ deviation of every bin, and of every extra group."""
    low, high = _two_points(moments)
    extra_low, extra_high = _two_points(extra)
    bins, extras = low.size, extra_low.shape[1]
    tokens = np.empty((cells.size, 2 * (bins + extras)))
    weight = np.empty_like(tokens)
    tokens[:, :bins], tokens[:, bins : 2 * bins] = low, high
    weight[:, :bins] = weight[:, bins : 2 * bins] = counts
    if extras:
        tokens[:, -2:-1], tokens[:, -1:] = extra_low, extra_high
        weight[:, -2:] = extra[0]
    share = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    mix = PromptMix(tokens, share)
    return Pools(grid.engine, grid.per_s[:, cells], grid.slot_count[cells], grid.load[cells], mix)


def _two_points(moments: Array) -> tuple[Array, Array]:
    """Prompt lengths mean ∓ standard deviation: the two points with the same two moments."""
    count = np.maximum(moments[0], 1e-300)
    mean = moments[1] / count
    deviation = np.sqrt(np.maximum(moments[3] / count - mean * mean, 0.0))
    return np.maximum(mean - deviation, 0.0), mean + deviation
