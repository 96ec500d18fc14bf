"""Simulation speed, by pytest-benchmark: `pytest benchmarks/bench_simulate.py --benchmark-only`.

A sequence-iteration is one sequence in one iteration: ⌈i/ch⌉ + o − 1 of them for each request.
`extra_info` has them per second, requests per second, and whether loops were compiled. Drawing
requests and routing them is not timed; figures and percentiles are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetopt.config.profiles import load_profile
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.simulate.compiled import IS_COMPILED
from fleetopt.planner.simulate.draw import poisson_stream
from fleetopt.planner.simulate.fleet import Dispatch, SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.simulation import simulate, simulate_slots
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

H100 = load_profile("h100/qwen3-32b/tp2")
PAPER = load_profile("a100/llama-3-70b/paper")
CONTEXT = 16_384
REQUESTS = 500_000 if IS_COMPILED else 20_000

CHAT = (900.0, 0.8, 180.0, 0.7)
CODE = (1_500.0, 0.9, 20.0, 0.8)
LONG = (5_900.0, 1.0, 200.0, 0.8)
CASES = {
    "chat, 4 replicas": (H100, CHAT, 20.0, 4, 150),
    "chat, 120 replicas": (H100, CHAT, 1_000.0, 120, 150),
    "code, 8 replicas": (H100, CODE, 30.0, 8, 100),
    "code, 250 replicas": (H100, CODE, 1_000.0, 250, 100),
    "long, 16 replicas": (H100, LONG, 8.0, 16, 20),
    "chat, 4 replicas, paper": (PAPER, CHAT, 60.0, 4, 120),
}


def requests(shape: tuple[float, float, float, float], rate_per_s: float) -> RequestStream:
    """Lognormal lengths, 20,000 of them, kept as moments and drawn from."""
    rng = np.random.default_rng(1)
    prompt = rng.lognormal(np.log(shape[0]), shape[1], 20_000).astype(np.int64) + 1
    completion = rng.lognormal(np.log(shape[2]), shape[3], 20_000).astype(np.int64) + 1
    completion = np.minimum(completion, 2_000)
    prompt = np.minimum(prompt, CONTEXT - completion)
    return poisson_stream(Workload.from_requests(prompt, completion, rate_per_s), REQUESTS, seed=1)


def fleet(engine: EngineProfile, replicas: int, slots: int) -> SimulatedFleet:
    """One pool with reserved slots."""
    pool = SimulatedPool("short", engine, CONTEXT, replicas, slots, is_paged=False)
    return SimulatedFleet(pool, None, CONTEXT, CONTEXT, 0.0, TtftTarget(2.0))


def note(benchmark: Any, engine: EngineProfile, stream: RequestStream) -> None:
    """Turn the best round into rates."""
    chunks = -(-stream.prompt_tokens // engine.prefill_chunk_tokens)
    iterations = int((chunks + stream.completion_tokens - 1).sum())
    benchmark.extra_info["compiled"] = IS_COMPILED
    if benchmark.stats is not None:
        least_s = benchmark.stats.stats.min
        benchmark.extra_info["requests_per_s"] = round(len(stream) / least_s)
        benchmark.extra_info["sequence_iterations_per_s"] = round(iterations / least_s)


@pytest.mark.parametrize("case", CASES)
def test_iteration_level(benchmark: Any, case: str) -> None:
    engine, shape, rate_per_s, replicas, slots = CASES[case]
    chosen, stream = fleet(engine, replicas, slots), requests(shape, rate_per_s)
    seen = benchmark.pedantic(simulate, (chosen, stream), rounds=3, warmup_rounds=1)
    note(benchmark, engine, stream)
    assert not seen.is_diverging


def test_iteration_level_by_work(benchmark: Any) -> None:
    engine, shape, rate_per_s, replicas, slots = CASES["code, 250 replicas"]
    chosen, stream = fleet(engine, replicas, slots), requests(shape, rate_per_s)
    options = {"dispatch": Dispatch.LEAST_WORK}
    seen = benchmark.pedantic(simulate, (chosen, stream), options, rounds=3, warmup_rounds=1)
    note(benchmark, engine, stream)
    assert not seen.is_diverging


@pytest.mark.parametrize("case", ["chat, 4 replicas", "chat, 120 replicas"])
def test_slot_level(benchmark: Any, case: str) -> None:
    engine, shape, rate_per_s, replicas, slots = CASES[case]
    chosen, stream = fleet(engine, replicas, slots), requests(shape, rate_per_s)
    [seen] = benchmark.pedantic(simulate_slots, (chosen, stream), rounds=3, warmup_rounds=1)
    note(benchmark, engine, stream)
    assert not seen.growth.is_diverging
