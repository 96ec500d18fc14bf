"""Prompts from Kafka to the processes that compress them, and the answers back: a Faust service.

It owns the order of things: a request is read, answered, and only then its offset is committed. So
a compressor that dies leaves what it had to the next one, and a request may be answered twice; who
asked knows it by its id. No more is read than can be answered, and what is past its deadline is
left alone.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition
from faust import Service

from fleetopt.compressor.outcome import Reason, Unchanged
from fleetopt.config.settings import Settings
from fleetopt.connectors.compression_pool import CompressionPool, Outcome
from fleetopt.connectors.compression_wire import (
    ReplyTo,
    decode_request,
    encode_reply,
    is_json,
    reply_headers,
    reply_of,
    reply_to,
)
from fleetopt.connectors.dead_letter import dead_letter_topic, send_dead_letters
from fleetopt.connectors.kafka import (
    make_compression_consumer,
    make_producer,
    stop_client,
    was_cancelled,
)
from fleetopt.connectors.topics import Topics, TopicState
from fleetopt.connectors.wire import Rejected, Rejection
from fleetopt.errors import DecodeError, ServiceError
from fleetopt.pipeline.answered import AnsweredOffsets
from fleetopt.pipeline.compression_metrics import CompressionMetrics
from fleetopt.pipeline.compression_setup import pool_setup

log = structlog.get_logger(__name__)

EPOCH_CHECK_S: Final = 1.0
COMMIT_S: Final = 0.5
FETCH_S: Final = 0.1
HEARTBEAT_S: Final = 0.02
SUMMARY_S: Final = 60.0
MAX_BACKOFF_S: Final = 10.0
STOP_LIMIT_S: Final = 15.0
MAX_MESSAGES: Final = 16
"""Requests taken between two turns of the event loop."""

UNANSWERED_BYTES: Final = 64 << 20
"""More is not read before some of it is answered."""

LINGER_MS: Final = 0
MAX_REPLY_BYTES: Final = 16 << 20
REPLY_S: Final = 0.01
"""Taken off the deadline, for the way back."""

MIN_SEND_S: Final = 0.5
"""An answer that is there is sent, even where its deadline is about to pass."""


class _StartOverError(Exception):
    """The consumer must be made anew: the topic is another one."""


class _Partitions(ConsumerRebalanceListener):  # type: ignore[misc]
    """How far each partition of this consumer is answered."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._offsets: dict[TopicPartition, AnsweredOffsets] = {}
        self._committed: dict[TopicPartition, int] = {}

    def take(self, source: TopicPartition, offset: int) -> None:
        self._offsets.setdefault(source, AnsweredOffsets()).take(offset)

    def answer(self, source: TopicPartition, offset: int) -> None:
        if (offsets := self._offsets.get(source)) is not None:
            offsets.answer(offset)

    async def commit(self) -> None:
        """Commit what is answered."""
        positions = {
            source: offsets.position
            for source, offsets in self._offsets.items()
            if offsets.position is not None and offsets.position != self._committed.get(source)
        }
        if not positions:
            return
        try:
            await self._consumer.commit(positions)
        except KafkaError as error:
            log.warning("what is answered is not committed", error=type(error).__name__)
        else:
            self._committed |= positions

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Tell the next owner how far we are; what we still answer is answered twice at most."""
        await self.commit()
        for source in revoked:
            self._offsets.pop(source, None)
            self._committed.pop(source, None)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin where the group stands."""


