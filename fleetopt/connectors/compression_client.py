"""Prompts to the compressors over Kafka and their answers back, on a partition of our own.

Owns the correlation of requests and replies, and the connection, which is made and made again in
the background. It belongs to one event loop. Knows nothing of routing.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from fleetopt.compressor.outcome import Compressed, Reason, Unchanged
from fleetopt.connectors.compression_wire import (
    CompressionRequest,
    ReplyTo,
    decode_reply,
    encode_request,
    outcome_of,
    request_headers,
)
from fleetopt.connectors.kafka import stop_client, was_cancelled
from fleetopt.connectors.tasks import end_tasks
from fleetopt.connectors.topics import Topics
from fleetopt.errors import DecodeError, InputError, ServiceError

log = structlog.get_logger(__name__)

REQUEST_TOPIC: Final = "fleetopt.compress.requests"
REPLY_TOPIC: Final = "fleetopt.compress.replies"

CHECK_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 5.0
REPLY_PARTITIONS: Final = 16
REPLY_RETENTION_S: Final = 600.0
MAX_REQUEST_BYTES: Final = 16 << 20
SILENT_AFTER: Final = 8
"""So many prompts in a row without an answer: one a `PROBE_S` is tried then, and no more."""

PROBE_S: Final = 0.5
TRACE: Final = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class _StartOverError(Exception):
    """A topic was made anew: nobody will answer what is on its way."""


@dataclass(slots=True)
class ClientCounts:
    """What became of the replies and of the connection."""

    replies: int = 0
    late: int = 0
    """Replies to prompts of ours that wait no more: past their deadline, or answered twice."""
    broken: int = 0
    disconnects: int = 0


class KafkaCompressor:
    """Hands prompts to whichever compressor reads the topic; use it as an async context manager.

    Parameters
    ----------
    bootstrap_servers : str
        Broker addresses.
    request_topic, reply_topic : str
        As the compressors' settings name them. The reply topic is made if it is not there.
    reply_partition : int, optional
        By default one is drawn. Clients may share one: each knows its own replies.
    max_pending : int
        Prompts on their way at a time; one more is answered `overloaded`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        request_topic: str = REQUEST_TOPIC,
        reply_topic: str = REPLY_TOPIC,
        reply_partition: int | None = None,
        max_pending: int = 256,
    ) -> None:
        self.counts = ClientCounts()
        self._bootstrap_servers = bootstrap_servers
        self._request_topic = request_topic
        self._reply_topic = reply_topic
        self._reply_partition = reply_partition
        self._max_pending = max_pending
        self._prefix = f"{uuid.uuid4().hex}-"
        self._number = 0
        self._pending: dict[str, asyncio.Future[Compressed | Unchanged]] = {}
        self._producer: AIOKafkaProducer | None = None
        self._partition = 0
        self._unanswered_in_row = 0
        self._next_probe_s = 0.0
        self._running: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def is_connected(self) -> bool:
        """Whether prompts can be sent now."""
        return self._producer is not None

    def start(self) -> None:
        """Begin to connect; returns at once, whether Kafka is there or not."""
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Close the connection; what is on its way is answered with an error."""
        running, self._running = self._running, None
        if running is not None:
            await end_tasks([running])
        if self._stopping:
            await asyncio.wait(self._stopping)

    async def submit(
        self,
        request: CompressionRequest,
        deadline_s: float,
        *,
        traceparent: str | None = None,
    ) -> Compressed | Unchanged:
        """Return what a compressor makes of a prompt, at the latest at the deadline.

        Parameters
        ----------
        request : CompressionRequest
            Its id is replaced by one of this client's.
        deadline_s : float
            On the event loop's clock.
        traceparent : str, optional
            Goes with the prompt and with its answer, as W3C Trace Context has it; what is none is
            left out.

        Raises
        ------
        ServiceError
            No compressor can be reached.
        """
        now_s = asyncio.get_running_loop().time()
        producer = self._producer
        if producer is None:
            raise ServiceError(f"Kafka at {self._bootstrap_servers} is not connected")
        if deadline_s <= now_s:
            return Unchanged(Reason.DEADLINE, "its deadline had passed when it came")
        if len(self._pending) >= self._max_pending:
            return Unchanged(Reason.OVERLOADED, f"{self._max_pending} prompts are on their way")
        self._check_heard(now_s)
        self._number += 1
        request_id = f"{self._prefix}{self._number}"
        try:
            value = encode_request(msgspec.structs.replace(request, request_id=request_id))
        except InputError as error:
            return Unchanged(Reason.INVALID_PROMPT, str(error))
        headers = request_headers(
            ReplyTo(
                self._reply_topic,
                self._partition,
                time.time() + deadline_s - now_s,
                traceparent.encode() if traceparent and TRACE.fullmatch(traceparent) else None,
            )
        )
        return await self._exchange(producer, request_id, value, headers, deadline_s)

    async def _exchange(
        self,
        producer: AIOKafkaProducer,
        request_id: str,
        value: bytes,
        headers: list[tuple[str, bytes]],
        deadline_s: float,
    ) -> Compressed | Unchanged:
        answer: asyncio.Future[Compressed | Unchanged]
        answer = self._pending[request_id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at(deadline_s):
                delivery = await producer.send(
                    self._request_topic, value=value, key=request_id.encode(), headers=headers
                )
                delivery.add_done_callback(lambda done: self._delivered(request_id, done))
                return await answer
        except TimeoutError:
            self._unanswered_in_row += 1
            return Unchanged(Reason.DEADLINE, "no compressor answered by its deadline")
        except MessageSizeTooLargeError as error:
            return Unchanged(Reason.TOO_LARGE, str(error))
        except (KafkaError, OSError) as error:
            raise ServiceError(f"Kafka did not take the prompt: {error}") from error
        finally:
            del self._pending[request_id]

    def _check_heard(self, now_s: float) -> None:
        """Raise ServiceError while nobody answers, except for one prompt now and then."""
        if self._unanswered_in_row < SILENT_AFTER:
            return
        if now_s < self._next_probe_s:
            raise ServiceError(f"the last {self._unanswered_in_row} prompts were not answered")
        self._next_probe_s = now_s + PROBE_S

    def _delivered(self, request_id: str, done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if not done.cancelled() and error is None:
            return
        answer = self._pending.get(request_id)
        if answer is None or answer.done():
            return
        if isinstance(error, MessageSizeTooLargeError):
            answer.set_result(Unchanged(Reason.TOO_LARGE, str(error)))
        else:
            answer.set_exception(ServiceError(f"Kafka did not take the prompt: {error}"))

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            try:
                await self._session()
            except _StartOverError:
                log.info("a topic of the compressors was made anew; connecting again")
            except (KafkaError, OSError, ServiceError) as error:
                self.counts.disconnects += 1
                log.warning(
                    "prompts can't be compressed over Kafka; they go to the long pool",
                    error=str(error) or type(error).__name__,
                    retry_in_s=pause_s,
                )
            except asyncio.CancelledError as error:
                if was_cancelled(error):
                    raise
            if time.monotonic() - began_s > MAX_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _session(self) -> None:
        """Connect, and stay so until something is not as it was."""
        async with Topics(self._bootstrap_servers) as topics:
            reply = await topics.ensure(self._reply_topic, REPLY_PARTITIONS, REPLY_RETENTION_S)
            request_id = await topics.topic_id(self._request_topic)
            if request_id is None:
                raise ServiceError(
                    f"there is no topic {self._request_topic}: start `fleetopt compressor`"
                )
            chosen = self._reply_partition
            if chosen is None or chosen >= reply.partitions:
                chosen = random.randrange(reply.partitions)
            self._partition = chosen
            consumer = self._make_consumer()
            producer = self._make_producer()
            reading: asyncio.Task[None] | None = None
            try:
                await self._connect(consumer, producer)
                reading = asyncio.create_task(self._read(consumer))
                self._unanswered_in_row = 0
                self._producer = producer
                while True:
                    await asyncio.wait([reading], timeout=CHECK_S)
                    if reading.done():
                        reading.result()
                    if (
                        await topics.topic_id(self._reply_topic) != reply.topic_id
                        or await topics.topic_id(self._request_topic) != request_id
                    ):
                        raise _StartOverError
            finally:
                self._producer = None
                self._give_up_pending()
                if reading is not None:
                    reading.cancel()
                    self._keep(reading)
                self._keep(asyncio.ensure_future(stop_client(producer)))
                self._keep(asyncio.ensure_future(stop_client(consumer)))

    def _make_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            client_id="fleetopt-gateway",
            enable_auto_commit=False,
            auto_offset_reset="latest",
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=4 << 20,
        )

    def _make_producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            client_id="fleetopt-gateway",
            acks=1,
            linger_ms=0,
            max_request_size=MAX_REQUEST_BYTES,
            request_timeout_ms=5_000,
        )

    async def _connect(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        """Be at the end of the partition before the first prompt is sent."""
        partition = TopicPartition(self._reply_topic, self._partition)
        consumer.assign([partition])
        await consumer.start()
        ends = await consumer.end_offsets([partition])
        consumer.seek(partition, ends[partition])
        await producer.start()

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        async for message in consumer:
            self._take(message.key, message.value)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        request_id = (key or b"").decode(errors="replace")
        if not request_id.startswith(self._prefix):
            return  # another client's, on the same partition
        self._unanswered_in_row = 0
        answer = self._pending.get(request_id)
        if answer is None or answer.done():
            self.counts.late += 1
            return
        try:
            outcome = outcome_of(decode_reply(value))
        except DecodeError as error:
            self.counts.broken += 1
            outcome = Unchanged(Reason.FAILED, f"a reply that can't be read: {error}")
        else:
            self.counts.replies += 1
        answer.set_result(outcome)

    def _give_up_pending(self) -> None:
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ServiceError("the connection to Kafka was lost"))

    def _keep(self, task: asyncio.Future[Any]) -> None:
        self._stopping.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._stopping.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("a connection did not end in order", error=str(error))
