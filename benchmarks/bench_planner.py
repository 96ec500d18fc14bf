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
from fleetopt.planner.many_pools import ManyPools, many_pools
from fleetopt.planner.moments import TokenMoments
from fleetopt.planner.plan import Plan, PlanRequest, loads, plan, search
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

TRAFFIC = {
    "chat": (900.0, 1.0, 180.0, 0.7),
    "code": (1_500.0, 0.9, 20.0, 0.8),
    "long": (5_900.0, 0.8, 200.0, 0.8),
}
"""Median and sigma of prompts, and of completions."""


def workload(rate_per_s: float, traffic: str = "chat") -> Workload:
    """20,000 seeded requests, at most 16,000 tokens long; of chat 6 % are over 4,096."""
    prompt_median, prompt_sigma, median, sigma = TRAFFIC[traffic]
    rng = np.random.default_rng(1)
    drawn = rng.lognormal(np.log(prompt_median), prompt_sigma, 20_000)
    prompt = np.minimum(drawn, 15_000).astype(np.int64) + 1
    drawn = rng.lognormal(np.log(median), sigma, 20_000)
    completion = np.minimum(drawn, 1_000).astype(np.int64) + 1
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


TARGETS = ["60s", "2s", "400ms+0.2ms/token"]


class TestSearch:
    @pytest.mark.parametrize("rate_per_s", [10.0, 100.0, 1_000.0, 10_000.0])
    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("traffic", TRAFFIC)
    def test_search(self, benchmark: Any, traffic: str, target: str, rate_per_s: float) -> None:
        measured, asked = workload(rate_per_s, traffic), request(target)
        told = {"traffic": traffic, "target": target, "rate_per_s": rate_per_s}
        benchmark.extra_info.update(told, cells=cells(asked))
        assert benchmark(search, measured, asked) is not None

    @pytest.mark.parametrize("target", ["60s", "2s"])
    @pytest.mark.parametrize(
        ("long_context_tokens", "gamma_max"),
        [(1_024, 2.0), (4_096, 2.0), (16_384, 2.0), (16_384, 2.0**2.5), (65_536, 2.0**2.5)],
        ids=lambda limit: f"{limit:.4g}" if isinstance(limit, float) else str(limit),
    )
    def test_search_over(
        self, benchmark: Any, long_context_tokens: int, gamma_max: float, target: str
    ) -> None:
        traffic, asked = workload(1_000.0), request(target, long_context_tokens, gamma_max)
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


class TestManyPools:
    """1 to 4 pools over 64 boundaries and 1, 9 and 21 steps of γ."""

    @pytest.mark.parametrize("gamma_max", [1.0, 2.0, 2.0**2.5], ids=["1", "2", "5.7"])
    @pytest.mark.parametrize("target", ["2s", "400ms+0.2ms/token"])
    def test_pools_1_to_4(self, benchmark: Any, target: str, gamma_max: float) -> None:
        traffic, asked = workload(1_000.0), request(target, gamma_max=gamma_max)
        benchmark.extra_info["cells"] = cells(asked)
        found = benchmark(many_pools, traffic, asked, 4)
        assert isinstance(found, ManyPools)


class TestMoments:
    @pytest.mark.parametrize("rows", [250, 10_000])
    def test_moments_of_a_batch(self, benchmark: Any, rows: int) -> None:
        rng = np.random.default_rng(1)
        prompt, completion = rng.integers(1, 8_000, rows), rng.integers(1, 500, rows)
        classes = rng.integers(0, 3, rows)
        benchmark.extra_info["rows"] = rows
        moments = benchmark(TokenMoments.from_requests, prompt, completion, classes)
        assert moments.count == rows