class Compression(Service):
    """Answers the requests of the partitions that the group gives this compressor."""

    def __init__(self, settings: Settings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        compressor = settings.compressor
        self.settings = compressor
        self.kafka = settings.kafka
        self.pool = CompressionPool(
            pool_setup(compressor), workers=compressor.workers, queue_limit=compressor.queue_limit
        )
        self.metrics = CompressionMetrics(self.pool)
        self._topics = Topics(settings.kafka.bootstrap_servers)
        self._unanswered: set[asyncio.Task[None]] = set()
        self._unanswered_bytes = 0
        self._unanswered_limit = compressor.queue_limit + 2 * compressor.workers + 64
        self._broken: KafkaError | None = None
        self._is_done = asyncio.Event()
        self._is_done.set()

    async def on_start(self) -> None:
        """Start the processes: no request is read before they are warm."""
        await self.pool.start()
        # What is there now stays; to go through it again and again takes the garbage collector
        # longer than a prompt may wait.
        gc.collect()
        gc.freeze()
        log.info("compression processes are up", pids=self.pool.pids)

    async def on_stop(self) -> None:
        """Wait for the answers to what was read, and end the processes.

        Faust cancels a service's tasks as soon as this returns.
        """
        try:
            async with asyncio.timeout(self.settings.drain_s + STOP_LIMIT_S):
                await self._is_done.wait()
        except TimeoutError:
            log.warning("stopping without an answer to everything", unanswered=self.unanswered)
        await self.pool.stop(drain_s=0.0)
        await self._topics.close()
        log.info("compressor stopped", **self.metrics.summary())

    @property
    def unanswered(self) -> int:
        """Requests that were read and have no answer yet."""
        return len(self._unanswered)

    @Service.task
    async def _answer_requests(self) -> None:
        self._is_done.clear()
        try:
            await self._consume_again_and_again()
        finally:
            self._is_done.set()

    async def _consume_again_and_again(self) -> None:
        pause_s = 0.2
        while not self.should_stop:
            started_s = time.monotonic()
            try:
                await self._consume()
            except (KafkaError, ServiceError, _StartOverError, asyncio.CancelledError) as error:
                if was_cancelled(error):
                    raise
                if time.monotonic() - started_s > MAX_BACKOFF_S:
                    pause_s = 0.2
                log.warning(
                    "reading is interrupted", error=str(error) or repr(error), retry_in_s=pause_s
                )
                await self.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_BACKOFF_S)

    @Service.task
    async def _watch_event_loop(self) -> None:
        """Notice what blocks the event loop, and say now and then how things are."""
        said_s = time.monotonic()
        before: dict[str, Any] = {}
        while not self.should_stop:
            due_s, worked_s = time.monotonic() + HEARTBEAT_S, time.thread_time()
            await asyncio.sleep(HEARTBEAT_S)
            self.metrics.event_loop_was_late(
                time.monotonic() - due_s, time.thread_time() - worked_s
            )
            if time.monotonic() - said_s >= SUMMARY_S:
                said_s = time.monotonic()
                summary = self.metrics.summary()
                if summary != before:
                    log.info("compressor at work", **summary)
                before = summary

    async def _consume(self) -> None:
        state = await self._ensure_topics()
        consumer = make_compression_consumer(self.kafka, self.settings, state.topic_id)
        producer = make_producer(self.kafka, linger_ms=LINGER_MS, max_request_bytes=MAX_REPLY_BYTES)
        partitions = _Partitions(consumer)
        try:
            await producer.start()
            consumer.subscribe([self.settings.request_topic], listener=partitions)
            await consumer.start()
            log.info(
                "reading prompts to compress",
                topic=self.settings.request_topic,
                epoch=state.topic_id,
                partitions=state.partitions,
            )
            await self._read(consumer, producer, partitions, state.topic_id)
            await self._drain()
            await partitions.commit()
        finally:
            await self._give_up()
            await stop_client(consumer)
            await stop_client(producer)

    async def _ensure_topics(self) -> TopicState:
        settings = self.settings
        state = await self._topics.ensure(
            settings.request_topic,
            settings.partitions,
            settings.retention_s,
            replication_factor=self.kafka.replication_factor,
        )
        letters = await self._topics.ensure(
            dead_letter_topic(settings.request_topic),
            1,
            settings.retention_s,
            replication_factor=self.kafka.replication_factor,
        )
        for problem in (*state.problems, *letters.problems):
            log.warning("the topic is not as configured", problem=problem)
        return state

    async def _read(
        self,
        consumer: AIOKafkaConsumer,
        producer: AIOKafkaProducer,
        partitions: _Partitions,
        epoch: str,
    ) -> None:
        self._broken = None
        keeping = asyncio.create_task(self._keep_house(partitions, epoch))
        try:
            while not self.should_stop:
                if self._broken is not None:
                    raise self._broken
                if keeping.done():
                    await keeping
                await self._read_some(consumer, producer, partitions)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _read_some(
        self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, partitions: _Partitions
    ) -> None:
        room = self._unanswered_limit - len(self._unanswered)
        if room <= 0 or self._unanswered_bytes >= UNANSWERED_BYTES:
            await asyncio.wait(
                self._unanswered, timeout=FETCH_S, return_when=asyncio.FIRST_COMPLETED
            )
            return
        fetched: dict[TopicPartition, list[ConsumerRecord]] = await consumer.getmany(
            timeout_ms=round(FETCH_S * 1e3), max_records=min(room, MAX_MESSAGES)
        )
        for source, messages in fetched.items():
            for message in messages:
                self._take(producer, partitions, source, message)
        await asyncio.sleep(0)

    async def _keep_house(self, partitions: _Partitions, epoch: str) -> None:
        """Commit what is answered, and see that the topic is the same; beside the reading."""
        checked_s = time.monotonic()
        while True:
            await asyncio.sleep(COMMIT_S)
            await partitions.commit()
            if time.monotonic() - checked_s >= EPOCH_CHECK_S:
                checked_s = time.monotonic()
                await self._check_epoch(epoch)

    async def _check_epoch(self, epoch: str) -> None:
        topic = self.settings.request_topic
        found = await self._topics.topic_id(topic)
        if found != epoch:
            raise _StartOverError(f"topic {topic} was made anew: its id was {epoch}, is {found}")

    def _take(
        self,
        producer: AIOKafkaProducer,
        partitions: _Partitions,
        source: TopicPartition,
        message: ConsumerRecord,
    ) -> None:
        size = len(message.value or b"")
        partitions.take(source, message.offset)
        self.metrics.requested()
        self._unanswered_bytes += size
        task = asyncio.create_task(self._answer(producer, source, message))
        self._unanswered.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._unanswered.discard(task)
            self._unanswered_bytes -= size
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                partitions.answer(source, message.offset)
            elif isinstance(error, KafkaError):
                self._broken = error
            else:
                self._end_for(error)

        task.add_done_callback(done)

    def _end_for(self, error: BaseException) -> None:
        """End the compressor for what nobody expected; a supervisor starts another one."""
        self._crashing = asyncio.ensure_future(self.crash(error))

    async def _answer(
        self, producer: AIOKafkaProducer, source: TopicPartition, message: ConsumerRecord
    ) -> None:
        read_s = time.monotonic()
        try:
            address = self._address(message)
        except DecodeError as error:
            reason = Rejection(error.reason)
            await self._reject(
                producer, source, message, Rejected(reason, error.detail, message.value or b"")
            )
            return
        left_s = self._left_s(address, message)
        if left_s <= 0:
            self.metrics.expired()
            return
        request_id, outcome = await self._outcome(producer, source, message, left_s - REPLY_S)
        value = encode_reply(reply_of(request_id, outcome), as_json=is_json(message.value or b""))
        sending_s = max(left_s - (time.monotonic() - read_s), MIN_SEND_S)
        if await self._send(producer, address, message.key, value, sending_s):
            self.metrics.answered(outcome, time.monotonic() - read_s)

    async def _outcome(
        self,
        producer: AIOKafkaProducer,
        source: TopicPartition,
        message: ConsumerRecord,
        left_s: float,
    ) -> tuple[str, Outcome]:
        """Return the request's id, and what becomes of its prompt."""
        value = message.value or b""
        key = (message.key or b"").decode("utf-8", "replace")
        if key and (refusal := self.pool.refusal(len(value), left_s)):
            return key, refusal
        request = decode_request(value)
        if isinstance(request, Rejected):
            await self._reject(producer, source, message, request)
            return key, Unchanged(Reason.INVALID_PROMPT, request.detail)
        deadline_s = asyncio.get_running_loop().time() + left_s
        return request.request_id, await self.pool.submit(request, deadline_s)

    def _address(self, message: ConsumerRecord) -> ReplyTo:
        """Return where the answer goes. Raises DecodeError where it may not go there."""
        address = reply_to(message.headers)
        allowed = self.settings.reply_topic
        if address.topic != allowed and not address.topic.startswith(f"{allowed}."):
            raise DecodeError(
                Rejection.INVALID,
                f"answers are sent to {allowed} and {allowed}.… only, not to {address.topic}",
            )
        return address

    def _left_s(self, address: ReplyTo, message: ConsumerRecord) -> float:
        """Return the time until an answer is of no use, at most what the settings allow."""
        deadline_s = address.deadline_s
        if deadline_s is None:
            deadline_s = message.timestamp / 1e3 + self.settings.max_wait_s
        return min(deadline_s - time.time(), self.settings.max_wait_s)

    async def _reject(
        self,
        producer: AIOKafkaProducer,
        source: TopicPartition,
        message: ConsumerRecord,
        rejected: Rejected,
    ) -> None:
        self.metrics.rejected()
        log.warning(
            "a request is refused",
            partition=source.partition,
            offset=message.offset,
            reason=rejected.reason.value,
            detail=rejected.detail,
        )
        await send_dead_letters(producer, source, [(message.offset, rejected)])

    async def _send(
        self,
        producer: AIOKafkaProducer,
        address: ReplyTo,
        key: bytes | None,
        value: bytes,
        within_s: float,
    ) -> bool:
        """Return whether Kafka has the answer; an answer that comes too late is of no use."""
        try:
            async with asyncio.timeout(within_s):
                sent = await producer.send(
                    address.topic,
                    value=value,
                    key=key,
                    partition=address.partition,
                    headers=reply_headers(address),
                )
                await sent
        except (KafkaError, TimeoutError, AssertionError) as error:
            # The assertion is aiokafka's, for a partition that the topic doesn't have.
            self.metrics.unsent()
            log.warning(
                "an answer is not sent",
                topic=address.topic,
                partition=address.partition,
                error=str(error) or repr(error),
            )
            return False
        return True

    async def _drain(self) -> None:
        """Wait for the answers to what was read."""
        if self._unanswered:
            await asyncio.wait(self._unanswered, timeout=self.settings.drain_s)

    async def _give_up(self) -> None:
        """Leave what has no answer yet to whoever reads it next."""
        left = list(self._unanswered)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
