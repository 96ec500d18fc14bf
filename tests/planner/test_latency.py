"""Predicted P99 TTFT against an iteration-level simulation: never below, and not far above."""

from dataclasses import replace

import numpy as np
import pytest

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.pool import Sums
from fleetopt.planner.report import pool_plan
from fleetopt.planner.service import load
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, PAPER, Tokens, chat, code, long_context, request_for
from tests.planner.iteration_oracle import simulated_ttft_p99_s

# engine, traffic, arrivals per second, replicas, slots of each
CASES = [
    (H100, chat(), 20.0, 4, 150),
    (H100, chat(), 60.0, 8, 150),
    (H100, chat(), 5.0, 1, 150),
    (H100, code(), 30.0, 8, 100),
    (H100, code(), 20.0, 4, 100),
    (H100, code(), 4.0, 1, 100),
    (H100, long_context(12_000), 3.0, 8, 20),
    (H100, long_context(12_000), 8.0, 16, 20),
    (PAPER, chat(), 60.0, 4, 120),
    (PAPER, code(), 80.0, 2, 60),
]
FULL_SLOTS = [
    (H100, chat(), 4.5, 2, 12),
    (H100, chat(), 20.0, 8, 12),
    (H100, long_context(12_000), 0.9, 2, 4),
    (H100, long_context(12_000), 3.5, 8, 4),
]


def predicted_s(
    engine: EngineProfile, traffic: tuple[Tokens, Tokens], rate: float, replicas: int, slots: int
) -> float:
    """P99 TTFT that the planner predicts for a pool with a given number of slots."""
    grid = build(Workload.from_requests(*traffic, rate), request_for(engine))
    pools = grid.long_pools(np.array([ONE_POOL]))
    given = np.array([float(slots)])
    per_s = pools.sums.per_s
    pools = replace(pools, sums=Sums(per_s, given, load(per_s, given, engine)))
    return pool_plan("short", pools, 32_768, replicas, grid).ttft_p99_s


@pytest.mark.parametrize(("engine", "traffic", "rate", "replicas", "slots"), CASES)
def test_prediction_is_on_the_safe_side(
    engine: EngineProfile, traffic: tuple[Tokens, Tokens], rate: float, replicas: int, slots: int
) -> None:
    simulated = simulated_ttft_p99_s(engine, replicas, slots, rate, *traffic, seed=7)
    predicted = predicted_s(engine, traffic, rate, replicas, slots)
    most = 1.27
    assert 0.96 * simulated <= predicted <= most * simulated  # P99 of the sample itself: ± 3 %


@pytest.mark.parametrize(("engine", "traffic", "rate", "replicas", "slots"), FULL_SLOTS)
def test_waits_for_slots_are_on_the_safe_side(
    engine: EngineProfile, traffic: tuple[Tokens, Tokens], rate: float, replicas: int, slots: int
) -> None:
    simulated = simulated_ttft_p99_s(engine, replicas, slots, rate, *traffic, seed=7)
    predicted = predicted_s(engine, traffic, rate, replicas, slots)
    assert 0.9 * simulated <= predicted <= 2.0 * simulated  # bursts of full slots: ± 10 %


def test_bursts_make_requests_wait() -> None:
    def wait_s(dispersion: float) -> float:
        workload = Workload.from_requests(*chat(), 40.0, dispersion=dispersion)
        grid = build(workload, request_for(H100))
        return pool_plan("short", grid.long_pools(np.array([ONE_POOL])), 32_768, 6, grid).wait_p99_s

    assert wait_s(1.0) < wait_s(4.0) < wait_s(40.0)
