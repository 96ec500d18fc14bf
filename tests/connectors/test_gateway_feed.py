"""A gateway on a real Redis: which recommendation it routes by, whatever Redis does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
import redis
from structlog.testing import capture_logs

from fleetopt.connectors.gateway import Gateway, Route
from fleetopt.connectors.recommendation_store import recommendation_channel, recommendation_key
from fleetopt.pipeline.embedded import EmbeddedRedis
from fleetopt.planner.recommendation import Status
from tests.connectors.gateway_plans import publish, put, recommendation, until

NEVER_S = 3_600.0
"""No poll: what comes must have come by message."""


def test_a_plan_that_is_there_and_every_later_one(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def follow() -> None:
        publish(redis_client, recommendation(fleet, 1, 1_000, 2_000))
        async with Gateway(fleet, redis_url, poll_s=NEVER_S) as gateway:
            assert gateway.route(1, 1) is Route.LONG
            assert gateway.is_stale
            await until(lambda: gateway.is_connected)
            assert gateway.boundary_tokens == 1_000
            assert gateway.route(900, 100) is Route.SHORT
            assert gateway.route(1_700, 100) is Route.COMPRESS
            await until(lambda: not gateway.is_stale)
            publish(redis_client, recommendation(fleet, 2, 500, 500))
            await until(lambda: gateway.boundary_tokens == 500)
            assert gateway.route(900, 100) is Route.LONG
            assert gateway.feed_counts.taken == 2

    asyncio.run(follow())


def test_a_message_that_was_lost_is_found_by_the_poll(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def follow() -> None:

        async with Gateway(fleet, redis_url, poll_s=0.05) as gateway:
            await until(lambda: gateway.is_connected)
            plan = recommendation(fleet, 1, 1_000, 2_000)
            redis_client.set(recommendation_key(fleet), msgspec.json.encode(plan))
            await until(lambda: gateway.boundary_tokens == 1_000)

    asyncio.run(follow())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"revision": 3}',
    ],
)
def test_a_broken_record_is_counted_once_and_the_last_good_one_stays(
    redis_url: str, redis_client: redis.Redis, fleet: str, value: bytes
) -> None:
    async def follow() -> None:
        async with Gateway(fleet, redis_url, poll_s=0.02) as gateway:
            publish(redis_client, recommendation(fleet, 1, 1_000, 2_000))
            await until(lambda: gateway.boundary_tokens == 1_000)
            put(redis_client, fleet, value)
            await until(lambda: gateway.feed_counts.broken == 1)
            await asyncio.sleep(0.1)
            assert gateway.feed_counts.broken == 1
            assert gateway.route(900, 100) is Route.SHORT
            publish(redis_client, recommendation(fleet, 2, 500, 500))
            await until(lambda: gateway.boundary_tokens == 500)

    with capture_logs():
        asyncio.run(follow())


def test_records_that_contradict_themselves_or_are_anothers_are_broken(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:

    async def follow() -> None:
        async with Gateway(fleet, redis_url) as gateway:
            publish(redis_client, recommendation(fleet, 1, 1_000, 2_000))
            await until(lambda: gateway.boundary_tokens == 1_000)
            put(redis_client, fleet, msgspec.json.encode(recommendation("other", 2, 500, 500)))
            await until(lambda: gateway.feed_counts.broken == 1)
            publish(redis_client, recommendation(fleet, 3, 500, 400))
            await until(lambda: gateway.feed_counts.broken == 2)
            redis_client.delete(recommendation_key(fleet))
            redis_client.rpush(recommendation_key(fleet), "a list")
            redis_client.publish(recommendation_channel(fleet), "look")
            await until(lambda: gateway.feed_counts.broken == 3)
            assert gateway.boundary_tokens == 1_000

    with capture_logs():
        asyncio.run(follow())


def test_an_older_revision_is_not_taken_unless_the_planner_began_anew(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def follow() -> None:
        now_s = time.time()
        async with Gateway(fleet, redis_url) as gateway:
            publish(redis_client, recommendation(fleet, 7, 1_000, 2_000, published_at_s=now_s))
            await until(lambda: gateway.boundary_tokens == 1_000)
            publish(redis_client, recommendation(fleet, 6, 500, 500, published_at_s=now_s - 5))
            await until(lambda: gateway.feed_counts.older == 1)
            assert gateway.boundary_tokens == 1_000
            publish(redis_client, recommendation(fleet, 1, 700, 700, published_at_s=now_s + 5))
            await until(lambda: gateway.boundary_tokens == 700)

    asyncio.run(follow())


def test_a_plan_past_its_time_is_kept_and_said_to_be_stale(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def follow() -> None:
        async with Gateway(fleet, redis_url) as gateway:
            publish(redis_client, recommendation(fleet, 1, valid_until_s=time.time() - 1))
            await until(lambda: gateway.boundary_tokens is not None)
            assert gateway.is_stale
            publish(redis_client, recommendation(fleet, 2, status=Status.STALE))
            await until(lambda: gateway.feed_counts.taken == 2)
            assert gateway.is_stale
            publish(redis_client, recommendation(fleet, 3))
            await until(lambda: not gateway.is_stale)
            publish(redis_client, recommendation(fleet, 4, status=Status.INFEASIBLE, active=None))
            await until(lambda: gateway.feed_counts.taken == 4)
            assert gateway.is_stale
            assert gateway.route(900, 100) is Route.SHORT

    asyncio.run(follow())


def test_the_short_pools_engines_may_lag_behind_the_plan(
    redis_url: str, redis_client: redis.Redis, fleet: str
) -> None:
    async def follow() -> None:
        publish(redis_client, recommendation(fleet, 1))
        async with Gateway(fleet, redis_url, short_context_tokens=2_048) as gateway:
            await until(lambda: gateway.is_connected)
            assert gateway.boundary_tokens == 2_048
            gateway.short_pool_serves(None)
            assert gateway.boundary_tokens == 4_096
            gateway.short_pool_serves(1_024)
            assert gateway.boundary_tokens == 1_024

    asyncio.run(follow())


def test_without_redis_the_last_known_plan_stays_and_the_next_comes(
    fleet: str, tmp_path: Path
) -> None:
    async def follow(server: EmbeddedRedis) -> None:
        async with Gateway(fleet, server.url, poll_s=0.2) as gateway:
            with redis.Redis.from_url(server.url) as client:
                publish(client, recommendation(fleet, 1, 1_000, 2_000))
            await until(lambda: gateway.is_connected and gateway.boundary_tokens == 1_000)
            server.kill()
            await until(lambda: not gateway.is_connected)
            assert gateway.route(900, 100) is Route.SHORT
            await asyncio.to_thread(server.restart)
            with redis.Redis.from_url(server.url) as client:
                publish(client, recommendation(fleet, 2, 500, 500))
            await until(lambda: gateway.boundary_tokens == 500)
            assert gateway.feed_counts.disconnects > 0

    with EmbeddedRedis(tmp_path) as server, capture_logs():
        asyncio.run(follow(server))


def test_a_redis_that_never_was_leaves_everything_long(fleet: str) -> None:
    async def follow() -> None:
        async with Gateway(fleet, "redis://127.0.0.1:1/0") as gateway:
            await until(lambda: gateway.feed_counts.disconnects > 0)
            assert gateway.route(10, 10) is Route.LONG
            assert gateway.recommendation is None

    with capture_logs():
        asyncio.run(follow())
