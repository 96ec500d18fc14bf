"""Bytes per token: counted exactly, averaged with the newer ones first, banded by what was seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.bytes_per_token import (
    BAND,
    CATEGORIES,
    HIGHEST_OCTAVE,
    LOWEST_OCTAVE,
    STEPS_PER_OCTAVE,
    RatioCounts,
    moving_average,
    no_ratios,
    ratio_counts,
)

STEP = 2.0 ** (1 / STEPS_PER_OCTAVE)
HALF_STEP = math.sqrt(STEP) * (1 + 1e-12)


def counts(ratios: list[float], tokens: int = 1 << 20, code: int = 0) -> RatioCounts:
    sizes = np.array([round(ratio * tokens) for ratio in ratios], dtype=np.int64)
    rows = len(ratios)
    return ratio_counts(
        sizes, np.full(rows, tokens, dtype=np.int64), np.full(rows, code, dtype=np.int8)
    )


def test_nothing_known_says_nothing() -> None:
    assert moving_average([], 15.0) == {}
    assert moving_average([(0, no_ratios())], 15.0) == {}
    unknown = ratio_counts(np.array([-1, 0, 5]), np.array([3, 3, 0]), np.zeros(3, dtype=np.int8))
    assert unknown.sum() == 0


@given(ratio=st.floats(2.0**LOWEST_OCTAVE, 2.0**HIGHEST_OCTAVE))
def test_one_ratio_is_met_within_half_a_step(ratio: float) -> None:
    found = moving_average([(0, counts([ratio] * 3))], 15.0)["prose"]
    assert ratio / HALF_STEP <= found.mean * (1 + 1e-6)
    assert found.mean <= ratio * HALF_STEP * (1 + 1e-6)
    assert found.low * (1 - 1e-6) <= ratio <= found.high * (1 + 1e-6)
    assert found.high / found.low == pytest.approx(STEP)
    assert found.requests == 3


@pytest.mark.parametrize(("ratio", "edge"), [(1e-6, LOWEST_OCTAVE), (1e5, HIGHEST_OCTAVE)])
def test_what_is_off_the_scale_counts_at_its_end(ratio: float, edge: int) -> None:
    found = moving_average([(0, counts([ratio]))], 15.0)["prose"]
    assert found.mean == 2.0**edge
    assert math.isfinite(found.low)
    assert math.isfinite(found.high)


@given(
    ratios=st.lists(st.floats(0.1, 200.0), min_size=1, max_size=200),
    cut=st.integers(0, 200),
)
def test_counts_add_up_in_any_order(ratios: list[float], cut: int) -> None:
    apart = counts(ratios[cut:]) + counts(ratios[:cut])
    np.testing.assert_array_equal(apart, counts(ratios))


@given(ratios=st.lists(st.floats(0.5, 16.0), min_size=1, max_size=300))
def test_the_band_holds_what_it_says(ratios: list[float]) -> None:
    found = moving_average([(0, counts(ratios))], 15.0)["prose"]
    below = sum(ratio < found.low * (1 - 1e-6) for ratio in ratios)
    above = sum(ratio > found.high * (1 + 1e-6) for ratio in ratios)
    assert below <= (1 - BAND) / 2 * len(ratios) + 1e-9
    assert above <= (1 - BAND) / 2 * len(ratios) + 1e-9
    assert found.low <= found.mean <= found.high


def test_of_log_normal_ratios_mean_and_band_are_the_distributions() -> None:
    rng = np.random.default_rng(7)
    found = moving_average([(0, counts(np.exp(rng.normal(1.4, 0.2, 50_000)).tolist()))], 15.0)
    prose = found["prose"]
    assert prose.mean == pytest.approx(math.exp(1.4), rel=0.005)
    assert prose.low == pytest.approx(math.exp(1.4 - 1.96 * 0.2), rel=0.06)
    assert prose.high == pytest.approx(math.exp(1.4 + 1.96 * 0.2), rel=0.06)


def test_it_is_the_exponential_moving_average_slice_by_slice() -> None:
    """With as many requests in every slice: m moves by 1 − d of the way to each new one."""
    half_life = 3.0
    decay = 0.5 ** (1.0 / half_life)
    exponents = [1.0, 2.5, 0.5, 3.0, 1.5, 2.0]
    slices = [
        (len(exponents) - 1 - at, counts([2.0**each] * 10)) for at, each in enumerate(exponents)
    ]
    mean, weight = 0.0, 0.0
    for each in exponents:
        mean, weight = mean * decay + each, weight * decay + 1.0
    found = moving_average(slices, half_life)["prose"]
    assert math.log2(found.mean) == pytest.approx(mean / weight, abs=1e-12)
    assert found.requests == 60


def test_categories_are_apart() -> None:
    both = counts([4.0], code=0) + counts([2.0] * 3, code=CATEGORIES.index("code"))
    found = moving_average([(0, both)], 15.0)
    assert {name: (one.mean, one.requests) for name, one in found.items()} == {
        "prose": (4.0, 1),
        "code": (2.0, 3),
    }


def test_slices_of_ages_ago_weigh_nothing() -> None:
    assert moving_average([(1e6, counts([4.0]))], 1.0) == {}
