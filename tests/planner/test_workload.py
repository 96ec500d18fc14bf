"""Bins, moments, arrivals and workloads: exact under merging, refused when out of range."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.errors import InputError
from fleetopt.planner.bins import BINS, EDGES_TOKENS, bin_of, nearest_edges
from fleetopt.planner.forecast.outcome import ForecastConfig, Method
from fleetopt.planner.workload import (
    MOMENTS,
    ArrivalStatistics,
    Compressibility,
    TokenMoments,
    Workload,
)

BY_PEAK = ForecastConfig(method=Method.RECENT_PEAK)
ROWS = st.lists(
    st.tuples(st.integers(0, 200_000), st.integers(0, 20_000), st.sampled_from(Compressibility)),
    max_size=50,
)


def moments_of(rows: list[tuple[int, int, Compressibility]]) -> TokenMoments:
    """Moments of rows of (prompt, completion, class)."""
    return TokenMoments.from_requests(
        [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    )


def test_edges_are_eight_an_octave_from_64_to_a_mebitoken() -> None:
    assert BINS == 114
    assert EDGES_TOKENS[[0, 8, 72, 80, 112]].tolist() == [64, 128, 32_768, 65_536, 1_048_576]
    assert (np.diff(EDGES_TOKENS) > 0).all()


def test_a_bin_holds_its_upper_edge() -> None:
    lengths = np.array([0, 64, 65, 69, 70, 65_536, 65_537, 1_048_576, 1_048_577])
    assert EDGES_TOKENS[1] == 69
    assert bin_of(lengths).tolist() == [0, 0, 1, 1, 2, 80, 81, 112, BINS - 1]


def test_nearest_edges_are_the_edge_itself_or_both_neighbours() -> None:
    assert nearest_edges(8_192) == (8_192,)
    assert nearest_edges(8_200) == (8_192, 8_933)
    assert nearest_edges(1) == (64,)


@given(ROWS)
def test_moments_are_the_sums_over_the_requests(
    rows: list[tuple[int, int, Compressibility]],
) -> None:
    expected = np.zeros((3, BINS, MOMENTS))
    for i, o, kind in rows:
        cell = int(np.searchsorted(EDGES_TOKENS, i + o))
        expected[kind, cell, :6] += [1, i, o, i * i, i * o, o * o]
    assert np.array_equal(moments_of(rows).values, expected)


@given(ROWS, ROWS, ROWS)
def test_merging_is_exact_in_any_order(
    a: list[tuple[int, int, Compressibility]],
    b: list[tuple[int, int, Compressibility]],
    c: list[tuple[int, int, Compressibility]],
) -> None:
    x, y, z = moments_of(a), moments_of(b), moments_of(c)
    assert (x + y) + z == x + (y + z) == z + (y + x) == moments_of(a + b + c)
    assert x + TokenMoments.zero() == x
    assert (x + y).count == len(a) + len(b)


CACHED_ROWS = st.lists(
    st.tuples(st.integers(0, 200_000), st.integers(0, 20_000), st.integers(0, 300_000)),
    max_size=50,
)


def cached_moments_of(rows: list[tuple[int, int, int]]) -> TokenMoments:
    """Moments of rows of (prompt, completion, cached)."""
    prompt, completion, cached = ([row[at] for row in rows] for at in range(3))
    return TokenMoments.from_requests(prompt, completion, cached_tokens=cached)


@given(CACHED_ROWS, CACHED_ROWS)
def test_cached_tokens_are_summed_and_merged_up_to_each_prompts_last_token(
    a: list[tuple[int, int, int]], b: list[tuple[int, int, int]]
) -> None:
    expected = np.zeros((BINS, 2))
    for i, o, given_h in a + b:
        h = min(given_h, max(i - 1, 0))
        expected[np.searchsorted(EDGES_TOKENS, i + o)] += [h, h * h]
    merged = cached_moments_of(a) + cached_moments_of(b)
    assert np.array_equal(merged.values[Compressibility.UNKNOWN, :, 6:], expected)
    assert merged == cached_moments_of(a + b)
    prompts = sum(row[0] for row in a + b)
    assert merged.cached_share == pytest.approx(expected[:, 0].sum() / max(prompts, 1))


@given(CACHED_ROWS)
def test_nothing_cached_is_the_same_as_not_said(rows: list[tuple[int, int, int]]) -> None:
    cold = cached_moments_of([(i, o, 0) for i, o, _ in rows])
    assert cold == moments_of([(i, o, Compressibility.UNKNOWN) for i, o, _ in rows])
    assert cached_moments_of(rows).with_cached_share(0.0) == cold


@given(CACHED_ROWS, st.floats(0.0, 1.0))
def test_an_assumed_share_is_that_of_every_prompt(
    rows: list[tuple[int, int, int]], share: float
) -> None:
    assumed = cached_moments_of(rows).with_cached_share(share).values.sum(axis=0)
    count, prompt, _, prompt_sq, _, _, cached, cached_sq = assumed.T
    room = np.maximum(prompt - count, 0.0)
    assert np.allclose(cached, np.minimum(share * prompt, room), rtol=1e-12)
    assert (cached_sq <= prompt_sq).all()
    assert (cached * cached <= count * cached_sq * (1 + 1e-9) + 1e-9).all()


def test_the_share_of_known_caches_is_kept_and_an_unknown_one_is_no_discount() -> None:
    workload = Workload.from_requests(
        [100, 100, 100, 100], [1] * 4, 1.0, cached_tokens=[50, -1, 0, -1]
    )
    assert workload.cache_known_share == 0.5
    assert workload.moments.cached_share == 50 / 400
    assert Workload.from_requests([100], [1], 1.0).cache_known_share == 0.0
    assert workload.with_cached_share(0.25).cache_known_share == 1.0
    assert workload.with_cached_share(0.25).moments.cached_share == 0.25
    with pytest.raises(InputError, match="cache_known_share"):
        Workload(workload.moments, 1.0, cache_known_share=1.5)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_an_assumed_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="cached_share"):
        TokenMoments.zero().with_cached_share(share)


def test_cached_tokens_of_a_wrong_number_or_kind_are_refused() -> None:
    for cached in ([1], [1, -1], [1.5, 1.0]):
        with pytest.raises(InputError, match="cached_tokens"):
            TokenMoments.from_requests([9, 9], [1, 1], cached_tokens=cached)


def test_a_log_without_categories_is_of_unknown_compressibility() -> None:
    moments = TokenMoments.from_requests([100, 200], [1, 2])
    assert moments.values[Compressibility.UNKNOWN, :, 0].sum() == 2.0


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        ([1, 2], [1]),
        ([-1], [1]),
        ([1.5], [1]),
        ([float("nan")], [1]),
        ([float("inf")], [1]),
        ([2**31], [1]),
        ([[1]], [[1]]),
        (["many"], [1]),
    ],
)
def test_requests_that_are_no_token_counts_are_refused(
    prompt: list[float], completion: list[float]
) -> None:
    with pytest.raises(InputError):
        TokenMoments.from_requests(prompt, completion)


def test_moments_of_a_wrong_shape_or_sign_are_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        TokenMoments(np.zeros((2, BINS, MOMENTS)))
    for value in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="non-finite"):
            TokenMoments(np.full((3, BINS, MOMENTS), value))
    with pytest.raises(InputError, match="class"):
        TokenMoments.from_requests([1], [1], [3])


def test_the_planned_rate_is_never_the_plain_mean_of_uneven_traffic() -> None:
    counts = [60, 60, 60, 60, 60, 60, 60, 60, 600, 60]
    arrivals = ArrivalStatistics.from_counts(counts, 60.0)
    assert arrivals.mean_per_s == pytest.approx(1.9)
    assert arrivals.planned_per_s == arrivals.peak_per_s == 10.0
    early = ArrivalStatistics.from_counts([600] + [60] * 99, 60.0, config=BY_PEAK)
    assert early.peak_per_s == 10.0
    assert early.planned_per_s == pytest.approx(1.09)
    ahead = ArrivalStatistics.from_counts([600] + [60] * 99, 60.0)
    assert 1.0 < ahead.planned_per_s < 1.5


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=90))
def test_a_rate_planned_by_the_peak_lies_between_mean_and_peak(counts: list[int]) -> None:
    arrivals = ArrivalStatistics.from_counts(counts, 10.0, config=BY_PEAK)
    assert arrivals.mean_per_s <= arrivals.planned_per_s + 1e-9
    assert arrivals.planned_per_s <= arrivals.peak_per_s + 1e-9
    assert arrivals.duration_s == 10.0 * len(counts)


def test_a_trend_is_no_burstiness() -> None:
    rng = np.random.default_rng(7)
    rising = rng.poisson(np.linspace(500.0, 1_500.0, 1_200))
    assert ArrivalStatistics.from_counts([rising.sum()], 1_200.0, rising).dispersion < 2.0


def test_dispersion_tells_bursts_from_poisson() -> None:
    rng = np.random.default_rng(5)
    poisson = rng.poisson(10.0, 3_600)
    bursts = rng.poisson(np.repeat(rng.gamma(0.5, 20.0, 360), 10))
    slices = [36_000]
    calm = ArrivalStatistics.from_counts(slices, 3_600.0, poisson).dispersion
    wild = ArrivalStatistics.from_counts(slices, 3_600.0, bursts).dispersion
    assert 1.0 <= calm < 1.3
    assert wild > 50.0
    assert ArrivalStatistics.from_counts(slices, 3_600.0).dispersion == 1.0


@pytest.mark.parametrize(
    ("counts", "slice_s"),
    [([], 60.0), ([1], 0.0), ([1], float("nan")), ([-1], 60.0), ([float("nan")], 60.0)],
)
def test_wrong_counts_are_refused(counts: list[float], slice_s: float) -> None:
    with pytest.raises(InputError):
        ArrivalStatistics.from_counts(counts, slice_s)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_not_positive_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="arrival_rate_per_s"):
        Workload.from_requests([10], [10], rate)


def test_no_requests_at_no_rate_are_a_workload() -> None:
    assert Workload(TokenMoments.zero(), 0.0).moments.count == 0.0


def test_scaling_keeps_the_lengths() -> None:
    workload = Workload.from_requests([10, 20], [1, 2], 5.0, dispersion=3.0)
    faster = workload.scaled_to(50.0)
    assert faster.arrival_rate_per_s == 50.0
    assert (faster.moments, faster.dispersion) == (workload.moments, 3.0)


def test_a_cdf_has_the_moments_of_requests_drawn_from_it() -> None:
    points = [(64, 0.1), (1_000, 0.5), (1_001, 0.5), (5_000, 0.9), (30_000, 1.0)]
    exact = Workload.from_cdf(points, 0.25, 1.0).moments.values.sum(axis=0)
    u = (np.arange(2_000_000) + 0.5) / 2_000_000
    tokens, shares = zip(*[(0, 0.0), *points], strict=True)
    length = np.interp(u, shares, tokens)
    cell = np.searchsorted(EDGES_TOKENS, length)
    i, o = 0.75 * length, 0.25 * length
    for column, value in enumerate((np.ones_like(u), i, o, i * i, i * o, o * o)):
        drawn = np.bincount(cell, value, BINS) / u.size
        assert np.allclose(exact[:, column], drawn, rtol=1e-3, atol=drawn.max() * 1e-5)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "non-empty list"),
        ([(100,)], r"list of \[tokens, cumulative fraction\] pairs"),
        ([(100, 0.5)], r"cdf\[0\]\[1\] is 0.5; expected the last fraction to be 1"),
        ([(200, 0.5), (100, 1.0)], r"cdf\[1\]\[0\] is 100; expected more tokens .*: sort"),
        ([(100, 0.5), (100, 1.0)], r"cdf\[1\]\[0\] is 100; expected more tokens"),
        ([(9, 0.9), (200, 0.5), (300, 1.0)], r"cdf\[1\]\[1\] is 0.5; expected no less"),
        ([(100, 0.5), (200, 1.5)], r"cdf\[1\]\[1\] is 1.5; expected a fraction from 0 to 1"),
        ([(0, 0.5), (200, 1.0)], r"cdf\[0\]\[0\] is 0; expected finite tokens above 0"),
        ([(100, 0.5), (float("inf"), 1.0)], r"cdf\[1\]\[0\] is inf; expected finite tokens"),
        ([(100, float("nan")), (200, 1.0)], r"cdf\[0\]\[1\] is nan; expected a fraction"),
    ],
)
def test_points_that_are_no_cdf_are_refused_by_place(
    points: list[tuple[float, float]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Workload.from_cdf(points, 0.2, 1.0)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_an_output_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="output_share"):
        Workload.from_cdf([(100, 1.0)], share, 1.0)
