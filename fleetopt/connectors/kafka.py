"""Kafka clients with FleetOpt's settings: consumers of the log and of prompts, and a producer."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.partitioner import murmur2

from fleetopt.config.settings import CompressorSettings, IngestSettings, KafkaSettings

log = structlog.get_logger(__name__)

STOP_LIMIT_S: Final = 10.0
MAX_POLL_INTERVAL_MS: Final = 600_000
PROMPT_FETCH_BYTES: Final = 512 << 10
"""Of each partition; a prompt that is longer comes alone."""


def partition_of(key: str, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner gives a key."""
    return int((murmur2(key.encode()) & 0x7FFFFFFF) % partitions)


def make_consumer(kafka: KafkaSettings, ingest: IngestSettings) -> AIOKafkaConsumer:
    """Return a consumer of raw bytes whose offsets are ours to keep; not subscribed yet."""
    return _consumer(kafka, kafka.group, "fleetopt-ingest", ingest.max_fetch_bytes, 0.1)


def make_compression_consumer(
    kafka: KafkaSettings, compressor: CompressorSettings, epoch: str
) -> AIOKafkaConsumer:
    """Return a consumer of prompts, committed when they are answered; not subscribed yet.

    A topic that was made anew has another group, since a commit that is late by a moment would
    put the old topic's offsets in its place.
    """
    group = f"{compressor.group}.{epoch}"
    wait_s = compressor.fetch_wait_s
    return _consumer(kafka, group, "fleetopt-compressor", PROMPT_FETCH_BYTES, wait_s)


def _consumer(
    kafka: KafkaSettings, group: str, client_id: str, fetch_bytes: int, wait_s: float
) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        client_id=client_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=round(kafka.session_timeout_s * 1e3),
        heartbeat_interval_ms=round(kafka.session_timeout_s * 1e3 / 6),
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        rebalance_timeout_ms=2_000,
        max_partition_fetch_bytes=fetch_bytes,
        fetch_max_wait_ms=round(wait_s * 1e3),
        check_crcs=True,
        metadata_max_age_ms=30_000,
    )


def make_producer(
    kafka: KafkaSettings, *, linger_ms: int = 5, max_request_bytes: int = 1 << 20
) -> AIOKafkaProducer:
    """Return a producer that waits for every in-sync replica."""
    return AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        client_id="fleetopt",
        acks="all",
        linger_ms=linger_ms,
        max_request_size=max_request_bytes,
        request_timeout_ms=20_000,
    )


async def stop_client(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Stop a client, whatever comes of it, within a limit.

    A broker that is gone makes it fail, hang, or raise the cancellation of a task of its own,
    which would look as if we had been cancelled: so it stops in a task of its own.
    """
    stopping = asyncio.ensure_future(client.stop())
    await asyncio.wait({stopping}, timeout=STOP_LIMIT_S)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is None:
        return
    stopping.cancel()
    log.warning("a Kafka client did not stop in order", client=type(client).__name__)
    connections = client._client if isinstance(client, AIOKafkaConsumer) else client.client
    await connections.close()


def was_cancelled(error: BaseException) -> bool:
    """Say whether the running task was cancelled, or a library let a cancellation of its own out.

    aiokafka does when it is stopped while its broker is gone; a task that takes it for its own
    ends without a word, and the process lives on doing nothing.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
