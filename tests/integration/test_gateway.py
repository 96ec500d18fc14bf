"""A gateway's prompts over a real Kafka, with a worker that a test directs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from structlog.testing import capture_logs

from fleetopt.compressor.outcome import Compressed, Reason, Unchanged
from fleetopt.connectors.compression_client import SILENT_AFTER, KafkaCompressor
from fleetopt.connectors.compression_wire import (
    CompressionReply,
    CompressionRequest,
    ReplyTo,
    decode_request,
    encode_reply,
    reply_to,
)
from fleetopt.connectors.topics import ensure_topic
from fleetopt.errors import ServiceError
from tests.compressor_process import LONG_S
from tests.connectors.gateway_plans import until
from tests.integration.conftest import Kafka

PARTITION = 3


def reply(request: CompressionRequest, prompt: str = "shorter") -> bytes:
    return encode_reply(
        CompressionReply(
            v=1,
            request_id=request.request_id,
            outcome="compressed",
            prompt=prompt,
            tokens_before=20,
            tokens_after=10,
        )
    )


class Worker:
    """Reads requests and answers when and what a test says."""

    def __init__(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        self._consumer, self._producer = consumer, producer

    async def next(self) -> tuple[CompressionRequest, ReplyTo]:
        message = await self._consumer.getone()
        request = decode_request(message.value)
        assert isinstance(request, CompressionRequest)
        assert message.key == request.request_id.encode()
        return request, reply_to(message.headers)

    async def answer(self, to: ReplyTo, key: bytes, value: bytes) -> None:
        await self._producer.send_and_wait(to.topic, value, key=key, partition=to.partition)


@asynccontextmanager
async def at_work(
    kafka: Kafka, topic: str, max_pending: int = 256
) -> AsyncIterator[tuple[KafkaCompressor, Worker]]:
    await ensure_topic(kafka.bootstrap_servers, topic, 1, 3_600)
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    client = KafkaCompressor(
        kafka.bootstrap_servers,
        request_topic=topic,
        reply_topic=f"{topic}.replies",
        reply_partition=PARTITION,
        max_pending=max_pending,
    )
    async with consumer, producer, client:
        await until(lambda: client.is_connected)
        yield client, Worker(consumer, producer)


def request(prompt: str = "a long prompt") -> CompressionRequest:
    return CompressionRequest(1, "mine", "chat", "m", prompt, 12)


def soon() -> float:
    return asyncio.get_running_loop().time() + LONG_S


Test = Callable[[KafkaCompressor, Worker], Awaitable[None]]


def run(kafka: Kafka, topic: str, test: Test, max_pending: int = 256) -> None:
    async def talk() -> None:
        async with asyncio.timeout(2 * LONG_S), at_work(kafka, topic, max_pending) as both:
            await test(*both)

    with capture_logs():
        asyncio.run(talk())


def test_answers_find_their_prompts_in_any_order(kafka: Kafka, topic: str) -> None:
    async def talk(client: KafkaCompressor, worker: Worker) -> None:
        asked = [asyncio.create_task(client.submit(request(str(n)), soon())) for n in range(5)]
        taken = [await worker.next() for _ in asked]
        for got, to in reversed(taken):
            assert (to.topic, to.partition) == (f"{topic}.replies", PARTITION)
            assert to.deadline_s is not None
            await worker.answer(to, got.request_id.encode(), reply(got, f"less of {got.prompt}"))
        answers: Sequence[Compressed | Unchanged] = await asyncio.gather(*asked)
        assert [getattr(one, "prompt", None) for one in answers] == [
            f"less of {n}" for n in range(5)
        ]
        assert (client.counts.replies, client.counts.late) == (5, 0)

    run(kafka, topic, talk)


def test_late_double_and_foreign_answers_change_nothing(kafka: Kafka, topic: str) -> None:
    async def talk(client: KafkaCompressor, worker: Worker) -> None:
        late = await client.submit(request(), asyncio.get_running_loop().time() + 0.3)
        assert isinstance(late, Unchanged)
        assert late.reason is Reason.DEADLINE
        got, to = await worker.next()
        await worker.answer(to, got.request_id.encode(), reply(got))
        await worker.answer(to, b"somebody else's", b"whatever")
        asked = asyncio.create_task(client.submit(request(), soon()))
        got, to = await worker.next()
        for _ in range(2):
            await worker.answer(to, got.request_id.encode(), reply(got))
        assert isinstance(await asked, Compressed)
        await until(lambda: client.counts.late == 2)
        assert (client.counts.replies, client.counts.broken) == (1, 0)

    run(kafka, topic, talk)


@pytest.mark.parametrize("value", [b"", b"\xc1", b"{}", b'{"v": 9}'])
def test_an_answer_that_can_not_be_read_fails_its_prompt_only(
    embedded_broker: Kafka, topic: str, value: bytes
) -> None:
    async def talk(client: KafkaCompressor, worker: Worker) -> None:
        asked = asyncio.create_task(client.submit(request(), soon()))
        got, to = await worker.next()
        await worker.answer(to, got.request_id.encode(), value)
        broken = await asked
        assert isinstance(broken, Unchanged)
        assert broken.reason is Reason.FAILED
        asked = asyncio.create_task(client.submit(request(), soon()))
        got, to = await worker.next()
        await worker.answer(to, got.request_id.encode(), reply(got))
        assert isinstance(await asked, Compressed)
        assert client.counts.broken == 1

    run(embedded_broker, topic, talk)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("given", "sent"), [(TRACE, TRACE.encode()), (None, None), ("nonsense", None), ("", None)]
)
def test_a_trace_goes_with_its_prompt(
    embedded_broker: Kafka, topic: str, given: str | None, sent: bytes | None
) -> None:
    async def talk(client: KafkaCompressor, worker: Worker) -> None:
        asked = asyncio.create_task(client.submit(request(), soon(), traceparent=given))
        got, to = await worker.next()
        assert to.traceparent == sent
        await worker.answer(to, got.request_id.encode(), reply(got))
        assert isinstance(await asked, Compressed)

    run(embedded_broker, topic, talk)


def test_no_more_than_the_limit_is_on_its_way(embedded_broker: Kafka, topic: str) -> None:
    async def talk(client: KafkaCompressor, worker: Worker) -> None:
        asked = [asyncio.create_task(client.submit(request(), soon())) for _ in range(2)]
        taken = [await worker.next() for _ in asked]
        refused = await client.submit(request(), soon())
        assert isinstance(refused, Unchanged)
        assert refused.reason is Reason.OVERLOADED
        for got, to in taken:
            await worker.answer(to, got.request_id.encode(), reply(got))
        await asyncio.gather(*asked)

    run(embedded_broker, topic, talk, max_pending=2)


def test_while_nobody_answers_prompts_do_not_wait_for_their_deadlines(
    embedded_broker: Kafka, topic: str
) -> None:
    async def talk(client: KafkaCompressor, worker: Worker) -> None:
        soon_s = asyncio.get_running_loop().time() + 0.2
        silent = await asyncio.gather(
            *(client.submit(request(), soon_s) for _ in range(SILENT_AFTER))
        )
        assert {one.reason for one in silent if isinstance(one, Unchanged)} == {Reason.DEADLINE}
        probe = asyncio.create_task(client.submit(request(), soon()))
        await asyncio.sleep(0)
        with pytest.raises(ServiceError, match="were not answered"):
            await client.submit(request(), soon())
        for _ in silent:
            await worker.next()
        got, to = await worker.next()
        await worker.answer(to, got.request_id.encode(), reply(got))
        assert isinstance(await probe, Compressed)
        asked = asyncio.create_task(client.submit(request(), soon()))
        got, to = await worker.next()
        await worker.answer(to, got.request_id.encode(), reply(got))
        assert isinstance(await asked, Compressed)

    run(embedded_broker, topic, talk)


def test_what_kafka_will_not_carry_is_said(embedded_broker: Kafka, topic: str) -> None:
    async def talk(client: KafkaCompressor, worker: Worker) -> None:
        huge = await client.submit(request("x" * (17 << 20)), soon())
        assert isinstance(huge, Unchanged)
        assert huge.reason is Reason.TOO_LARGE
        lone = await client.submit(request("\ud800"), soon())
        assert isinstance(lone, Unchanged)
        assert lone.reason is Reason.INVALID_PROMPT
        past = await client.submit(request(), 0.0)
        assert isinstance(past, Unchanged)
        assert past.reason is Reason.DEADLINE

    run(embedded_broker, topic, talk)


def test_a_topic_that_is_not_there_is_waited_for(embedded_broker: Kafka, topic: str) -> None:
    async def talk() -> None:
        bootstrap = embedded_broker.bootstrap_servers
        async with KafkaCompressor(
            bootstrap, request_topic=topic, reply_topic=f"{topic}.replies"
        ) as client:
            await until(lambda: client.counts.disconnects > 0)
            with pytest.raises(ServiceError, match="not connected"):
                await client.submit(request(), soon())
            await ensure_topic(bootstrap, topic, 1, 3_600)
            await until(lambda: client.is_connected)

    with capture_logs() as said:
        asyncio.run(talk())
    assert "start `fleetopt compressor`" in str(said)
