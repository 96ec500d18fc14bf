"""Best-first search against looking at every cell one by one; the grid against its requests."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from fleetopt.planner.band import KEPT_PROMPT_SHARE, compressed
from fleetopt.planner.bounds import lower_bounds
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.grid import ONE_POOL, Grid, build
from fleetopt.planner.loose import surely_meets
from fleetopt.planner.moments import MOMENTS, Compressibility
from fleetopt.planner.pool import least_replicas, size, violation_share
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.search import cheapest
from fleetopt.planner.service import ITERATIONS, PROMPT, PROMPT_SQ, REQUESTS
from fleetopt.planner.ttft import Bursts
from fleetopt.planner.workload import Workload
from tests.planner.examples import (
    H100,
    PATIENT,
    Tokens,
    chat,
    lognormal,
    request_for,
    requests,
    workloads,
)


def fewest(grid: Grid, cell: int, name: str) -> float:
    """Replicas of one pool, counted up from one; infinite beyond 300."""
    pools = getattr(grid, f"{name}_pools")(np.array([cell]))
    request = grid.request
    for count in range(1, 301):
        replicas = np.array([float(count)])
        if replicas[0] < least_replicas(pools.load, request)[0]:
            continue
        over = violation_share(pools, replicas, request, grid.bursts, request.slo_ttft_p99)
        if over[0] <= 0.01:
            return float(count)
    return np.inf


def cost_of(grid: Grid, cell: int, name: str) -> float:
    """What the fewest replicas of one pool cost, from its price or its power."""
    request = grid.request
    engine = request.short_profile if name == "short" else request.long_profile
    replicas = fewest(grid, cell, name)
    if request.minimise is CostUnit.USD:
        return replicas * engine.price_usd_per_replica_h
    assert engine.max_power_w is not None
    assert engine.idle_power_w is not None
    assert engine.carbon_g_per_kwh is not None
    load = float(getattr(grid, f"{name}_pools")(np.array([cell])).load[0])
    idle_w = replicas * engine.idle_power_w
    busy_w = load * (engine.max_power_w - engine.idle_power_w)
    return engine.gpus_per_replica * (idle_w + busy_w) * engine.carbon_g_per_kwh / 1e6


def brute_force(grid: Grid) -> float:
    """The lowest cost over all cells."""
    best = cost_of(grid, ONE_POOL, "long")
    for cell in grid.cells.tolist():
        penalty = grid.moved[0, cell] * grid.request.compression_penalty * 3_600
        cost = cost_of(grid, cell, "long") + cost_of(grid, cell, "short") + penalty
        best = min(best, float(cost))
    return best


@pytest.mark.parametrize("target", ["60s", "700ms", "250ms+0.1ms/token"])
@pytest.mark.parametrize(
    ("rate_per_s", "idle_power_w"), [(2.0, None), (30.0, None), (2.0, 60.0), (30.0, 600.0)]
)
def test_best_first_finds_what_brute_force_finds(
    target: str, rate_per_s: float, idle_power_w: float | None
) -> None:
    request = request_for(H100, target, long_context_tokens=4_096, gamma_max=1.5)
    if idle_power_w:
        engine = replace(H100, idle_power_w=idle_power_w, max_power_w=700.0, carbon_g_per_kwh=350.0)
        request = replace(
            request,
            short_profile=engine,
            long_profile=replace(engine, carbon_g_per_kwh=300.0),
            minimise=CostUnit.CARBON,
        )
    prompt, completion = chat(3_000)
    kept = prompt + completion <= 4_096
    grid = build(Workload.from_requests(prompt[kept], completion[kept], rate_per_s), request)
    found = cheapest(grid, np.append(ONE_POOL, grid.cells))
    assert found is not None
    assert found.cost_per_h == pytest.approx(brute_force(grid))


@settings(PATIENT, max_examples=60)
@given(workloads(), requests())
def test_more_replicas_never_violate_more(workload: Workload, request: PlanRequest) -> None:
    grid = build(workload, request)
    pools = grid.long_pools(np.array([ONE_POOL]))
    floor = least_replicas(pools.load, request)
    if not np.isfinite(floor[0]):
        return
    shares = [
        float(violation_share(pools, floor * k, request, Bursts(), request.slo_ttft_p99)[0])
        for k in (1.0, 1.5, 2.0, 4.0, 16.0)
    ]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert all(a >= b - 1e-9 for a, b in pairwise(shares))


@settings(PATIENT, max_examples=60)
@given(workloads(), requests())
def test_no_request_is_lost_or_counted_twice(workload: Workload, request: PlanRequest) -> None:
    grid = build(workload, request)
    served = grid.moments[0].sum()
    total = grid.short_sums(grid.cells).per_s[REQUESTS] + grid.long_sums(grid.cells).per_s[REQUESTS]
    assert np.allclose(total, served, rtol=1e-9)
    assert served == pytest.approx(
        workload.arrival_rate_per_s * (1.0 - grid.unservable_share), rel=1e-9
    )
    for cells in np.array_split(grid.cells, 20):
        shorts, longs = grid.short_pools(cells), grid.long_pools(cells)
        for pools in (shorts, longs):
            busy = pools.sums.per_s[REQUESTS] > served * 1e-9
            mean = (pools.mix.share * pools.mix.tokens).sum(axis=1)
            expected = pools.sums.per_s[PROMPT] / np.maximum(pools.sums.per_s[REQUESTS], 1e-300)
            # the points of a bin keep the mean; where the lower one would be negative it is 0,
            # and prompts are taken to be longer than they are. What compression leaves of a bin
            # is taken to be like the whole bin, so long pools are checked without compression.
            told = busy if pools is shorts else busy & (cells < grid.rows)
            assert (mean[told] >= expected[told] * (1 - 1e-6)).all()


def compress_each(
    traffic: tuple[Tokens, Tokens], boundary: int, top: int
) -> tuple[Tokens, NDArray[np.bool_], NDArray[np.bool_]]:
    """Prompts after compression request by request, who was compressed, and who is short."""
    prompt, completion = traffic
    length = prompt + completion
    room = completion <= boundary * (1.0 - KEPT_PROMPT_SHARE)
    moved = (length > boundary) & (length <= top) & room
    return np.where(moved, boundary - completion, prompt), moved, moved | (length <= boundary)


BANDS = [(1_024, 8), (2_048, 4), (2_048, 8), (724, 5)]


@pytest.mark.parametrize(("boundary", "step"), BANDS)
def test_compressed_work_agrees_with_each_request_compressed(boundary: int, step: int) -> None:
    traffic = lognormal(4, 20_000, (900.0, 100.0), (0.8, 0.3), 16_384)
    request = request_for(H100, compressible_share=1.0)
    grid = build(Workload.from_requests(*traffic, 1_000.0), request)
    row = grid.row_of(boundary)
    cell = step * grid.rows + row
    i, moved, short = compress_each(traffic, boundary, int(grid.boundaries[row + step]))
    rate = 1_000.0 / i.size
    assert grid.moved[0, cell] == pytest.approx(moved.sum() * rate, rel=0.01)
    cells = np.array([cell])
    for sums, chosen in ((grid.short_sums(cells), short), (grid.long_sums(cells), ~short)):
        exact = {
            REQUESTS: chosen.sum(),
            ITERATIONS: (i[chosen] / 2048 + 0.5 + traffic[1][chosen]).sum(),
            PROMPT: i[chosen].sum(),
            PROMPT_SQ: (i[chosen].astype(float) ** 2).sum(),
        }
        for feature, expected in exact.items():
            assert sums.per_s[feature, 0] == pytest.approx(expected * rate, rel=0.01)


@pytest.mark.parametrize(("boundary", "step"), BANDS)
def test_widely_spread_outputs_compress_about_as_many_as_possible(boundary: int, step: int) -> None:
    traffic = chat()
    request = request_for(H100, compressible_share=1.0)
    grid = build(Workload.from_requests(*traffic, 1_000.0), request)
    row = grid.row_of(boundary)
    _, moved, _ = compress_each(traffic, boundary, int(grid.boundaries[row + step]))
    possible = moved.sum() / moved.size * 1_000.0
    assert grid.moved[0, step * grid.rows + row] == pytest.approx(possible, rel=0.02)


@settings(PATIENT, max_examples=150)
@given(workloads(), requests())
def test_what_the_shortcut_accepts_the_whole_model_accepts(
    workload: Workload, request: PlanRequest
) -> None:
    grid = build(workload, request)
    for cell in np.append(ONE_POOL, grid.cells[::29]).tolist():
        pools = grid.long_pools(np.array([cell]))
        count = least_replicas(pools.load, request)
        if not np.isfinite(count[0]):
            continue
        if long_surely_meets(grid, cell, count):
            over = violation_share(pools, count, request, grid.bursts, request.slo_ttft_p99)
            assert over <= 0.01


def long_surely_meets(grid: Grid, cell: int, count: NDArray[np.float64]) -> bool:
    """What the shortcut says of a cell's long pool."""
    cells, request = np.array([cell]), grid.request
    _, prompts = grid.prompt_bounds(cells)
    asked = (1.21 * grid.boundaries[[-1]], count, request.long_profile, request, grid.bursts)
    return surely_meets(grid.long_sums(cells), prompts, *asked)


