"""Arrival statistics: the rate that a fleet is planned for, and how bursty it is.

The plan is never made for the plain mean: half the time the traffic is above it.
"""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike

from fleetopt.errors import InputError
from fleetopt.planner.dispersion import Dispersion, dispersion_by_scale, known_counts
from fleetopt.planner.forecast.forecast import forecast_rate
from fleetopt.planner.forecast.outcome import Forecast, ForecastConfig

DISPERSION_WINDOW_S: Final = 10.0
"""About the time that a chat request is in service: the scale that decides slot waits."""

DEFAULT_FORECAST: Final = ForecastConfig()


@dataclass(frozen=True)
class ArrivalStatistics:
    """Arrival rates over a window, and the index of dispersion of counts (1 is Poisson)."""

    mean_per_s: float
    peak_per_s: float
    planned_per_s: float
    dispersion: float
    duration_s: float
    dispersion_by_scale: tuple[Dispersion, ...] = ()
    forecast: Forecast | None = None
    """Where the planned rate comes from."""

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
        counts_per_cell: ArrayLike | None = None,
        cell_s: float = 1.0,
        config: ForecastConfig = DEFAULT_FORECAST,
    ) -> Self:
        """Statistics of a window of equally long, consecutive time slices.

        Parameters
        ----------
        counts_per_slice : array, shape (slices,)
            Arrivals in each closed slice, oldest first; measured zeros included, NaN where
            nothing is known.
        slice_s : float
            Length of a slice, > 0.
        counts_per_cell : array, shape (cells,), optional
            Arrivals in shorter cells, for the dispersion; NaN where nothing is known. Without
            it, or with less than a minute of it, the arrivals are taken to be Poisson.
        cell_s : float
            Length of a cell, > 0.
        config : ForecastConfig
            How far ahead the rate is forecast, and how sure it is to be enough.

        Returns
        -------
        ArrivalStatistics
            `planned_per_s` is an upper quantile of the forecast that `forecast` tells of;
            `dispersion` is that of counts in 10 s, and `dispersion_by_scale` has the others that
            the cells tell.

        Raises
        ------
        InputError
            On a window without a known slice, or a negative or infinite value.
        """
        if not (math.isfinite(slice_s) and slice_s > 0.0):
            raise InputError(f"slice_s is {slice_s}; expected a finite number > 0")
        counts = known_counts("counts_per_slice", counts_per_slice)
        rates = counts[~np.isnan(counts)] / slice_s
        if rates.size == 0:
            raise InputError("counts_per_slice has no known slice; expected at least one")
        forecast = forecast_rate(counts, slice_s, config)
        scales = () if counts_per_cell is None else dispersion_by_scale(counts_per_cell, cell_s)
        return cls(
            mean_per_s=float(rates.mean()),
            peak_per_s=float(rates.max()),
            planned_per_s=forecast.planned_per_s,
            dispersion=dict(scales).get(DISPERSION_WINDOW_S, 1.0),
            duration_s=rates.size * slice_s,
            dispersion_by_scale=scales,
            forecast=forecast,
        )
