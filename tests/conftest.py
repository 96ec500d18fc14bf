"""What every test may ask for: real services, names of its own, the shared data."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from fleetopt.pipeline.embedded import REDIS_URL_VARIABLE, EmbeddedBroker, EmbeddedRedis

PROJECT = Path(__file__).resolve().parent.parent
SHARED_DATA = PROJECT.parent / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that read the shared data, so that `-m 'not shared_data'` leaves them out."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared_data)


@dataclass(frozen=True)
class RedisService:
    """A Redis that answers, and whether it is ours alone."""

    url: str
    is_ours: bool


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root folder."""
    return PROJECT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of traces, CDFs and profiles that several projects share."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the shared data is not there: {SHARED_DATA} is no folder")
    return SHARED_DATA


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """A Kafka-protocol broker in memory, one for all tests: use topics of your own."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def redis_service() -> Iterator[RedisService]:
    """The Redis for all tests: the one that FLEETOPT_REDIS_URL names, or an embedded one."""
    if url := os.environ.get(REDIS_URL_VARIABLE):
        yield RedisService(url, is_ours=False)
        return
    with EmbeddedRedis() as server:
        yield RedisService(server.url, is_ours=True)


@pytest.fixture
def redis_url(redis_service: RedisService) -> str:
    """The Redis's address: empty if it is ours; one from outside is never flushed."""
    if redis_service.is_ours:
        with redis.Redis.from_url(redis_service.url) as client:
            client.flushall()
    return redis_service.url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the Redis."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make names that no other test and no other run uses, valid for topics, groups and keys."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-").lower()[:60]
    return lambda prefix: f"{prefix}-{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(unique: Callable[[str], str]) -> str:
    """A topic name of this test's own; the topic is not created."""
    return unique("topic")


@pytest.fixture
def fleet(unique: Callable[[str], str]) -> str:
    """A fleet name of this test's own."""
    return unique("fleet")
