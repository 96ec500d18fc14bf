"""The iteration-level loop against closed forms, and against one without shortcuts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.simulate.fleet import Dispatch, SimulatedPool
from fleetopt.planner.simulate.stream import RequestStream
from tests.planner.examples import H100, PAPER, PATIENT
from tests.planner.simulate import naive
from tests.planner.simulate.examples import pool, stream, times

W, H, KAPPA = H100.base_iteration_s, H100.per_sequence_s, H100.per_context_token_s
P, C, CHUNK = H100.prefill_token_s, H100.prefill_token_context_s, H100.prefill_chunk_tokens


def prefill_s(prompt: int, cached: int = 0) -> float:
    """One prompt alone, chunk after chunk."""
    total, done = 0.0, cached
    while done < prompt:
        chunk = min(CHUNK, prompt - done)
        total += W + H + KAPPA * (done + chunk) + P * chunk + C * chunk * (done + chunk / 2)
        done += chunk
    return total


def decode_s(prompt: int, completion: int) -> float:
    """The tokens after the first, alone: one an iteration, each reads one more."""
    return sum(W + H + KAPPA * (prompt + j) for j in range(1, completion))


@pytest.mark.parametrize("prompt", [1, 100, CHUNK, CHUNK + 1, 3 * CHUNK, 9_000])
@pytest.mark.parametrize("completion", [1, 2, 500])
def test_one_request_alone_takes_what_its_iterations_take(prompt: int, completion: int) -> None:
    done = times(pool(), stream([5.0], prompt, completion))
    assert done.first_token_s[0] - 5.0 == pytest.approx(prefill_s(prompt), rel=1e-12)
    expected_s = prefill_s(prompt) + decode_s(prompt, completion)
    assert done.end_s[0] - 5.0 == pytest.approx(expected_s, rel=1e-12)


def test_a_request_that_generates_nothing_ends_with_its_prefill() -> None:
    done = times(pool(), stream([0.0], 300, 0))
    assert done.end_s[0] == done.first_token_s[0] == pytest.approx(prefill_s(300))


def test_cached_tokens_are_read_but_not_computed() -> None:
    done = times(pool(), stream([0.0], 5_000, 10, cached=4_000))
    assert done.first_token_s[0] == pytest.approx(prefill_s(5_000, cached=4_000), rel=1e-12)
    whole = times(pool(), stream([0.0], 5_000, 10, cached=5_000))  # one token is computed anyway
    assert whole.first_token_s[0] == pytest.approx(prefill_s(5_000, cached=4_999), rel=1e-12)


def test_free_prefill_takes_an_iteration_a_chunk() -> None:
    done = times(pool(engine=PAPER), stream([0.0], 8_192, 1))
    contexts = sum(512 * j for j in range(1, 17))
    expected_s = 16 * PAPER.base_iteration_s + PAPER.per_context_token_s * contexts
    assert done.first_token_s[0] == pytest.approx(expected_s, rel=1e-12)


def test_simultaneous_prompts_share_the_budget_in_order_of_arrival() -> None:
    # The first starts at once; the others wait for the iteration's end, then share the next two.
    done = times(pool(), stream([0.0, 1e-6, 2e-6], [100, CHUNK - 100, 200], 1))
    first = W + H + KAPPA * 100 + P * 100 + C * 100 * 50
    tokens = CHUNK - 100
    second = W + 2 * H + KAPPA * CHUNK + P * CHUNK + C * (tokens * tokens / 2 + 100 * 50)
    third = W + H + KAPPA * 200 + P * 100 + C * 100 * 150
    assert done.first_token_s == pytest.approx([first, first + second, first + second + third])


def test_an_arrival_joins_at_the_end_of_the_running_iteration() -> None:
    alone = prefill_s(1_000) + sum(W + H + KAPPA * (1_000 + j) for j in range(1, 51))
    done = times(pool(), stream([0.0, alone - 1e-6], [1_000, 50], [200, 1]))
    beside = W + 2 * H + KAPPA * (1_051 + 50) + P * 50 + C * 50 * 25
    assert done.first_token_s[1] == pytest.approx(alone + beside, rel=1e-12)


def test_a_full_replica_lets_the_next_wait_until_one_ends() -> None:
    done = times(pool(slots=1), stream([0.0, 0.001], 400, 30))
    alone = prefill_s(400) + decode_s(400, 30)
    assert done.end_s == pytest.approx([alone, 2 * alone], rel=1e-12)


def test_evenly_spaced_requests_that_never_meet_are_all_alike() -> None:
    done = times(pool(replicas=3), stream(np.arange(300) * 2.0, 700, 40))
    ttft_s = done.first_token_s - np.arange(300) * 2.0
    assert ttft_s == pytest.approx(np.full(300, prefill_s(700)), rel=1e-9)


def test_ties_go_round() -> None:
    """Of idle replicas the one that has been so for longest is taken."""
    done = times(pool(replicas=2, slots=1), stream([0.0, 0.001, 0.002, 0.003], 100, 50))
    alone = prefill_s(100) + decode_s(100, 50)
    assert done.end_s == pytest.approx([alone, 0.001 + alone, 2 * alone, 0.001 + 2 * alone])


def test_the_least_work_is_not_the_fewest_requests() -> None:
    """One replica holds a long prompt, the other two that decode."""
    arrival_s = [0.0, 0.01, 0.02, 0.9, 0.95]
    prompt, completion = [10, 10, 10, 14_000, 20], [2_000, 5, 2_000, 5, 5]
    given = stream(arrival_s, prompt, completion)
    by_count = times(pool(replicas=2), given).first_token_s[-1]
    by_work = times(pool(replicas=2), given, Dispatch.LEAST_WORK).first_token_s[-1]
    assert by_work - 0.95 < 3 * W
    assert by_count - 0.95 > 10 * W


def test_a_cache_too_small_preempts_who_came_last_and_recomputes() -> None:
    # 2 × (500 + 300) tokens do not fit into 1,400; one by one they do.
    done = times(pool(kv_tokens=1_400), stream([0.0, 0.001], 500, 300))
    assert done.preemptions.tolist() == [0, 1]
    roomy = times(pool(kv_tokens=2_000), stream([0.0, 0.001], 500, 300))
    assert roomy.preemptions.tolist() == [0, 0]
    assert done.first_token_s == pytest.approx(roomy.first_token_s)  # it had its first token
    assert done.end_s[1] > roomy.end_s[1] + 50 * W


@pytest.mark.parametrize(("prompt", "completion"), [(1_000, 0), (999, 1), (1, 999)])
def test_a_request_that_fills_the_whole_cache_is_served(prompt: int, completion: int) -> None:
    done = times(pool(kv_tokens=1_000), stream([0.0, 0.001], prompt, completion))
    assert (done.end_s > 0).all()
    assert done.end_s[1] > done.end_s[0]


@st.composite
def cases(draw: st.DrawFn) -> tuple[SimulatedPool, RequestStream]:
    """Small pools under any load, paged or reserved, prefill free or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 60))
    free = draw(st.booleans())
    engine = replace(
        PAPER if free else H100,
        prefill_chunk_tokens=draw(st.sampled_from([64, 256, 2048])),
        per_context_token_s=draw(st.sampled_from([0.0, 4e-8, 5e-6])),
        per_sequence_s=draw(st.sampled_from([0.0, 1e-4])),
    )
    chosen = pool(
        replicas=draw(st.integers(1, 4)),
        slots=draw(st.sampled_from([1, 2, 5, 40, 40])),
        engine=engine,
        kv_tokens=draw(st.sampled_from([None, 2_500, 2_500, 4_000])),
    )
    prompt = np.minimum(rng.lognormal(4.8, 1.2, count), 2_000).astype(np.int64) + 1
    completion = np.minimum(rng.lognormal(3.7, 1.2, count), 450).astype(np.int64)
    cached = (prompt * rng.choice([0.0, 0.5, 1.0], count)).astype(np.int64)
    gaps = rng.exponential(draw(st.sampled_from([0.001, 0.03, 0.3, 3.0])), count)
    return chosen, stream(np.cumsum(gaps), prompt, completion, cached)


