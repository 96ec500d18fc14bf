"""A trace sent at its pace: records go to a sink when they are due, with the event time asked for.

Owns the loop; where records go (Kafka, or straight through the core) is the sink's business, and
time passes by the clock that is given.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from fleetopt.connectors.wire import RequestLog
from fleetopt.pipeline.pacing import Pacer

TICK_S: Final = 0.05
"""Requests due within a tick are sent together, so that batches fill."""

HEARTBEAT_S: Final = 1.0
MAX_GROUP: Final = 8_192


class Timestamps(StrEnum):
    """Which event time the requests carry."""

    RECORDED = "recorded"
    NOW = "now"


class Sink(Protocol):
    """Where requests go."""

    async def send(self, fleet: str, records: list[RequestLog]) -> None:
        """Take records of one fleet, in order of arrival."""
        ...

    async def heartbeat(self, fleet: str, until_s: float) -> None:
        """Take the promise that all that arrived before `until_s` has been sent."""
        ...

    async def flush(self) -> None:
        """Return when everything sent has been taken or refused."""
        ...


class Clock(Protocol):
    """What tells the time and lets it pass."""

    def now_s(self) -> float:
        """Return epoch seconds."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        ...


class WallClock:
    """The real time."""

    def now_s(self) -> float:
        """Return epoch seconds."""
        return time.time()

    async def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        await asyncio.sleep(duration_s)


@dataclass(slots=True)
class Replayed:
    """What was handed to the sink."""

    records: int = 0
    first_arrival_s: float | None = None
    last_arrival_s: float | None = None


def limited(chunks: Iterable[list[RequestLog]], limit: int | None) -> Iterator[list[RequestLog]]:
    """Yield the first `limit` records."""
    for chunk in chunks:
        if limit is None:
            yield chunk
            continue
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return


class Replay:
    """One run of a trace through a sink."""

    def __init__(
        self,
        sink: Sink,
        *,
        speed: float,
        timestamps: Timestamps,
        slice_s: float,
        clock: Clock,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.replayed = Replayed()
        self._sink = sink
        self._speed = speed
        self._timestamps = timestamps
        self._slice_s = slice_s
        self._clock = clock
        self._on_progress = on_progress
        self._fleets: set[str] = set()
        self._pacer: Pacer | None = None
        self._beaten_s = 0.0

    async def run(self, chunks: Iterable[list[RequestLog]]) -> Replayed:
        """Send everything, then promise that nothing earlier will come; flush."""
        for chunk in chunks:
            if chunk and self._pacer is None:
                self._pacer = Pacer(chunk[0].arrival_s, self._clock.now_s(), self._speed)
            if self._pacer is not None:
                await self._send_chunk(self._pacer, chunk)
        await self._heartbeat(self._closing_s())
        await self._sink.flush()
        return self.replayed

    async def _send_chunk(self, pacer: Pacer, chunk: list[RequestLog]) -> None:
        at = 0
        while at < len(chunk):
            due = min(pacer.due_count(chunk, at, self._clock.now_s()), MAX_GROUP)
            if due:
                await self._send(pacer, chunk[at : at + due])
                at += due
            next_s = chunk[min(at, len(chunk) - 1)].arrival_s
            if not math.isinf(pacer.speed):
                await self._beat(pacer, next_s)
            if not due:
                left_s = pacer.due_s(next_s) - self._clock.now_s()
                await self._clock.sleep(min(max(left_s, TICK_S), HEARTBEAT_S))

    async def _beat(self, pacer: Pacer, next_arrival_s: float) -> None:
        """Promise now and then, as a gateway would, that all has been sent up to this moment."""
        now_s = self._clock.now_s()
        if now_s - max(self._beaten_s, pacer.started_at_s) < HEARTBEAT_S:
            return
        self._beaten_s = now_s
        if self._timestamps is Timestamps.NOW:
            await self._heartbeat(min(now_s, pacer.due_s(next_arrival_s)))
        else:
            elapsed_s = (now_s - pacer.started_at_s) * pacer.speed
            await self._heartbeat(min(pacer.first_arrival_s + elapsed_s, next_arrival_s))

    async def _send(self, pacer: Pacer, records: list[RequestLog]) -> None:
        if self._timestamps is Timestamps.NOW:
            records = [self._stamped(pacer, record) for record in records]
        by_fleet: dict[str, list[RequestLog]] = {}
        for record in records:
            by_fleet.setdefault(record.fleet, []).append(record)
        for fleet, rows in by_fleet.items():
            await self._sink.send(fleet, rows)
        self._fleets.update(by_fleet)
        replayed = self.replayed
        replayed.records += len(records)
        if replayed.first_arrival_s is None:
            replayed.first_arrival_s = records[0].arrival_s
        replayed.last_arrival_s = max(replayed.last_arrival_s or 0.0, records[-1].arrival_s)
        self._on_progress(replayed.records)

    def _stamped(self, pacer: Pacer, record: RequestLog) -> RequestLog:
        arrival_s = (
            self._clock.now_s() if math.isinf(pacer.speed) else pacer.due_s(record.arrival_s)
        )
        return msgspec.structs.replace(record, arrival_s=arrival_s)

    def _closing_s(self) -> float | None:
        """Return the promise that closes the last slice.

        Recorded time is over at the end of the last slice. The present is not: promising more
        than now would make what other sources send late.
        """
        last_s = self.replayed.last_arrival_s
        if last_s is None or self._timestamps is Timestamps.NOW:
            return last_s
        return (last_s // self._slice_s + 1) * self._slice_s

    async def _heartbeat(self, until_s: float | None) -> None:
        if until_s is not None:
            for fleet in sorted(self._fleets):
                await self._sink.heartbeat(fleet, until_s)
