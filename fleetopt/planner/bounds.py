"""What every cell costs at least, in closed form and for all cells at once.

The bound is the load at the most slots that a replica could ever have: exact with reserved
admission, and KV / mean context, which statistical admission approaches from below. It is
linear in the moments, so it needs no pool's work, slots or waits.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.band import compressed
from fleetopt.planner.cost import SECONDS_PER_HOUR
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.grid import ONE_POOL, ROUNDING, Grid, boundaries_of
from fleetopt.planner.moments import COMPLETION, COMPLETION_SQ, COUNT, MOMENTS
from fleetopt.planner.pool import least_replicas
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.service import (
    CONTEXT,
    ITERATIONS,
    REQUESTS,
    moment_rows,
    running_seconds,
    work,
)

Array = NDArray[np.float64]

_BASIS: Final = np.eye(MOMENTS)[:, [COUNT, COMPLETION, COMPLETION_SQ], None]
"""n, Σo and Σo²: all that a compressed request's work depends on besides B."""


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the hourly cost of every cell, in the unit minimised; of shape (cells,)."""

    short: Array
    long: Array
    compression: Array
    total: Array  # infinite where a step of γ compresses nothing more than the one before


def lower_bounds(grid: Grid) -> Bounds:
    """Cost of every cell if the least possible load and the configured minimum sized its pools."""
    request = grid.request
    short_load, long_load = _short_load(grid), _long_load(grid)
    short_rate, long_rate = request.short_rate, request.long_rate
    short = least_replicas(short_load, request) * short_rate.per_replica
    long = least_replicas(long_load, request) * long_rate.per_replica
    if short_rate.per_load:
        short += short_load * short_rate.per_load
    if long_rate.per_load:
        long += long_load * long_rate.per_load
    short[ONE_POOL] = 0.0
    compression = grid.moved[COUNT] * (request.compression_penalty * SECONDS_PER_HOUR)
    total = short + long + compression
    total.reshape(grid.steps, grid.rows)[1:][grid.movable <= 0.0] = np.inf
    return Bounds(short, long, compression, total)


def _short_load(grid: Grid) -> Array:
    engine = grid.request.short_profile
    seconds = least_seconds(grid.boundaries, engine, grid.request)
    per_unit = _work_per_unit(engine, grid.rows)
    count, output, output_sq = (seconds[:, None] * per_unit).sum(axis=0)
    moved = grid.moved.reshape(-1, grid.steps, grid.rows)
    total = count * moved[COUNT]
    total += output * moved[COMPLETION]
    total += output_sq * moved[COMPLETION_SQ]
    total += (seconds * grid.below).sum(axis=0)
    return np.asarray(total.ravel())


@cache
def _work_per_unit(engine: EngineProfile, rows: int) -> Array:
    """Work of one compressed request, of one Σo and of one Σo², shape (7, 3, rows)."""
    boundaries = boundaries_of(rows)
    units = np.broadcast_to(_BASIS, (MOMENTS, 3, rows))
    return work(compressed(units, boundaries), boundaries, engine)


def _long_load(grid: Grid) -> Array:
    engine = grid.request.long_profile
    context = np.full(1, float(grid.request.long_context_tokens))
    seconds = least_seconds(context, engine, grid.request)[:, 0]
    per_moment = seconds @ moment_rows(engine.prefill_chunk_tokens)
    total = (seconds @ grid.above) - (per_moment @ grid.moved[:MOMENTS]).reshape(
        grid.steps, grid.rows
    )
    left = grid.above[REQUESTS] - grid.moved[COUNT].reshape(total.shape)
    total[left < ROUNDING * grid.above[REQUESTS, 0]] = 0.0
    return np.maximum(total, 0.0).ravel()


def least_seconds(context_tokens: Array, engine: EngineProfile, request: PlanRequest) -> Array:
    """The least load per unit of work in pools of these contexts.

    Parameters
    ----------
    context_tokens : shape (contexts,)
        Windows C.
    engine : EngineProfile
        The engine of all of them.
    request : PlanRequest
        For its admission.

    Returns
    -------
    shape (7, contexts)
        Seconds per unit of each row of work, W divided by the most slots that there could be:
        ⌊KV / block-rounded C⌋, or with statistical admission KV over the mean context.
    """
    seconds = np.repeat(running_seconds(engine)[:, None], context_tokens.size, axis=1)
    if request.admission is Admission.RESERVED:
        block = engine.kv_block_tokens
        slots = engine.kv_capacity_tokens // (np.ceil(context_tokens / block) * block)
        seconds[ITERATIONS] += engine.base_iteration_s / np.maximum(slots, 1.0)
    else:
        seconds[CONTEXT] += engine.base_iteration_s / engine.kv_capacity_tokens
    return seconds
