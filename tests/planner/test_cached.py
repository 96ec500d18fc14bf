"""The prefix cache: what the formulas make of it against an iteration-level simulation."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetopt.planner.explain import Premise, Sensitivity, explain
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.moments import TokenMoments, cached_parts
from fleetopt.planner.plan import Plan, plan
from fleetopt.planner.prefill_queue import products_of
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.simulate.draw import poisson_stream
from fleetopt.planner.simulate.fleet import SimulatedFleet
from fleetopt.planner.simulate.simulation import simulate
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.workload import Workload
from tests.planner.examples import (
    H100,
    PATIENT,
    Tokens,
    chat,
    code,
    long_context,
    request_for,
    requests,
    workloads,
)


def turns(prompt: Tokens, seed: int = 4) -> Tokens:
    """Cached tokens as conversations have them: a fifth of the prompts is new, the rest grow."""
    rng = np.random.default_rng(seed)
    share = np.where(rng.random(prompt.size) < 0.2, 0.0, rng.uniform(0.4, 0.95, prompt.size))
    return (prompt * share).astype(np.int64)


@pytest.mark.parametrize(
    ("traffic", "rate", "replicas"),
    [(chat(), 60.0, 8), (code(), 40.0, 8), (long_context(), 8.0, 10)],
)
def test_utilization_is_that_of_the_simulation(
    traffic: tuple[Tokens, Tokens], rate: float, replicas: int
) -> None:
    prompt, completion = traffic
    cached = turns(prompt)
    request = request_for(H100, min_replicas=replicas, max_replicas=replicas, gamma_max=1.0)
    request = replace(request, boundary_tokens=32_768)
    workload = Workload.from_requests(prompt, completion, rate, cached_tokens=cached)
    found = plan(workload, request)
    assert isinstance(found, Plan)
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(1.0 / rate, prompt.size))
    stream = RequestStream(arrival_s, prompt, completion, cached, np.zeros(prompt.size, np.int64))
    figures = simulate(SimulatedFleet.of_plan(found, request), stream).pools[0]
    assert figures.utilization == pytest.approx(found.short.utilization, rel=0.02)


def one_in_ten_missing(prompt: Tokens) -> Tokens:
    """Nine tenths of most prompts, and nothing of the others."""
    hit = np.random.default_rng(9).random(prompt.size) >= 0.1
    return np.where(hit, 0.9 * prompt, 0.0).astype(np.int64)


@pytest.mark.parametrize("cache", [turns, one_in_ten_missing])
@pytest.mark.parametrize(
    ("traffic", "rate", "replicas"),
    [(chat(40_000), 90.0, 8), (code(40_000), 60.0, 8), (long_context(40_000), 12.0, 12)],
)
def test_those_that_miss_the_cache_are_seen_in_the_p99(
    cache: Callable[[Tokens], Tokens], traffic: tuple[Tokens, Tokens], rate: float, replicas: int
) -> None:
    """With every prompt cached to the mean share, it would be 30 to 80 % too low."""
    prompt, completion = traffic
    cached = cache(prompt)
    request = request_for(H100, min_replicas=replicas, max_replicas=replicas, gamma_max=1.0)
    request = replace(request, boundary_tokens=32_768)
    found = plan(Workload.from_requests(prompt, completion, rate, cached_tokens=cached), request)
    assert isinstance(found, Plan)
    arrival_s = np.cumsum(np.random.default_rng(5).exponential(1.0 / rate, prompt.size))
    stream = RequestStream(arrival_s, prompt, completion, cached, np.zeros(prompt.size, np.int64))
    ttft = simulate(SimulatedFleet.of_plan(found, request), stream).pools[0].ttft
    assert ttft is not None
    assert 0.94 * ttft.p99_s <= found.short.ttft_p99_s <= 1.5 * ttft.p99_s


@given(st.integers(1, 30_000), st.floats(0.0, 1.0))
def test_products_are_those_of_what_is_computed_and_the_pairs(i: int, share: float) -> None:
    g = int(share * (i - 1))
    u, q = float(i - g), float(i * i - g * g)
    expected = [u, q, u * u, u * q, q * q, u**3, u * u * q, u * q * q, q**3]
    assert products_of(np.array(float(i)), np.array(u)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("target", ["60s", "1500ms", "400ms+0.3ms/token"])
def test_half_of_every_prompt_cached_needs_fewer_replicas(target: str) -> None:
    cold = Workload.from_requests(*code(), 100.0)
    request = request_for(H100, target)
    found = [plan(traffic, request) for traffic in (cold, cold.with_cached_share(0.5))]
    before, after = found
    assert isinstance(before, Plan)
    assert isinstance(after, Plan)
    assert after.short_replicas + after.long_replicas < before.short_replicas + before.long_replicas
    assert after.cost_usd_per_h < 0.8 * before.cost_usd_per_h


def test_an_explanation_says_what_a_cold_cache_would_cost() -> None:
    workload = Workload.from_requests(*code(), 100.0)
    request = request_for(H100)
    assert _cold(workload, request) == []
    warm = workload.with_cached_share(0.5)
    (one,) = _cold(warm, request)
    cold = plan(workload, request)
    assert isinstance(cold, Plan)
    assert one.value == 0.0
    assert one.cost_per_h == pytest.approx(cold.cost_usd_per_h)


def _cold(workload: Workload, request: PlanRequest) -> list[Sensitivity]:
    found = plan(workload, request)
    assert isinstance(found, Plan)
    why = explain(workload, request, found)
    return [one for one in why.sensitivities if one.premise is Premise.CACHED_SHARE]


@settings(PATIENT, max_examples=60)
@given(workloads(), requests(), st.floats(0.0, 1.0))
def test_at_equal_slots_a_warm_cache_is_never_more_load(
    workload: Workload, request: PlanRequest, share: float
) -> None:
    """But for what reading a short prefix costs, where prefill is free."""
    request = replace(request, admission=Admission.RESERVED)
    cold, warm = (build(workload.with_cached_share(each), request) for each in (0.0, share))
    cells = np.append(ONE_POOL, cold.cells)
    for kind in ("short", "long"):
        before, after = (getattr(grid, f"{kind}_sums")(cells) for grid in (cold, warm))
        engine = getattr(request, f"{kind}_profile")
        most_s = engine.per_context_token_s * engine.prefill_chunk_tokens / 32
        room = most_s * before.per_s[REQUESTS]
        finite = np.isfinite(before.load)
        rounding = 1e-9 * before.load[finite].max(initial=0.0) + 1e-12
        assert (after.load[finite] <= (before.load + room)[finite] + rounding).all()


@settings(PATIENT, max_examples=30)
@given(workloads(), requests())
def test_what_is_compressed_has_nothing_cached(workload: Workload, request: PlanRequest) -> None:
    """So a short pool's compressed requests are as many tokens to compute as without a cache."""
    cold, warm = (build(workload.with_cached_share(each), request) for each in (0.0, 0.9))
    shorts = [grid.short_sums(grid.cells).per_s for grid in (cold, warm)]
    own = [grid.below[:, grid.cells % grid.rows] for grid in (cold, warm)]
    without, with_cache = (total - below for total, below in zip(shorts, own, strict=True))
    assert np.allclose(without, with_cache, rtol=1e-6, atol=1e-6 * np.abs(shorts[0]).max())


