"""Observed times to first token of both pools, as counts on logarithmic bins.

Whole numbers, so that merging is exact in any order.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

POOLS: Final = ("short", "long")
"""In the order of their rows."""

BINS_PER_DECADE: Final = 16
DECADES: Final = 6
FIRST_S: Final = 1e-3
TTFT_BINS: Final = BINS_PER_DECADE * DECADES
"""From 1 ms to 1,000 s, each bin 15 % wider than the one before; the ends hold the rest."""

TTFT_UNKNOWN: Final = -1
"""The cell of a request whose log lacks the time or the pool."""

TtftCounts = NDArray[np.int64]
"""Requests by pool and bin, shape (2, TTFT_BINS); merged by addition."""


def no_ttfts() -> TtftCounts:
    """Return counts of no request."""
    return np.zeros((len(POOLS), TTFT_BINS), dtype=np.int64)


def ttft_cells(ttft_s: ArrayLike, pool: ArrayLike) -> NDArray[np.int16]:
    """Return each request's cell: its pool's row times TTFT_BINS, plus its bin.

    Parameters
    ----------
    ttft_s : array_like of float, shape (requests,)
        NaN where the log doesn't say.
    pool : array_like of int, shape (requests,)
        0 short, 1 long, below 0 where the log doesn't say.

    Examples
    --------
    >>> ttft_cells([0.001, 1.0, float("nan")], [0, 1, 1]).tolist()
    [0, 144, -1]
    """
    seconds, row = np.asarray(ttft_s, dtype=np.float64), np.asarray(pool, dtype=np.int64)
    is_known = np.isfinite(seconds) & (row >= 0)
    position = np.log10(np.maximum(np.where(is_known, seconds, 1.0), FIRST_S) / FIRST_S)
    at = np.clip(np.floor(position * BINS_PER_DECADE + 1e-9), 0, TTFT_BINS - 1)
    return np.where(is_known, row * TTFT_BINS + at, TTFT_UNKNOWN).astype(np.int16)


def ttft_counts(cells: NDArray[np.int16]) -> TtftCounts:
    """Count requests by their cells; unknown ones are left out."""
    known = cells[cells != TTFT_UNKNOWN]
    return np.bincount(known, minlength=len(POOLS) * TTFT_BINS).reshape(no_ttfts().shape)


def ttft_quantile_s(counts: NDArray[np.int64], fraction: float) -> float | None:
    """Return a quantile of one pool's row, at most half a bin off; None without requests."""
    total = int(counts.sum())
    if not total:
        return None
    holding = int(np.searchsorted(np.cumsum(counts), max(1, math.ceil(fraction * total))))
    return float(FIRST_S * 10.0 ** ((holding + 0.5) / BINS_PER_DECADE))
