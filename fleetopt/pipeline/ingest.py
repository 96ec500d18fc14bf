"""The request log into sketches: one Faust service around a consumer of raw bytes.

Faust's own agents pay four tasks and three loop passes for each message, so this service takes a
partition's whole fetch at once. It owns the order of things: fold, dead letters out, state and
offset stored together, offset committed. The committed offset is for lag monitors only: a worker
starts from the stored one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition
from faust import Service
from redis.asyncio import Redis

from fleetopt.config.settings import Settings
from fleetopt.connectors.dead_letter import dead_letter_topic, send_dead_letters
from fleetopt.connectors.kafka import (
    make_consumer,
    make_producer,
    stop_client,
    was_cancelled,
)
from fleetopt.connectors.redis import wait_until_ready
from fleetopt.connectors.sketch_store import SketchStore, sketch_epoch
from fleetopt.connectors.topics import Topics, TopicState
from fleetopt.errors import ServiceError
from fleetopt.pipeline.fold import fold
from fleetopt.pipeline.ownership import MAX_BACKOFF_S, Owned, Ownership, Stirred
from fleetopt.pipeline.window import WindowConfig

log = structlog.get_logger(__name__)

EPOCH_CHECK_S: Final = 1.0
COMMIT_S: Final = 1.0
STALL_S: Final = 30.0
MAX_MESSAGES: Final = 1_000
"""Messages folded between two turns of the event loop: 0.15 s of work if they are full batches."""


class _StartOverError(Exception):
    """The consumer must be made anew: the topic is another one, or reading has stopped."""


class Ingest(Service):
    """Reads the partitions that the group gives this worker and keeps their sketches stored."""

    def __init__(self, settings: Settings, redis: Redis, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.window = WindowConfig(
            settings.window.slice_s, settings.window.slices, settings.window.allowed_lateness_s
        )
        self.store: SketchStore | None = None
        """The sketches of the topic's present epoch; None before Kafka has answered."""
        self.partitions = 0
        """Partitions of the topic."""
        self._redis = redis
        self._topics = Topics(settings.kafka.bootstrap_servers)
        self._ownership: Ownership | None = None
        self._owned_before: frozenset[int] = frozenset()
        self._committed_s = 0.0

    @property
    def owned_partitions(self) -> frozenset[int]:
        """Partitions whose windows this worker has loaded, or had when reading was interrupted.

        While Kafka does not answer somebody must say that traffic is unknown; where another
        worker has taken over meanwhile, publishing is compare-and-set.
        """
        if self._ownership is None:
            return self._owned_before
        return frozenset(source.partition for source in self._ownership.loaded)

    def take_stirred(self) -> dict[str, Stirred]:
        """Return the fleets whose stored sketches changed since the last call."""
        if self._ownership is None:
            return {}
        stirred, self._ownership.stirred = self._ownership.stirred, {}
        return stirred

    async def on_stop(self) -> None:
        """Close the connection that looks after topics."""
        await self._topics.close()

    @Service.task
    async def _ingest(self) -> None:
        pause_s = 0.2
        while not self.should_stop:
            started_s = time.monotonic()
            try:
                await wait_until_ready(self._redis, self.settings.redis.url)
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

    async def _consume(self) -> None:
        state = await self._ensure_topics()
        window = self.settings.window
        self.partitions = state.partitions
        self.store = SketchStore(
            self._redis,
            self.settings.kafka.topic,
            sketch_epoch(state.topic_id, window.slice_s),
            ttl_s=max(86_400.0, 3 * window.slice_s * window.slices),
        )
        consumer = make_consumer(self.settings.kafka, self.settings.ingest)
        producer = make_producer(self.settings.kafka)
        ownership = Ownership(consumer, self.store, self.window, lambda: self.should_stop)
        self._ownership = ownership
        try:
            await producer.start()
            consumer.subscribe([self.settings.kafka.topic], listener=ownership)
            await consumer.start()
            log.info(
                "reading request logs",
                topic=self.settings.kafka.topic,
                epoch=state.topic_id,
                partitions=state.partitions,
            )
            await self._read(consumer, producer, ownership, state.topic_id)
        finally:
            self._owned_before = self.owned_partitions
            self._ownership = None
            await stop_client(consumer)
            await stop_client(producer)

    async def _ensure_topics(self) -> TopicState:
        kafka = self.settings.kafka
        state = await self._topics.ensure(
            kafka.topic,
            kafka.partitions,
            kafka.retention_s,
            replication_factor=kafka.replication_factor,
        )
        letters = await self._topics.ensure(
            dead_letter_topic(kafka.topic),
            1,
            kafka.retention_s,
            replication_factor=kafka.replication_factor,
        )
        for problem in (*state.problems, *letters.problems):
            log.warning("the topic is not as configured", problem=problem)
        return state

    async def _read(
        self,
        consumer: AIOKafkaConsumer,
        producer: AIOKafkaProducer,
        ownership: Ownership,
        epoch: str,
    ) -> None:
        flush_s = self.settings.ingest.flush_interval_s
        checked_s = flushed_s = time.monotonic()
        while not self.should_stop:
            now_s = time.monotonic()
            if now_s - checked_s >= EPOCH_CHECK_S:
                checked_s = now_s
                await self._check_epoch(epoch)
                _check_progress(consumer, ownership, now_s)
            await ownership.load()
            fetched: dict[TopicPartition, list[ConsumerRecord]] = await consumer.getmany(
                timeout_ms=round(flush_s * 500), max_records=MAX_MESSAGES
            )
            for source, messages in fetched.items():
                owned = ownership.loaded.get(source)
                if owned is not None:  # else taken from us while the fetch was on its way
                    await self._fold(producer, source, owned, messages)
                await asyncio.sleep(0)
            if time.monotonic() - flushed_s >= flush_s:
                await self._store(consumer, ownership)
                flushed_s = time.monotonic()
        await self._store(consumer, ownership)

    async def _fold(
        self,
        producer: AIOKafkaProducer,
        source: TopicPartition,
        owned: Owned,
        messages: list[ConsumerRecord],
    ) -> None:
        gap = messages[0].offset - owned.windows.position
        if gap > 0:
            log.warning(
                "offsets are missing: expired before they were read, or transaction marks",
                partition=source.partition,
                offset=owned.windows.position,
                missing=gap,
            )
        letters = fold(
            owned.windows, messages, self.settings.kafka.max_future_s, received_s=time.time()
        )
        owned.progressed_s = time.monotonic()
        if letters:
            log.warning(
                "records refused",
                partition=source.partition,
                count=len(letters),
                first=letters[0].rejected.detail,
            )
            await send_dead_letters(
                producer, source, ((letter.offset, letter.rejected) for letter in letters)
            )

    async def _store(self, consumer: AIOKafkaConsumer, ownership: Ownership) -> None:
        await ownership.store()
        if time.monotonic() - self._committed_s < COMMIT_S:
            return
        self._committed_s = time.monotonic()
        offsets = {
            source: owned.base
            for source, owned in ownership.loaded.items()
            if owned.base is not None
        }
        if not offsets:
            return
        try:
            await consumer.commit(offsets)
        except KafkaError as error:
            log.warning("the offset for lag monitors is not committed", error=repr(error))

    async def _check_epoch(self, epoch: str) -> None:
        found = await self._topics.topic_id(self.settings.kafka.topic)
        if found != epoch:
            raise _StartOverError(
                f"topic {self.settings.kafka.topic} was made anew: its id was {epoch}, is {found}"
            )


def _check_progress(consumer: AIOKafkaConsumer, ownership: Ownership, now_s: float) -> None:
    """Raise where there is something to read and nothing comes."""
    for source, owned in ownership.loaded.items():
        end = consumer.highwater(source)
        if end is None or end <= owned.windows.position:
            owned.progressed_s = now_s
        elif now_s - owned.progressed_s > STALL_S:
            raise _StartOverError(
                f"partition {source.partition} stands at offset {owned.windows.position} of "
                f"{end} for {STALL_S:g} s"
            )
