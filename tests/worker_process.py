"""A worker in a process of its own, and what it has counted according to Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.asyncio import Redis

from fleetopt.config.settings import Settings, load_settings
from fleetopt.connectors.kafka import make_producer
from fleetopt.connectors.topics import Topics
from fleetopt.errors import InputError
from fleetopt.pipeline.counts import Counts, read_counts
from fleetopt.pipeline.embedded import EmbeddedBroker
from tests.integration.conftest import Kafka

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Place:
    """Where a test's worker reads and writes."""

    bootstrap_servers: str
    redis_url: str
    topic: str
    partitions: int = 4
    slice_s: int = 60
    session_timeout_s: int = 3
    """The shortest that the embedded broker likes; Apache Kafka takes none below 6."""

    @property
    def settings(self) -> Settings:
        """Where to read and write, as settings."""
        kafka = {
            "bootstrap_servers": self.bootstrap_servers,
            "topic": self.topic,
            "partitions": self.partitions,
        }
        return load_settings(kafka=kafka, window={"slice_s": self.slice_s})

    def environment(self, **extra: str) -> dict[str, str]:
        """Return the variables that send a worker there."""
        return {
            **os.environ,
            "FLEETOPT_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "FLEETOPT_KAFKA__TOPIC": self.topic,
            "FLEETOPT_KAFKA__GROUP": self.topic,
            "FLEETOPT_KAFKA__PARTITIONS": str(self.partitions),
            "FLEETOPT_KAFKA__SESSION_TIMEOUT_S": str(self.session_timeout_s),
            "FLEETOPT_WINDOW__SLICE_S": str(self.slice_s),
            "FLEETOPT_REDIS__URL": self.redis_url,
            "FLEETOPT_INGEST__FLUSH_INTERVAL_S": "0.1",
            **extra,
        }


def place_on(kafka: Kafka, redis_url: str, topic: str) -> Place:
    """Return a place on either Kafka."""
    session_timeout_s = 3 if isinstance(kafka, EmbeddedBroker) else 6
    return Place(kafka.bootstrap_servers, redis_url, topic, session_timeout_s=session_timeout_s)


@contextmanager
def worker(
    place: Place, log: Path, *arguments: str, **extra: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker; it is killed at the end if it still runs."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetopt", "worker", *arguments],
            env=place.environment(**extra),
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ask a worker to stop and return its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=DEADLINE_S)


async def _read_counts(place: Place) -> Counts:
    client = Redis.from_url(place.redis_url)
    try:
        return await read_counts(client, place.settings)
    finally:
        await client.aclose()


def counts(place: Place) -> Counts:
    """Read the stored counts."""
    return asyncio.run(_read_counts(place))


def wait_for(
    place: Place, reached: Callable[[Counts], bool], deadline_s: float = DEADLINE_S
) -> Counts:
    """Wait until the stored counts satisfy `reached`; return the last ones read either way."""
    end = time.monotonic() + deadline_s
    seen = Counts()
    while time.monotonic() < end:
        try:
            seen = counts(place)
        except (redis.ConnectionError, redis.TimeoutError, OSError, InputError):
            seen = Counts()  # Redis is down, or what it holds is damaged, on purpose
        if reached(seen):
            break
        time.sleep(0.1)
    return seen


async def _send(place: Place, values: Sequence[tuple[str, bytes | None]]) -> None:
    producer = make_producer(place.settings.kafka)
    async with Topics(place.bootstrap_servers) as topics:
        await topics.ensure(place.topic, place.partitions, 86_400.0)
    await producer.start()
    try:
        sent = [
            await producer.send(place.topic, value=value, key=key.encode()) for key, value in values
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


def send(place: Place, values: Sequence[tuple[str, bytes | None]]) -> None:
    """Write (key, value) messages and wait until the broker has them."""
    asyncio.run(_send(place, values))
