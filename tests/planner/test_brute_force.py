"""The planner, from sums per length bin, against trying every token boundary on the requests."""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest

from benchmarks.brute_force import BruteForce
from benchmarks.regret import (
    GENERATED,
    SHARED,
    Requests,
    compare,
    mixed,
    question,
)
from fleetopt.planner.plan import Admission, PlanRequest
from tests.conftest import SHARED_DATA

needs_shared_data = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="../shared/data is not here"),
]
WORKLOADS = [
    *GENERATED,
    *(pytest.param(name, marks=needs_shared_data) for name in SHARED),
]
ENGINES = ["a100/llama-3-70b/paper", "h100/qwen3-32b/tp2"]
MOST = 0.01
# Boundaries lie on bin edges, up to 9 % apart. Where few windows fit into the cache, whole slots
# make the cost a saw of B, and the edge next to a tooth's foot misses it.
# Azure's chat outputs end earlier than the estimate of who leaves room under B expects.
MOST_OF = {"agent-heavy cdf": 0.02, "azure chat trace": 0.02}
# How many requests leave room under B is estimated from two moments of their outputs.
MOST_MISPRICED = 0.01


@cache
def requests(name: str) -> Requests:
    return {**GENERATED, **SHARED}[name]()


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("profile", ENGINES)
@pytest.mark.parametrize("admission", Admission)
class TestCostIsThatOfTheCheapestFleetThereIs:
    def test_without_compression(self, profile: str, name: str, admission: Admission) -> None:
        most = MOST_OF.get(name, MOST)
        self.check(name, question(profile, admission, gamma_max=1.0), most)

    def test_with_compression(self, profile: str, name: str, admission: Admission) -> None:
        self.check(name, question(profile, admission), MOST_OF.get(name, MOST))

    def check(self, name: str, asked: PlanRequest, most: float) -> None:
        for seen in compare(name, requests(name), asked):
            assert not seen.exceeds(most), seen
            # a fleet priced too low is one that can't do the work
            mispriced_usd = abs(seen.planned_usd_per_h - seen.priced_usd_per_h)
            rounding_usd = 1.01 * seen.replica_usd_per_h
            assert mispriced_usd < MOST_MISPRICED * seen.priced_usd_per_h + rounding_usd, seen


Share = tuple[float, float, float]
"""Prompt, output, and how much of the request is there."""


def replicas(pool: list[Share], window: int, asked: PlanRequest, rate_per_s: float) -> float:
    """Of one pool, request by request in plain Python, and slots counted up from one."""
    engine = asked.long_profile
    iterations = context = squares = prefill = 0.0
    for prompt, output, weight in pool:
        chunks = prompt / engine.prefill_chunk_tokens + 0.5
        iterations += weight * (chunks + output)
        context += weight * (chunks * prompt / 2 + output * (prompt + output / 2))
        squares += weight * (chunks * prompt**2 / 3 + ((prompt + output) ** 3 - prompt**3) / 3)
        prefill += weight * (
            engine.prefill_token_s * prompt + engine.prefill_token_context_s / 2 * prompt**2
        )
    cache_tokens, block = engine.kv_capacity_tokens, engine.kv_block_tokens
    slots = cache_tokens // (math.ceil(window / block) * block)
    if asked.admission is Admission.STATISTICAL:
        mean = context / iterations
        deviation = math.sqrt(squares / iterations - mean**2)
        z = NormalDist().inv_cdf(1 - asked.preemption_probability)
        while (slots + 1) * mean + max(
            math.sqrt(slots + 1) * z * deviation, window
        ) <= cache_tokens:
            slots += 1
    seconds = (engine.base_iteration_s / slots + engine.per_sequence_s) * iterations
    seconds += engine.per_context_token_s * context + prefill
    return seconds * rate_per_s / asked.max_utilization


@pytest.mark.parametrize("admission", Admission)
@pytest.mark.parametrize(("boundary", "gamma"), [(700, 1.0), (999, 2**0.625), (2_311, 2.0)])
def test_brute_force_prices_a_fleet_as_a_loop_over_its_requests(
    admission: Admission, boundary: int, gamma: float
) -> None:
    traffic = mixed(300)
    asked = question("h100/qwen3-32b/tp2", admission)
    short: list[Share] = []
    long: list[Share] = []
    moved = 0.0
    for prompt, output, kind in zip(
        traffic.prompt_tokens.tolist(),
        traffic.completion_tokens.tolist(),
        traffic.classes.tolist(),
        strict=True,
    ):
        length, share = prompt + output, (1.0, 0.0, asked.compressible_share)[kind]
        if length <= boundary:
            short.append((prompt, output, 1.0))
            continue
        if length > gamma * boundary or output > 0.875 * boundary:
            share = 0.0
        moved += share
        short.append((boundary - output, output, share))
        long.append((prompt, output, 1.0 - share))
    rate_per_request = 50.0 / traffic.prompt_tokens.size
    expected = moved * rate_per_request * asked.compression_penalty_usd * 3_600
    for pool, window in ((short, boundary), (long, asked.long_context_tokens)):
        needed = replicas(pool, window, asked, rate_per_request)
        expected += needed * asked.long_profile.price_usd_per_replica_h
    exact, whole = traffic.brute_force(asked).cost_at(boundary, gamma, 50.0)
    assert moved > 0.0 or gamma == 1.0
    assert exact == pytest.approx(expected, rel=1e-9)
    assert exact < whole <= exact + 2 * asked.long_profile.price_usd_per_replica_h


def test_brute_force_finds_the_lowest_of_its_costs() -> None:
    force = mixed(2_000).brute_force(question("h100/qwen3-32b/tp2"))
    exact, whole = force.cheapest(50.0)
    costs = list(force.all_costs(50.0))
    assert len(costs) == 9
    assert exact.cost_usd_per_h == min(float(one.exact.min()) for one in costs)
    assert force.cost_at(exact.boundary_tokens, exact.gamma, 50.0)[0] == exact.cost_usd_per_h
    assert force.cost_at(whole.boundary_tokens, whole.gamma, 50.0)[1] == whole.cost_usd_per_h


def test_requests_longer_than_the_context_are_left_out() -> None:
    prompt, completion = np.array([500, 40_000]), np.array([100, 100])
    asked = question("h100/qwen3-32b/tp2", gamma_max=1.0)
    both = BruteForce(prompt, completion, asked).one_pool(100.0)
    assert both == BruteForce(prompt[:1], completion[:1], asked).one_pool(50.0)
