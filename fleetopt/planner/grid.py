"""Every (B, γ) of one workload: what each cell's pools do, from cumulative sums over bins.

B and γB lie on bin edges, so each pool's work is a difference of cumulative sums.
A cell is (step, row): γ = 2^(step/8), and row r is the boundary below bin r, so that bins 0 …
r − 1 are short. Row 0 has no boundary: its long pool is the one pool that serves everything.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.band import compressed, room_tokens, stay_share
from fleetopt.planner.bins import BINS_PER_OCTAVE, EDGES_TOKENS, bin_holding
from fleetopt.planner.compression_outcomes import informed_by
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.length_points import LengthPoints, Lengths, Requests, length_points
from fleetopt.planner.moments import (
    CACHED,
    CACHED_SQ,
    COUNT,
    MOMENTS,
    PROMPT,
    PROMPT_SQ,
    Compressibility,
    cached_parts,
)
from fleetopt.planner.pool import Pools, Sums
from fleetopt.planner.prefill_queue import products_of
from fleetopt.planner.prompt_points import PromptPoints, prompt_points, two_points
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import CONTEXT_SQ, REQUESTS, load, slots, work
from fleetopt.planner.ttft import Bursts, PromptMix
from fleetopt.planner.workload import Workload

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ONE_POOL: Final = 0
"""The cell (0, 0)."""

PREFILL_SCALE_S: Final = 10.0
"""About the time that a backlog of prefill lasts."""

_NO_LENGTH: Final = np.zeros(1)
ROUNDING: Final = 1e-12
"""A smaller share of the requests than this is what is left of none after subtraction."""


@dataclass(frozen=True)
class Grid:
    """All cells; cell = step · rows + row, rates are per second."""

    request: PlanRequest
    bursts: Bursts
    steps: int  # of γ, γ = 1 included
    moments: Array  # (8, bins), of what fits C_l
    boundaries: Array  # (rows,), B in tokens; 1 in row 0
    arrival_rate_per_s: float
    movable: Array  # (steps − 1, rows), requests that each step adds to the compressed
    moved: Array  # (9, cells), the compressed before compression; last, their CONTEXT_SQ
    below: Array  # (7, rows), work of all bins below each boundary on the short engine
    above: Array  # (7, rows), work of all bins above it on the long engine

    @property
    def rows(self) -> int:
        """Boundaries below the long context, and none."""
        return self.boundaries.size

    @property
    def cells(self) -> Index:
        """Cells that are two pools with γB ≤ C_l."""
        return _two_pool_cells(self.steps, self.rows)

    @property
    def unservable_share(self) -> float:
        """Share of the requests that are longer than C_l."""
        served = float(self.moments[0].sum()) / self.arrival_rate_per_s
        return 1.0 - served if served < 1.0 - 1e-12 else 0.0

    @cached_property
    def _points(self) -> PromptPoints:
        return prompt_points(self.moments)

    @cached_property
    def _completion_points(self) -> LengthPoints:
        return length_points(self.moments)

    def boundary_and_gamma(self, cell: int) -> tuple[int, float]:
        """B and γ of a two-pool cell."""
        step, row = divmod(cell, self.rows)
        return int(self.boundaries[row]), float(2.0 ** (step / BINS_PER_OCTAVE))

    def row_of(self, boundary_tokens: int) -> int:
        """The row whose boundary this bin edge is."""
        return bin_holding(boundary_tokens) + 1

    def short_sums(self, cells: Index) -> Sums:
        """Work, slots and load of these cells' short pools."""
        per_s, context = self._short_work(cells), self.boundaries[cells % self.rows]
        return _sums(per_s, context, self.request.short_profile, self.request)

    def long_sums(self, cells: Index) -> Sums:
        """Work, slots and load of these cells' long pools, without what was compressed."""
        context = np.full(cells.size, float(self.request.long_context_tokens))
        return _sums(self._long_work(cells), context, self.request.long_profile, self.request)

    def both_sums(self, cells: Index) -> tuple[Sums, Sums]:
        """Those of both pools, at once where both have the same engine."""
        if self.request.short_profile is not self.request.long_profile:
            return self.short_sums(cells), self.long_sums(cells)
        per_s = np.concatenate([self._short_work(cells), self._long_work(cells)], axis=1)
        context = np.full(2 * cells.size, float(self.request.long_context_tokens))
        context[: cells.size] = self.boundaries[cells % self.rows]
        return _sums(per_s, context, self.request.long_profile, self.request).split(cells.size)

    def _short_work(self, cells: Index) -> Array:
        row = cells % self.rows
        boundary = self.boundaries[row]
        moved = compressed(self.moved[:MOMENTS, cells], boundary)
        per_s = work(moved, boundary, self.request.short_profile)
        per_s += self.below[:, row]
        return per_s

    def _long_work(self, cells: Index) -> Array:
        moved = self.moved[:, cells]
        taken = work(moved[:MOMENTS], _NO_LENGTH, self.request.long_profile)
        taken[CONTEXT_SQ] = moved[MOMENTS]
        return self._nothing_negative(self.above[:, cells % self.rows] - taken)

    def _nothing_negative(self, difference: Array) -> Array:
        """Work that is left after subtraction; none where only rounding is."""
        per_s = np.maximum(difference, 0.0)
        none = per_s[REQUESTS] < ROUNDING * self.above[REQUESTS, 0]
        if none.any():
            per_s[:, none] = 0.0
        return per_s

    def short_pools(self, cells: Index, sums: Sums | None = None) -> Pools:
        """Short pools of these cells, compressed requests included."""
        return self._pools(
            self.request.short_profile,
            sums or self.short_sums(cells),
            self._short_counts(cells),
            self._arrived(cells),
        )

    def long_pools(self, cells: Index, sums: Sums | None = None) -> Pools:
        """Long pools of these cells, without what was compressed."""
        sums = sums or self.long_sums(cells)
        return self._pools(self.request.long_profile, sums, self._long_counts(cells), None)

    def both_pools(self, cells: Index, short: Sums, long: Sums) -> Pools:
        """The short pools, then the long ones, where both have the same engine."""
        counts = np.concatenate([self._short_counts(cells), self._long_counts(cells)])
        arrived = np.zeros((MOMENTS, 2 * cells.size))
        arrived[:, : cells.size] = self._arrived(cells)
        return self._pools(self.request.long_profile, short.with_(long), counts, arrived)

    def prompt_bounds(self, cells: Index) -> tuple[Array, Array]:
        """Of short and long pools, mean u of the prompt points and at least their mean q.

        Both of shape (2, cells), as of `products_of`; without the points, which take longer.
        """
        moments = self.moments
        per_bin = moments[[PROMPT, PROMPT_SQ]] / np.maximum(moments[COUNT], 1e-300)
        if moments[CACHED].any():
            hit_share, part = cached_parts(moments)
            per_bin *= 1.0 - hit_share * np.stack([part, part * part])
        short, long = self._short_counts(cells), self._long_counts(cells)
        arrived = self._arrived(cells)
        low, high = two_points(arrived)
        of_arrived = np.stack([0.5 * arrived[COUNT] * (low + high), arrived[PROMPT_SQ]])
        total = np.maximum(short.sum(axis=1) + arrived[COUNT], 1e-300)
        of_short = (per_bin @ short.T + of_arrived) / total
        return of_short, per_bin @ long.T / np.maximum(long.sum(axis=1), 1e-300)

    def pools_between(self, lower: Index, upper: Index) -> Pools:
        """Pools between two cells' boundaries, where both pools have the same engine.

        The short pools of `upper`, without those requests that belong to a pool below: shorter
        than the boundary of `lower`, or compressed to fit under it. Nobody is below ONE_POOL.
        """
        others = self.above[:, [ONE_POOL]] - self._long_work(lower)
        per_s = self._nothing_negative(self._short_work(upper) - others)
        counts = np.minimum(self._short_counts(upper), self._long_counts(lower))
        context, engine = self.boundaries[upper % self.rows], self.request.short_profile
        sums = _sums(per_s, context, engine, self.request)
        pools = self._pools(engine, sums, counts, self._arrived(upper))
        return replace(pools, mix=pools.mix.used())  # those that lie close together share few bins

    def _pools(
        self, engine: EngineProfile, sums: Sums, counts: Array, arrived: Array | None
    ) -> Pools:
        """Pools with these requests per bin, and with these moments of what came compressed."""
        lengths = Lengths(Requests(self._length_points, counts, arrived))
        return Pools(engine, sums, self._mix(counts, arrived), lengths)

    def _length_points(self) -> LengthPoints:
        return self._completion_points

    def _short_counts(self, cells: Index) -> Array:
        """Requests per bin that are short by themselves, shape (cells, bins)."""
        row = cells % self.rows
        return np.asarray(self.moments[0] * (np.arange(self.rows) < row[:, None]))

    def _long_counts(self, cells: Index) -> Array:
        """Requests per bin that are long and stay so, shape (cells, bins)."""
        step, row = np.divmod(cells, self.rows)
        counts = np.asarray(self.moments[0] * (np.arange(self.rows) >= row[:, None]))
        if not step.any():
            return counts
        taken = np.zeros((cells.size, self.rows + self.steps))
        steps = np.arange(self.steps - 1)
        moved = self.movable[:, row].T * (steps < step[:, None])
        taken[np.arange(cells.size)[:, None], row[:, None] + steps] = moved
        counts -= taken[:, : self.rows]
        return np.asarray(np.maximum(counts, 0.0))

    def _arrived(self, cells: Index) -> Array:
        """Moments of the compressed as they arrive, shape (8, cells)."""
        return compressed(self.moved[:MOMENTS, cells], self.boundaries[cells % self.rows])

    def _mix(self, counts: Array, arrived: Array | None) -> PromptMix:
        """Prompts of every bin in a few points, and of what arrived compressed in two."""
        points = self._points
        of_bins = points.tokens.size
        size = of_bins + (0 if arrived is None else 2)
        tokens = np.empty((counts.shape[0], size))
        share = np.empty_like(tokens)
        tokens[:, :of_bins] = points.tokens
        share[:, :of_bins] = counts[:, points.bin] * points.weight
        products = counts @ points.products
        total = counts.sum(axis=1)
        if arrived is not None:
            tokens[:, -2], tokens[:, -1] = two_points(arrived)
            share[:, -2] = share[:, -1] = 0.5 * arrived[0]
            of_both = products_of(tokens[:, -2:], tokens[:, -2:]).sum(axis=1)
            products += 0.5 * arrived[0][:, None] * of_both
            total = total + arrived[0]
        total = np.maximum(total, 1e-300)
        share /= total[:, None]
        computed = tokens
        if points.computed is not points.tokens:
            computed = tokens.copy()
            computed[:, :of_bins] = points.computed
        return PromptMix(tokens, computed, share, (products / total[:, None]).T)


