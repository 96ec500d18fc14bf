"""The rate to plan for: what it anticipates, what it holds, and what no history can break."""

import math
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from fleetopt.errors import InputError
from fleetopt.planner.arrivals import ArrivalStatistics
from fleetopt.planner.forecast.backtest import counts_ahead, pinball_loss, upper_bounds
from fleetopt.planner.forecast.forecast import forecast_rate
from fleetopt.planner.forecast.holt_winters import FitError, holt_winters
from fleetopt.planner.forecast.methods import damped_trend, recent_level, seasonal_naive
from fleetopt.planner.forecast.outcome import Forecast, ForecastConfig, Method, MethodReason

Array = NDArray[np.float64]
UNKNOWN = float("nan")
DEFAULT = ForecastConfig()
DAY_S = 86_400.0


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def poisson(means: Array) -> Array:
    return rng().poisson(means).astype(np.float64)


def daily(days: float, slice_s: float, mean: float = 1_000.0) -> Array:
    """Quiet at the begin of each day, busiest in its middle."""
    at = np.arange(round(days * DAY_S / slice_s)) * slice_s / DAY_S
    return np.asarray(mean * (1.0 - 0.8 * np.cos(2.0 * np.pi * at)))


def found(
    counts: Array, slice_s: float = 60.0, config: ForecastConfig = DEFAULT, **changed: Any
) -> Forecast:
    return forecast_rate(counts, slice_s, ForecastConfig(**{**vars(config), **changed}))


def test_steady_traffic_is_planned_a_little_above_its_level() -> None:
    forecast = found(poisson(np.full(60, 300.0)))
    assert (forecast.method, forecast.reason) == (Method.RECENT_LEVEL, MethodReason.BACKTEST)
    assert 5.2 < forecast.planned_per_s < 6.5


def test_a_ramp_is_planned_above_its_last_value() -> None:
    ramp = np.linspace(100.0, 1_000.0, 60)
    for counts in (ramp, poisson(ramp)):
        assert found(counts).planned_per_s * 60.0 > counts.max() * 1.05


def test_a_ramp_down_is_planned_below_the_recent_peak() -> None:
    counts = poisson(np.linspace(1_000.0, 100.0, 60))
    assert found(counts).planned_per_s < 0.7 * float(np.quantile(counts, 0.95)) / 60.0
    covering = found(counts, covers_history=True)
    assert covering.planned_per_s == pytest.approx(float(np.quantile(counts, 0.95)) / 60.0)
    assert covering.reason is MethodReason.HISTORY_NEEDS_MORE
    assert [one.method for one in covering.candidates] == [
        Method.RECENT_LEVEL,
        Method.DAMPED_TREND,
    ]


def test_the_morning_is_anticipated_from_the_day_before() -> None:
    slice_s, horizon_s = 300.0, 3_600.0
    truth = daily(3.0, slice_s)
    now = round(2.25 * DAY_S / slice_s)  # six in the morning: steepest
    forecast = found(poisson(truth[:now]), slice_s, horizon_s=horizon_s)
    ahead = truth[now : now + 12]
    assert (forecast.method, forecast.season_s) == (Method.SEASONAL_NAIVE, DAY_S)
    assert ahead.max() < forecast.planned_per_s * slice_s < 1.15 * ahead.max()
    assert forecast.planned_per_s * slice_s > 1.1 * truth[now - 1]


def test_growth_from_day_to_day_goes_on() -> None:
    slice_s = 900.0
    truth = daily(4.0, slice_s, 5_000.0) * np.repeat([1.0, 1.2, 1.44, 1.728], 96)
    now = 96 * 3 + 40
    planned = found(poisson(truth[:now]), slice_s, horizon_s=slice_s).planned_per_s * slice_s
    assert truth[now] < planned < 1.2 * truth[now]


def test_a_season_of_ones_own_is_taken() -> None:
    waves = poisson(np.tile([50.0] * 8 + [2_000.0] * 4, 10))
    named = found(waves[:-4], season_s=720.0, horizon_s=60.0, method=Method.SEASONAL_NAIVE)
    assert (named.method, named.season_s) == (Method.SEASONAL_NAIVE, 720.0)
    assert named.planned_per_s * 60.0 > 1_200.0


def test_holt_winters_is_chosen_where_it_does_best() -> None:
    # Pulses of one slice: seasonal naive flattens them over three.
    pulses = poisson(np.tile([50.0] * 11 + [2_000.0], 10))
    before, after = (
        found(pulses[:end], season_s=720.0, horizon_s=60.0) for end in (pulses.size - 1, None)
    )
    losses = {one.method: one.loss_per_s for one in before.candidates}
    assert min(losses, key=lambda method: losses[method] or 0.0) is Method.HOLT_WINTERS
    assert before.method is after.method is Method.HOLT_WINTERS
    assert before.planned_per_s * 60.0 > 1_900.0
    assert after.planned_per_s * 60.0 < 1_000.0


