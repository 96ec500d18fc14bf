"""Request records laid into a topic before a measurement begins.

Owns the traffic (seeded, the paper's dispersed mix, several fleets side by side) and its two
shapes on the wire; what is laid is known exactly, so that a measurement can check its counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from fleetopt.connectors.columns import CATEGORY_COMPRESSIBILITY
from fleetopt.connectors.producer import ROWS_PER_BATCH, MessageShape
from fleetopt.connectors.topics import ensure_topic
from fleetopt.connectors.wire import COLUMNS_VERSION, RequestBatch, RequestLog, encode_batch
from fleetopt.pipeline.generator import MIXES, Archetype, draw

PARTITIONS: Final = 8
RATE_PER_S: Final = 8_000.0
"""Arrivals of all fleets together; sets how many slices the records span."""

_RETENTION_S: Final = 86_400.0
_MIX: Final = Archetype.DISPERSED


@dataclass(frozen=True, slots=True)
class Load:
    """What lies in a topic."""

    topic: str
    epoch: str
    fleets: tuple[str, ...]
    shape: MessageShape
    records: int
    messages: int
    value_bytes: int
    """Values before compression by the client."""
    end_offsets: dict[int, int]
    """By partition: the offset after the last message; partitions without one are left out."""


def lay(
    bootstrap_servers: str,
    topic: str,
    shape: MessageShape,
    records: int,
    fleets: int = 8,
    seed: int = 1,
) -> Load:
    """Make the topic and fill it; returns when the broker has acknowledged every message."""
    names = tuple(f"bench-{number}" for number in range(fleets))
    messages = _messages(shape, records, names, seed)
    return asyncio.run(_lay(bootstrap_servers, topic, shape, names, messages))


async def _lay(
    bootstrap_servers: str,
    topic: str,
    shape: MessageShape,
    fleets: tuple[str, ...],
    messages: Iterator[tuple[str, bytes, int]],
) -> Load:
    state = await ensure_topic(bootstrap_servers, topic, PARTITIONS, _RETENTION_S)
    # As fleetopt.connectors.producer sends; that one takes records, which are slow to make.
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        compression_type="lz4",
        linger_ms=20,
        max_batch_size=1 << 18,
    )
    made, value_bytes = 0, 0
    acknowledgements: list[asyncio.Future[RecordMetadata]] = []
    await producer.start()
    try:
        for fleet, value, rows in messages:
            acknowledgements.append(await producer.send(state.name, value, key=fleet.encode()))
            made += rows
            value_bytes += len(value)
        await producer.flush()
        ends: dict[int, int] = {}
        for sent in await asyncio.gather(*acknowledgements):
            ends[sent.partition] = max(ends.get(sent.partition, 0), sent.offset + 1)
    finally:
        await producer.stop()
    return Load(
        topic, state.topic_id, fleets, shape, made, len(acknowledgements), value_bytes, ends
    )


def _messages(
    shape: MessageShape, records: int, fleets: tuple[str, ...], seed: int
) -> Iterator[tuple[str, bytes, int]]:
    """Yield (fleet, value, records in it), the fleets taking turns as their requests arrive."""
    rng = np.random.default_rng(seed)
    rate_per_s = RATE_PER_S / len(fleets)
    per_turn = ROWS_PER_BATCH * len(fleets)
    start_s = time.time() - records / RATE_PER_S
    for turn, begin in enumerate(range(0, records, per_turn)):
        left = records - begin
        for place, fleet in enumerate(fleets):
            rows = min(ROWS_PER_BATCH, left - place * ROWS_PER_BATCH)
            if rows <= 0:
                return
            batch = _batch(fleet, turn, rows, start_s, rate_per_s, rng)
            if shape is MessageShape.BATCH:
                yield fleet, encode_batch(batch), rows
            else:
                for value in _singles(batch, turn):
                    yield fleet, value, 1


def _batch(
    fleet: str,
    turn: int,
    rows: int,
    start_s: float,
    rate_per_s: float,
    rng: np.random.Generator,
) -> RequestBatch:
    kinds, prompt_tokens, completion_tokens = draw(_MIX, rows, rng)
    classes = np.array([int(CATEGORY_COMPRESSIBILITY[kind.category]) for kind in MIXES[_MIX]])
    first_s = start_s + turn * ROWS_PER_BATCH / rate_per_s
    arrival_s = np.round(first_s + np.sort(rng.uniform(0, rows / rate_per_s, rows)), 3)
    return RequestBatch(
        v=COLUMNS_VERSION,
        fleet=fleet,
        ts=arrival_s.tolist(),
        p=prompt_tokens.tolist(),
        o=completion_tokens.tolist(),
        c=classes[kinds].tolist(),
        src=fleet,
        seq=turn + 1,
    )


def _singles(batch: RequestBatch, turn: int) -> Iterator[bytes]:
    """Yield the batch's records as a gateway that knows nothing of batches would log them."""
    rows = zip(batch.ts, batch.p, batch.o, strict=True)
    for row, (arrival_s, prompt_tokens, completion_tokens) in enumerate(rows):
        yield msgspec.json.encode(
            RequestLog(
                fleet=batch.fleet,
                request_id=f"{batch.fleet}-{turn}-{row}",
                arrival_s=arrival_s,
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
                category="chat",
                pool="short",
                ttft_s=0.25,
                status="ok",
            )
        )
