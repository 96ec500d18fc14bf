"""The arrival rate to plan for: an upper quantile of a forecast over a horizon.

Several methods forecast the history's own past, and the one whose upper quantile would have cost
least there forecasts what comes. Where the history is too short for that, its recent peak is
planned for.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np

from fleetopt.errors import InputError
from fleetopt.planner.forecast.backtest import Array, Mask, counts_ahead, pinball_loss, upper_bounds
from fleetopt.planner.forecast.holt_winters import (
    MIN_SEASONS,
    FitError,
    holt_winters,
    is_installed,
)
from fleetopt.planner.forecast.methods import damped_trend, recent_level, seasonal_naive
from fleetopt.planner.forecast.outcome import (
    Candidate,
    Forecast,
    ForecastConfig,
    Method,
    MethodReason,
)

RECENT_SLICES: Final = 3
"""What is planned is never below what these few had: a forecast must not deny the present."""

WARM_UP_SLICES: Final = 6
"""Nothing is judged before a level of five slices is known and one comes after them."""

MIN_ORIGINS: Final = 20
"""Slices that every method must have forecast from: errors of fewer have no 95th percentile."""

MAX_SLICES: Final = 20_160
"""Two weeks of minutes; what is older is left out."""

SEASONS_S: Final = (86_400.0, 604_800.0)
PREFERENCE: Final = 0.02
"""A method must be better by this share than a simpler one, lest they take turns."""

REMEMBERED: Final = 1_024
"""Forecasts kept, one a fleet; the key is its whole history, 0.5 kB for an hour of minutes."""


@dataclass(frozen=True)
class _Tried:
    """A method that has a forecast now."""

    method: Method
    season_s: float | None
    paths: Array


def forecast_rate(counts_per_slice: Array, slice_s: float, config: ForecastConfig) -> Forecast:
    """Upper quantile of the arrival rate over the horizon after the last slice.

    Parameters
    ----------
    counts_per_slice : array, shape (slices,)
        Arrivals in equally long, consecutive slices, oldest first; NaN where they are unknown,
        but not everywhere.
    slice_s : float
        Length of a slice, > 0.
    config : ForecastConfig
        Horizon, quantile, season and method.

    Returns
    -------
    Forecast
        In every slice of the horizon the rate is at most `planned_per_s` with a probability of
        about `quantile`. It is never below the mean of the last three known slices, and 0 only
        where there was no arrival at all.

    Raises
    ------
    InputError
        If no slice of the last 20,160 is known.
    """
    # The same slices are looked at many times before the next one closes.
    counts = np.asarray(counts_per_slice[-MAX_SLICES:], dtype=np.float64)
    if np.isnan(counts).all():
        raise InputError("no slice is known: there is nothing to forecast from")
    return _forecast_rate(counts.tobytes(), slice_s, config)


@lru_cache(maxsize=REMEMBERED)
def _forecast_rate(stored: bytes, slice_s: float, config: ForecastConfig) -> Forecast:
    counts = np.frombuffer(stored, dtype=np.float64)
    known = counts[~np.isnan(counts)]
    steps = max(1, math.ceil(config.horizon_s / slice_s - 1e-9))
    if not known.any():
        return _by_peak(known, slice_s, config, MethodReason.NO_ARRIVALS)
    if config.method is Method.RECENT_PEAK:
        return _by_peak(known, slice_s, config, MethodReason.SETTING)
    if counts.size < WARM_UP_SLICES + MIN_ORIGINS + steps:
        return _by_peak(known, slice_s, config, MethodReason.HISTORY_TOO_SHORT)
    tried, refused = _try_methods(counts, steps, slice_s, config)
    if not tried:
        why = MethodReason.NO_FORECAST if refused else MethodReason.HISTORY_TOO_SHORT
        return _by_peak(known, slice_s, config, why, refused)
    ahead = counts_ahead(counts, steps)
    judged, dropped = _comparable(tried, ahead)
    refused = (*dropped, *refused)
    if not tried:
        return _by_peak(known, slice_s, config, MethodReason.HISTORY_TOO_SHORT, refused)
    uppers = [upper_bounds(one.paths, ahead, WARM_UP_SLICES, config.quantile) for one in tried]
    losses = [pinball_loss(upper, ahead, judged, config.quantile) for upper in uppers]
    kept = (
        Candidate(one.method, one.season_s, loss / slice_s)
        for one, loss in zip(tried, losses, strict=True)
    )
    best = _best(losses)
    found = Forecast(
        planned_per_s=max(float(uppers[best][-1].max()), _least_count(known)) / slice_s,
        method=tried[best].method,
        reason=MethodReason.BACKTEST if config.method is None else MethodReason.SETTING,
        season_s=tried[best].season_s,
        horizon_s=config.horizon_s,
        quantile=config.quantile,
        candidates=(*kept, *refused),
    )
    peak = _by_peak(known, slice_s, config, MethodReason.HISTORY_NEEDS_MORE, found.candidates)
    is_short = config.covers_history and found.planned_per_s < peak.planned_per_s
    return peak if is_short else found


def _least_count(known: Array) -> float:
    """Requests may come back: what had some is planned for one a slice, or for their mean."""
    return max(float(known[-RECENT_SLICES:].mean()), min(float(known.mean()), 1.0))


def _by_peak(
    known: Array,
    slice_s: float,
    config: ForecastConfig,
    reason: MethodReason,
    candidates: tuple[Candidate, ...] = (),
) -> Forecast:
    """The largest of the slices' own quantile, the last three, and the mean."""
    quantile = float(np.quantile(known, config.quantile))
    recent = float(known[-RECENT_SLICES:].max())
    return Forecast(
        planned_per_s=max(quantile, recent, float(known.mean())) / slice_s,
        method=Method.RECENT_PEAK,
        reason=reason,
        season_s=None,
        horizon_s=config.horizon_s,
        quantile=config.quantile,
        candidates=candidates,
    )


