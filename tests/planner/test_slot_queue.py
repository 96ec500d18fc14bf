"""The wait for a slot where its answer is known: at a constant speed, by Erlang and Hayward."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.erlang import erlang_c
from fleetopt.planner.mean_field import MeanField
from fleetopt.planner.service import ITERATIONS, ITERATIONS_SQ, REQUESTS, WORK
from fleetopt.planner.slot_queue import slot_queue
from tests.planner.examples import PAPER, PATIENT

CONSTANT = replace(PAPER, per_sequence_s=0.0, per_context_token_s=0.0)
"""Iterations take the same time, however many sequences there are."""


def queue(
    engine: EngineProfile, replicas: float, slots: float, busy: float, peakedness: float = 1.0
) -> tuple[float, float]:
    """P(wait) and the mean wait of those that do, with exponential lengths at one request/s.

    `busy` slots would be taken if there were always a free one.
    """
    iterations = busy / engine.base_iteration_s
    per_s = np.zeros((WORK, 1))
    per_s[REQUESTS], per_s[ITERATIONS], per_s[ITERATIONS_SQ] = 1.0, iterations, 2.0 * iterations**2
    base_s, nothing = np.array([engine.base_iteration_s]), np.zeros(1)
    running = engine.per_sequence_s * per_s[ITERATIONS]
    sequences = np.array([busy / replicas]) / (1.0 - running / replicas)
    field = MeanField(running, base_s, base_s, nothing, sequences)
    delay, scale_s = slot_queue(
        per_s, np.array([slots]), np.array([replicas]), field, engine, peakedness
    )
    return float(delay[0]), float(scale_s[0])


@PATIENT
@given(st.integers(1, 60), st.integers(1, 300), st.floats(0.2, 0.99), st.sampled_from([1.0, 2.5]))
def test_at_a_constant_speed_it_is_erlang_c(
    replicas: int, slots: int, utilization: float, peakedness: float
) -> None:
    servers = float(replicas * slots)
    busy = utilization * servers
    delay, scale_s = queue(CONSTANT, replicas, slots, busy, peakedness)
    expected = float(erlang_c(servers / peakedness, busy / peakedness))
    assert delay == pytest.approx(expected, rel=1e-3, abs=1e-12)
    if delay:
        assert scale_s == pytest.approx(peakedness * busy / (servers - busy), rel=1e-9)


def test_iterations_that_slow_down_make_more_requests_wait() -> None:
    slower = replace(CONSTANT, per_sequence_s=2e-5)
    delay, _ = queue(slower, 8, 40, 200.0)
    assert delay > float(erlang_c(320.0, 200.0))


def test_more_work_than_the_replicas_can_do_always_waits() -> None:
    assert queue(CONSTANT, 2, 10, 25.0)[0] == 1.0
