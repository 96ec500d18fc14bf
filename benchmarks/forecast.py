"""How well the planned rate holds what came, and what it costs: every method on the same traffic.

Owns the traffic (the two recorded traces where they are, and made counts), and the walk through
it: at each origin a method sees the window up to it, and is held against the horizon after it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.rows import columns_of_records
from fleetopt.connectors.traces import TraceReader, open_input
from fleetopt.planner.forecast.forecast import forecast_rate
from fleetopt.planner.forecast.holt_winters import is_installed
from fleetopt.planner.forecast.outcome import Forecast, ForecastConfig, Method, MethodReason

Counts = NDArray[np.float64]

TRACES: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "traces"
CONFIG: Final = ForecastConfig(horizon_s=600.0, quantile=0.95)
ORIGINS: Final = 100
QUICK_ORIGINS: Final = 3
EXCESS: Final = 0.002
"""Variance of made counts of mean f is f + 0.002·f²."""

CHOSEN: Final = "chosen"
WAYS: Final[dict[str, Method | None]] = {
    **{method.value: method for method in Method},
    CHOSEN: None,
}
"""Every method alone, and the one that the backtest chooses."""

_DAY_S: Final = 86_400
_TRACE_SLICES: Final = 36
"""Slices of a trace that come before the first origin."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counts per slice, and how many of them a window holds."""

    name: str
    counts: Counts
    slice_s: float
    window: int
    first: int

    def histories(self, origins: int) -> Iterator[tuple[Counts, Counts]]:
        """Yield windows and what came after each."""
        steps = int(-(-CONFIG.horizon_s // self.slice_s))
        ends = range(self.first, self.counts.size - steps + 1)
        for end in ends[:: max(1, len(ends) // origins)]:
            yield (
                self.counts[max(0, end - self.window) : end],
                self.counts[end : end + steps],
            )


@dataclass(frozen=True, slots=True)
class Score:
    """How one way of planning did: shares and ratios over all origins and steps."""

    covered: float
    """Share of slices whose rate the planned one held."""
    over: float
    """Mean planned rate over the mean rate that came, less 1."""
    loss: float
    """Mean pinball loss over the mean rate that came."""
    mean_s: float
    """Wall time of a forecast."""
    methods: dict[str, int]
    """How often each method was taken."""


@dataclass(frozen=True, slots=True)
class TrafficFigures:
    """All ways of planning on one traffic; a method that could not forecast it is left out."""

    name: str
    slice_s: float
    window: int
    origins: int
    scores: dict[str, Score]


def measure(origins: int) -> list[TrafficFigures]:
    """Walk through all traffic with every method, and with the one that the backtest chooses."""
    if is_installed():
        import_module("statsmodels.tsa.holtwinters")  # a second, and once in a process
    return [figures_of(traffic, origins) for traffic in traffics()]


def traffics() -> list[Traffic]:
    """Return the recorded traces that are there, then made traffic; seeded."""
    rng = np.random.default_rng(2)

    def counts(means: Counts) -> Counts:
        gamma = rng.gamma(1.0 / EXCESS, EXCESS, means.size)
        return rng.poisson(means * gamma).astype(np.float64)

    def hourly(name: str, means: Counts) -> Traffic:
        return Traffic(name, counts(means), 60.0, 60, 60)

    def days(name: str, means: Counts, slice_s: int, window_days: float) -> Traffic:
        window = round(window_days * _DAY_S / slice_s)
        return Traffic(name, counts(means), float(slice_s), window, window)

    spikes = np.full(600, 300.0)
    for start in (100, 250, 400, 520):
        spikes[start : start + 8] *= 3.0
    growth = 1.1 ** (np.arange(28 * 96) / (7 * 96))
    week = np.tile(np.repeat([1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.4], 96), 4)
    recorded = [
        Traffic(f"Azure {name} trace", _recorded(path), 60.0, 60, _TRACE_SLICES)
        for name, path in (
            ("chat", TRACES / "azure_llm_2023_conv.csv"),
            ("code", TRACES / "azure_llm_2023_code.csv"),
        )
        if path.exists()
    ]
    return [
        *recorded,
        hourly("steady", np.full(300, 300.0)),
        hourly("ramp, tenfold in 5 h", np.linspace(100.0, 1_000.0, 300)),
        hourly("spikes, threefold for 8 min", spikes),
        hourly("drifting", 300.0 * np.exp(np.cumsum(rng.normal(0.0, 0.05, 600)))),
        hourly("daily cycle, an hour seen", _daily(1.0, 60)),
        days("daily cycle, 2.5 days seen", _daily(4.0, 300), 300, 2.5),
        days("daily cycle, 4 days seen", _daily(5.5, 300), 300, 4.0),
        days("weekly cycle growing 10 % a week", _daily(28.0, 900) * week * growth, 900, 15.0),
    ]


def _daily(length_days: float, slice_s: int) -> Counts:
    """Five requests a second on average, 1.5 at night and 8.5 at noon."""
    at = np.arange(round(length_days * _DAY_S / slice_s)) * slice_s / _DAY_S
    return np.asarray(5.0 * slice_s * (1.0 - 0.7 * np.cos(2.0 * np.pi * at)))


def _recorded(path: Path) -> Counts:
    with open_input(str(path)) as opened:
        arrival_s = columns_of_records(TraceReader(opened).records()).arrival_s
    offset_s = arrival_s - arrival_s.min()
    slices = int(offset_s.max() // 60.0)
    whole = offset_s[offset_s < slices * 60.0]
    return np.bincount((whole // 60.0).astype(np.int64), minlength=slices).astype(np.float64)


def figures_of(traffic: Traffic, origins: int) -> TrafficFigures:
    """Walk through one traffic with every method."""
    histories = list(traffic.histories(origins))
    scores = {
        name: score
        for name, method in WAYS.items()
        if (score := _score(traffic, histories, method)) is not None
    }
    return TrafficFigures(traffic.name, traffic.slice_s, traffic.window, len(histories), scores)


def _score(
    traffic: Traffic, histories: list[tuple[Counts, Counts]], method: Method | None
) -> Score | None:
    config = replace(CONFIG, method=method)
    begin = time.perf_counter()
    found: list[Forecast] = []
    for history, _ in histories:
        forecast = forecast_rate(history, traffic.slice_s, config)
        if method is not None and forecast.reason is not MethodReason.SETTING:
            return None
        found.append(forecast)
    spent_s = time.perf_counter() - begin
    planned = np.array([one.planned_per_s for one in found])[:, None] * traffic.slice_s
    came = np.array([after for _, after in histories])
    short = came - planned
    loss = np.maximum(CONFIG.quantile * short, (CONFIG.quantile - 1.0) * short)
    return Score(
        covered=float((short <= 0.0).mean()),
        over=float(planned.mean() / came.mean()) - 1.0,
        loss=float(loss.mean() / came.mean()),
        mean_s=spent_s / len(found),
        methods=dict(Counter(one.method.value for one in found)),
    )
