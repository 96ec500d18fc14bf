"""The pool answers every prompt by its deadline, whatever happens to its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetopt.compressor.options import CompressOptions
from fleetopt.compressor.outcome import Compressed, Reason, Unchanged
from fleetopt.connectors.compression_pool import CompressionPool, Outcome
from fleetopt.connectors.compression_process import (
    TIME_LEFT,
    Counters,
    ModelCounter,
    Setup,
    answer_to,
)
from fleetopt.connectors.compression_wire import (
    CompressionRequest,
    WireOptions,
    encode_request,
    outcome_of,
)
from fleetopt.errors import ConfigError

T = TypeVar("T")
MODEL = "qwen3-32b"
SETUP = Setup({MODEL: ModelCounter()})
LONG_S = 60.0
"""A deadline that no test reaches."""


def prose(paragraphs: int) -> str:
    return "\n\n".join(
        f"Paragraph {number} is about station {number * 37 % 101}. Its sensor saw {number * 7} "
        f"degrees on day {number % 28}, and nobody asked why."
        for number in range(paragraphs)
    )


def request(paragraphs: int = 100, **fields: Any) -> CompressionRequest:
    text = prose(paragraphs)
    known: dict[str, Any] = {
        "v": 1,
        "request_id": "r",
        "fleet": "chat",
        "model": MODEL,
        "prompt": text,
        "budget_tokens": paragraphs * 25,
    }
    return CompressionRequest(**{**known, **fields})


async def submit(
    pool: CompressionPool, sent: CompressionRequest, within_s: float = LONG_S
) -> Outcome:
    return await pool.submit(sent, asyncio.get_running_loop().time() + within_s)


def with_pool(
    test: Callable[[CompressionPool], Awaitable[T]], setup: Setup = SETUP, **limits: int
) -> T:
    async def run() -> T:
        async with CompressionPool(setup, **limits) as pool:
            return await test(pool)

    return asyncio.run(run())


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():
            await asyncio.sleep(0.01)


def test_a_prompt_comes_back_within_its_budget() -> None:
    sent = request()
    outcome = with_pool(lambda pool: submit(pool, sent))
    assert isinstance(outcome, Compressed)
    assert outcome.tokens_after <= sent.budget_tokens < outcome.tokens_before
    assert outcome.cut is None
    assert set(outcome.stage_s) == {"count", "split", "score", "select"}


def test_it_answers_as_one_process_would_whatever_their_number() -> None:
    sent = [request(paragraphs) for paragraphs in range(60, 100, 4)]
    alone = [
        outcome_of(
            answer_to(
                TIME_LEFT.pack(LONG_S) + encode_request(one), Counters({}), CompressOptions()
            ).reply
        )
        for one in sent
    ]

    async def all_at_once(pool: CompressionPool) -> list[Outcome]:
        return await asyncio.gather(*(submit(pool, one) for one in sent))

    together = with_pool(all_at_once, workers=3)
    assert [getattr(one, "prompt", one) for one in together] == [
        getattr(one, "prompt", one) for one in alone
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"budget_tokens": 10**6}, Reason.FITS),
        ({"budget_tokens": 0}, Reason.NO_BUDGET),
        ({"budget_tokens": 100}, Reason.KEEPS_TOO_LITTLE),
        ({"cached_prompt_tokens": 500}, Reason.PREFIX_CACHED),
        ({"category": "code"}, Reason.CONTENT),
        ({"model": "nobody-knows-it"}, Reason.NO_TOKEN_COUNTER),
        ({"prompt": [{"content": "no role"}]}, Reason.INVALID_PROMPT),
        ({"prompt": "a lone \ud800"}, Reason.INVALID_PROMPT),
        ({"options": WireOptions(min_kept_share=0.99)}, Reason.KEEPS_TOO_LITTLE),
    ],
)
def test_what_stays_unchanged_says_why(changes: dict[str, Any], reason: Reason) -> None:
    outcome = with_pool(lambda pool: submit(pool, request(**changes)), workers=1)
    assert isinstance(outcome, Unchanged)
    assert outcome.reason is reason
    assert outcome.detail


def test_the_pools_own_options_hold_where_a_request_names_none() -> None:
    careful = Setup(options=CompressOptions(min_kept_share=0.99))

    async def both(pool: CompressionPool) -> tuple[Outcome, Outcome]:
        bold = WireOptions(min_kept_share=0.3)
        return await submit(pool, request()), await submit(pool, request(options=bold))

    kept, cut = with_pool(both, careful, workers=1)
    assert isinstance(kept, Unchanged)
    assert kept.reason is Reason.KEEPS_TOO_LITTLE
    assert isinstance(cut, Compressed)


def test_a_full_line_is_refused_at_once_and_the_rest_is_done() -> None:
    async def flood(pool: CompressionPool) -> list[Outcome]:
        return await asyncio.gather(*(submit(pool, request()) for _ in range(20)))

    outcomes = with_pool(flood, workers=1, queue_limit=5)
    reasons = [one.reason for one in outcomes if isinstance(one, Unchanged)]
    assert reasons == [Reason.OVERLOADED] * 14
    assert sum(isinstance(one, Compressed) for one in outcomes) == 6


def test_past_its_deadline_a_prompt_is_answered_without_waiting_for_a_process() -> None:
    async def stopped(pool: CompressionPool) -> tuple[list[Outcome], int, Outcome]:
        os.kill(pool.pids[0], signal.SIGSTOP)
        late = await asyncio.gather(*(submit(pool, request(), 0.1) for _ in range(4)))
        left = pool.waiting
        os.kill(pool.pids[0], signal.SIGCONT)
        return late, left, await submit(pool, request())

    late, left, after = with_pool(stopped, workers=1)
    assert [getattr(one, "reason", None) for one in late] == [Reason.DEADLINE] * 4
    assert left == 0
    assert isinstance(after, Compressed)


def test_a_deadline_that_has_passed_needs_no_process() -> None:
    outcome = with_pool(lambda pool: submit(pool, request(), -1.0), workers=1)
    assert isinstance(outcome, Unchanged)
    assert outcome.reason is Reason.DEADLINE


def test_a_killed_process_costs_one_prompt_and_is_replaced() -> None:
    async def killed(pool: CompressionPool) -> tuple[list[Outcome], int, Outcome]:
        before = pool.pids
        os.kill(before[0], signal.SIGSTOP)  # so that it surely has a prompt
        submitted = [asyncio.create_task(submit(pool, request())) for _ in range(30)]
        await until(lambda: pool.working == 2 and pool.waiting < 28)
        os.kill(before[0], signal.SIGKILL)
        outcomes = await asyncio.gather(*submitted)
        await until(lambda: len(pool.pids) == 2 and before[0] not in pool.pids)
        return outcomes, pool.replaced, await submit(pool, request())

    outcomes, replaced, after = with_pool(killed)
    reasons = Counter(one.reason if isinstance(one, Unchanged) else None for one in outcomes)
    assert reasons == {None: 29, Reason.WORKER_FAILED: 1}
    assert replaced == 1
    assert isinstance(after, Compressed)


def test_a_process_killed_while_it_has_nothing_to_do_costs_no_prompt() -> None:
    async def killed(pool: CompressionPool) -> tuple[list[Outcome], int]:
        before = pool.pids
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: pool.replaced == 2)
        return await asyncio.gather(*(submit(pool, request()) for _ in range(10))), pool.replaced

    outcomes, replaced = with_pool(killed)
    assert all(isinstance(one, Compressed) for one in outcomes)
    assert replaced == 2


def test_a_prompt_that_takes_too_long_ends_its_process_and_nothing_else() -> None:
    impatient = Setup({MODEL: ModelCounter()}, limit_s=0.05)

    async def poisoned(pool: CompressionPool) -> tuple[Outcome, Outcome]:
        slow = request(20_000, budget_tokens=500_000)
        return await submit(pool, slow), await submit(pool, request())

    slow, after = with_pool(poisoned, impatient, workers=1)
    assert isinstance(slow, Unchanged)
    assert slow.reason is Reason.WORKER_FAILED
    assert isinstance(after, Compressed)


def test_stopping_waits_for_what_is_there_and_takes_no_more() -> None:
    async def run() -> tuple[list[Outcome], Outcome]:
        pool = CompressionPool(SETUP)
        await pool.start()
        submitted = [asyncio.create_task(submit(pool, request())) for _ in range(20)]
        await until(lambda: pool.waiting > 0)
        stopping = asyncio.create_task(pool.stop())
        await asyncio.sleep(0)
        refused = await submit(pool, request())
        await stopping
        return await asyncio.gather(*submitted), refused

    outcomes, refused = asyncio.run(run())
    assert all(isinstance(one, Compressed) for one in outcomes)
    assert isinstance(refused, Unchanged)
    assert refused.reason is Reason.OVERLOADED


def test_what_is_not_done_when_it_stops_is_answered_too() -> None:
    async def run() -> tuple[list[Outcome], list[int]]:
        pool = CompressionPool(SETUP, workers=1)
        await pool.start()
        pids = pool.pids
        os.kill(pids[0], signal.SIGSTOP)
        submitted = [asyncio.create_task(submit(pool, request())) for _ in range(3)]
        await until(lambda: pool.working == 1)
        await pool.stop(drain_s=0.1)
        return await asyncio.gather(*submitted), pids

    outcomes, pids = asyncio.run(run())
    assert [getattr(one, "reason", None) for one in outcomes] == [Reason.OVERLOADED] * 3
    assert not any(is_running(pid) for pid in pids)


def test_a_caller_that_gives_up_leaves_the_line() -> None:
    async def given_up(pool: CompressionPool) -> tuple[int, Outcome]:
        os.kill(pool.pids[0], signal.SIGSTOP)
        submitted = [asyncio.create_task(submit(pool, request())) for _ in range(4)]
        await until(lambda: pool.waiting == 3)
        for task in submitted:
            task.cancel()
        await asyncio.wait(submitted)
        left = pool.waiting
        os.kill(pool.pids[0], signal.SIGCONT)
        return left, await submit(pool, request())

    left, after = with_pool(given_up, workers=1)
    assert left == 0
    assert isinstance(after, Compressed)


def test_a_model_that_nothing_counts_is_refused_at_the_start() -> None:
    unknown = Setup({"theirs": ModelCounter(tokenizer="nobody-knows-it")})
    with pytest.raises(ConfigError, match="nobody-knows-it"):
        with_pool(lambda pool: submit(pool, request()), unknown)


@pytest.mark.parametrize("limits", [{"workers": 0}, {"queue_limit": -1}])
def test_a_pool_of_nothing_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="expected at least 1 worker"):
        CompressionPool(SETUP, **limits)


def test_a_model_may_count_with_another_ones_vocabulary() -> None:
    alias = Setup({"ours/finetune": ModelCounter(tokenizer=MODEL)})

    async def both(pool: CompressionPool) -> tuple[Outcome, Outcome]:
        return await submit(pool, request()), await submit(pool, request(model="ours/finetune"))

    named, aliased = with_pool(both, alias, workers=1)
    assert isinstance(aliased, Compressed)
    assert isinstance(named, Compressed)
    assert aliased.prompt == named.prompt


class _Broken:
    """A counter with a defect, whose error quotes the prompt."""

    name = "broken"
    per_unit = True

    def count(self, text: str) -> int:
        raise RuntimeError(text)

    def count_many(self, texts: Sequence[str]) -> NDArray[np.int64]:
        raise RuntimeError(texts)

    def count_prompt(self, messages: Sequence[Mapping[str, Any]]) -> int:
        raise RuntimeError(messages)


def test_a_defect_is_told_with_its_place_but_without_the_prompt() -> None:
    counters = Counters({})
    counters._others[MODEL] = _Broken()
    sent = request(prompt="a secret of the caller")
    answer = answer_to(TIME_LEFT.pack(LONG_S) + encode_request(sent), counters, CompressOptions())
    outcome = outcome_of(answer.reply)
    assert isinstance(outcome, Unchanged)
    assert outcome.reason is Reason.FAILED
    assert answer.traceback is not None
    assert "in count" in answer.traceback
    assert "RuntimeError" in answer.traceback
    assert "secret" not in answer.traceback + outcome.detail


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


ORPHANS = """
import asyncio, sys
from fleetopt.connectors.compression_pool import CompressionPool
from fleetopt.connectors.compression_process import Setup

async def main():
    async with CompressionPool(Setup()) as pool:
        print(*pool.pids, flush=True)
        await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_process_outlives_a_pool_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        assert len(pids) == 2
        starter.kill()
    end_s = time.monotonic() + 30
    while any(is_running(pid) for pid in pids) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in pids)
