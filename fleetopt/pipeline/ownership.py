"""The partitions that the consumer group gave this worker: loaded, stored, lost again.

Owns that a partition's windows are read from where they were stored and stored with what they
cover, once each. Knows nothing of topics and how messages are fetched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.structs import TopicPartition
from redis.exceptions import RedisError

from fleetopt.connectors.redis import NOT_NOW
from fleetopt.connectors.sketch_store import SketchStore
from fleetopt.errors import InputError
from fleetopt.pipeline import checkpoint
from fleetopt.pipeline.window import FleetWindow, PartitionWindows, WindowConfig

log = structlog.get_logger(__name__)
T = TypeVar("T")

MAX_BACKOFF_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stirred:
    """What changed of a fleet since somebody looked."""

    slice_closed: bool
    """The mix of lengths that plans are made from is another one."""
    rate_per_s: float
    """Highest rate that any of its slices at hand has reached so far."""


@dataclass(slots=True)
class Owned:
    """A loaded partition; `base` is the offset that is stored, None where nothing is."""

    windows: PartitionWindows
    base: int | None
    progressed_s: float


class Ownership(ConsumerRebalanceListener):  # type: ignore[misc]
    """A consumer's partitions and their windows; it listens to the group's rebalances."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        store: SketchStore,
        window: WindowConfig,
        is_stopping: Callable[[], bool],
    ) -> None:
        self.stirred: dict[str, Stirred] = {}
        """Fleets whose stored sketches changed; whoever looks at them takes them out."""
        self._consumer = consumer
        self._store = store
        self._window = window
        self._is_stopping = is_stopping
        self._owned: dict[TopicPartition, Owned | None] = {}

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Note partitions given to us; they are read once their windows are loaded."""
        sources = list(assigned)
        self._consumer.pause(*sources)
        self._owned.update(dict.fromkeys(sources))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Forget partitions taken from us; what was not stored is read again by their owner."""
        for source in revoked:
            self._owned.pop(source, None)

    @property
    def loaded(self) -> dict[TopicPartition, Owned]:
        """The partitions whose windows are loaded."""
        return {source: owned for source, owned in self._owned.items() if owned is not None}

    async def load(self) -> None:
        """Load the windows of new partitions, and read these from where the windows end."""
        for source in [source for source, owned in self._owned.items() if owned is None]:
            owned = await self._load(source)
            if source in self._owned:
                self._consumer.seek(source, owned.windows.position)
                self._consumer.resume(source)
                self._owned[source] = owned

    async def store(self) -> None:
        """Store what changed; a partition that another worker stored meanwhile is loaded anew."""
        for source, owned in self.loaded.items():
            if owned.windows.position != owned.base:
                await self._store_one(source, owned)

    async def _load(self, source: TopicPartition) -> Owned:
        partition, now_s = source.partition, time.monotonic()
        try:
            windows = await self._restored(partition)
        except InputError as error:
            await self._forget(partition, error)
        else:
            if windows is not None:
                log.info(
                    "going on from stored sketches", partition=partition, offset=windows.position
                )
                return Owned(windows, windows.position, now_s)
        offset = await self._rewound(source)
        log.info("reading the log's last window", partition=partition, offset=offset)
        return Owned(PartitionWindows(self._window, position=offset), None, now_s)

    async def _forget(self, partition: int, error: InputError, fleets: Iterable[str] = ()) -> None:
        log.error("stored sketches are of no use", partition=partition, error=str(error))
        await self._persist(lambda: self._store.forget(partition, fleets))

    async def _restored(self, partition: int) -> PartitionWindows | None:
        cover = await self._persist(lambda: self._store.load(partition))
        if cover is None:
            return None
        wanted = checkpoint.open_slices(cover)
        slices = await self._persist(lambda: self._store.load_slices(partition, wanted))
        return checkpoint.restore(self._window, cover, slices)

    async def _rewound(self, source: TopicPartition) -> int:
        """Return the offset from which the log holds a whole window."""
        window = self._window
        span_s = window.slice_s * (window.slices + 1) + window.allowed_lateness_s
        since_ms = round((time.time() - span_s) * 1e3)
        # The end is asked for first: what is appended meanwhile comes after it.
        end = (await self._consumer.end_offsets([source]))[source]
        found = (await self._consumer.offsets_for_times({source: since_ms}))[source]
        return int(end if found is None else found.offset)

    async def _store_one(self, source: TopicPartition, owned: Owned) -> None:
        windows, base = owned.windows, owned.base
        position = windows.position
        sources, rejected = checkpoint.sources_bytes(windows), checkpoint.rejected_bytes(windows)
        fleets = checkpoint.changes(windows)
        try:
            stored = await self._persist(
                lambda: self._store.store(
                    source.partition, base, position, sources, rejected, fleets
                )
            )
        except InputError as error:
            await self._forget(source.partition, error, fleets)
            stored = False
        if stored:
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
            self._consumer.pause(source)
            self._owned[source] = None

    def _note(self, name: str, window: FleetWindow) -> None:
        """Note what a fleet's stored change may mean for its pools' load."""
        counts = [sketch.arrival_count for sketch in window.slices.values()]
        before = self.stirred.get(name, Stirred(slice_closed=False, rate_per_s=0.0))
        self.stirred[name] = Stirred(
            slice_closed=before.slice_closed or len(window.open_indices()) < len(counts),
            rate_per_s=max(before.rate_per_s, max(counts, default=0) / self._window.slice_s),
        )

    async def _persist(self, action: Callable[[], Awaitable[T]]) -> T:
        """Repeat an action on Redis until Redis has answered."""
        pause_s = 0.1
        while True:
            try:
                return await action()
            except (*NOT_NOW, RedisError) as error:
                log.warning("Redis does not take state", error=str(error), retry_in_s=pause_s)
                if self._is_stopping():
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_BACKOFF_S)
