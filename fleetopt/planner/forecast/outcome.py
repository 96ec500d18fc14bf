"""What a forecast is asked for and what it says; closed sets of methods and reasons."""

import math
from dataclasses import dataclass
from enum import StrEnum

from fleetopt.errors import InputError


class Method(StrEnum):
    """How a rate was forecast, simplest first."""

    RECENT_PEAK = "recent_peak"
    RECENT_LEVEL = "recent_level"
    DAMPED_TREND = "damped_trend"
    SEASONAL_NAIVE = "seasonal_naive"
    HOLT_WINTERS = "holt_winters"


class MethodReason(StrEnum):
    """Why by this method."""

    BACKTEST = "backtest"
    SETTING = "setting"
    HISTORY_TOO_SHORT = "history_too_short"
    NO_FORECAST = "no_forecast"
    NO_ARRIVALS = "no_arrivals"
    HISTORY_NEEDS_MORE = "history_needs_more"


@dataclass(frozen=True)
class ForecastConfig:
    """How far ahead, how sure, and by what."""

    horizon_s: float = 600.0
    quantile: float = 0.95
    season_s: float | None = None
    """None: a day and a week are tried, where the history holds two of them."""
    method: Method | None = None
    """None: the one that does best on the history."""
    covers_history: bool = False
    """Never below the history's own quantile: for a trace, which stands for all of its traffic."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.horizon_s) and self.horizon_s > 0.0):
            raise InputError(f"horizon_s is {self.horizon_s}; expected a finite number > 0")
        if not 0.5 <= self.quantile < 1.0:
            raise InputError(f"quantile is {self.quantile}; expected at least 0.5, below 1")
        if self.season_s is not None and not (math.isfinite(self.season_s) and self.season_s > 0.0):
            raise InputError(f"season_s is {self.season_s}; expected a finite number > 0")


@dataclass(frozen=True)
class Candidate:
    """A method that was tried: its mean pinball loss on the history, or why it has none."""

    method: Method
    season_s: float | None
    loss_per_s: float | None
    why_not: str = ""


@dataclass(frozen=True)
class Forecast:
    """A rate to plan for, and where it comes from."""

    planned_per_s: float
    method: Method
    reason: MethodReason
    season_s: float | None
    horizon_s: float
    quantile: float
    candidates: tuple[Candidate, ...] = ()