def _judged(tried: Sequence[_Tried], ahead: Array) -> Mask:
    """The cells that all methods have forecast and whose true counts are known."""
    judged = ~np.isnan(ahead)
    for one in tried:
        judged &= ~np.isnan(one.paths)
    judged[:WARM_UP_SLICES] = False
    return judged


def _comparable(tried: list[_Tried], ahead: Array) -> tuple[Mask, tuple[Candidate, ...]]:
    """The cells that the methods are judged by; those that leave too few are taken off the list."""
    dropped: list[Candidate] = []
    judged = _judged(tried, ahead)
    while tried and np.count_nonzero(judged.any(axis=1)) < MIN_ORIGINS:
        last = tried.pop()
        why_not = "too few known slices to judge it by"
        dropped.insert(0, Candidate(last.method, last.season_s, None, why_not))
        judged = _judged(tried, ahead)
    return judged, tuple(dropped)


def _best(losses: Sequence[float]) -> int:
    best = 0
    for at, loss in enumerate(losses):
        if loss < losses[best] * (1.0 - PREFERENCE):
            best = at
    return best


def _try_methods(
    counts: Array, steps: int, slice_s: float, config: ForecastConfig
) -> tuple[list[_Tried], tuple[Candidate, ...]]:
    """Paths of the methods that have a forecast now, and why others have none."""
    tried: list[_Tried] = []
    refused: list[Candidate] = []
    for method, season_s, make_paths in _methods(counts, steps, slice_s, config):
        if config.method not in {None, method}:
            continue
        try:
            paths = make_paths()
        except FitError as error:
            refused.append(Candidate(method, season_s, None, str(error)))
            continue
        if np.isnan(paths[-1]).any():
            why_not = "slices that it needs are unknown"
            refused.append(Candidate(method, season_s, None, why_not))
        else:
            tried.append(_Tried(method, season_s, paths))
    return tried, tuple(refused)


def _methods(
    counts: Array, steps: int, slice_s: float, config: ForecastConfig
) -> Iterator[tuple[Method, float | None, Callable[[], Array]]]:
    """Every method that the history is long enough for, simplest first."""
    yield Method.RECENT_LEVEL, None, partial(recent_level, counts, steps)
    yield Method.DAMPED_TREND, None, partial(damped_trend, counts, steps)
    seasons_s = SEASONS_S if config.season_s is None else (config.season_s,)
    for season_s in seasons_s:
        season = round(season_s / slice_s)
        if season < steps + 2 or counts.size < 2 * season:
            continue
        yield Method.SEASONAL_NAIVE, season_s, partial(seasonal_naive, counts, steps, season)
        if counts.size >= MIN_SEASONS * season and is_installed():
            yield Method.HOLT_WINTERS, season_s, partial(holt_winters, counts, steps, season)
