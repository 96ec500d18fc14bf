"""Request records → Kafka: as columnar batches, or one record a message.

Owns the encoding of what our own producers send, its place in the source's sequence, and the
account of what the broker took and refused. Knows nothing of pace or files.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from fleetopt.connectors.columns import CATEGORY_COMPRESSIBILITY, COMPRESSION_OUTCOMES, NOT_TRIED
from fleetopt.connectors.rows import CATEGORY_CODES
from fleetopt.connectors.wire import COLUMNS_VERSION, RequestBatch, RequestLog, encode_batch
from fleetopt.errors import ServiceError
from fleetopt.planner.moments import Compressibility

ROWS_PER_BATCH: Final = 250
MAX_UNACKNOWLEDGED: Final = 10_000
"""Messages in flight at once; `send` waits beyond that, so that memory stays bounded."""

GIVE_UP_AFTER: Final = 100
"""Messages refused in a row, each after its retries, that mean there is no point in going on."""

_POOL_CODES: Final = {"short": 0, "long": 1}
_COMPRESSION, _LINGER_MS, _BATCH_BYTES = "lz4", 20, 1 << 18


class MessageShape(StrEnum):
    """How records are put into messages."""

    BATCH = "batch"
    RECORD = "record"


@dataclass(slots=True)
class Sent:
    """What became of the messages so far."""

    messages: int = 0
    records: int = 0
    refused_messages: int = 0
    refused_records: int = 0
    first_refusal: str | None = None


def batch_of(fleet: str, records: list[RequestLog], src: str = "", seq: int = 0) -> RequestBatch:
    """Put records of one fleet into columns; columns that say nothing are left out."""
    classes = [int(CATEGORY_COMPRESSIBILITY[record.category]) for record in records]
    unknown = [int(record.status not in (None, "ok")) for record in records]
    cached = [record.cached_prompt_tokens for record in records]
    sizes = [record.prompt_bytes for record in records]
    has_sizes = any(size is not None for size in sizes)
    outcomes = [_outcome(record) for record in records]
    ttfts_s = [record.ttft_s for record in records]
    pools = [None if record.pool is None else _POOL_CODES[record.pool] for record in records]
    compressed = any(record.original_prompt_tokens is not None for record in records)
    return RequestBatch(
        v=COLUMNS_VERSION,
        fleet=fleet,
        ts=[record.arrival_s for record in records],
        p=[record.prompt_tokens for record in records],
        o=[record.completion_tokens for record in records],
        c=classes if any(code != Compressibility.UNKNOWN for code in classes) else None,
        q=[_uncompressed(record) for record in records] if compressed else None,
        s=unknown if any(unknown) else None,
        h=cached if any(tokens is not None for tokens in cached) else None,
        b=sizes if has_sizes else None,
        k=[CATEGORY_CODES[record.category] for record in records] if has_sizes else None,
        r=outcomes if any(code is not None for code in outcomes) else None,
        t=ttfts_s if any(ttft_s is not None for ttft_s in ttfts_s) else None,
        w=pools if any(pool is not None for pool in pools) else None,
        src=src,
        seq=seq,
    )


def _outcome(record: RequestLog) -> int | None:
    code = COMPRESSION_OUTCOMES[record.compression]
    return None if code == NOT_TRIED else code


def _uncompressed(record: RequestLog) -> int:
    original = record.original_prompt_tokens
    return record.prompt_tokens if original is None else original


class RequestProducer:
    """Sends request records to a topic; use it as an async context manager.

    All records of a fleet go to one partition, in order. Nothing is lost silently: `sent` counts
    what the broker acknowledged and what it refused after every retry. A broker that takes
    nothing any more raises ServiceError at one of the next sends.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        shape: MessageShape = MessageShape.BATCH,
        *,
        request_timeout_s: float = 20.0,
    ) -> None:
        self.sent = Sent()
        self._topic = topic
        self._shape = shape
        self._bootstrap_servers = bootstrap_servers
        self._request_timeout_ms = int(request_timeout_s * 1e3)
        self._producer: AIOKafkaProducer | None = None
        self._src = uuid.uuid4().hex[:16]
        self._seq = 0
        self._refused_in_row = 0
        self._room = asyncio.Semaphore(MAX_UNACKNOWLEDGED)
        self._unsettled = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __aenter__(self) -> Self:
        # Idempotence off: after a restart of the embedded broker an idempotent producer stays
        # broken. A batch that a retry stores twice is recognised by its `src` and `seq`, and
        # aiokafka keeps one request per broker in flight, so that `seq` never runs backwards.
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            client_id="fleetopt-producer",
            acks="all",
            enable_idempotence=False,
            compression_type=_COMPRESSION,
            linger_ms=_LINGER_MS,
            max_batch_size=_BATCH_BYTES,
            request_timeout_ms=self._request_timeout_ms,
        )
        try:
            await producer.start()
        except (KafkaError, OSError) as error:
            await producer.stop()
            raise ServiceError(
                f"Kafka at {self._bootstrap_servers} does not answer: start it, or name its "
                "address with --bootstrap-servers or kafka.bootstrap_servers"
            ) from error
        except asyncio.CancelledError:
            await producer.stop()
            raise
        self._producer = producer
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def send(self, fleet: str, records: list[RequestLog]) -> None:
        """Hand over records of one fleet; returns once they are in the send buffer."""
        if self._shape is MessageShape.RECORD:
            for record in records:
                await self._send(fleet, msgspec.json.encode(record), 1)
            return
        for start in range(0, len(records), ROWS_PER_BATCH):
            rows = records[start : start + ROWS_PER_BATCH]
            self._seq += 1
            value = encode_batch(batch_of(fleet, rows, self._src, self._seq))
            await self._send(fleet, value, len(rows))

    async def heartbeat(self, fleet: str, until_s: float) -> None:
        """Promise that every request that arrived before `until_s` has been sent."""
        self._seq += 1
        batch = RequestBatch(
            v=COLUMNS_VERSION, fleet=fleet, src=self._src, seq=self._seq, until_s=until_s
        )
        await self._send(fleet, encode_batch(batch), 0)

    async def flush(self) -> None:
        """Wait until the broker has taken or refused everything."""
        if self._producer is not None:
            await self._producer.flush()
        await self._idle.wait()

    async def _send(self, fleet: str, value: bytes, records: int) -> None:
        if self._producer is None:
            raise ServiceError("the producer is not started: use it in `async with`")
        await self._room.acquire()
        if self._refused_in_row >= GIVE_UP_AFTER:
            self._room.release()
            raise ServiceError(
                f"Kafka at {self._bootstrap_servers} took {self.sent.records} requests and refused "
                f"the last {self._refused_in_row} messages ({self.sent.first_refusal}): given up; "
                "see what ails it and send the rest again"
            )
        try:
            future = await self._producer.send(self._topic, value=value, key=fleet.encode())
        except (KafkaError, OSError) as error:
            self._room.release()
            self._refuse(error, records)
            return
        self._unsettled += 1
        self._idle.clear()
        future.add_done_callback(lambda done: self._settle(done, records))

    def _settle(self, done: asyncio.Future[Any], records: int) -> None:
        self._room.release()
        self._unsettled -= 1
        if not self._unsettled:
            self._idle.set()
        error = asyncio.CancelledError("stopped") if done.cancelled() else done.exception()
        if error is not None:
            self._refuse(error, records)
        else:
            self._refused_in_row = 0
            self.sent.messages += 1
            self.sent.records += records

    def _refuse(self, error: BaseException, records: int) -> None:
        self._refused_in_row += 1
        self.sent.refused_messages += 1
        self.sent.refused_records += records
        if self.sent.first_refusal is None:
            self.sent.first_refusal = str(error) or type(error).__name__
