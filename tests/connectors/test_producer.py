"""The producer: batches that mean what the records meant, one partition a fleet, nothing lost."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.connectors.columns import COMPRESSION_OUTCOMES
from fleetopt.connectors.decode import decode_message
from fleetopt.connectors.producer import ROWS_PER_BATCH, MessageShape, RequestProducer, batch_of
from fleetopt.connectors.rows import columns_of_records
from fleetopt.connectors.topics import ensure_topic
from fleetopt.connectors.wire import RequestLog, encode_batch
from fleetopt.errors import ServiceError
from fleetopt.pipeline.embedded import EmbeddedBroker

tokens = st.integers(0, 1 << 30)
records_of_a_fleet = st.lists(
    st.builds(
        RequestLog,
        fleet=st.just("f"),
        request_id=st.just("r"),
        arrival_s=st.floats(1, 1e10),
        prompt_tokens=tokens,
        completion_tokens=tokens,
        original_prompt_tokens=st.none() | tokens,
        cached_prompt_tokens=st.none() | tokens,
        prompt_bytes=st.none() | st.integers(0, 1 << 40),
        compression=st.none() | st.sampled_from([name for name in COMPRESSION_OUTCOMES if name]),
        category=st.none() | st.sampled_from(["prose", "rag", "code", "tool", "chat", "other"]),
        pool=st.none() | st.sampled_from(["short", "long"]),
        ttft_s=st.none() | st.floats(0, 1e6),
        status=st.none() | st.sampled_from(["ok", "error", "rejected"]),
    ),
    min_size=1,
    max_size=30,
)


@given(records_of_a_fleet)
def test_a_batch_says_what_its_records_said(records: list[RequestLog]) -> None:
    decoded = decode_message(encode_batch(batch_of("f", records, "src", 7)))
    (batch,) = decoded.batches
    assert not decoded.rejected
    assert (batch.fleet, batch.src, batch.seq) == ("f", "src", 7)
    expected = columns_of_records(records)
    for name in (field.name for field in fields(expected)):
        np.testing.assert_array_equal(getattr(batch.columns, name), getattr(expected, name))


def test_columns_that_say_nothing_are_left_out() -> None:
    batch = batch_of("f", [RequestLog("f", "1", 1.0, 3, 2)])
    assert batch.c is batch.q is batch.s is batch.h is batch.b is batch.k is batch.r is None
    assert batch.t is batch.w is None


def test_what_a_gateway_saw_of_a_request_is_in_the_batch() -> None:
    seen = RequestLog("f", "1", 1.0, 3, 2, pool="long", ttft_s=0.25)
    batch = batch_of("f", [seen, RequestLog("f", "2", 1.0, 3, 2, pool="short")])
    assert (batch.t, batch.w) == ([0.25, None], [1, 0])


def requests(fleet: str, count: int) -> list[RequestLog]:
    return [RequestLog(fleet, str(at), 1e9 + at, 100 + at, 10) for at in range(count)]


async def consume(bootstrap: str, topic: str, partitions: int) -> dict[int, list[Any]]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, at) for at in range(partitions)])
        found: dict[int, list[Any]] = {}
        while messages := await consumer.getmany(timeout_ms=500):
            for partition, of_it in messages.items():
                found.setdefault(partition.partition, []).extend(of_it)
        return found
    finally:
        await consumer.stop()


async def send_and_read(
    bootstrap: str, topic: str, shape: MessageShape
) -> tuple[RequestProducer, dict[int, list[Any]]]:
    await ensure_topic(bootstrap, topic, 4, 3_600)
    async with RequestProducer(bootstrap, topic, shape) as producer:
        for fleet in ("a", "b", "c"):
            await producer.send(fleet, requests(fleet, ROWS_PER_BATCH * 2 + 1))
            await producer.heartbeat(fleet, 2e9)
        await producer.flush()
    return producer, await consume(bootstrap, topic, 4)


def test_batches_arrive_once_in_order_in_the_fleets_partition(
    embedded_broker: EmbeddedBroker, topic: str
) -> None:
    producer, found = asyncio.run(
        send_and_read(embedded_broker.bootstrap_servers, topic, MessageShape.BATCH)
    )
    rows = 2 * ROWS_PER_BATCH + 1
    assert producer.sent.records == 3 * rows
    assert producer.sent.messages == 3 * 4
    assert producer.sent.refused_messages == 0
    partitions: dict[bytes, set[int]] = {}
    for partition, messages in found.items():
        sequence = []
        for message in messages:
            (batch,) = decode_message(message.value).batches
            assert message.key == batch.fleet.encode()
            partitions.setdefault(message.key, set()).add(partition)
            sequence.append(batch.seq)
        assert sequence == sorted(set(sequence))
    assert set(partitions) == {b"a", b"b", b"c"}
    assert all(len(where) == 1 for where in partitions.values())
    (last,) = {
        decode_message(message.value).batches[0].until_s
        for messages in found.values()
        for message in messages[-1:]
    }
    assert last == 2e9


def test_single_records_arrive_as_they_were(embedded_broker: EmbeddedBroker, topic: str) -> None:
    _, found = asyncio.run(
        send_and_read(embedded_broker.bootstrap_servers, topic, MessageShape.RECORD)
    )
    records = [
        record
        for messages in found.values()
        for message in messages
        for record in decode_message(message.value).records
        if record.fleet == "b"
    ]
    assert records == requests("b", 2 * ROWS_PER_BATCH + 1)


def test_an_absent_broker_is_an_error_that_says_what_to_do(unused_tcp_port: int) -> None:
    async def start() -> None:
        async with RequestProducer(f"127.0.0.1:{unused_tcp_port}", "t"):
            pytest.fail("it started")

    with pytest.raises(ServiceError, match=f"{unused_tcp_port} does not answer: start it"):
        asyncio.run(start())


def test_what_a_dead_broker_never_took_is_counted(topic: str) -> None:
    async def send() -> RequestProducer:
        with EmbeddedBroker() as broker:
            await ensure_topic(broker.bootstrap_servers, topic, 1, 3_600)
            async with RequestProducer(
                broker.bootstrap_servers, topic, request_timeout_s=1.0
            ) as producer:
                await producer.send("a", requests("a", 10))
                await producer.flush()
                broker.kill()
                await producer.send("a", requests("a", 7))
                await producer.flush()
        return producer

    sent = asyncio.run(send()).sent
    assert (sent.records, sent.messages) == (10, 1)
    assert (sent.refused_records, sent.refused_messages) == (7, 1)
    assert sent.first_refusal


def test_a_broker_that_takes_nothing_any_more_is_given_up(topic: str) -> None:
    async def send(broker: EmbeddedBroker) -> None:
        await ensure_topic(broker.bootstrap_servers, topic, 1, 3_600)
        async with RequestProducer(
            broker.bootstrap_servers, topic, MessageShape.RECORD, request_timeout_s=0.5
        ) as producer:
            await producer.send("a", requests("a", 5))
            await producer.flush()
            broker.kill()
            while True:
                await producer.send("a", requests("a", 1_000))
                await producer.flush()

    with EmbeddedBroker() as broker, pytest.raises(ServiceError, match="took 5 requests and ref"):
        asyncio.run(send(broker))


def test_a_message_too_large_is_refused_and_the_next_is_not(
    embedded_broker: EmbeddedBroker, topic: str
) -> None:
    async def send() -> RequestProducer:
        bootstrap = embedded_broker.bootstrap_servers
        await ensure_topic(bootstrap, topic, 1, 3_600)
        async with RequestProducer(bootstrap, topic, MessageShape.RECORD) as producer:
            huge = RequestLog("a", "x" * (1 << 21), 1e9, 1, 1)
            await producer.send("a", [huge, *requests("a", 3)])
            await producer.flush()
        return producer

    sent = asyncio.run(send()).sent
    assert (sent.records, sent.refused_records) == (3, 1)
    assert "arge" in str(sent.first_refusal)


@pytest.fixture
def unused_tcp_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