def test_the_shortcut_sees_what_compression_leaves() -> None:
    # What is left long is nearly all cached, and what was compressed was not. The prompt points
    # take what is left for a part of the whole bin, and so fill the pool to its brim.
    left = (np.full(20, 3_000), np.full(20, 10), np.full(20, 2_990))
    moved = (np.full(20, 3_100), np.full(20, 10), np.zeros(20, dtype=np.int64))
    prompt, completion, cached = (np.concatenate(both) for both in zip(left, moved, strict=True))
    classes = np.repeat([Compressibility.FIXED, Compressibility.COMPRESSIBLE], 20)
    workload = Workload.from_requests(prompt, completion, 100.0, classes, cached_tokens=cached)
    engine = replace(
        H100,
        base_iteration_s=31e-3,
        per_context_token_s=2e-7,
        prefill_token_s=150e-6,
        prefill_token_context_s=0.0,
        prefill_chunk_tokens=512,
        kv_capacity_tokens=81_920,
    )
    asked = request_for(engine, "5s", long_context_tokens=8_192, max_utilization=0.5)
    grid = build(workload, replace(asked, admission=Admission.RESERVED))
    cells = np.array([4 * grid.rows + grid.row_of(2_896)])
    pools = grid.long_pools(cells)
    by_work = pools.sums.per_s[PROMPT] / pools.sums.per_s[REQUESTS]
    means, at_least = grid.prompt_bounds(cells)[1], pools.mix.products
    assert by_work[0] < 0.1 * at_least[0, 0]
    assert means[0] == pytest.approx(at_least[0], rel=1e-12)
    assert means[1] >= at_least[1] * (1.0 - 1e-12)
    count = least_replicas(pools.load, grid.request)
    over = violation_share(pools, count, grid.request, grid.bursts, grid.request.slo_ttft_p99)
    assert over[0] > 0.01
    assert not long_surely_meets(grid, int(cells[0]), count)


