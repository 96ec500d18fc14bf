"""How long requests wait for a slot.

All functions take a batch of pools of one engine; arrays have one entry per pool.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.mean_field import MeanField
from fleetopt.planner.prefill_queue import UNSTABLE_S
from fleetopt.planner.service import ITERATIONS, ITERATIONS_SQ

Array = NDArray[np.float64]

_NEGLIGIBLE_EXPONENT: Final = -40.0
"""Logarithm of a share of requests that no P99 sees: 4e-18."""

_SMALLEST_SHAPE: Final = 1e-6
_LARGEST_SHAPE: Final = 1e9


def slot_queue(
    per_s: Array,
    slot_count: Array,
    servers: Array,
    field: MeanField,
    engine: EngineProfile,
    peakedness: float,
) -> tuple[Array, Array]:
    """The queue for slots, by Hayward [1]_, with iterations that get slower as slots fill.

    Parameters
    ----------
    per_s : shape (7, pools)
        Work per second of the whole pool.
    slot_count, servers : shape (pools,)
        n ≥ 1 of a replica, and replicas that are up.
    field : MeanField
        Of the same pools.
    engine : EngineProfile
        The engine of all of them.
    peakedness : float
        z ≥ 1 of the arrivals, over about the time that a request holds its slot.

    Returns
    -------
    tuple of arrays, shape (pools,)
        P(wait > 0), and the mean wait in seconds of those that wait: 1 and UNSTABLE_S where the
        load is at least the replicas. Both 0 where the share of any pool is negligible.

    Notes
    -----
    With iterations of W + β·k the number running is negative binomial (r = W/β per replica)
    where it would be Poisson at a constant speed; with β → 0 this is Erlang C. Who waits
    does so at full slots, so the backlog drains at the maximum throughput. z divides both the
    slots and the requests in them, and multiplies the wait.

    References
    ----------
    .. [1] A. A. Fredericks, "Congestion in blocking systems: a simple approximation technique",
       Bell System Technical Journal 59 (1980), 805-827.
    """
    load = field.load
    throughput = np.maximum(load + engine.base_iteration_s * per_s[ITERATIONS] / slot_count, 1e-300)
    free = servers - throughput
    places = servers * slot_count / peakedness
    mean = np.maximum(servers * field.sequences, 1e-12) / peakedness
    shape = servers * engine.base_iteration_s * per_s[ITERATIONS] / np.maximum(load, 1e-300)
    shape = np.minimum(np.maximum(shape / peakedness, _SMALLEST_SHAPE), _LARGEST_SHAPE)
    delay = _delay(places, mean, shape, servers / np.maximum(free, 1e-9))
    if not delay.any() and free.min() > 0.0:
        return delay, delay
    iterations = np.maximum(per_s[ITERATIONS], 1e-300)
    residual = 0.5 * per_s[ITERATIONS_SQ] / iterations * (throughput / iterations)
    scale = peakedness * residual / np.maximum(free, 1e-9)
    stable = free > 0.0
    return np.where(stable, delay, 1.0), np.where(stable, scale, UNSTABLE_S)


def _delay(places: Array, mean: Array, shape: Array, waiting: Array) -> Array:
    """P(all places taken), where `waiting` is 1 / (1 − utilisation)."""
    # Chernoff's bound first: mostly it shows the share to be far below any of interest.
    excess, both = places / mean, (places + shape) / (mean + shape)
    bound = (places + shape) * np.log(both) - places * np.log(excess)
    delay = np.zeros_like(places)
    at = np.flatnonzero((bound >= _NEGLIGIBLE_EXPONENT) | (excess <= 1.0))
    if at.size:
        delay[at] = _exact_delay(places[at], mean[at], shape[at], waiting[at])
    return delay


def _exact_delay(places: Array, mean: Array, shape: Array, waiting: Array) -> Array:
    odds = mean / (mean + shape)
    exponent = (
        gammaln(places + shape)
        - gammaln(shape)
        - gammaln(places + 1.0)
        + shape * np.log1p(-odds)
        + places * np.log(odds)
    )
    full = np.exp(np.minimum(exponent, 0.0)) * waiting
    return np.asarray(full / np.maximum(full + betainc(shape, places, 1.0 - odds), 1e-300))
