"""Request logs on their way out of a gateway: gathered, sent in batches, and never in its way.

Owns the bound and the drop policy: what is not taken is counted, and nothing ever waits. Knows
nothing of routing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from fleetopt.connectors.columns import CATEGORY_COMPRESSIBILITY
from fleetopt.connectors.producer import ROWS_PER_BATCH, RequestProducer
from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import ServiceError

log = structlog.get_logger(__name__)

MAX_RECORDS: Final = 20_000
LINGER_S: Final = 0.5
ROWS_PER_FLUSH: Final = 4 * ROWS_PER_BATCH
FIRST_PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 10.0


@dataclass(slots=True)
class OutboxCounts:
    """What became of the records: every one that was added is in one of these, or still here."""

    added: int = 0
    sent: int = 0
    dropped: int = 0
    """The oldest ones, for lack of room, and what was left at the end."""
    refused: int = 0
    """By the broker, after every retry."""


class RequestOutbox:
    """Sends the request logs of one fleet in batches.

    Parameters
    ----------
    bootstrap_servers, topic, fleet : str
        Where they go.
    max_records : int
        Most that wait. One more takes the place of the oldest: what is new says more.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, fleet: str, *, max_records: int = MAX_RECORDS
    ) -> None:
        self.counts = OutboxCounts()
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._fleet = fleet
        self._max_records = max_records
        self._waiting: deque[RequestLog] = deque()
        self._lock = threading.Lock()
        self._closing = asyncio.Event()
        self._sending = 0
        self._promise: tuple[float, int] | None = None
        self._lost_before = 0

    def add(self, record: RequestLog) -> None:
        """Take a record, from any thread; never waits for the broker.

        A category that FleetOpt doesn't know is sent as `other`.
        """
        if record.category not in CATEGORY_COMPRESSIBILITY:
            record = msgspec.structs.replace(record, category="other")
        with self._lock:
            self.counts.added += 1
            if len(self._waiting) >= self._max_records:
                self._waiting.popleft()
                self.counts.dropped += 1
            self._waiting.append(record)

    def promise(self, until_s: float) -> None:
        """Say that every request that arrived before this time (epoch seconds) has been added.

        Sent once these are; so silence means idle, not unknown. A promise that covers records
        which were lost is not passed on.
        """
        with self._lock:
            self._promise = until_s, self.counts.added

    def __len__(self) -> int:
        return len(self._waiting) + self._sending

    async def run(self) -> None:
        """Send until `close`; connects again whenever it must."""
        pause_s = FIRST_PAUSE_S
        while True:
            producer = RequestProducer(self._bootstrap_servers, self._topic)
            try:
                async with producer:
                    pause_s = FIRST_PAUSE_S
                    await self._send(producer)
                    return
            except ServiceError as error:
                log.warning(
                    "request logs can't be sent; they wait",
                    error=str(error),
                    waiting=len(self),
                    dropped=self.counts.dropped,
                    retry_in_s=pause_s,
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _send(self, producer: RequestProducer) -> None:
        while True:
            rows = self._take()
            if rows:
                await self._send_rows(producer, rows)
            await self._pass_on_promise(producer)
            if not rows and self._closing.is_set():
                return
            if len(self._waiting) < ROWS_PER_BATCH:
                await self._linger()

    async def _pass_on_promise(self, producer: RequestProducer) -> None:
        lost = self.counts.dropped + self.counts.refused
        if self._promise is None or self.counts.sent + lost < self._promise[1]:
            return
        (until_s, _), self._promise = self._promise, None
        if lost == self._lost_before:
            await producer.heartbeat(self._fleet, until_s)
        self._lost_before = lost

    async def _send_rows(self, producer: RequestProducer, rows: list[RequestLog]) -> None:
        before = producer.sent.records
        try:
            await producer.send(self._fleet, rows)
            await producer.flush()
        finally:
            self._sending = 0
            sent = producer.sent.records - before
            self.counts.sent += sent
            self.counts.refused += len(rows) - sent

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                await self._closing.wait()
        except TimeoutError:
            return

    def _take(self) -> list[RequestLog]:
        with self._lock:
            count = min(len(self._waiting), ROWS_PER_FLUSH)
            self._sending = count
            return [self._waiting.popleft() for _ in range(count)]

    def finish(self) -> None:
        """Let `run` return once everything is sent."""
        self._closing.set()

    def drop_rest(self) -> int:
        """Count what is left as dropped, and return how many that are."""
        with self._lock:
            left = len(self._waiting)
            self._waiting.clear()
            self.counts.dropped += left
            return left
