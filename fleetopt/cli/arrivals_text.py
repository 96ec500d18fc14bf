"""What was measured of arrivals, and the rate that is planned for, in words and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from fleetopt.planner.forecast.outcome import Forecast, Method, MethodReason

if TYPE_CHECKING:
    from fleetopt.planner.workload import ArrivalStatistics

METHODS: Final[dict[Method, str]] = {
    Method.RECENT_PEAK: "the recent peak",
    Method.RECENT_LEVEL: "the recent level",
    Method.DAMPED_TREND: "a damped trend",
    Method.SEASONAL_NAIVE: "the season before",
    Method.HOLT_WINTERS: "Holt-Winters",
}
REASONS: Final[dict[MethodReason, str]] = {
    MethodReason.BACKTEST: "best on its own past",
    MethodReason.SETTING: "as set",
    MethodReason.HISTORY_TOO_SHORT: "too short for a forecast",
    MethodReason.NO_FORECAST: "no method has a forecast",
    MethodReason.NO_ARRIVALS: "there were no arrivals",
    MethodReason.HISTORY_NEEDS_MORE: "the trace has had more than is forecast",
}


def arrivals_json(measured: ArrivalStatistics) -> dict[str, Any]:
    """Return what `--output json` prints of the arrivals."""
    scales = [{"window_s": one.window_s, "z": one.z} for one in measured.dispersion_by_scale]
    return {**msgspec.to_builtins(measured), "dispersion_by_scale": scales}


def describe_rates(measured: ArrivalStatistics, planned_per_s: float) -> str:
    """Return mean, peak and planned rate, and where the planned one comes from."""
    found = measured.forecast
    rates = f"mean {measured.mean_per_s:.3g}/s, peak {measured.peak_per_s:.3g}/s"
    if found is None or planned_per_s != measured.planned_per_s:
        return f"{rates}, planned {planned_per_s:,.4g}/s as given"
    return f"{rates}, planned {planned_per_s:,.4g}/s by {_method(found)} ({REASONS[found.reason]})"


def describe_burstiness(measured: ArrivalStatistics) -> str:
    """Return the index of dispersion at each time scale, shortest first."""
    scales = measured.dispersion_by_scale
    if not scales:
        return f"{measured.dispersion:.2f}"
    return (
        f"{' / '.join(f'{one.z:.3g}' for one in scales)} in "
        f"{' / '.join(f'{one.window_s:g}' for one in scales)} s"
    )


def _method(found: Forecast) -> str:
    if found.method is Method.RECENT_PEAK:
        return METHODS[found.method]
    season = "" if found.season_s is None else f" of {_duration(found.season_s)}"
    return (
        f"{METHODS[found.method]}{season}: enough for the next {_duration(found.horizon_s)} "
        f"with {found.quantile:.0%} probability"
    )


def _duration(seconds: float) -> str:
    for unit, length_s in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= length_s:
            return f"{seconds / length_s:.3g} {unit}"
    return f"{seconds:.3g} s"
