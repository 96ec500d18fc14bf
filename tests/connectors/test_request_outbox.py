"""A gateway's request logs: all of them sent, or counted; nothing waits for the broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from structlog.testing import capture_logs

from fleetopt.connectors.decode import decode_message
from fleetopt.connectors.gateway import Gateway
from fleetopt.connectors.request_outbox import RequestOutbox
from fleetopt.connectors.topics import ensure_topic
from fleetopt.connectors.wire import RequestLog
from fleetopt.pipeline.embedded import EmbeddedBroker
from tests.connectors.gateway_plans import until

NOWHERE = "127.0.0.1:1"


def record(number: int, **fields: Any) -> RequestLog:
    return RequestLog("chat", str(number), 1e9 + number, 100, 10, **fields)


async def arrived(bootstrap: str, topic: str) -> tuple[list[float], int]:
    """Return the arrivals of all rows on a topic, in order, and how many batches they came in."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        batches = []
        while messages := await consumer.getmany(timeout_ms=500):
            for of_it in messages.values():
                batches += [batch for one in of_it for batch in decode_message(one.value).batches]
    return [float(at) for batch in batches for at in batch.columns.arrival_s], len(batches)


def test_every_record_is_sent_in_batches_and_the_rest_at_the_end(
    embedded_broker: EmbeddedBroker, topic: str
) -> None:
    bootstrap = embedded_broker.bootstrap_servers

    async def send() -> tuple[list[float], int]:
        await ensure_topic(bootstrap, topic, 1, 3_600)
        outbox = RequestOutbox(bootstrap, topic, "chat")
        async with Gateway("chat", "redis://127.0.0.1:1/0", outbox=outbox) as gateway:

            def add(begin: int) -> None:
                for number in range(begin, begin + 500):
                    gateway.log(record(number, category="rag", status="ok"))

            threads = [threading.Thread(target=add, args=(500 * at,)) for at in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            await until(lambda: outbox.counts.sent == 2_000)
            gateway.log(record(2_000))
        assert len(outbox) == 0
        counts = outbox.counts
        assert (counts.added, counts.sent) == (2_001, 2_001)
        assert (counts.dropped, counts.refused) == (0, 0)
        return await arrived(bootstrap, topic)

    with capture_logs():
        arrivals, batches = asyncio.run(send())
    assert sorted(arrivals) == [1e9 + number for number in range(2_001)]
    assert batches < 100


def test_without_a_broker_the_oldest_give_way_and_are_counted() -> None:
    async def send() -> RequestOutbox:
        outbox = RequestOutbox(NOWHERE, "t", "chat", max_records=10)
        gateway = Gateway("chat", "redis://127.0.0.1:1/0", outbox=outbox)
        gateway.start()
        for number in range(25):
            gateway.log(record(number))
        assert (len(outbox), outbox.counts.dropped) == (10, 15)
        await gateway.close(flush_s=0.1)
        return outbox

    with capture_logs() as said:
        outbox = asyncio.run(send())
    counts = outbox.counts
    assert (len(outbox), counts.added, counts.sent) == (0, 25, 0)
    assert counts.dropped == 25
    assert any(line["event"] == "request logs were left at the end" for line in said)


def test_what_waited_for_the_broker_is_sent_when_it_is_back(topic: str, tmp_path: Path) -> None:
    async def send(broker: EmbeddedBroker) -> list[float]:
        bootstrap = broker.bootstrap_servers
        outbox = RequestOutbox(bootstrap, topic, "chat")
        for number in range(300):
            outbox.add(record(number))
        running = asyncio.create_task(outbox.run())
        await asyncio.sleep(0.5)
        assert outbox.counts.sent == 0
        await asyncio.to_thread(broker.restart)
        await ensure_topic(bootstrap, topic, 1, 3_600)
        outbox.finish()
        await running
        assert (outbox.counts.sent, outbox.counts.dropped) == (300, 0)
        arrivals, _ = await arrived(bootstrap, topic)
        return arrivals

    with EmbeddedBroker(tmp_path) as broker, capture_logs():
        broker.kill()
        assert len(asyncio.run(send(broker))) == 300


def test_a_promise_is_passed_on_after_what_it_covers_unless_some_was_lost(
    embedded_broker: EmbeddedBroker, topic: str
) -> None:
    bootstrap = embedded_broker.bootstrap_servers

    async def send(records: int) -> list[float | None]:
        outbox = RequestOutbox(bootstrap, topic, "chat", max_records=5)
        for number in range(records):
            outbox.add(record(number))
        outbox.promise(2e9)
        outbox.finish()
        await outbox.run()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found = (await consumer.getmany(timeout_ms=2_000)).values()
            values = [one.value for messages in found for one in messages]
        return [batch.until_s for value in values for batch in decode_message(value).batches]

    async def both() -> list[list[float | None]]:
        await ensure_topic(bootstrap, topic, 1, 3_600)
        return [await send(5), await send(6)]

    assert asyncio.run(both()) == [[None, 2e9], [None, 2e9, None]]


@pytest.mark.parametrize("category", ["unheard of", "Code"])
def test_a_category_that_is_not_known_is_other(
    embedded_broker: EmbeddedBroker, category: Any, topic: str
) -> None:
    async def send(bootstrap: str) -> int:
        await ensure_topic(bootstrap, topic, 1, 3_600)
        outbox = RequestOutbox(bootstrap, topic, "chat")
        outbox.add(record(1, category=category))
        outbox.finish()
        await outbox.run()
        return outbox.counts.sent

    assert asyncio.run(send(embedded_broker.bootstrap_servers)) == 1
