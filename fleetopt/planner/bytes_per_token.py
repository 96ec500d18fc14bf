"""Bytes per prompt token by category: what a gateway may guess a prompt's length from.

For routing only. No estimate keeps a budget: that takes an exact count.

What is kept of the requests is how many fell into each step of a logarithmic scale: whole numbers,
so that merging is exact in any order. The moving average is taken over slices of time when it is
read: a slice counts half as much as one that is a half-life newer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.recommendation import BytesPerToken

CATEGORIES: Final = ("prose", "rag", "code", "tool", "chat", "other", "unknown")
"""In the order of their codes; the last one is of requests whose log names none."""

UNKNOWN_CATEGORY: Final = len(CATEGORIES) - 1

STEPS_PER_OCTAVE: Final = 16
LOWEST_OCTAVE: Final = -4
HIGHEST_OCTAVE: Final = 8
RATIO_BINS: Final = (HIGHEST_OCTAVE - LOWEST_OCTAVE) * STEPS_PER_OCTAVE + 1
"""From 1/16 to 256 bytes per token in steps of 4.4 %; the outer bins hold what is beyond, too."""

BAND: Final = 0.95
"""Share of the requests that the band holds, as many below it as above."""

_LOG2: Final = LOWEST_OCTAVE + np.arange(RATIO_BINS) / STEPS_PER_OCTAVE
_EDGES: Final = 2.0 ** (LOWEST_OCTAVE + (np.arange(RATIO_BINS + 1) - 0.5) / STEPS_PER_OCTAVE)
_SHAPE: Final = (len(CATEGORIES), RATIO_BINS)

RatioCounts = NDArray[np.uint32]
"""Requests per category and bin, shape (7, 193); merged by addition."""


def no_ratios() -> RatioCounts:
    """Return counts of no request."""
    return np.zeros(_SHAPE, dtype=np.uint32)


def ratio_counts(
    prompt_bytes: NDArray[np.int64],
    prompt_tokens: NDArray[np.int64],
    category: NDArray[np.int8],
) -> RatioCounts:
    """Count requests by category and bytes per token.

    Parameters
    ----------
    prompt_bytes, prompt_tokens : NDArray[np.int64], shape (requests,)
        Of the same prompt. Rows in which one is not above 0 are left out.
    category : NDArray[np.int8], shape (requests,)
        Index into CATEGORIES.

    Examples
    --------
    >>> one = np.array([400]), np.array([100]), np.array([0], dtype=np.int8)
    >>> moving_average([(0, ratio_counts(*one))], 15.0)["prose"].mean
    4.0
    """
    known = (prompt_bytes > 0) & (prompt_tokens > 0)
    ratio = prompt_bytes[known] / prompt_tokens[known]
    at = np.searchsorted(_EDGES[1:-1], ratio, side="right")
    cell = category[known].astype(np.int64) * RATIO_BINS + at
    counts = np.bincount(cell, minlength=len(CATEGORIES) * RATIO_BINS)
    return counts.astype(np.uint32).reshape(_SHAPE)


def moving_average(
    slices: Iterable[tuple[float, RatioCounts]], half_life: float
) -> dict[str, BytesPerToken]:
    """Return mean and band of each category that has requests.

    Parameters
    ----------
    slices : iterable of (age, RatioCounts)
        Counts of each slice, and how old it is; ages are in any unit.
    half_life : float
        In the same unit, above 0: a slice so much older counts half as much.

    Returns
    -------
    dict of category to BytesPerToken
        The mean is geometric. The band reaches from the lower edge of the step with the 2.5th
        percentile to the upper edge of the step with the 97.5th.

    Notes
    -----
    The exponential moving average over time of the logarithm: m ← m + (1 − d)(x − m) with d =
    2^(−1/half-life) per slice, weighted with the slices' requests.
    """
    weighted = np.zeros(_SHAPE)
    requests = np.zeros(len(CATEGORIES), dtype=np.int64)
    for age, counts in slices:
        weighted += 0.5 ** (age / half_life) * counts
        requests += counts.sum(axis=1, dtype=np.int64)
    found = {}
    for name, row, count in zip(CATEGORIES, weighted, requests, strict=True):
        total = float(row.sum())
        if total > 0.0:  # a slice of ages ago may weigh nothing
            shares = np.cumsum(row) / total
            low, high = np.searchsorted(shares, [(1.0 - BAND) / 2.0, (1.0 + BAND) / 2.0])
            found[name] = BytesPerToken(
                mean=float(2.0 ** (float(row @ _LOG2) / total)),
                low=float(_EDGES[low]),
                high=float(_EDGES[min(high, RATIO_BINS - 1) + 1]),
                requests=int(count),
            )
    return found
