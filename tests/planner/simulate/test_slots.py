"""The slot-level loop against queues whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.erlang import erlang_c
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.simulate.simulation import simulate_slots, slot_service_s
from fleetopt.planner.simulate.slots import waits_s
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, PATIENT, chat, request_for
from tests.planner.simulate.examples import fleet, poisson, pool, stream


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 3.2), (20, 16.0)])
def test_exponential_service_waits_as_erlang_says(servers: int, load: float) -> None:
    rng = np.random.default_rng(1)
    count = 400_000
    wait_s = waits_s(
        np.cumsum(rng.exponential(1 / load, count)), rng.exponential(1, count), servers
    )
    delay = float(erlang_c(np.array([float(servers)]), np.array([load]))[0])
    assert (wait_s > 0).mean() == pytest.approx(delay, abs=0.02)
    assert wait_s.mean() == pytest.approx(delay / (servers - load), rel=0.08)


def test_deterministic_service_waits_as_pollaczek_khinchine_says() -> None:
    rng = np.random.default_rng(2)
    wait_s = waits_s(np.cumsum(rng.exponential(1 / 0.8, 400_000)), np.ones(400_000), 1)
    assert wait_s.mean() == pytest.approx(0.8 / (2 * 0.2), rel=0.05)


@PATIENT
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_nobody_overtakes_and_no_server_idles_while_somebody_waits(servers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrival_s, service_s = np.cumsum(rng.exponential(1.0, 200)), rng.exponential(servers, 200)
    start_s = arrival_s + waits_s(arrival_s, service_s, servers)
    end_s = start_s + service_s
    assert (np.diff(start_s) >= 0).all()
    for at in np.flatnonzero(start_s > arrival_s):
        while_waiting = (arrival_s[at] + start_s[at]) / 2
        busy = (start_s <= while_waiting) & (while_waiting < end_s)
        assert busy.sum() == servers


def test_utilization_is_the_planners() -> None:
    only = pool(replicas=8, slots=120)
    [figures] = simulate_slots(fleet(only), poisson(chat(), 60.0))
    grid = build(Workload.from_requests(*chat(), 60.0), request_for(H100))
    sums = grid.long_sums(np.array([ONE_POOL]))
    per_slot = H100.base_iteration_s * sums.per_s[1, 0] * (1 / 120 - 1 / sums.slot_count[0])
    expected = (sums.load[0] + per_slot) / 8
    assert figures.utilization == pytest.approx(expected, rel=0.03)  # of 20,000 arrivals
    assert figures.servers == 960


def test_a_slot_is_held_as_long_as_the_load_formula_says() -> None:
    only = pool(slots=10)
    i, o, chunk = 3_000.0, 100.0, H100.prefill_chunk_tokens
    iterations = i / chunk + 0.5 + o
    context = (i / chunk + 0.5) * i / 2 + o * (i + o / 2)
    expected = (H100.base_iteration_s + 10 * H100.per_sequence_s) * iterations
    expected += 10 * H100.per_context_token_s * context
    expected += 10 * (H100.prefill_token_s * i + H100.prefill_token_context_s * i * i / 2)
    assert slot_service_s(only, stream([0.0], 3_000, 100))[0] == pytest.approx(expected)
