"""The request log into sketches: one Faust service around a consumer of raw bytes.

Faust's own agents pay four tasks and three loop passes for each message, so this service takes a
partition's whole fetch at once. It owns which partitions this worker has, their windows, and the
order of things: fold, dead letters out, state and offset stored together, offset committed.
The committed offset is for lag monitors only: a worker starts from the stored one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition
from faust import Service
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from fleetopt.config.settings import Settings
from fleetopt.connectors.dead_letter import dead_letter_topic, send_dead_letters
from fleetopt.connectors.kafka import make_consumer, make_producer
from fleetopt.connectors.redis import UNREACHABLE, wait_until_ready
from fleetopt.connectors.sketch_store import SketchStore, StoredCover, sketch_epoch
from fleetopt.connectors.topics import Topics, TopicState
from fleetopt.errors import InputError, ServiceError
from fleetopt.pipeline import checkpoint
from fleetopt.pipeline.fold import fold
from fleetopt.pipeline.window import FleetWindow, PartitionWindows, WindowConfig

log = structlog.get_logger(__name__)
T = TypeVar("T")

EPOCH_CHECK_S: Final = 1.0
COMMIT_S: Final = 1.0
STALL_S: Final = 30.0
MAX_BACKOFF_S: Final = 10.0
MAX_MESSAGES: Final = 1_000
"""Messages folded between two turns of the event loop: 0.15 s of work if they are full batches."""

_TRY_AGAIN: Final = (*UNREACHABLE, OutOfMemoryError, ReadOnlyError)


@dataclass(frozen=True, slots=True)
class Stirred:
    """What changed of a fleet since somebody looked."""

    slice_closed: bool
    """The mix of lengths that plans are made from is another one."""
    rate_per_s: float
    """Highest rate that any of its slices at hand has reached so far."""


class _StartOverError(Exception):
    """The consumer must be made anew: the topic is another one, or reading has stopped."""


@dataclass(slots=True)
class _Owned:
    """A partition of ours; `base` is the offset that is stored, None where nothing is."""

    windows: PartitionWindows
    base: int | None
    progressed_at: float


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
        self.stirred: dict[str, Stirred] = {}
        """Fleets whose stored sketches changed; whoever looks at them takes them out."""
        self._redis = redis
        self._topics = Topics(settings.kafka.bootstrap_servers)
        self._owned: dict[TopicPartition, _Owned | None] = {}
        self._committed_at = 0.0

    @property
    def owned_partitions(self) -> frozenset[int]:
        """Partitions whose windows this worker has loaded."""
        return frozenset(tp.partition for tp, owned in self._owned.items() if owned is not None)

    async def on_stop(self) -> None:
        """Close the connection that looks after topics."""
        await self._topics.close()

    @Service.task
    async def _ingest(self) -> None:
        pause_s = 0.2
        while not self.should_stop:
            started = time.monotonic()
            try:
                await wait_until_ready(self._redis, self.settings.redis.url)
                await self._consume()
            except (KafkaError, ServiceError, _StartOverError) as error:
                if time.monotonic() - started > MAX_BACKOFF_S:
                    pause_s = 0.2
                log.warning("reading is interrupted", error=str(error), retry_in_s=pause_s)
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
        self._owned.clear()
        try:
            await producer.start()
            consumer.subscribe([self.settings.kafka.topic], listener=_Listener(self, consumer))
            await consumer.start()
            log.info(
                "reading request logs",
                topic=self.settings.kafka.topic,
                epoch=state.topic_id,
                partitions=state.partitions,
            )
            await self._read(consumer, producer, state.topic_id)
        finally:
            self._owned.clear()
            await consumer.stop()
            await producer.stop()

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
        self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, epoch: str
    ) -> None:
        flush_s = self.settings.ingest.flush_interval_s
        checked_at = flushed_at = time.monotonic()
        while not self.should_stop:
            now = time.monotonic()
            if now - checked_at >= EPOCH_CHECK_S:
                checked_at = now
                await self._check_epoch(epoch)
                self._check_progress(consumer, now)
            await self._load_assigned(consumer)
            fetched: dict[TopicPartition, list[ConsumerRecord]] = await consumer.getmany(
                timeout_ms=round(flush_s * 500), max_records=MAX_MESSAGES
            )
            for source, messages in fetched.items():
                await self._fold(producer, source, messages)
                await asyncio.sleep(0)
            if time.monotonic() - flushed_at >= flush_s:
                await self._flush(consumer)
                flushed_at = time.monotonic()
        await self._flush(consumer)

    async def _fold(
        self, producer: AIOKafkaProducer, source: TopicPartition, messages: list[ConsumerRecord]
    ) -> None:
        owned = self._owned.get(source)
        if owned is None:  # taken from us while the fetch was on its way
            return
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
        owned.progressed_at = time.monotonic()
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

    async def _load_assigned(self, consumer: AIOKafkaConsumer) -> None:
        for source in [source for source, owned in self._owned.items() if owned is None]:
            owned = await self._load(consumer, source)
            if source in self._owned:
                consumer.seek(source, owned.windows.position)
                consumer.resume(source)
                self._owned[source] = owned

    async def _load(self, consumer: AIOKafkaConsumer, source: TopicPartition) -> _Owned:
        store = self._present_store()
        partition = source.partition
        now = time.monotonic()
        cover = await self._persist(lambda: store.load(partition))
        if cover is not None:
            try:
                windows = await self._restored(store, partition, cover)
            except InputError as error:
                log.error("stored sketches are of no use", partition=partition, error=str(error))  # noqa: TRY400
                await self._persist(lambda: store.forget(partition))
            else:
                log.info(
                    "going on from stored sketches", partition=partition, offset=cover.position
                )
                return _Owned(windows, cover.position, now)
        offset = await self._rewound(consumer, source)
        log.info("reading the log's last window", partition=partition, offset=offset)
        return _Owned(PartitionWindows(self.window, position=offset), None, now)

    async def _restored(
        self, store: SketchStore, partition: int, cover: StoredCover
    ) -> PartitionWindows:
        wanted = checkpoint.open_slices(cover)
        slices = await self._persist(lambda: store.load_slices(partition, wanted))
        return checkpoint.restore(self.window, cover, slices)

    async def _rewound(self, consumer: AIOKafkaConsumer, source: TopicPartition) -> int:
        """Return the offset from which the log holds a whole window."""
        span_s = self.window.slice_s * (self.window.slices + 1) + self.window.allowed_lateness_s
        since_ms = round((time.time() - span_s) * 1e3)
        # The end is asked for first: what is appended meanwhile comes after it.
        end = (await consumer.end_offsets([source]))[source]
        found = (await consumer.offsets_for_times({source: since_ms}))[source]
        return int(end if found is None else found.offset)

    async def _flush(self, consumer: AIOKafkaConsumer) -> None:
        store = self._present_store()
        for source, owned in list(self._owned.items()):
            if owned is None or owned.windows.position == owned.base:
                continue
            await self._flush_partition(store, consumer, source, owned)
        if time.monotonic() - self._committed_at >= COMMIT_S:
            await self._commit(consumer)

    async def _flush_partition(
        self,
        store: SketchStore,
        consumer: AIOKafkaConsumer,
        source: TopicPartition,
        owned: _Owned,
    ) -> None:
        windows = owned.windows
        base, position = owned.base, windows.position
        sources, rejected = checkpoint.sources_bytes(windows), checkpoint.rejected_bytes(windows)
        fleets = checkpoint.changes(windows)
        if await self._persist(
            lambda: store.store(source.partition, base, position, sources, rejected, fleets)
        ):
            for name in windows.changed:
                self._note(name, windows.fleets[name])
            checkpoint.mark_stored(windows)
            owned.base = position
        elif self._owned.get(source) is owned:
            log.warning(
                "not the offset that this worker stored: starting from the stored one",
                partition=source.partition,
                expected=base,
            )
            consumer.pause(source)
            self._owned[source] = None

    def _note(self, name: str, window: FleetWindow) -> None:
        """Note what a fleet's stored change may mean for its pools' load."""
        counts = [sketch.arrival_count for sketch in window.slices.values()]
        before = self.stirred.get(name, Stirred(slice_closed=False, rate_per_s=0.0))
        self.stirred[name] = Stirred(
            slice_closed=before.slice_closed or len(window.open_indices()) < len(counts),
            rate_per_s=max(before.rate_per_s, max(counts, default=0) / self.window.slice_s),
        )

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        self._committed_at = time.monotonic()
        offsets = {
            source: owned.base
            for source, owned in self._owned.items()
            if owned is not None and owned.base is not None
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

    def _check_progress(self, consumer: AIOKafkaConsumer, now: float) -> None:
        for source, owned in self._owned.items():
            if owned is None:
                continue
            end = consumer.highwater(source)
            if end is None or end <= owned.windows.position:
                owned.progressed_at = now
            elif now - owned.progressed_at > STALL_S:
                raise _StartOverError(
                    f"partition {source.partition} stands at offset {owned.windows.position} of "
                    f"{end} for {STALL_S:g} s"
                )

    async def _persist(self, action: Callable[[], Awaitable[T]]) -> T:
        """Repeat an action on Redis until Redis has answered."""
        pause_s = 0.1
        while True:
            try:
                return await action()
            except _TRY_AGAIN as error:
                log.warning("Redis does not take state", error=str(error), retry_in_s=pause_s)
                if self.should_stop:
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_BACKOFF_S)

    def _present_store(self) -> SketchStore:
        if self.store is None:
            raise ServiceError("no topic is being read yet")
        return self.store

    def assigned(self, consumer: AIOKafkaConsumer, sources: Iterable[TopicPartition]) -> None:
        """Note partitions given to us; they are read once their windows are loaded."""
        consumer.pause(*sources)
        self._owned.update(dict.fromkeys(sources))

    def revoked(self, sources: Iterable[TopicPartition]) -> None:
        """Forget partitions taken from us; what was not stored is read again by their owner."""
        for source in sources:
            self._owned.pop(source, None)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, ingest: Ingest, consumer: AIOKafkaConsumer) -> None:
        self._ingest = ingest
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._ingest.revoked(revoked)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._ingest.assigned(self._consumer, list(assigned))
