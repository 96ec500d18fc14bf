"""Planner time, by pytest-benchmark: `pytest benchmarks/bench_planner.py --benchmark-only`.

`search` is all that the planner's time is stated for: from token moments to B, γ and both
counts, cumulative sums and bounds included. `plan` adds figures per pool and five baselines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetopt.config.profiles import load_profile
from fleetopt.planner.grid import build
from fleetopt.planner.moments import TokenMoments
from fleetopt.planner.plan import Plan, PlanRequest, loads, plan, search
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload


def workload(rate_per_s: float) -> Workload:
    """Chat-like lengths: 20,000 seeded requests, 6 % of them longer than 4,096 tokens."""
    rng = np.random.default_rng(1)
    prompt = np.minimum(rng.lognormal(np.log(900.0), 1.0, 20_000), 15_000).astype(np.int64) + 1
    completion = np.minimum(rng.lognormal(np.log(180.0), 0.7, 20_000), 1_000).astype(np.int64) + 1
    return Workload.from_requests(prompt, completion, rate_per_s)


def request(
    target: str = "2s", long_context_tokens: int = 16_384, gamma_max: float = 2.0**2.5
) -> PlanRequest:
    """By default 64 boundaries and 21 steps of γ."""
    engine = load_profile("h100/qwen3-32b/tp2")
    return PlanRequest(
        engine, engine, long_context_tokens, TtftTarget.parse(target), gamma_max=gamma_max
    )


def cells(asked: PlanRequest) -> int:
    """Boundaries times steps of γ."""
    grid = build(workload(1.0), asked)
    return (grid.rows - 1) * grid.steps


class TestSearch:
    @pytest.mark.parametrize("target", ["60s", "2s", "400ms+0.2ms/token"])
    def test_search_64_x_21(self, benchmark: Any, target: str) -> None:
        traffic, asked = workload(1_000.0), request(target)
        benchmark.extra_info["cells"] = cells(asked)
        assert benchmark(search, traffic, asked) is not None

    @pytest.mark.parametrize("rate_per_s", [10.0, 100.0, 10_000.0])
    def test_search_at_rate(self, benchmark: Any, rate_per_s: float) -> None:
        traffic, asked = workload(rate_per_s), request()
        benchmark.extra_info["cells"] = cells(asked)
        assert benchmark(search, traffic, asked) is not None

    @pytest.mark.parametrize(
        ("long_context_tokens", "gamma_max"), [(2_048, 2.0), (16_384, 2.0), (262_144, 4.0)]
    )
    def test_search_over(self, benchmark: Any, long_context_tokens: int, gamma_max: float) -> None:
        traffic, asked = workload(1_000.0), request("2s", long_context_tokens, gamma_max)
        benchmark.extra_info["cells"] = cells(asked)
        assert benchmark(search, traffic, asked) is not None


class TestPlan:
    @pytest.mark.parametrize("target", ["2s", "400ms+0.2ms/token"])
    def test_plan_64_x_21(self, benchmark: Any, target: str) -> None:
        traffic, asked = workload(1_000.0), request(target)
        benchmark.extra_info["cells"] = cells(asked)
        assert isinstance(benchmark(plan, traffic, asked), Plan)

    def test_loads_of_a_given_fleet(self, benchmark: Any) -> None:
        traffic, asked = workload(1_000.0), request()
        assert max(benchmark(loads, traffic, asked, 4_096, 2.0, 60, 20)) < 2.0


class TestMoments:
    @pytest.mark.parametrize("rows", [250, 10_000])
    def test_moments_of_a_batch(self, benchmark: Any, rows: int) -> None:
        rng = np.random.default_rng(1)
        prompt, completion = rng.integers(1, 8_000, rows), rng.integers(1, 500, rows)
        classes = rng.integers(0, 3, rows)
        benchmark.extra_info["rows"] = rows
        moments = benchmark(TokenMoments.from_requests, prompt, completion, classes)
        assert moments.count == rows
