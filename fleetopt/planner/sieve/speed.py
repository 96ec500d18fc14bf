"""How fast an engine is against its profile, as far as runs tell.

Each class on each configuration has one speed. Bounds are speeds of the prior, rounded outwards.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.interval import Interval
from fleetopt.planner.sieve.prior import Prior

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_TINY: Final = 1e-9


@dataclass(frozen=True)
class SpeedRange:
    """Positions in the prior's speeds, shape (classes, configurations)."""

    slowest: Indices
    fastest: Indices
    is_contradicted: NDArray[np.bool_]
    """Where runs fit none of the prior's speeds, so that it tells nothing."""

    def of(self, predicted: Array) -> tuple[Array, Array, Array]:
        """Return predictions at the slowest, the middle and the fastest speed, shape (…, loads)."""
        middle = (self.slowest + self.fastest) // 2
        at = [index[:, :, None, None] for index in (self.slowest, middle, self.fastest)]
        slow, mid, fast = (np.take_along_axis(predicted, index, axis=3)[..., 0] for index in at)
        return slow, mid, fast

    def likelihood(self, speeds: int) -> Array:
        """Return the share of each speed, all possible ones alike: (classes, configurations, …)."""
        index = np.arange(speeds)
        possible = (index >= self.slowest[..., None]) & (index <= self.fastest[..., None])
        return np.asarray(possible / possible.sum(axis=2, keepdims=True))


def speed_range(
    prior: Prior, measured: NDArray[np.bool_], throughput: Interval, completion_p99: Interval
) -> SpeedRange:
    """Return the speeds at which the prior explains what was measured.

    Parameters
    ----------
    prior
        The predictions.
    measured
        Which cells have runs, shape (classes, configurations, loads); others are not looked at.
    throughput, completion_p99
        What the runs found, of the same shape.

    Notes
    -----
    A prediction of infinite P99 rules no speed out: a short run ends before its queue grows long.
    There the throughput decides.
    """
    last = prior.speeds.size - 1
    p99 = prior.completion_p99_s
    too_late = np.isfinite(p99) & (p99 > completion_p99.high[..., None] * prior.shape_error)
    too_few = prior.throughput_per_s * prior.shape_error < throughput.low[..., None]
    is_too_slow = (too_late | too_few) & measured[..., None]
    is_too_fast = (p99 * prior.shape_error < completion_p99.low[..., None]) & measured[..., None]
    index = np.arange(last + 1)
    slowest = np.where(is_too_slow, index, 0).max(axis=(2, 3))
    fastest = np.where(is_too_fast, index, last).min(axis=(2, 3))
    is_contradicted = (slowest >= fastest) | (slowest == last) | (fastest == 0)
    slowest, fastest = (
        np.where(is_contradicted, 0, slowest),
        np.where(is_contradicted, last, fastest),
    )
    slowest, fastest = _as_neighbours_allow(
        slowest, fastest, measured.any(axis=2) & ~is_contradicted, prior
    )
    return SpeedRange(slowest, fastest, is_contradicted)


def _as_neighbours_allow(
    slowest: Indices, fastest: Indices, is_known: NDArray[np.bool_], prior: Prior
) -> tuple[Indices, Indices]:
    """Narrow what one class may be by what other classes are on the same configuration."""
    last = prior.speeds.size - 1
    step = np.diff(np.log(prior.speeds)).min()
    steps = int(np.ceil(np.log(prior.neighbour_error) / step - _TINY))
    low = np.where(is_known, slowest - steps, 0).max(axis=0)
    high = np.where(is_known, fastest + steps, last).min(axis=0)
    narrower_low, narrower_high = np.maximum(slowest, low), np.minimum(fastest, high)
    agrees = narrower_low < narrower_high
    return np.where(agrees, narrower_low, slowest), np.where(agrees, narrower_high, fastest)
