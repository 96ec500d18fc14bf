"""Kafka clients with FleetOpt's settings: the request log's consumer, and a producer."""

from __future__ import annotations

from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.partitioner import murmur2

from fleetopt.config.settings import IngestSettings, KafkaSettings

MAX_POLL_INTERVAL_MS: Final = 600_000


def partition_of(key: str, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner gives a key."""
    return int((murmur2(key.encode()) & 0x7FFFFFFF) % partitions)


def make_consumer(kafka: KafkaSettings, ingest: IngestSettings) -> AIOKafkaConsumer:
    """Return a consumer of raw bytes whose offsets are ours to keep; not subscribed yet."""
    return AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=kafka.group,
        client_id="fleetopt-ingest",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=round(kafka.session_timeout_s * 1e3),
        heartbeat_interval_ms=round(kafka.session_timeout_s * 1e3 / 6),
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        rebalance_timeout_ms=2_000,
        max_partition_fetch_bytes=ingest.max_fetch_bytes,
        fetch_max_wait_ms=100,
        check_crcs=True,
        metadata_max_age_ms=30_000,
    )


def make_producer(kafka: KafkaSettings) -> AIOKafkaProducer:
    """Return a producer that waits for every in-sync replica."""
    return AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        client_id="fleetopt",
        acks="all",
        linger_ms=5,
        request_timeout_ms=20_000,
    )