def test_paths_by_holt_winters_are_the_librarys_own_forecasts() -> None:
    smoothing: Any = import_module("statsmodels.tsa.holtwinters")

    counts = poisson(daily(4.0, 3_600.0))
    paths = holt_winters(counts, 30, 24)
    assert np.isnan(paths[: 2 * 24 - 1]).all()
    assert np.isfinite(paths[2 * 24 - 1 :]).all()
    shape = {"trend": "add", "damped_trend": True, "seasonal": "add", "seasonal_periods": 24}
    model = smoothing.ExponentialSmoothing(counts[:48], **shape, initialization_method="heuristic")
    own = model.fit(method="SLSQP", use_brute=False).forecast(30)
    assert paths[47] == pytest.approx(np.maximum(own, 0.0), rel=0.02, abs=5.0)


def test_holt_winters_says_why_it_has_no_paths() -> None:
    cycle = daily(4.0, 3_600.0)
    gappy = cycle.copy()
    gappy[::3] = UNKNOWN
    for counts, why in ((cycle[:71], "three seasons"), (gappy, "unknown")):
        with pytest.raises(FitError, match=why):
            holt_winters(counts, 1, 24)
    with pytest.raises(FitError, match="constant"):
        holt_winters(np.full(96, 7.0), 1, 24)
    with pytest.raises(FitError, match="too short"):
        holt_winters(np.ones(60), 1, 6)
    with pytest.raises(FitError, match="too long"):
        holt_winters(np.ones(5_000), 1, 1_500)