def build(workload: Workload, request: PlanRequest) -> Grid:
    """Cumulative sums for every cell of a workload with requests in it."""
    rows = bin_holding(request.long_context_tokens) + 1
    steps = int(math.log2(request.gamma_max) * BINS_PER_OCTAVE + 1e-9) + 1
    values = informed_by(workload.moments.values, workload.outcomes, request.compressible_share)
    per_request = workload.arrival_rate_per_s / values[:, :, 0].sum()
    values = values[:, :rows].transpose(0, 2, 1) * per_request
    moments = values.sum(axis=0)
    boundaries = boundaries_of(rows)
    length = _length(moments)
    compressible = values[Compressibility.COMPRESSIBLE]
    compressible = compressible + request.compressible_share * values[Compressibility.UNKNOWN]
    both = work(np.stack([moments, compressible], axis=1), length, request.long_profile)
    per_bin, compressible_context_sq = both[:, 0], both[CONTEXT_SQ, 1]
    movable = _movable(compressible, compressible_context_sq, boundaries, steps)
    below = _below(per_bin)
    above = (below[:, -1] + per_bin[:, -1])[:, None] - below
    if request.short_profile is not request.long_profile:
        below = _below(work(moments, length, request.short_profile))
    return Grid(
        request=request,
        bursts=Bursts(workload.dispersion_at(PREFILL_SCALE_S), workload.dispersion),
        steps=steps,
        moments=moments,
        boundaries=boundaries,
        arrival_rate_per_s=workload.arrival_rate_per_s,
        movable=movable[0],
        moved=(_sums_before(steps) @ movable).reshape(MOMENTS + 1, -1),
        below=below,
        above=above,
    )


