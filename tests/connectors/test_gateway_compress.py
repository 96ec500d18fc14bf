"""What a gateway answers for a borderline prompt: compressed, or unchanged with the reason."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from fleetopt.compressor.outcome import Compressed, Reason, Unchanged
from fleetopt.connectors.compression_client import KafkaCompressor
from fleetopt.connectors.compression_pool import CompressionPool
from fleetopt.connectors.compression_process import ModelCounter, Setup
from fleetopt.connectors.compression_wire import CompressionRequest
from fleetopt.connectors.gateway import Answer, Compressor, Gateway, GatewayReason, Pool, Route
from fleetopt.connectors.gateway_sync import SyncGateway
from fleetopt.connectors.token_counter import counter_for
from fleetopt.errors import ConfigError, ServiceError
from tests.compressor_process import LONG_S, MODEL, requests
from tests.connectors.gateway_plans import publish, recommendation, until

COMPLETION = 100
BOUNDARY = 26 * 60 + COMPLETION + 1
"""Of the prompts that `requests` makes, a quarter must go."""

Submit = Callable[[CompressionRequest, float], Awaitable[Compressed | Unchanged]]


def text(paragraphs: int = 60) -> str:
    made: str = requests(1, paragraphs)[0].prompt
    return made


class Scripted:
    """A compressor that does what a test says, to see what a gateway makes of it."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    async def submit(
        self, request: CompressionRequest, deadline_s: float, *, traceparent: str | None = None
    ) -> Compressed | Unchanged:
        return await self._submit(request, deadline_s)


@asynccontextmanager
async def gateway_with(
    compressor: Compressor | None, url: str, client: redis.Redis, fleet: str, **plan: Any
) -> AsyncIterator[Gateway]:
    publish(client, recommendation(fleet, 1, BOUNDARY, 2 * BOUNDARY, **plan))
    async with Gateway(fleet, url, compressor=compressor) as gateway:
        await until(lambda: gateway.is_connected)
        yield gateway


async def ask(gateway: Gateway, prompt: Any, deadline_s: float = LONG_S, **details: Any) -> Answer:
    known = {"max_completion_tokens": COMPLETION, "model": MODEL, "deadline_s": deadline_s}
    return await gateway.compress(prompt, **{**known, **details})