@given(
    st.lists(st.tuples(st.integers(1, 9_000), st.floats(0.0, 1.0)), min_size=1, max_size=30),
)
def test_hits_and_misses_keep_both_moments_and_no_more_requests_can_miss(
    rows: list[tuple[int, float]],
) -> None:
    prompt = np.full(len(rows), 9_000)
    cached = np.array([int(share * (tokens - 1)) for tokens, share in rows])
    moments = TokenMoments.from_requests(prompt, np.zeros_like(prompt), cached_tokens=cached)
    sums = moments.values.sum(axis=(0, 1))
    hit_share, part = (float(one) for one in cached_parts(sums))
    assert 0.0 <= hit_share <= 1.0 + 1e-12
    assert hit_share * part == pytest.approx(sums[6] / sums[1])
    assert hit_share * part * part == pytest.approx(sums[7] / sums[3])
    assert hit_share <= (cached > 0).mean() + 1e-9


def test_requests_are_drawn_with_what_the_moments_say_is_cached() -> None:
    prompt, completion = code()
    cached = turns(prompt)
    workload = Workload.from_requests(prompt, completion, 50.0, cached_tokens=cached)
    drawn = poisson_stream(workload, 200_000, seed=3)
    assert drawn.cached_tokens.mean() == pytest.approx(cached.mean(), rel=0.02)
    squares = np.square(drawn.cached_tokens.astype(float)).mean()
    assert squares == pytest.approx(np.square(cached.astype(float)).mean(), rel=0.04)
