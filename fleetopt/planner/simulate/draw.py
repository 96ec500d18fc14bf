"""Poisson requests with the lengths of a workload, drawn from the moments that it keeps."""

import math

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import InputError
from fleetopt.planner.bins import BINS, EDGES_TOKENS
from fleetopt.planner.moments import (
    COMPLETION,
    COMPLETION_SQ,
    COUNT,
    CROSS,
    PROMPT,
    PROMPT_SQ,
    Compressibility,
    cached_parts,
)
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.workload import Workload

Array = NDArray[np.float64]


def poisson_stream(
    workload: Workload, count: int, seed: int, cached_share: float | None = None
) -> RequestStream:
    """Requests that arrive as a Poisson process at the workload's rate.

    Parameters
    ----------
    workload : Workload
        Its moments and its rate; its dispersion plays no part.
    count : int
        Requests to draw, ≥ 0.
    seed : int
        Of the random numbers.
    cached_share : float, optional
        Of every prompt, found in the prefix cache; 0 to 1. Left out, what the moments say.

    Notes
    -----
    A request's class and bin are drawn by their counts. Within the bin, L and o are drawn from
    beta distributions that have the bin's mean and variance of each: L between the bin's edges,
    which are 9 % apart, and o between 0 and L. The correlation of L and o within a bin is not
    kept. Requests in the overflow bin, which nothing serves, all have the bin's mean length.
    Cached parts are drawn as the planner takes them: some of a bin's prompts share one part, the
    others have none (`cached_parts`).
    """
    if count < 0:
        raise InputError(f"count is {count}; expected ≥ 0")
    if cached_share is not None:
        workload = workload.with_cached_share(cached_share)
    if count and workload.moments.count == 0.0:
        raise InputError("the workload has no requests to draw lengths from")
    rng = np.random.default_rng(seed)
    if count == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return RequestStream(np.zeros(0), nothing, nothing, nothing, nothing)
    arrival_s = np.cumsum(rng.exponential(1.0 / workload.arrival_rate_per_s, count))
    values = workload.moments.values.reshape(len(Compressibility) * BINS, -1)
    cell = rng.choice(values.shape[0], count, p=values[:, COUNT] / values[:, COUNT].sum())
    length, completion = _lengths(values, cell, rng)
    prompt = length - completion
    hit_share, cached_part = cached_parts(values.T)
    cached = np.zeros_like(prompt)
    if hit_share.any():
        is_hit = rng.random(count) < hit_share[cell]
        cached = np.where(is_hit, np.floor(cached_part[cell] * prompt), 0.0).astype(np.int64)
    return RequestStream(arrival_s, prompt, completion, cached, cell // BINS)


def resampled_stream(
    recorded: RequestStream, rate_per_s: float, count: int, seed: int
) -> RequestStream:
    """Requests of a trace, drawn with replacement, that arrive as a Poisson process.

    Parameters
    ----------
    recorded : RequestStream
        One request at least; its arrival times play no part.
    rate_per_s : float
        Of the arrivals, > 0.
    count : int
        Requests to draw, ≥ 0.
    seed : int
        Of the random numbers.
    """
    if not (math.isfinite(rate_per_s) and rate_per_s > 0.0):
        raise InputError(f"rate_per_s is {rate_per_s}; expected a finite number > 0")
    if count < 0:
        raise InputError(f"count is {count}; expected ≥ 0")
    if not len(recorded):
        raise InputError("the trace has no requests to draw from")
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1.0 / rate_per_s, count))
    return recorded.at(arrival_s, rng.integers(0, len(recorded), count))


def _lengths(
    values: Array, cell: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """L and o of requests in these cells (class and bin)."""
    count = np.maximum(values[:, COUNT], 1e-300)
    rows = (PROMPT, COMPLETION, PROMPT_SQ, CROSS, COMPLETION_SQ)
    i, o, ii, io, oo = (values[:, row] / count for row in rows)
    edges = np.concatenate(([0.0], EDGES_TOKENS.astype(np.float64)))
    low = np.tile(np.concatenate((edges[:-1] + 1.0, [0.0])), len(Compressibility))
    high = np.tile(np.concatenate((edges[1:], [0.0])), len(Compressibility))
    low[0::BINS] = 0.0
    overflow = slice(BINS - 1, None, BINS)
    low[overflow] = high[overflow] = (i + o)[overflow]
    spread = np.maximum(ii + 2.0 * io + oo - (i + o) ** 2, 0.0)
    total = _beta(low[cell], high[cell], (i + o)[cell], spread[cell], rng)
    length = np.clip(_rounded(total, rng), low[cell], high[cell]).astype(np.int64)
    variance = np.maximum(oo - o * o, 0.0)
    output = _beta(np.zeros(cell.size), length.astype(np.float64), o[cell], variance[cell], rng)
    return length, np.clip(_rounded(output, rng), 0, length).astype(np.int64)


def _beta(low: Array, high: Array, mean: Array, variance: Array, rng: np.random.Generator) -> Array:
    """Between low and high with this mean and variance, as far as there is such a distribution."""
    width = high - low
    at = np.clip((mean - low) / np.maximum(width, 1e-9), 0.0, 1.0)
    most = width * width * at * (1.0 - at)  # the variance of a coin at both ends
    share = np.clip(variance / np.maximum(most, 1e-9), 0.0, 1.0)
    fixed = (share < 1e-9) | (most < 1e-9)
    both_ends = (share > 0.999) & ~fixed  # no beta is wider
    weight = np.where(fixed | both_ends, 1.0, 1.0 / np.clip(share, 1e-9, 0.999) - 1.0)
    safe = np.clip(at, 1e-12, 1.0 - 1e-12)
    drawn = rng.beta(safe * weight, (1.0 - safe) * weight)
    coin = (rng.random(at.size) < at).astype(np.float64)
    return np.asarray(low + width * np.where(fixed, at, np.where(both_ends, coin, drawn)))


def _rounded(values: Array, rng: np.random.Generator) -> Array:
    """Up or down at random, so that the mean stays."""
    return np.asarray(np.floor(values + rng.random(values.size)))