def test_a_text_and_a_chat_come_back_within_the_boundary(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    chat = [
        {"role": "system", "content": "You answer from reports."},
        {"role": "user", "content": text()},
        {"role": "user", "content": "What did station 7 see?"},
    ]

    async def compress() -> list[Answer]:
        setup = Setup(models={MODEL: ModelCounter()})
        async with (
            CompressionPool(setup, workers=1) as pool,
            gateway_with(pool, redis_url, redis_client, fleet) as gateway,
        ):
            return [await ask(gateway, prompt) for prompt in (text(), chat, text(10))]

    of_text, of_chat, short = asyncio.run(compress())
    counter = counter_for(MODEL)
    for answer in (of_text, of_chat):
        assert (answer.pool, answer.reason, answer.is_compressed) == (Pool.SHORT, None, True)
        assert answer.tokens_before is not None
        assert answer.tokens_after is not None
        assert answer.tokens_after < answer.tokens_before
    assert isinstance(of_text.prompt, str)
    assert not isinstance(of_chat.prompt, str)
    assert counter.count(of_text.prompt) == of_text.tokens_after
    assert of_text.tokens_after <= BOUNDARY - COMPLETION - 1
    assert counter.count_prompt(of_chat.prompt) == of_chat.tokens_after
    assert of_chat.tokens_after <= BOUNDARY - COMPLETION
    assert [one["role"] for one in of_chat.prompt] == ["system", "user", "user"]
    assert (short.pool, short.reason) == (Pool.SHORT, Reason.FITS)
    assert short.prompt == text(10)


async def silence(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
    await asyncio.sleep(LONG_S)
    pytest.fail("nobody ended it")


async def failure(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
    raise RuntimeError(f"a defect, with {request.prompt}")


async def absence(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
    raise ServiceError("Kafka is not connected")


async def overload(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
    return Unchanged(Reason.OVERLOADED, "64 prompts wait already", 2_000)


async def excess(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
    return Compressed("short", 2_000, request.budget_tokens + 1)


async def other_kind(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
    return Compressed([{"role": "user", "content": "short"}], 2_000, 10)


async def false_fit(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
    return Unchanged(Reason.FITS, "", None)


@pytest.mark.parametrize(
    ("submit", "reason"),
    [
        (silence, Reason.DEADLINE),
        (failure, Reason.FAILED),
        (absence, GatewayReason.NO_COMPRESSOR),
        (overload, Reason.OVERLOADED),
        (excess, Reason.OVER_BUDGET),
        (other_kind, Reason.OVER_BUDGET),
        (false_fit, Reason.FITS),
    ],
)
def test_on_any_doubt_the_prompt_goes_unchanged_to_the_long_pool(
    redis_url: str, redis_client: redis.Redis, fleet: str, submit: Submit, reason: str
) -> None:
    prompt = "a secret " + text()

    async def compress() -> Answer:
        async with gateway_with(Scripted(submit), redis_url, redis_client, fleet) as gateway:
            answer = await ask(gateway, prompt, deadline_s=0.2)
            assert gateway.reasons == {reason: 1}
            return answer

    with capture_logs() as said:
        answer = asyncio.run(compress())
    assert (answer.pool, answer.reason) == (Pool.LONG, reason)
    assert answer.prompt is prompt
    assert not answer.is_compressed
    assert answer.detail or reason == Reason.FITS
    assert "secret" not in str(said)
    assert "secret" not in answer.detail


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"category": "code"}, Reason.CONTENT),
        ({"max_completion_tokens": BOUNDARY}, Reason.NO_BUDGET),
        ({"max_completion_tokens": -1}, GatewayReason.NO_RESERVATION),
        ({"max_completion_tokens": None}, GatewayReason.NO_RESERVATION),
    ],
)
def test_nobody_is_asked_for_what_can_not_be(
    redis_url: str,
    redis_client: redis.Redis,
    fleet: str,
    details: dict[str, Any],
    reason: str,
) -> None:
    async def compress() -> Answer:
        scripted = Scripted(failure)
        async with gateway_with(scripted, redis_url, redis_client, fleet, lengths=None) as gateway:
            return await ask(gateway, text(), **details)

    answer = asyncio.run(compress())
    assert (answer.pool, answer.reason) == (Pool.LONG, reason)


def test_no_plan_and_no_compressor_are_reasons_too(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def compress() -> list[Answer]:
        async with Gateway(fleet, redis_url, compressor=Scripted(failure)) as bare:
            no_plan = await ask(bare, text())
        async with gateway_with(None, redis_url, redis_client, fleet) as gateway:
            return [no_plan, await ask(gateway, text())]

    answers = asyncio.run(compress())
    assert [answer.reason for answer in answers] == [
        GatewayReason.NO_PLAN,
        GatewayReason.NO_COMPRESSOR,
    ]


def test_a_boundary_that_falls_meanwhile_counts(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def compress() -> Answer:
        go_on = asyncio.Event()

        async def late(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
            await go_on.wait()
            return Compressed("short", 2_000, request.budget_tokens)

        async with gateway_with(Scripted(late), redis_url, redis_client, fleet) as gateway:
            asked = asyncio.create_task(ask(gateway, text()))
            publish(redis_client, recommendation(fleet, 2, BOUNDARY - 1, 2 * BOUNDARY))
            await until(lambda: gateway.boundary_tokens == BOUNDARY - 1)
            go_on.set()
            return await asked

    answer = asyncio.run(compress())
    assert (answer.pool, answer.reason) == (Pool.LONG, GatewayReason.PLAN_CHANGED)


def test_what_is_asked_for_is_the_boundary_less_what_is_reserved(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    asked: list[CompressionRequest] = []

    async def note(request: CompressionRequest, deadline_s: float) -> Compressed | Unchanged:
        asked.append(request)
        return Unchanged(Reason.CONTENT, "")

    async def compress() -> None:
        async with gateway_with(Scripted(note), redis_url, redis_client, fleet) as gateway:
            await ask(gateway, "a text", category="rag", cached_prompt_tokens=7)
            await ask(gateway, [{"role": "user", "content": "x"}], category="unheard of")
            await ask(gateway, "a text", overhead_tokens=40)

    asyncio.run(compress())
    assert [one.budget_tokens for one in asked] == [
        BOUNDARY - COMPLETION - 1,
        BOUNDARY - COMPLETION,
        BOUNDARY - COMPLETION - 40,
    ]
    assert [one.category for one in asked] == ["rag", None, None]
    assert asked[0].cached_prompt_tokens == 7


def test_an_absent_kafka_answers_at_once(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def compress() -> Answer:
        async with (
            KafkaCompressor("127.0.0.1:1") as kafka,
            gateway_with(kafka, redis_url, redis_client, fleet) as gateway,
        ):
            return await ask(gateway, text())

    with capture_logs():
        answer = asyncio.run(compress())
    assert (answer.pool, answer.reason) == (Pool.LONG, GatewayReason.NO_COMPRESSOR)


def test_without_an_event_loop_it_is_the_same(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    publish(redis_client, recommendation(fleet, 1, BOUNDARY, 2 * BOUNDARY))
    answers: list[Answer] = []
    with SyncGateway(
        lambda compressor: Gateway(fleet, redis_url, compressor=compressor),
        lambda: CompressionPool(Setup(models={MODEL: ModelCounter()}), workers=1),
    ) as sync:
        while sync.gateway.boundary_tokens is None:
            pass
        assert sync.route(2_000, COMPLETION, "rag") is Route.COMPRESS

        def ask_once() -> None:
            answers.append(sync.compress(text(), COMPLETION, model=MODEL, deadline_s=LONG_S))

        threads = [threading.Thread(target=ask_once) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {answer.pool for answer in answers} == {Pool.SHORT}
    assert len({str(answer.prompt) for answer in answers}) == 1
    assert len(answers) == 4
    closed = sync.compress(text(), COMPLETION, model=MODEL, deadline_s=LONG_S)
    assert (closed.pool, closed.reason) == (Pool.LONG, GatewayReason.NO_COMPRESSOR)
    assert sync.route(2_000, COMPLETION, "rag") is Route.COMPRESS


def test_a_thread_keeps_the_deadline_too(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    publish(redis_client, recommendation(fleet, 1, BOUNDARY, 2 * BOUNDARY))
    silent = Scripted(silence)
    with SyncGateway(lambda _: Gateway(fleet, redis_url, compressor=silent)) as sync:
        while sync.gateway.boundary_tokens is None:
            pass
        answer = sync.compress(text(), COMPLETION, model=MODEL, deadline_s=0.1)
    assert (answer.pool, answer.reason) == (Pool.LONG, Reason.DEADLINE)


def test_what_can_not_start_says_so_where_it_is_made(fleet: str) -> None:
    def make_pool() -> CompressionPool:
        return CompressionPool(Setup(models={}), workers=0)

    with pytest.raises(ConfigError, match="a pool of 0 workers"):
        SyncGateway(lambda _: Gateway(fleet, "redis://127.0.0.1:1/0"), make_pool)
    with pytest.raises(ConfigError, match=r"redis\.url"):
        SyncGateway(lambda _: Gateway(fleet, "http://nowhere"))


@pytest.mark.parametrize(
    ("reason", "logged"),
    [
        (None, "compressed"),
        (Reason.CONTENT, "content"),
        (Reason.DEADLINE, "deadline"),
        (GatewayReason.NO_COMPRESSOR, "failed"),
        (GatewayReason.NO_PLAN, None),
        (GatewayReason.PLAN_CHANGED, None),
    ],
)
def test_an_answer_says_what_a_log_of_it_says(
    reason: Reason | GatewayReason | None, logged: str | None
) -> None:
    assert Answer(Pool.LONG, "", reason).outcome == logged
