"""How many records became what, as stored: to hold against how many were sent."""

from __future__ import annotations

from dataclasses import dataclass

from redis.asyncio import Redis

from fleetopt.config.settings import Settings
from fleetopt.connectors.sketch_store import SketchStore, sketch_epoch
from fleetopt.connectors.topics import Topics
from fleetopt.pipeline import checkpoint
from fleetopt.pipeline.sketch import Sketch


@dataclass(frozen=True, slots=True)
class Counts:
    """Records of a topic's present epoch, over all partitions and fleets."""

    accepted: int = 0
    late: int = 0
    """Their slice was closed when they came."""
    duplicated: int = 0
    """In batches that their source had sent before."""
    rejected: int = 0
    """Refused messages and rows: each has its dead letter."""
    in_slices: int = 0
    """Accepted ones that the window still holds."""

    @property
    def total(self) -> int:
        """All of them, whatever became of them."""
        return self.accepted + self.late + self.duplicated + self.rejected


async def read_counts(client: Redis, settings: Settings) -> Counts:
    """Read the counts of the topic; all zero where it does not exist.

    Raises ServiceError where Kafka does not answer, and Redis's own errors where it does not.
    """
    kafka = settings.kafka
    async with Topics(kafka.bootstrap_servers) as topics:
        topic_id = await topics.topic_id(kafka.topic)
        partitions = await topics.partitions(kafka.topic)  # not always as many as were asked for
    if topic_id is None:
        return Counts()
    epoch = sketch_epoch(topic_id, settings.window.slice_s)
    store = SketchStore(client, kafka.topic, epoch, ttl_s=1)
    covers = [await store.load(partition) for partition in range(partitions)]
    known = [cover for cover in covers if cover is not None]
    metas = [checkpoint.decode_meta(meta) for cover in known for meta in cover.fleets.values()]
    in_slices = 0
    for fleet in sorted({name for cover in known for name in cover.fleets}):
        for _, slices in await store.load_fleet(fleet, partitions):
            in_slices += sum(Sketch.from_bytes(data).arrival_count for data in slices.values())
    return Counts(
        accepted=sum(meta.accepted for meta in metas),
        late=sum(meta.late for meta in metas),
        duplicated=sum(meta.duplicated for meta in metas),
        rejected=sum(sum(checkpoint.decode_rejected(cover.rejected).values()) for cover in known),
        in_slices=in_slices,
    )
