"""Pools sized together against pools sized one by one."""

from dataclasses import replace

import numpy as np
import pytest

from fleetopt.planner.contest import Ends, Sides, first_tries, settle
from fleetopt.planner.grid import ONE_POOL, Grid, build
from fleetopt.planner.pool import size
from fleetopt.planner.search import cheapest
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, chat, request_for

SLOWER = replace(H100, base_iteration_s=2.0 * H100.base_iteration_s, price_usd_per_gpu_h=1.0)


def grid_for(
    target: str, rate_per_s: float, *, short_is_slower: bool = False, most: int | None = None
) -> Grid:
    request = request_for(H100, target, long_context_tokens=8_192, gamma_max=2.0)
    request = replace(request, max_replicas=most)
    if short_is_slower:
        request = replace(request, short_profile=SLOWER)
    return build(Workload.from_requests(*chat(4_000), rate_per_s), request)


def sides_of(grid: Grid) -> Sides:
    cells = np.append(ONE_POOL, grid.cells)
    short, long = grid.both_sums(cells)
    return Sides.of(grid, cells, short, long, grid.moved[0, cells] * 1e-3)


def one_by_one(grid: Grid, sides: Sides) -> tuple[np.ndarray, np.ndarray]:
    """Fewest replicas of every pool, and what each cell costs with them."""
    short = size(grid.short_pools(sides.cells), grid.request, grid.bursts)
    long = size(grid.long_pools(sides.cells), grid.request, grid.bursts)
    counts = np.concatenate([np.where(sides.cells == ONE_POOL, 0.0, short), long])
    return counts, sides.cost(counts)


@pytest.mark.parametrize("short_is_slower", [False, True])
@pytest.mark.parametrize("rate_per_s", [3.0, 40.0, 900.0])
@pytest.mark.parametrize("target", ["60s", "700ms", "300ms+0.2ms/token"])
def test_the_cheapest_is_that_of_all_sized_alone(
    target: str, rate_per_s: float, *, short_is_slower: bool
) -> None:
    grid = grid_for(target, rate_per_s, short_is_slower=short_is_slower)
    sides = sides_of(grid)
    counts, cost = one_by_one(grid, sides)
    for ends in (Ends.untried(grid, sides), first_tries(grid, sides)):
        settled = settle(grid, sides, ends, np.inf)
        assert settled is not None
        at, found = settled
        assert cost[at] == pytest.approx(cost.min(), rel=1e-9)
        assert found.tolist() == counts.reshape(2, -1)[:, at].tolist()


@pytest.mark.parametrize("most", [2, 5, 8, 30])
def test_a_limit_on_replicas_holds(most: int) -> None:
    grid = grid_for("300ms+0.2ms/token", 40.0, most=most)
    sides = sides_of(grid)
    _, cost = one_by_one(grid, sides)
    settled = settle(grid, sides, first_tries(grid, sides), np.inf)
    if not np.isfinite(cost).any():
        assert settled is None
        return
    assert settled is not None
    assert settled[1].max() <= most
    assert cost[settled[0]] == pytest.approx(cost.min(), rel=1e-9)


def test_nothing_dearer_than_the_limit_is_found() -> None:
    grid = grid_for("300ms+0.2ms/token", 40.0)
    sides = sides_of(grid)
    _, cost = one_by_one(grid, sides)
    dearest = float(cost.min())
    assert settle(grid, sides, Ends.untried(grid, sides), dearest * 0.999) is None
    assert settle(grid, sides, Ends.untried(grid, sides), dearest) is not None


def test_after_few_rounds_the_fleet_is_enough_and_not_cheaper() -> None:
    grid = grid_for("300ms+0.2ms/token", 900.0)
    sides = sides_of(grid)
    counts, cost = one_by_one(grid, sides)
    settled = settle(grid, sides, first_tries(grid, sides), np.inf, rounds=1)
    assert settled is not None
    at, found = settled
    assert (found >= counts.reshape(2, -1)[:, at]).all()
    assert cost.min() <= sides.cost(np.repeat(found, sides.cells.size))[at]


@pytest.mark.parametrize("target", ["700ms", "250ms+0.1ms/token"])
def test_the_search_finds_no_dearer_fleet_than_all_cells_have(target: str) -> None:
    grid = grid_for(target, 200.0)
    cells = np.append(ONE_POOL, grid.cells)
    short, long = grid.both_sums(cells)
    fixed = grid.moved[0, cells] * grid.request.compression_penalty * 3_600.0
    _, cost = one_by_one(grid, Sides.of(grid, cells, short, long, fixed))
    fleet = cheapest(grid, cells)
    assert fleet is not None
    assert fleet.cost_per_h == pytest.approx(float(cost.min()))
