"""Burstiness at several time scales, on processes whose index is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.errors import InputError
from fleetopt.planner.arrivals import ArrivalStatistics
from fleetopt.planner.dispersion import Dispersion, dispersion_by_scale, index_at
from fleetopt.planner.workload import Workload

UNKNOWN = float("nan")


def scales(counts: object, cell_s: float = 1.0) -> dict[float, float]:
    return dict(dispersion_by_scale(counts, cell_s))  # type: ignore[arg-type]


def test_poisson_is_1_at_every_scale() -> None:
    counts = np.random.default_rng(3).poisson(2.0, 72_000)
    found = scales(counts, 0.1)
    assert list(found) == [0.1, 1.0, 10.0, 60.0]
    assert all(1.0 <= index < 1.4 for index in found.values())


def test_swings_show_at_their_own_scale_and_above() -> None:
    rng = np.random.default_rng(3)
    swinging = scales(rng.poisson(np.repeat(rng.gamma(2.0, 5.0, 720), 10)))
    assert swinging[1.0] < 8.0
    assert swinging[10.0] > 30.0
    pulses = scales(np.tile([6.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1_200), 0.1)
    assert pulses[0.1] > 1.8
    assert (pulses[10.0], pulses[60.0]) == (1.0, 1.0)


def test_scales_that_the_cells_do_not_tell_are_left_out() -> None:
    assert list(scales(np.ones(60))) == [1.0, 10.0]
    assert list(scales(np.ones(60), 5.0)) == [10.0]
    assert list(scales(np.ones(600), 5.0)) == [10.0, 60.0]
    assert scales(np.ones(600), 7.0) == {}
    assert scales([]) == scales(np.full(600, UNKNOWN)) == {}


def test_unknown_cells_are_left_out_and_never_count_as_zero() -> None:
    counts = np.random.default_rng(3).poisson(100.0, 3_600).astype(np.float64)
    whole = scales(counts)
    counts[600:660] = counts[1_800:2_100] = UNKNOWN
    gappy = scales(counts)
    for window_s, index in whole.items():
        assert gappy[window_s] == pytest.approx(index, rel=0.5)
    assert scales(np.nan_to_num(counts))[60.0] > 100.0


@given(
    st.lists(st.one_of(st.just(UNKNOWN), st.floats(0.0, 1e150)), max_size=200),
    st.sampled_from((0.1, 1.0, 10.0)),
)
def test_every_index_is_finite_and_at_least_1(counts: list[float], cell_s: float) -> None:
    assert all(np.isfinite(index) and index >= 1.0 for index in scales(counts, cell_s).values())


@pytest.mark.parametrize("counts", [[-1.0], [float("inf")], [[1.0]]])
def test_what_is_no_count_is_refused(counts: object) -> None:
    with pytest.raises(InputError, match="counts_per_cell"):
        scales(counts)


def test_an_index_between_scales_lies_between_theirs() -> None:
    measured = (Dispersion(1.0, 4.0), Dispersion(10.0, 16.0))
    assert index_at((), 1.0) is None
    assert [index_at(measured, s) for s in (0.0, 0.5, 1.0, 10.0, 99.0)] == pytest.approx(
        [1.0, 2.5, 4.0, 16.0, 16.0]
    )
    assert index_at(measured, 10.0**0.5) == pytest.approx(8.0)


def test_statistics_and_workload_carry_the_scales() -> None:
    counts = np.random.default_rng(3).poisson(9.0, 3_600)
    arrivals = ArrivalStatistics.from_counts([counts.sum()], 3_600.0, counts)
    assert arrivals.dispersion_by_scale == dispersion_by_scale(counts, 1.0)
    assert arrivals.dispersion == dict(arrivals.dispersion_by_scale)[10.0]
    workload = Workload.from_requests([1], [1], 1.0, None, 3.0, arrivals.dispersion_by_scale)
    assert workload.dispersion_at(10.0) == pytest.approx(arrivals.dispersion)
    assert Workload.from_requests([1], [1], 1.0, dispersion=3.0).dispersion_at(0.2) == 3.0
