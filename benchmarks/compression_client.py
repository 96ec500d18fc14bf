"""A gateway's part in a measurement or a test: sends prompts at a pace and collects the answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fleetopt.connectors.compression_wire import (
    CompressionReply,
    CompressionRequest,
    ReplyTo,
    decode_reply,
    encode_request,
    request_headers,
)
from fleetopt.connectors.kafka import stop_client
from fleetopt.connectors.topics import Topics


@dataclass(slots=True)
class Sent:
    """A prompt on its way, and what came back."""

    request: CompressionRequest
    sent_s: float
    deadline_s: float
    """Both on the monotonic clock."""
    reply: CompressionReply | None = None
    took_s: float | None = None
    replies: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class CompressionClient:
    """Sends requests to one topic, and reads one reply topic of its own."""

    bootstrap_servers: str
    request_topic: str
    reply_topic: str
    sent: dict[str, Sent] = field(default_factory=dict)
    unsent: int = 0
    """Requests that Kafka did not take."""

    async def __aenter__(self) -> Self:
        async with Topics(self.bootstrap_servers) as topics:
            await topics.ensure(self.reply_topic, 1, 600.0)
            await topics.ensure(self.request_topic, 4, 600.0)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            linger_ms=0,
            max_request_size=16 << 20,
            request_timeout_ms=5_000,
        )
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            fetch_max_wait_ms=10,
            enable_auto_commit=False,
        )
        self._consumer.assign([TopicPartition(self.reply_topic, 0)])
        await self._producer.start()
        await self._consumer.start()
        await self._consumer.seek_to_beginning()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await stop_client(self._producer)
        await stop_client(self._consumer)

    async def send(self, request: CompressionRequest, within_s: float) -> Sent:
        """Send one prompt; its answer is of use for so long."""
        now_s = time.monotonic()
        sent = Sent(request, now_s, now_s + within_s)
        self.sent[request.request_id] = sent
        await self.send_bytes(request.request_id, encode_request(request), within_s)
        return sent

    async def send_bytes(self, request_id: str, value: bytes, within_s: float) -> None:
        """Send bytes, whatever they are, as a request."""
        address = ReplyTo(self.reply_topic, 0, time.time() + within_s)
        taken = await self._producer.send(
            self.request_topic,
            value=value,
            key=request_id.encode(),
            headers=request_headers(address),
        )
        taken.add_done_callback(self._count)

    def _count(self, taken: asyncio.Future[object]) -> None:
        if taken.cancelled() or taken.exception() is not None:
            self.unsent += 1

    async def pace(
        self, requests: Sequence[CompressionRequest], per_s: float, within_s: float
    ) -> list[Sent]:
        """Send requests evenly, whatever comes back; returns when all are on their way."""
        begin_s = time.monotonic()
        sent = []
        for number, request in enumerate(requests):
            await asyncio.sleep(max(0.0, begin_s + number / per_s - time.monotonic()))
            sent.append(await self.send(request, within_s))
        return sent

    async def settled(self, sent: Sequence[Sent], grace_s: float = 1.0) -> None:
        """Wait until each is answered or so far past its deadline."""
        for one in sent:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(one.deadline_s + grace_s - time.monotonic()):
                    await one.answered.wait()

    async def _read(self) -> None:
        async for message in self._consumer:
            reply = decode_reply(message.value)
            sent = self.sent.get(reply.request_id)
            if sent is None:
                continue
            sent.replies += 1
            if sent.reply is None:
                sent.reply = reply
                sent.took_s = time.monotonic() - sent.sent_s
                sent.answered.set()


def new_id() -> str:
    """Return a request id that nobody else has."""
    return uuid.uuid4().hex