@settings(PATIENT, max_examples=60)
@given(workloads(), requests())
def test_prompt_bounds_are_those_of_the_points(workload: Workload, request: PlanRequest) -> None:
    grid = build(workload, request)
    cells = grid.cells[::7]
    both = (grid.short_pools(cells), grid.long_pools(cells))
    for pools, (u, q) in zip(both, grid.prompt_bounds(cells), strict=True):
        busy = pools.mix.share.any(axis=1)
        np.testing.assert_allclose(u[busy], pools.mix.products[0, busy], rtol=1e-9)
        assert (q[busy] >= pools.mix.products[1, busy] * (1.0 - 1e-9)).all()


def test_the_shortcut_accepts_a_minute() -> None:
    grid = build(Workload.from_requests(*chat(2_000), 500.0), request_for(H100))
    count = least_replicas(grid.long_sums(np.array([ONE_POOL])).load, grid.request)
    assert long_surely_meets(grid, ONE_POOL, count)
    hasty = replace(grid, request=request_for(H100, "500ms"))
    assert not long_surely_meets(hasty, ONE_POOL, count)


def test_sizes_are_limited_by_what_is_asked() -> None:
    prompt, completion = chat(2_000)
    workload = Workload.from_requests(prompt, completion, 100.0)
    grid = build(workload, request_for(H100, min_replicas=40))
    assert size(grid.long_pools(np.array([ONE_POOL])), grid.request, Bursts())[0] == 40
    grid = build(workload, request_for(H100, max_replicas=3))
    assert size(grid.long_pools(np.array([ONE_POOL])), grid.request, Bursts())[0] == np.inf


@settings(PATIENT, max_examples=60)
@given(workloads(), requests())
def test_no_cell_costs_less_than_its_bound(workload: Workload, request: PlanRequest) -> None:
    grid = build(workload, request)
    bound = lower_bounds(grid)
    for name, least, rate in (
        ("short", bound.short, request.short_rate),
        ("long", bound.long, request.long_rate),
    ):
        exact = getattr(grid, f"{name}_sums")(grid.cells).load * (1 + 1e-9)
        cost = least_replicas(exact, request) * rate.per_replica + exact * rate.per_load
        assert (least[grid.cells] <= cost * (1 + 1e-9)).all()


def test_what_may_be_compressed_is_judged_by_its_own_outputs() -> None:
    # A prose request whose output alone exceeds B, in a bin with a code request of little output.
    prompt, completion = np.array([5, 69, 40]), np.array([65, 1, 10])
    classes = np.array([Compressibility.COMPRESSIBLE, Compressibility.FIXED, Compressibility.FIXED])
    workload = Workload.from_requests(prompt, completion, 3.0, classes)
    grid = build(workload, request_for(H100))
    boundary = np.array([64])
    cells = grid.rows * np.arange(1, grid.steps) + grid.row_of(int(boundary[0]))
    assert grid.moved[0, cells].max() == 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        i, o = rng.integers(1, 400, (2, 60))
        mixed = Workload.from_requests(i, o, 3.0, rng.integers(0, 3, 60))
        drawn = build(mixed, request_for(H100))
        moved = drawn.moved[:, drawn.cells]
        room = drawn.boundaries[drawn.cells % drawn.rows] * KEPT_PROMPT_SHARE
        left = moved[0] * drawn.boundaries[drawn.cells % drawn.rows] - moved[2]
        assert (left >= moved[0] * room - 1e-9).all()
        arrived = compressed(moved[:MOMENTS], drawn.boundaries[drawn.cells % drawn.rows])
        assert (arrived >= -1e-9).all()
