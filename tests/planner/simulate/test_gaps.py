"""Times between tokens: the histogram against every single one, and against runs without one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.simulate.compiled import ints
from fleetopt.planner.simulate.gaps import GAP_BINS, count_gaps, gap_percentiles
from fleetopt.planner.simulate.simulation import simulate
from tests.planner.examples import H100, PATIENT
from tests.planner.simulate import naive
from tests.planner.simulate.examples import fleet, pool, stream

W = H100.base_iteration_s


@given(
    st.lists(
        st.tuples(
            st.floats(1.0, 300.0),  # empty iterations
            st.sampled_from([0.0, 1e-5, 1e-3, 0.3]),
            st.integers(1, 400),
            st.integers(1, 50),
        ),
        min_size=1,
        max_size=6,
    )
)
@PATIENT
def test_segments_are_counted_as_their_iterations_are(
    segments: list[tuple[float, float, int, int]],
) -> None:
    gaps, seconds, weights = ints(GAP_BINS), [], []
    for first, slope, iterations, sequences in segments:
        count_gaps(gaps, W, first * W, slope * W, iterations, sequences)
        seconds.append(W * (first + slope * np.arange(iterations)))
        weights.append(np.full(iterations, sequences))
    every = np.repeat(np.concatenate(seconds), np.concatenate(weights))
    found = gap_percentiles(gaps, W)
    assert found is not None
    assert int(np.asarray(gaps).sum()) == every.size
    for share, value in ((0.5, found.p50_s), (0.9, found.p90_s), (0.99, found.p99_s)):
        low, high = np.quantile(every, share, method="lower"), np.quantile(every, share)
        bin_s = W / 64 if high < 64 * W else W
        assert low - 1.01 * bin_s <= value
        assert value <= max(high, np.quantile(every, share, method="higher")) + 1.01 * bin_s


def test_no_token_after_the_first_means_no_times_between_tokens() -> None:
    assert gap_percentiles(ints(GAP_BINS), W) is None
    arrivals = np.arange(1.0, 60.0, 5.0)
    only = simulate(fleet(pool()), stream(arrivals, 300, 1), warm_up_share=0.0).pools[0]
    assert only.inter_token is None


def test_percentiles_are_those_of_a_run_iteration_by_iteration() -> None:
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(0.08, 600))
    prompts, outputs = rng.integers(50, 6_000, 600), rng.integers(1, 200, 600)
    taken = stream(arrivals, prompts, outputs)
    of_two = pool(2, 40)
    seen = simulate(fleet(of_two), taken, warm_up_share=0.0).pools[0].inter_token
    assert seen is not None
    gaps = np.array(naive.gaps_s(of_two, taken, until_s=float(arrivals[-1])))
    for share, value in ((0.5, seen.p50_s), (0.9, seen.p90_s), (0.99, seen.p99_s)):
        assert value == pytest.approx(np.quantile(gaps, share), abs=1.5 * W / 64)