@cache
def boundaries_of(rows: int) -> Array:
    """The boundary of each row in tokens; 1 in row 0, which has none."""
    boundaries = np.ones(rows)
    boundaries[1:] = EDGES_TOKENS[: rows - 1]
    boundaries.setflags(write=False)
    return boundaries


@cache
def _sums_before(steps: int) -> Array:
    """The matrix that sums over all earlier steps; several times faster than a cumsum here."""
    return np.tri(steps, steps - 1, -1)


@cache
def _two_pool_cells(steps: int, rows: int) -> Index:
    step, row = np.divmod(np.arange(steps * rows), rows)
    cells = np.flatnonzero((row > 0) & (row + step <= rows))
    cells.setflags(write=False)
    return cells


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
    compressible: Array, compressible_context_sq: Array, boundaries: Array, steps: int
) -> Array:
    """What each step of γ adds to the compressed, shape (9, steps − 1, rows).

    Eight moments before compression and the squared context on the long engine. Step s of row r
    adds the requests of bin r + s that may and can be compressed. Those that can't are the ones
    with the longest outputs, so they take more than their share of the output with them.
    """
    rows = boundaries.size
    count = np.maximum(compressible[0], 1e-300)
    mean = compressible[2] / count
    padded = np.zeros((MOMENTS + 4, rows + steps))
    padded[:MOMENTS, :rows] = compressible
    padded[MOMENTS, :rows] = compressible_context_sq
    padded[MOMENTS + 1, :rows] = mean
    padded[MOMENTS + 2, :rows] = np.sqrt(np.maximum(compressible[5] / count - mean * mean, 0.0))
    padded[MOMENTS + 3, :rows] = mean + compressible[1] / count
    group, one = padded.strides
    shape = (padded.shape[0], steps - 1, rows)  # band[:, s, r] is padded[:, r + s]
    band: Array = np.ndarray(shape, buffer=padded, strides=(group, one, one))
    deviation, length = band[MOMENTS + 2], band[MOMENTS + 3]
    staying = stay_share(band[MOMENTS + 1], deviation, boundaries)
    staying[:, 0] = 1.0
    moved = np.empty((MOMENTS + 1, steps - 1, rows))
    moving = 1.0 - staying
    for row in (COUNT, CACHED, CACHED_SQ):  # the others are told by outputs
        np.multiply(band[row], moving, out=moved[row])
    room = room_tokens(boundaries)
    # Outputs beyond the room are between it and the whole length.
    output = room + np.minimum(deviation, np.maximum(0.5 * (length - room), 0.0))
    _take_longest_outputs(moved, band[: MOMENTS + 1], staying, output, length)
    np.minimum(moved[5], moved[2] * room, out=moved[5])  # whoever moves has o ≤ room
    return np.asarray(moved)


def _take_longest_outputs(
    moved: Array, all_: Array, staying: Array, output: Array, length: Array
) -> None:
    """Moments of those that move, if those that stay have outputs of about `output` tokens."""
    stay = staying * all_[0]
    shorter = np.maximum(all_[2] - stay * output, 0.0)
    output = np.where(stay > 0.0, (all_[2] - shorter) / np.maximum(stay, 1e-300), 0.0)
    prompt = length - output
    moves = staying < 1.0
    share = shorter / np.maximum(all_[2], 1e-300)
    for row, of_one in ((1, prompt), (3, prompt * prompt), (4, prompt * output)):
        moved[row] = np.maximum(all_[row] - stay * of_one, 0.0) * moves
    moved[2] = shorter * moves
    least = shorter * (shorter / np.where(moved[0] > 0.0, moved[0], 1.0))
    moved[5] = np.maximum(all_[5] - stay * output * output, least) * moves
    moved[MOMENTS] = all_[MOMENTS] * share * moves


def _sums(per_s: Array, context_tokens: Array, engine: EngineProfile, request: PlanRequest) -> Sums:
    slot_count = slots(per_s, context_tokens, engine, request)
    return Sums(per_s, slot_count, load(per_s, slot_count, engine))
