"""Ways to forecast counts, each from every slice of the past at once.

A method gives *paths*: an array of shape (slices, steps) whose row t forecasts the counts of the
slices t + 1 … t + steps from what was known after slice t. Its last row is the forecast; the rows
before it say how well the method would have done. NaN is "can't say", and an unknown count is
left out: it is never zero.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVEL_SLICES: Final = 5
"""The level is the mean of so many slices: one alone is mostly noise."""

TREND_SLICES: Final = 12
"""So many slices tell a slope from noise, and few enough follow a turn."""

MIN_TREND_SLICES: Final = 3
DAMPING: Final = 0.95
"""What is left of a trend from one slice to the next."""

GAIN_SHARE: Final = 24
"""The gain on the season before is measured over this part of a season."""

MAX_GAIN: Final = 4.0
"""A season that brings more than fourfold is another traffic, not a gain."""


def recent_level(counts: Array, steps: int) -> Array:
    """The mean of the last slices goes on.

    Parameters
    ----------
    counts : shape (slices,)
        Oldest first; NaN where unknown.
    steps : int
        Slices to forecast, ≥ 1.

    Returns
    -------
    shape (slices, steps)
        Paths. So do the other methods.
    """
    known = ~np.isnan(counts)
    total = _rolling_sum(np.where(known, counts, 0.0), LEVEL_SLICES)
    size = _rolling_sum(known * 1.0, LEVEL_SLICES)
    return np.repeat(_ratio(total, size)[:, None], steps, axis=1)


def damped_trend(counts: Array, steps: int) -> Array:
    """A straight line through the last slices goes on, ever flatter [1]_.

    References
    ----------
    .. [1] E. S. Gardner, E. McKenzie, "Forecasting trends in time series", Management Science
       31 (1985), 1237-1246.
    """
    at = np.arange(counts.size, dtype=np.float64)
    known = ~np.isnan(counts)
    y = np.where(known, counts, 0.0)
    size, sum_x, sum_xx, sum_y, sum_xy = (
        _rolling_sum(values, TREND_SLICES)
        for values in (known * 1.0, known * at, known * at * at, y, y * at)
    )
    slope = _ratio(size * sum_xy - sum_x * sum_y, size * sum_xx - sum_x * sum_x)
    slope[size < MIN_TREND_SLICES] = np.nan
    end = _ratio(sum_y, size) + slope * (at - _ratio(sum_x, size))
    ahead = np.cumsum(DAMPING ** np.arange(1, steps + 1))
    return np.maximum(end[:, None] + slope[:, None] * ahead, 0.0)


def seasonal_naive(counts: Array, steps: int, season: int) -> Array:
    """The season before comes again, times what has lately been gained on it.

    Counts of a season ago are smoothed over three slices. The gain is at most fourfold, up or
    down. `season`, in slices, is longer than `steps` + 1.
    """
    source = np.arange(counts.size)[:, None] + np.arange(1, steps + 1) - season
    base = np.where(source >= 0, _smoothed(counts)[np.maximum(source, 0)], np.nan)
    return np.asarray(base * _gain(counts, season)[:, None])


def _smoothed(counts: Array) -> Array:
    """The mean of each count and its two neighbours, as far as they are known."""
    near = np.full((3, counts.size), np.nan)
    near[0], near[1, 1:], near[2, :-1] = counts, counts[:-1], counts[1:]
    known = ~np.isnan(near)
    return _ratio(np.where(known, near, 0.0).sum(axis=0), known.sum(axis=0) * 1.0)


def _gain(counts: Array, season: int) -> Array:
    before = np.full(counts.size, np.nan)
    before[season:] = counts[:-season]
    both = ~np.isnan(before) & ~np.isnan(counts)
    width = max(LEVEL_SLICES, season // GAIN_SHARE)
    # One request more on both sides: nothing at all, then and now, is no gain.
    now = _rolling_sum(np.where(both, counts, 0.0), width) + 1.0
    then = _rolling_sum(np.where(both, before, 0.0), width) + 1.0
    gain = np.clip(now / then, 1.0 / MAX_GAIN, MAX_GAIN)
    return np.where(_rolling_sum(both * 1.0, width) > 0.0, gain, np.nan)


def _ratio(above: Array, below: Array) -> Array:
    """The quotient, NaN where the divisor is 0."""
    unknown = np.full(below.shape, np.nan)
    return np.asarray(np.divide(above, below, out=unknown, where=below > 0.0))


def _rolling_sum(values: Array, width: int) -> Array:
    """Sum of each value and those before it, `width` in all or as many as there are."""
    padded = np.concatenate((np.zeros(width - 1), values))
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, width).sum(axis=1))
