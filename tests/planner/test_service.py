"""Work, slots and load against request-level sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.band import KEPT_PROMPT_SHARE, compressed, room_tokens, stay_share
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.request import Admission
from fleetopt.planner.service import (
    CONTEXT,
    CONTEXT_SQ,
    ITERATIONS,
    ITERATIONS_SQ,
    PROMPT,
    PROMPT_SQ,
    load,
    slots,
    work,
)
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, PAPER, chat, engines, request_for


def sums(
    prompt: np.ndarray, completion: np.ndarray, cached: np.ndarray | None = None
) -> np.ndarray:
    """Moments of one group of requests."""
    i, o = prompt.astype(float), completion.astype(float)
    h = np.zeros_like(i) if cached is None else cached.astype(float)
    weights = (np.ones_like(i), i, o, i * i, i * o, o * o, h, h * h)
    return np.array([weight.sum() for weight in weights])


def test_work_is_the_sum_over_requests() -> None:
    i, o = (tokens.astype(float) for tokens in chat(500))
    iterations = i / 2048 + 0.5 + o
    context = (i / 2048 + 0.5) * i / 2 + o * (i + o / 2)
    expected = [500.0, iterations.sum(), (iterations**2).sum(), context.sum()]
    got = work(sums(i, o), np.asarray(1.0), H100)
    assert got[:4] == pytest.approx(expected)
    assert got[5:] == pytest.approx([i.sum(), (i * i).sum()])


@given(st.integers(0, 30_000), st.integers(1, 3_000))
def test_squared_context_is_bounded_from_above_and_not_by_much(i: int, o: int) -> None:
    got = work(sums(np.array([i]), np.array([o])), np.asarray(float(i + o)), H100)[CONTEXT_SQ]
    exact = (i / 2048 + 0.5) * i * i / 3 + ((i + o) ** 3 - i**3) / 3
    assert exact * (1 - 1e-9) <= got <= 1.002 * exact + 1.0


@given(st.lists(st.integers(0, 4_000), min_size=1, max_size=60), st.sampled_from([4_000, 9_000]))
def test_squared_context_of_one_length_is_bounded_whatever_the_outputs(
    outputs: list[int], length: int
) -> None:
    o = np.array(outputs, dtype=float)
    i = length - o
    got = work(sums(i, o), np.asarray(float(length)), H100)[CONTEXT_SQ]
    exact = ((i / 2048 + 0.5) * i * i / 3 + (length**3 - i**3) / 3).sum()
    assert got >= exact * (1 - 1e-9)
    # what is lost is the spread of i·o, and i²·o of the prefill
    lost = (i * o * o).sum() - (i * o).sum() ** 2 / max(i.sum(), 1e-300)
    assert got <= exact + lost / 3 + (i * i * o).sum() / (3 * 2048) + 1e-6 * exact


@given(st.integers(1, 30_000), st.integers(0, 3_000), st.floats(0.0, 1.0))
def test_what_is_cached_is_read_but_not_computed(i: int, o: int, share: float) -> None:
    h = int(share * (i - 1))
    got = work(sums(*map(np.array, ([i], [o], [h]))), np.asarray(float(i + o)), H100)
    iterations = (i - h) / 2048 + 0.5 + o
    context = ((i - h) / 2048 + 0.5) * (i + h) / 2 + o * (i + o / 2)
    context_sq = ((i - h) / 2048 + 0.5) * (i * i + i * h + h * h) / 3 + ((i + o) ** 3 - i**3) / 3
    assert got[[ITERATIONS, CONTEXT, PROMPT, PROMPT_SQ]] == pytest.approx(
        [iterations, context, i - h, i * i - h * h], rel=1e-9
    )
    assert got[ITERATIONS_SQ] >= iterations**2 * (1 - 1e-9)
    assert context_sq * (1 - 1e-9) <= got[CONTEXT_SQ] <= 1.2 * context_sq + 1.0


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), st.sampled_from([0, 3, 400]))
def test_squared_context_is_bounded_from_above_however_caches_are_spread(
    shares: list[float], o: int
) -> None:
    i = np.full(len(shares), 9_000)
    h = np.floor(np.array(shares) * 8_999)
    got = work(sums(i, np.full(i.size, o), h), np.asarray(float(9_000 + o)), H100)[CONTEXT_SQ]
    prefill = ((i - h) / 2048 + 0.5) * (i * i + i * h + h * h) / 3
    exact = (prefill + ((i + o) ** 3 - i**3) / 3).sum()
    assert exact * (1 - 1e-9) <= got


@given(engines(), st.integers(1, 40_000), st.integers(0, 3_000), st.data())
def test_the_load_never_rises_with_what_is_cached(
    engine: EngineProfile, i: int, o: int, data: st.DataObject
) -> None:
    """But for what reading a short prefix costs, where prefill is free."""
    less, more = sorted(data.draw(st.tuples(*[st.integers(0, i - 1)] * 2)))
    found = []
    for h in (less, more):
        per_s = work(sums(*map(np.array, ([i], [o], [h]))), np.asarray(float(i + o)), engine)
        found.append(float(load(per_s, np.asarray(8.0), engine)))
    read_s = engine.per_context_token_s * (more - less) / 4
    saved_s = (engine.base_iteration_s / 8 + engine.per_sequence_s) / engine.prefill_chunk_tokens
    saved_s = (saved_s + engine.prefill_token_s) * (more - less)
    assert found[1] <= found[0] * (1 + 1e-9) + max(read_s - saved_s, 0.0)


def test_reserved_slots_are_the_papers() -> None:
    request = request_for(PAPER, admission=Admission.RESERVED)
    per_s = np.ones((7, 3))
    contexts = np.array([8_192.0, 65_536.0, 1_536.0])
    assert slots(per_s, contexts, PAPER, request).tolist() == [128.0, 16.0, 682.0]


def test_statistical_slots_keep_the_risk_of_preemption() -> None:
    i, o = chat(4_000)
    request = request_for(H100)
    grid = build(Workload.from_requests(i, o, 100.0), request)
    n = int(grid.long_sums(np.array([ONE_POOL])).slot_count[0])
    rng = np.random.default_rng(3)
    weight = (i / 2048 + 0.5 + o) / (i / 2048 + 0.5 + o).sum()
    picked = rng.choice(i.size, (20_000, n), p=weight)
    context = i[picked] + rng.random(picked.shape) * o[picked]
    over = (context.sum(axis=1) > H100.kv_capacity_tokens).mean()
    assert n > 10 * H100.slots_reserved(32_768)
    # the sum of skewed contexts has a heavier tail than the normal one
    assert over <= request.preemption_probability * 3
    assert n * context.mean() > 0.6 * H100.kv_capacity_tokens


@given(st.floats(1e-6, 0.4))
def test_statistical_slots_are_never_below_reserved(probability: float) -> None:
    i, o = np.full(10, 32_000), np.full(10, 700)
    request = request_for(H100, preemption_probability=probability)
    per_s = work(sums(i, o), np.asarray(32_700.0), H100)
    got = float(slots(per_s, np.asarray(32_768.0), H100, request))
    assert got >= H100.slots_reserved(32_768)


def test_an_engine_that_holds_no_context_has_no_slots_and_infinite_load() -> None:
    request = request_for(H100)
    per_s = np.ones(7)
    none = slots(per_s, np.asarray(400_000.0), H100, request)
    assert none == 0.0
    assert load(per_s, none, H100) == np.inf


def test_load_counts_every_term_of_an_iteration() -> None:
    i, o = np.array([8_192]), np.array([100])
    got = float(load(work(sums(i, o), np.asarray(8_292.0), H100), np.asarray(10.0), H100))
    iterations, context = 8_192 / 2048 + 0.5 + 100, 4.5 * 4_096 + 100 * (8_192 + 50)
    expected = (
        (H100.base_iteration_s / 10 + H100.per_sequence_s) * iterations
        + H100.per_context_token_s * context
        + H100.prefill_token_s * 8_192
        + H100.prefill_token_context_s / 2 * 8_192**2
    )
    assert got == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.integers(0, 4_000), min_size=1, max_size=40), st.sampled_from([4_096, 9_741]))
def test_compressed_requests_arrive_with_what_is_left_of_b(outputs: list[int], b: int) -> None:
    o = np.array(outputs)
    before, after = sums(np.full(o.size, 12_000), o, np.full(o.size, 9_000)), sums(b - o, o)
    assert compressed(before, np.asarray(float(b))) == pytest.approx(after)


def test_those_that_stay_are_an_exponential_tail_where_there_is_much_room() -> None:
    mean, boundary = np.asarray(120.0), np.asarray(2_048.0)
    exact = np.exp(-float(room_tokens(boundary)) / 120.0)
    assert float(stay_share(mean, mean, boundary)) == pytest.approx(exact)


@given(st.floats(0.0, 5_000.0), st.floats(0.0, 1e4), st.integers(64, 65_536))
def test_the_share_that_stays_is_a_share_and_falls_with_the_room(
    mean: float, deviation: float, boundary: int
) -> None:
    of_output = np.asarray(mean), np.asarray(deviation)
    share = float(stay_share(*of_output, np.asarray(float(boundary))))
    less = float(stay_share(*of_output, np.asarray(2.0 * boundary)))
    assert 0.0 <= less <= share <= 1.0
    assert share == 1.0 or mean < boundary * (1 - KEPT_PROMPT_SHARE)


def test_nobody_stays_where_outputs_are_short_and_alike() -> None:
    share = stay_share(np.asarray(100.0), np.asarray(0.0), np.asarray(4_096.0))
    assert float(share) == pytest.approx(0.0, abs=1e-12)
