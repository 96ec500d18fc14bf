"""Times between tokens: how long iterations take, as the sequences that decode in them see it.

There are far too many to keep, so they are counted in bins: of 1/64 of an empty iteration up to
64 of them, and of a whole one beyond.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.simulate.compiled import compiled
from fleetopt.planner.simulate.figures import Percentiles

_PER_ITERATION = 64
_FINE = 64 * _PER_ITERATION
_COARSE = 4_096
GAP_BINS: Final = _FINE + _COARSE
"""Bins of a histogram; the last one holds all that is longer."""


@compiled
def count_gaps(
    gaps: list[int], base_s: float, first_s: float, slope_s: float, iterations: int, sequences: int
) -> None:
    """Count a segment's iterations once for each sequence that gets a token out of them."""
    first, slope = first_s / base_s, slope_s / base_s
    last = _bin_of(first + slope * (iterations - 1))
    done, at = 0, _bin_of(first)
    while at < last:
        below = max(math.ceil((_edge(at + 1) - first) / slope), done + 1)
        gaps[at] += (below - done) * sequences
        done = below
        at = max(_bin_of(first + slope * done), at + 1)
    gaps[last] += (iterations - done) * sequences


@compiled
def _bin_of(iterations: float) -> int:
    if iterations < _FINE / _PER_ITERATION:
        return int(iterations * _PER_ITERATION)
    return min(_FINE + int(iterations - _FINE / _PER_ITERATION), _FINE + _COARSE - 1)


@compiled
def _edge(at: int) -> float:
    """The lower edge of a bin, in empty iterations."""
    if at < _FINE:
        return at / _PER_ITERATION
    return at - _FINE + _FINE / _PER_ITERATION


def gap_percentiles(gaps: list[int], base_s: float) -> Percentiles | None:
    """Percentiles of the times between tokens, straight within a bin; None without any."""
    counts = np.asarray(gaps, dtype=np.int64)
    total = int(counts.sum())
    if total == 0:
        return None
    upto = np.cumsum(counts)
    p50, p90, p99 = (_quantile(counts, upto, share * total) for share in (0.5, 0.9, 0.99))
    return Percentiles(base_s * p50, base_s * p90, base_s * p99, None, None)


def _quantile(counts: NDArray[np.int64], upto: NDArray[np.int64], wanted: float) -> float:
    at = int(np.searchsorted(upto, wanted))
    part = (wanted - float(upto[at] - counts[at])) / float(counts[at])
    return _edge(at) + part * (_edge(at + 1) - _edge(at))
