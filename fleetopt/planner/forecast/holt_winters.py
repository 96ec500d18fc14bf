"""Holt-Winters smoothing by statsmodels, where it is installed (`fleetopt[forecast]`).

It needs three seasons: its parameters are fitted to the first two and then kept, so that the
paths over the rest are honest.
"""

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FIT_SEASONS: Final = 2
MIN_SEASONS: Final = 3
MIN_SEASON_SLICES: Final = 10
"""With less, two seasons are too few for statsmodels to start from."""

MAX_SEASON_SLICES: Final = 1_440
"""A day of minutes. Time and memory grow with the season."""

MAX_UNKNOWN_SHARE: Final = 0.2


class FitError(Exception):
    """Why there are no paths."""


@dataclass(frozen=True)
class _Smoothed:
    """What is known after each slice, and how fast a trend fades."""

    level: Array
    trend: Array
    seasonal: Array
    damping: float


def is_installed() -> bool:
    """Whether statsmodels is there; this does not import it, which takes a second."""
    return importlib.util.find_spec("statsmodels") is not None


def holt_winters(counts: Array, steps: int, season: int) -> Array:
    """Paths with a damped trend and an additive season of so many slices.

    Unknown counts are interpolated for the smoother. Raises FitError where there are too many
    of them, the history is too short or constant, or the fit does not converge.
    """
    fitted_on = FIT_SEASONS * season
    known = ~np.isnan(counts)
    if counts.size < MIN_SEASONS * season:
        raise FitError("it needs three seasons")
    if season < MIN_SEASON_SLICES:
        raise FitError(f"a season of {season} slices is too short for it")
    if season > MAX_SEASON_SLICES:
        raise FitError(f"a season of {season} slices takes too long to fit")
    if known[:fitted_on].mean() < 1.0 - MAX_UNKNOWN_SHARE:
        raise FitError("too many slices are unknown")
    at = np.arange(counts.size)
    filled = np.interp(at, at[known], counts[known])
    deviation = float(filled[:fitted_on].std())
    if deviation <= 1e-9 * float(filled[:fitted_on].mean()):
        raise FitError("the history is constant")
    found = _smooth(filled / deviation, fitted_on, season)
    ahead = np.arange(1, steps + 1)
    paths = found.level[:, None] + found.trend[:, None] * np.cumsum(found.damping**ahead)
    newest_of_phase = at[:, None] + ahead - season * -(-ahead // season)
    paths = paths + found.seasonal[np.maximum(newest_of_phase, 0)]
    paths = np.maximum(paths * deviation, 0.0)
    paths[: fitted_on - 1] = np.nan
    return np.asarray(paths)


def _smooth(values: Array, fitted_on: int, season: int) -> _Smoothed:
    from statsmodels.tools.sm_exceptions import ConvergenceWarning
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    shape: dict[str, Any] = {
        "trend": "add",
        "damped_trend": True,
        "seasonal": "add",
        "seasonal_periods": season,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            # The search over a grid before the fit takes ten times as long and finds the same.
            fit = ExponentialSmoothing(
                values[:fitted_on], **shape, initialization_method="heuristic"
            ).fit(method="SLSQP", use_brute=False)
        except ConvergenceWarning as error:
            raise FitError("the fit did not converge") from error
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            raise FitError(f"the fit failed: {error}") from error
    found = fit.params
    whole = ExponentialSmoothing(
        values,
        **shape,
        initialization_method="known",
        initial_level=found["initial_level"],
        initial_trend=found["initial_trend"],
        initial_seasonal=found["initial_seasons"],
    ).fit(
        smoothing_level=found["smoothing_level"],
        smoothing_trend=found["smoothing_trend"],
        smoothing_seasonal=found["smoothing_seasonal"],
        damping_trend=found["damping_trend"],
        optimized=False,
    )
    level, trend, seasonal = (
        np.asarray(part, dtype=np.float64) for part in (whole.level, whole.trend, whole.season)
    )
    if not (np.isfinite(level).all() and np.isfinite(trend).all() and np.isfinite(seasonal).all()):
        raise FitError("the fit is not finite")
    return _Smoothed(level, trend, seasonal, float(found["damping_trend"]))
