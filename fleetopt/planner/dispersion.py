"""How bursty arrivals are at several time scales: the index of dispersion of their counts.

How bursty traffic is depends on how long one looks: a tenant that sends in trains is smooth over a
minute and not within a second. Which scale counts is for whoever asks to say.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetopt.errors import InputError

SCALES_S: Final = (0.1, 1.0, 10.0, 60.0)
MIN_WINDOWS: Final = 6
"""With fewer sums the estimate is noise."""


class Dispersion(NamedTuple):
    """Index of dispersion of the counts in windows of this length: 1 is Poisson."""

    window_s: float
    z: float


def dispersion_by_scale(counts_per_cell: ArrayLike, cell_s: float) -> tuple[Dispersion, ...]:
    """Index of dispersion of counts at 0.1, 1, 10 and 60 s, as far as the cells tell it.

    Parameters
    ----------
    counts_per_cell : array, shape (cells,)
        Arrivals in equally long, consecutive cells; NaN where they are unknown.
    cell_s : float
        Length of a cell, > 0.

    Returns
    -------
    tuple of Dispersion
        Shortest window first, every index ≥ 1. A window that is no whole number of cells, or of
        which less than six are known, is left out.

    Raises
    ------
    InputError
        On a negative or infinite count.

    Notes
    -----
    Half the mean square of successive differences [1]_ is the variance without the trend: the
    planned rate has the trend already, and it is no burstiness.

    References
    ----------
    .. [1] J. von Neumann et al., "The mean square successive difference", Annals of
       Mathematical Statistics 12 (1941), 153-162.

    Examples
    --------
    >>> [round(found.z, 2) for found in dispersion_by_scale([0, 8] * 30, 1.0)]
    [8.0, 1.0]
    """
    counts = known_counts("counts_per_cell", counts_per_cell)
    found = []
    for window_s in SCALES_S:
        cells = round(window_s / cell_s)
        if cells < 1 or not math.isclose(cells * cell_s, window_s):
            continue
        index = _index(counts, cells)
        if index is not None:
            found.append(Dispersion(window_s, index))
    return tuple(found)


def index_at(measured: Sequence[Dispersion], window_s: float) -> float | None:
    """Index of dispersion at a time scale, log-linear between the measured ones; None: none is.

    Below the shortest measured scale it falls towards 1 in proportion to the window, which is
    where every process without simultaneous arrivals ends; above the longest it stays.
    """
    if not measured:
        return None
    shortest = measured[0]
    if window_s < shortest.window_s:
        return 1.0 + (shortest.z - 1.0) * window_s / shortest.window_s
    scales, indices = zip(*measured, strict=True)
    return float(np.exp(np.interp(math.log(window_s), np.log(scales), np.log(indices))))


def known_counts(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return the counts as an array; NaN stays, as unknown, and what is no count is refused."""
    counts = np.asarray(values, dtype=np.float64)
    if counts.ndim != 1 or np.isinf(counts).any() or (counts < 0.0).any():
        raise InputError(f"{name} must be a list of finite counts ≥ 0, NaN where unknown")
    return counts


def _index(counts: NDArray[np.float64], cells: int) -> float | None:
    windows = counts.size // cells
    sums = counts[: windows * cells].reshape(windows, cells).sum(axis=1)
    differences = np.diff(sums)
    differences = differences[~np.isnan(differences)]
    known = sums[~np.isnan(sums)]
    if known.size < MIN_WINDOWS or not differences.size:
        return None
    mean = float(known.mean())
    if mean == 0.0:
        return 1.0
    # Scaled first: the square of a large count could overflow.
    return max(1.0, float(np.square(differences / mean).mean()) / 2.0 * mean)
