"""What holds for every grid: intervals, certificates, stopping, and starting again."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleetopt.errors import ConfigError
from fleetopt.planner.sieve.allocation import allocate, allocation_of
from fleetopt.planner.sieve.decision import Verdict
from fleetopt.planner.sieve.evidence import Evidence, Noise
from fleetopt.planner.sieve.grid import Run
from fleetopt.planner.sieve.sieve import Sieve, State
from fleetopt.planner.sieve.table import Table
from tests.planner.sieve.examples import World, world, worlds

FEW = settings(deadline=None, max_examples=40)
ROUNDING = 1e-9


def made(sieve: Sieve, table: Table, limit: int) -> list[Run]:
    """The first runs that the sieve asks for, until it is certain."""
    runs: list[Run] = []
    while len(runs) < limit:
        state = sieve.state(Evidence.of(sieve.grid, runs))
        point = sieve.next_run(state)
        if point is None or sieve.is_certain(state):
            break
        runs.append(table.run(point, int(state.evidence.runs[point])))
    return runs


def truth_is_inside(state: State, table: Table) -> bool:
    """Whether the intervals hold the mean of all runs of every cell."""
    throughput, p99 = table.throughput_per_s.mean(axis=3), table.completion_p99_s.mean(axis=3)
    return all(
        np.all(known.low <= truth * (1.0 + ROUNDING))
        and np.all(truth <= known.high * (1.0 + ROUNDING))
        for known, truth in (
            (state.known.throughput_per_s, throughput),
            (state.known.completion_p99_s, p99),
        )
    )


@FEW
@given(worlds, st.booleans(), st.integers(0, 60), st.floats(0.0, 0.2))
def test_no_certificate_is_false_where_the_intervals_hold(
    drawn: World, has_prior: bool, limit: int, tolerance: float
) -> None:
    table, grid, budget = drawn.table, drawn.table.grid, 16
    sieve = Sieve(grid, budget, prior=drawn.prior if has_prior else None, tolerance=tolerance)
    state = sieve.state(Evidence.of(grid, made(sieve, table, limit)))
    assume(truth_is_inside(state, table))
    decision = state.decision
    oracle = allocate(table.usable_per_s, grid, budget)
    chosen = allocation_of(decision.conservative.replicas, table.usable_per_s, grid)
    assert chosen.min_fulfilment >= decision.conservative.min_fulfilment - ROUNDING
    assert oracle.min_fulfilment <= decision.optimistic.min_fulfilment + ROUNDING
    if decision.verdict is Verdict.FEASIBLE:
        assert chosen.min_fulfilment >= 1.0 - ROUNDING
    if decision.verdict is Verdict.INFEASIBLE:
        assert oracle.min_fulfilment < 1.0
    if sieve.is_certain(state):
        assert oracle.min_fulfilment - chosen.min_fulfilment <= tolerance + ROUNDING


@FEW
@given(worlds, st.booleans(), st.integers(0, 40))
def test_what_is_likely_lies_between_what_is_possible(
    drawn: World, has_prior: bool, limit: int
) -> None:
    sieve = Sieve(drawn.table.grid, 16, prior=drawn.prior if has_prior else None, tolerance=0.0)
    state = sieve.state(Evidence.of(sieve.grid, made(sieve, drawn.table, limit)))
    for known in (*state.known.__dict__.values(), state.usable_per_s):
        if isinstance(known, tuple):
            low, point, high = known
            assert np.all(low <= point)
            assert np.all(point <= high)
    assert state.decision.gap >= 0.0


@FEW
@given(worlds, st.data())
def test_whoever_starts_again_goes_on_as_before(drawn: World, data: st.DataObject) -> None:
    sieve = Sieve(drawn.table.grid, 16, prior=drawn.prior)
    runs = made(sieve, drawn.table, 30)
    stopped = data.draw(st.integers(0, len(runs)))
    evidence = Evidence.of(sieve.grid, runs[:stopped])
    for run in runs[stopped:]:
        assert sieve.next_run(sieve.state(evidence)) == run.point
        evidence = evidence.plus(run)


@FEW
@given(worlds)
def test_all_runs_leave_only_the_truth(drawn: World) -> None:
    table, grid = drawn.table, drawn.table.grid
    runs = [table.run(point, repeat) for point in grid.points() for repeat in range(grid.repeats)]
    state = Sieve(grid, 16).state(Evidence.of(grid, runs))
    assert Sieve(grid, 16).next_run(state) is None
    assert state.evidence.cost_gpu_s == pytest.approx(2.0 * grid.cost_gpu_s.sum())
    p99 = table.completion_p99_s.mean(axis=3)
    if np.all(np.diff(p99, axis=2) > 0.0):
        assert state.usable_per_s.low == pytest.approx(table.usable_per_s)
        assert state.usable_per_s.high == pytest.approx(table.usable_per_s)


def test_repeats_make_a_figure_more_certain() -> None:
    table = world(1, 16).table
    point = table.grid.points()[0]
    sieve = Sieve(table.grid, 16, noise=Noise(0.1, 0.2))
    widths = []
    for count in (1, 2):
        runs = [Run(point, 1.0, 10.0, 1.0)] * count
        p99 = sieve.state(Evidence.of(table.grid, runs)).known.completion_p99_s
        widths.append(p99.high[point] / p99.low[point])
    assert widths[0] > widths[1] == pytest.approx(1.0)


def test_a_run_that_misses_its_target_settles_the_loads_above() -> None:
    table = world(1, 16).table
    grid = table.grid
    point = grid.points()[2]
    cell = point[:2]
    state = Sieve(grid, 16).state(Evidence.of(grid, [Run(point, 1.0, 1e4, 1.0)]))
    assert np.all(state.known.completion_p99_s.low[cell][2:] > 30.0)
    assert state.usable_per_s.high[cell] <= grid.offered_per_s[cell][1]


def test_failed_requests_never_hold_a_target() -> None:
    table = world(1, 16).table
    point = table.grid.points()[0]
    failed = Run(point, 1.0, float("inf"), 1.0)
    state = Sieve(table.grid, 16).state(Evidence.of(table.grid, [failed]))
    assert state.usable_per_s.high[point[:2]] == 0.0


def test_a_prior_that_is_far_off_is_not_believed() -> None:
    drawn = world(1, 16)
    grid = drawn.table.grid
    point = grid.points()[1]
    sieve = Sieve(grid, 16, prior=drawn.prior)
    state = sieve.state(Evidence.of(grid, [Run(point, 1e-6, 1e6, 1.0)]))
    assert state.known.speed is not None
    assert state.known.speed.is_contradicted[point[:2]]
    assert state.known.completion_p99_s.low[point[:2]][0] == 0.0


@pytest.mark.parametrize(
    ("change", "path"),
    [({"budget": 0}, "budget"), ({"tolerance": 1.0}, "tolerance"), ({"tolerance": -0.1}, "tol")],
)
def test_bad_figures_are_refused(change: dict[str, float], path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        Sieve(**{"grid": world(0, 8).table.grid, "budget": 8} | change)  # type: ignore[arg-type]