@PATIENT
@given(cases())
def test_shortcuts_change_nothing(case: tuple[SimulatedPool, RequestStream]) -> None:
    expected = naive.run(*case)
    done = times(*case)
    assert done.preemptions.tolist() == [one.preemptions for one in expected]
    assert done.first_token_s == pytest.approx([one.first_token_s for one in expected], rel=1e-9)
    assert done.end_s == pytest.approx([one.end_s for one in expected], rel=1e-9)


@PATIENT
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_shortcuts_change_nothing_where_sequences_are_preempted(seed: int, replicas: int) -> None:
    rng = np.random.default_rng(seed)
    prompt, completion = rng.integers(1, 900, 25), rng.integers(100, 600, 25)
    cached = rng.integers(0, 2, 25) * (prompt // 2)
    crowd = stream(np.sort(rng.uniform(0.0, 5.0, 25)), prompt, completion, cached)
    engine = replace(H100, prefill_chunk_tokens=256)
    only = pool(replicas, engine=engine, kv_tokens=2_000)
    expected, done = naive.run(only, crowd), times(only, crowd)
    assert done.preemptions.sum() > 0
    assert done.preemptions.tolist() == [one.preemptions for one in expected]
    assert done.first_token_s == pytest.approx([one.first_token_s for one in expected], rel=1e-9)
    assert done.end_s == pytest.approx([one.end_s for one in expected], rel=1e-9)


@PATIENT
@given(cases(), st.sampled_from(Dispatch))
def test_every_request_comes_out_once_and_in_its_own_time(
    case: tuple[SimulatedPool, RequestStream], dispatch: Dispatch
) -> None:
    only, given_stream = case
    done = times(only, given_stream, dispatch)
    base_s = only.profile.base_iteration_s
    assert (done.end_s >= done.first_token_s).all()
    prompts, cached = given_stream.prompt_tokens, given_stream.cached_tokens
    left = prompts - np.minimum(cached, prompts - 1)
    chunks = np.ceil(left / only.profile.prefill_chunk_tokens)
    ttft_s = done.first_token_s - given_stream.arrival_s
    assert (ttft_s >= chunks * base_s * (1 - 1e-9)).all()
    decoded_s = done.end_s - done.first_token_s
    tokens = np.maximum(given_stream.completion_tokens - 1, 0)
    assert (decoded_s >= tokens * base_s * (1 - 1e-9) - 1e-12).all()


def test_an_earlier_start_cannot_be_told_by_a_shift_of_all_times() -> None:
    rng = np.random.default_rng(3)
    at = np.cumsum(rng.exponential(0.05, 400))
    prompt, completion = rng.integers(1, 3_000, 400), rng.integers(1, 200, 400)
    early = times(pool(2, 8), stream(at, prompt, completion))
    late = times(pool(2, 8), stream(at + 1_000.0, prompt, completion))
    assert late.first_token_s - 1_000.0 == pytest.approx(early.first_token_s, abs=1e-6)
    assert math.isfinite(float(late.end_s.max()))
