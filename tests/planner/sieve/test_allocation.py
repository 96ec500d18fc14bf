"""Allocations against every one that there is, and against an integer program."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from fleetopt.planner.sieve.allocation import allocate, allocation_of
from fleetopt.planner.sieve.grid import Configuration, Grid, RequestClass

Array = NDArray[np.float64]


def fleet(demand_per_s: list[float], sizes: list[int]) -> Grid:
    """A grid of which only demands and sizes matter."""
    shape = (len(demand_per_s), len(sizes), 1)
    return Grid(
        tuple(RequestClass(f"class{n}", one, 1.0) for n, one in enumerate(demand_per_s)),
        tuple(Configuration(f"configuration{n}", one) for n, one in enumerate(sizes)),
        np.ones(shape),
        np.ones(shape),
    )


def by_enumeration(rates: Array, grid: Grid, budget: int) -> tuple[float, float, int]:
    """Smallest fulfilment, requests per second and GPUs (negative) of the best allocation."""
    numbers = [range(budget // int(size) + 1) for _ in range(rates.shape[0]) for size in grid.gpus]
    best = (-1.0, -1.0, 0)
    for choice in product(*numbers):
        one = allocation_of(np.array(choice).reshape(rates.shape), rates, grid)
        if one.gpus <= budget:
            served = round(one.total_served_per_s, 9)
            best = max(best, (round(one.min_fulfilment, 9), served, -one.gpus))
    return best


@st.composite
def small_fleets(draw: st.DrawFn) -> tuple[Array, Grid, int]:
    """Two classes and two configurations on at most eight GPUs; rates may be zero or alike."""
    rate = st.one_of(st.just(0.0), st.integers(1, 40).map(lambda tenths: tenths / 10))
    rates = np.array(draw(st.lists(rate, min_size=4, max_size=4))).reshape(2, 2)
    demand = draw(st.lists(st.integers(1, 60).map(lambda n: n / 10), min_size=2, max_size=2))
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=2))
    return rates, fleet(demand, sizes), draw(st.integers(1, 8))


@settings(deadline=None, max_examples=60)
@given(small_fleets())
def test_no_allocation_is_better(case: tuple[Array, Grid, int]) -> None:
    rates, grid, budget = case
    found = allocate(rates, grid, budget)
    expected = by_enumeration(rates, grid, budget)
    assert found.gpus <= budget
    assert found.min_fulfilment == pytest.approx(expected[0], abs=1e-8)
    assert found.total_served_per_s == pytest.approx(expected[1], abs=1e-8)
    assert found.gpus == -expected[2]


def by_integer_program(rates: Array, grid: Grid, budget: int) -> tuple[float, float]:
    """Smallest fulfilment and requests per second, from HiGHS: replicas, served, fulfilment."""
    classes, configurations = rates.shape
    cells, unknowns = rates.size, rates.size + classes + 1
    rows = np.zeros((1 + 2 * classes, unknowns))
    rows[0, :cells] = np.tile(grid.gpus, classes)
    for one in range(classes):
        served = rows[1 + one]
        served[cells + one] = 1.0
        served[one * configurations : (one + 1) * configurations] = -rates[one]
        share = rows[1 + classes + one]
        share[-1], share[cells + one] = grid.demand_per_s[one], -1.0
    most = np.concatenate([[budget], np.zeros(2 * classes)])
    upper = np.concatenate([np.full(cells, budget), grid.demand_per_s, [1.0]])

    def solve(goal: Array, least_share: float) -> float:
        lower = np.zeros(unknowns)
        lower[-1] = least_share
        found = milp(
            -goal,
            constraints=LinearConstraint(rows, -np.inf, most),
            integrality=np.arange(unknowns) < cells,
            bounds=Bounds(lower, upper),
            options={"mip_rel_gap": 0.0},
        )
        assert found.success, found.message
        return -float(found.fun)

    share = solve(np.eye(unknowns)[-1], 0.0)
    total = np.zeros(unknowns)
    total[cells:-1] = 1.0
    return share, solve(total, share * (1.0 - 1e-7))


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_an_integer_program_finds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    classes, configurations = generator.integers(1, 5, 2)
    budget = int(generator.integers(1, 65))
    sizes = generator.choice([1, 2, 3, 4, 8], configurations)
    rates = generator.uniform(0.0, 3.0, (classes, configurations)) * sizes**0.9
    rates *= generator.random(rates.shape) > 0.25
    grid = fleet(list(generator.uniform(0.2, 2.0, classes) * budget / classes), list(sizes))
    found = allocate(rates, grid, budget)
    share, total = by_integer_program(rates, grid, budget)
    assert found.gpus <= budget
    assert found.min_fulfilment == pytest.approx(share, rel=1e-5, abs=1e-6)
    assert found.total_served_per_s == pytest.approx(total, rel=1e-5, abs=1e-6)


def test_a_class_that_nothing_serves_takes_no_gpus() -> None:
    grid = fleet([1.0, 2.0], [1, 2])
    found = allocate(np.array([[0.0, 0.0], [1.0, 1.5]]), grid, 8)
    assert found.min_fulfilment == 0.0
    assert found.replicas.tolist() == [[0, 0], [2, 0]]


def test_what_is_not_needed_stays_free() -> None:
    found = allocate(np.array([[1.0, 3.0]]), fleet([3.0], [1, 2]), 64)
    assert found.replicas.tolist() == [[0, 1]]
    assert found.gpus == 2
