"""Observed times to first token: bins, unknown ones, quantiles."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.ttft_counts import TTFT_BINS, ttft_cells, ttft_counts, ttft_quantile_s


@given(st.lists(st.floats(0.001, 900.0), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_at_most_half_a_bin_off(seconds: list[float], fraction: float) -> None:
    counts = ttft_counts(ttft_cells(seconds, [1] * len(seconds)))
    assert counts[0].sum() == 0
    found = ttft_quantile_s(counts[1], fraction)
    exact = sorted(seconds)[max(1, math.ceil(fraction * len(seconds))) - 1]
    assert found == pytest.approx(exact, rel=0.08)


def test_what_is_unknown_is_no_zero() -> None:
    cells = ttft_cells([math.nan, 0.5, 0.5], [0, -1, 0])
    assert (cells == -1).tolist() == [True, True, False]
    assert ttft_counts(cells).sum() == 1
    assert ttft_quantile_s(np.zeros(TTFT_BINS, dtype=np.int64), 0.99) is None


def test_the_ends_hold_the_rest() -> None:
    counts = ttft_counts(ttft_cells([0.0, 1e-9, 1e9], [0, 0, 1]))
    assert (counts[0, 0], counts[1, -1]) == (2, 1)
