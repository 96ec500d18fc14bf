"""Arrival statistics: the rate that a fleet is planned for, and how bursty it is.

The plan is never made for the plain mean: half the time the traffic is above it.
"""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetopt.errors import InputError

RECENT_SLICES: Final = 3
PLANNED_QUANTILE: Final = 0.95
DISPERSION_WINDOW_S: Final = 10
"""About the time that a chat request is in service: the scale that decides slot waits."""

MIN_DISPERSION_WINDOWS: Final = 6
"""With fewer sums the estimate is noise."""


@dataclass(frozen=True)
class ArrivalStatistics:
    """Arrival rates over a window, and the index of dispersion of counts (1 is Poisson)."""

    mean_per_s: float
    peak_per_s: float
    planned_per_s: float
    dispersion: float
    duration_s: float

    def __post_init__(self) -> None:
        for name in ("mean_per_s", "peak_per_s", "planned_per_s", "duration_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise InputError(f"{name} is {value}; expected a finite number ≥ 0")
        if not (math.isfinite(self.dispersion) and self.dispersion >= 1.0):
            raise InputError(f"dispersion is {self.dispersion}; expected a finite number ≥ 1")

    @classmethod
    def from_counts(
        cls,
        counts_per_slice: ArrayLike,
        slice_s: float,
        counts_per_s: ArrayLike | None = None,
    ) -> Self:
        """Statistics of a window of equally long, consecutive time slices.

        Parameters
        ----------
        counts_per_slice : array, shape (slices,)
            Arrivals in each closed slice, oldest first; measured zeros included.
        slice_s : float
            Length of a slice, > 0.
        counts_per_s : array, shape (seconds,), optional
            Arrivals in each second; the dispersion is measured on differences between successive
            sums of 10 s [1]_. Without it, or with less than six such sums, the arrivals are
            taken to be Poisson.

        Returns
        -------
        ArrivalStatistics
            `planned_per_s` is the largest of the 95th percentile of the slices' rates, the
            highest of the last three slices, and the mean.

        Raises
        ------
        InputError
            On an empty window, or a negative or non-finite value.

        References
        ----------
        .. [1] J. von Neumann et al., "The mean square successive difference", Annals of
           Mathematical Statistics 12 (1941), 153-162.
        """
        if not (math.isfinite(slice_s) and slice_s > 0.0):
            raise InputError(f"slice_s is {slice_s}; expected a finite number > 0")
        rates = _counts("counts_per_slice", counts_per_slice) / slice_s
        if rates.size == 0:
            raise InputError("counts_per_slice is empty; expected at least one closed slice")
        mean = float(rates.mean())
        recent = float(rates[-RECENT_SLICES:].max())
        planned = max(float(np.quantile(rates, PLANNED_QUANTILE)), recent, mean)
        return cls(
            mean_per_s=mean,
            peak_per_s=float(rates.max()),
            planned_per_s=planned,
            dispersion=1.0 if counts_per_s is None else _dispersion(counts_per_s),
            duration_s=rates.size * slice_s,
        )


def _dispersion(counts_per_s: ArrayLike) -> float:
    counts = _counts("counts_per_s", counts_per_s)
    windows = counts.size // DISPERSION_WINDOW_S
    if windows < MIN_DISPERSION_WINDOWS:
        return 1.0
    sums = counts[: windows * DISPERSION_WINDOW_S].reshape(windows, -1).sum(axis=1)
    mean = float(sums.mean())
    if mean == 0.0:
        return 1.0
    # Half the mean square of successive differences is the variance without the trend: the
    # planned rate has the trend already, and it is no burstiness.
    return max(1.0, float(np.square(np.diff(sums)).mean()) / 2.0 / mean)


def _counts(name: str, values: ArrayLike) -> NDArray[np.float64]:
    counts = np.asarray(values, dtype=np.float64)
    if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0.0).any():
        raise InputError(f"{name} must be a list of finite counts ≥ 0")
    return counts
