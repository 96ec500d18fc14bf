"""What a worker has stored in Redis, held against what was laid into the topic.

A measurement whose counts are not exact is no measurement: `Mismatch` ends the benchmark.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from redis.asyncio import Redis

from benchmarks.load import PARTITIONS, Load
from fleetopt.connectors.sketch_store import SketchStore, sketch_epoch
from fleetopt.pipeline.checkpoint import decode_meta, decode_rejected
from fleetopt.pipeline.sketch import Sketch
from fleetopt.pipeline.window import WindowConfig

_POLL_S = 0.02


class MismatchError(Exception):
    """Redis holds other counts than were sent."""


def wait_until_covered(
    redis_url: str, load: Load, timeout_s: float, alive: Callable[[], None]
) -> None:
    """Return once the stored offsets cover the whole topic; `alive` raises if the worker ended."""

    async def wait() -> None:
        deadline_s = time.monotonic() + timeout_s
        async with Redis.from_url(redis_url) as client:
            store = _store(client, load)
            missing = dict(load.end_offsets)
            while missing:
                for partition, end in list(missing.items()):
                    cover = await store.load(partition)
                    if cover is not None and cover.position >= end:
                        del missing[partition]
                alive()
                if time.monotonic() > deadline_s:
                    raise MismatchError(f"after {timeout_s:g} s not covered: {missing}")
                await asyncio.sleep(_POLL_S)

    asyncio.run(wait())


def check_counts(redis_url: str, load: Load) -> None:
    """Compare accepted, late, duplicated, unmeasured and refused requests, and the sketches."""

    async def check() -> None:
        async with Redis.from_url(redis_url) as client:
            found = await _found(_store(client, load), load.fleets)
        wanted = dict.fromkeys(found, 0) | dict.fromkeys(
            ("accepted", "sketched arrivals", "sketched tokens", "digested"), load.records
        )
        if found != wanted:
            raise MismatchError(f"Redis holds {found}; {load.records} records were sent")

    asyncio.run(check())


async def _found(store: SketchStore, fleets: tuple[str, ...]) -> dict[str, int]:
    found = dict.fromkeys(
        (
            "accepted",
            "late",
            "duplicated",
            "unmeasured",
            "refused",
            "sketched arrivals",
            "sketched tokens",
            "digested",
        ),
        0,
    )
    for partition in range(PARTITIONS):
        cover = await store.load(partition)
        if cover is not None:
            found["refused"] += sum(decode_rejected(cover.rejected).values())
    for fleet in fleets:
        for stored, slices in await store.load_fleet(fleet, PARTITIONS):
            meta = decode_meta(stored)
            found["accepted"] += meta.accepted
            found["late"] += meta.late
            found["duplicated"] += meta.duplicated
            found["unmeasured"] += meta.unmeasured
            for data in slices.values():
                sketch = Sketch.from_bytes(data)
                found["sketched arrivals"] += sketch.arrival_count
                found["sketched tokens"] += sketch.measured_count
                found["digested"] += round(sketch.total_tokens.n_values)
    return found


def _store(client: Redis, load: Load) -> SketchStore:
    epoch = sketch_epoch(load.epoch, WindowConfig().slice_s)
    return SketchStore(client, load.topic, epoch, ttl_s=86_400)