def test_the_library_is_imported_only_where_it_is_used() -> None:
    program = (
        "import sys, numpy as np\n"
        "from fleetopt.planner.forecast.forecast import forecast_rate\n"
        "from fleetopt.planner.forecast.outcome import ForecastConfig\n"
        "counts = np.tile([10.0, 30.0, 20.0, 50.0, 40.0, 30.0] * 2, 5)\n"
        "forecast_rate(counts, 60.0, ForecastConfig())\n"
        "assert 'statsmodels' not in sys.modules\n"
        "forecast_rate(counts, 60.0, ForecastConfig(60.0, season_s=720.0))\n"
        "assert 'statsmodels' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_library_the_other_methods_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    forecast = found(poisson(daily(4.0, 1_800.0)), 1_800.0, quantile=0.93)
    assert forecast.reason is MethodReason.BACKTEST
    assert [one.method for one in forecast.candidates] == [
        Method.RECENT_LEVEL,
        Method.DAMPED_TREND,
        Method.SEASONAL_NAIVE,
    ]


def test_no_path_knows_what_it_forecasts() -> None:
    counts = poisson(daily(4.0, 3_600.0))
    methods: list[Callable[[Array], Array]] = [
        lambda seen: recent_level(seen, 4),
        lambda seen: damped_trend(seen, 4),
        lambda seen: seasonal_naive(seen, 4, 24),
        lambda seen: holt_winters(seen, 4, 24),
    ]
    for make in methods:
        whole = make(counts)
        for end in (72, 80, 95):
            assert make(counts[:end])[-1] == pytest.approx(whole[end - 1])


def test_unknown_slices_never_read_as_zero() -> None:
    counts = np.full(60, 300.0)
    counts[10:14] = counts[30] = counts[57] = UNKNOWN
    assert recent_level(counts, 2)[6:] == pytest.approx(300.0)
    assert damped_trend(counts, 2)[6:] == pytest.approx(300.0)
    assert seasonal_naive(counts, 2, 20)[-1] == pytest.approx(300.0)
    whole, gappy = found(np.full(60, 300.0)), found(counts)
    assert gappy.planned_per_s == pytest.approx(whole.planned_per_s)
    assert found(np.nan_to_num(counts)).planned_per_s > 1.2 * gappy.planned_per_s


def test_where_the_recent_slices_are_unknown_the_peak_is_planned_for() -> None:
    counts = np.append(poisson(np.full(60, 300.0)), np.full(20, UNKNOWN))
    forecast = found(counts)
    assert (forecast.method, forecast.reason) == (Method.RECENT_PEAK, MethodReason.NO_FORECAST)
    assert forecast.planned_per_s >= 5.0
    assert all("unknown" in one.why_not for one in forecast.candidates)


def test_a_gap_a_season_ago_costs_only_the_seasonal_method() -> None:
    counts = poisson(daily(2.2, 900.0))
    counts[-98:-80] = UNKNOWN
    forecast = found(counts, 900.0)
    assert forecast.reason is MethodReason.BACKTEST
    assert forecast.method is not Method.SEASONAL_NAIVE
    (refused,) = (one for one in forecast.candidates if one.method is Method.SEASONAL_NAIVE)
    assert refused.loss_per_s is None
    assert refused.why_not


@pytest.mark.parametrize("size", [1, 2, 20, 35])
def test_a_short_history_is_planned_for_its_peak(size: int) -> None:
    counts = poisson(np.full(size, 300.0))
    forecast = found(counts)
    assert forecast.reason is MethodReason.HISTORY_TOO_SHORT
    assert forecast.planned_per_s == max(np.quantile(counts, 0.95), counts[-3:].max()) / 60.0


def test_no_arrivals_are_no_rate_and_few_are_some() -> None:
    nothing = found(np.zeros(60))
    assert (nothing.planned_per_s, nothing.reason) == (0.0, MethodReason.NO_ARRIVALS)
    stopped = found(np.append(np.full(30, 300.0), np.zeros(60)))
    assert stopped.planned_per_s >= 1.0 / 60.0
    once = found(np.append(np.zeros(59), 1.0))
    assert 0.0 < once.planned_per_s < 0.2


def test_a_constant_has_the_noise_of_poisson_counts() -> None:
    forecast = found(np.full(60, 400.0))
    assert forecast.planned_per_s * 60.0 == pytest.approx(400.0 + 1.645 * 20.0, rel=1e-3)
    surer = found(np.full(60, 400.0), quantile=0.99)
    assert surer.planned_per_s * 60.0 == pytest.approx(400.0 + 2.326 * 20.0, rel=1e-3)


def test_a_method_in_the_settings_is_taken_where_it_can_be() -> None:
    counts = poisson(np.full(60, 300.0))
    for method in (Method.RECENT_PEAK, Method.DAMPED_TREND):
        forecast = found(counts, method=method)
        assert (forecast.method, forecast.reason) == (method, MethodReason.SETTING)
    forecast = found(counts, method=Method.SEASONAL_NAIVE)
    assert (forecast.method, forecast.reason) == (
        Method.RECENT_PEAK,
        MethodReason.HISTORY_TOO_SHORT,
    )


def test_the_bound_holds_its_share_of_what_comes() -> None:
    means = 300.0 * np.exp(np.cumsum(rng().normal(0.0, 0.03, 1_500)))
    counts = poisson(means)
    held = [
        counts[end : end + 10] <= found(counts[end - 60 : end]).planned_per_s * 60.0
        for end in range(60, 1_490, 10)
    ]
    assert 0.88 < np.mean(held) < 0.99


SIZE = st.one_of(st.integers(1, 5), st.integers(30, 130))
COUNT = st.one_of(
    st.just(UNKNOWN), st.just(0.0), st.integers(0, 1_000).map(float), st.floats(0.0, 1e15)
)


@given(
    arrays(
        np.float64, st.one_of(st.integers(1, 5), st.integers(30, 130)), elements=COUNT, fill=COUNT
    ),
    st.sampled_from((1.0, 60.0, 3_600.0)),
    st.sampled_from((1, 3, 10, 50)),
    st.sampled_from((0.5, 0.95, 0.999)),
    st.sampled_from((None, 2, 3, 5, 10, 20, 40)),
)
def test_every_history_has_a_sane_rate(
    history: Array, slice_s: float, steps: int, quantile: float, season: int | None
) -> None:
    season_s = None if season is None else season * slice_s
    config = ForecastConfig(steps * slice_s, quantile, season_s)
    known = history[~np.isnan(history)]
    assume(known.size > 0)
    forecast = forecast_rate(history, slice_s, config)
    assert math.isfinite(forecast.planned_per_s)
    assert forecast.planned_per_s * slice_s >= known[-3:].mean() * (1 - 1e-9)
    assert (forecast.planned_per_s == 0.0) == (not known.any())
    assert forecast == forecast_rate(history.copy(), slice_s, config)
    statistics = ArrivalStatistics.from_counts(history, slice_s, config=config)
    assert statistics.planned_per_s == forecast.planned_per_s
    assert statistics.forecast == forecast


def test_a_history_without_a_known_slice_is_refused() -> None:
    with pytest.raises(InputError, match="no slice is known"):
        found(np.full(60, UNKNOWN))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"horizon_s": 0.0}, "horizon_s"),
        ({"horizon_s": UNKNOWN}, "horizon_s"),
        ({"quantile": 1.0}, "quantile"),
        ({"quantile": 0.4}, "quantile"),
        ({"season_s": -1.0}, "season_s"),
    ],
)
def test_a_wrong_question_is_refused(changed: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=name):
        found(np.ones(60), **changed)


def test_pinball_loss_is_least_at_the_quantile() -> None:
    counts = poisson(np.full(2_000, 100.0))[:, None]
    every = np.full(counts.shape, True)
    best = float(np.quantile(counts, 0.9))
    least = pinball_loss(np.full(counts.shape, best), counts, every, 0.9)
    for other in (best - 5.0, best + 5.0):
        assert pinball_loss(np.full(counts.shape, other), counts, every, 0.9) > least


def test_bounds_hold_their_share_and_correct_a_bias() -> None:
    counts = poisson(np.linspace(100.0, 1_000.0, 400))
    paths, ahead = recent_level(counts, 6), counts_ahead(counts, 6)
    upper = upper_bounds(paths, ahead, 6, 0.9)
    known = ~np.isnan(ahead)
    known[:6] = False
    assert np.mean(ahead[known] <= upper[known]) == pytest.approx(0.9, abs=0.01)
    assert (np.diff(upper[-1]) >= 0.0).all()
