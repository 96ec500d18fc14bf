"""The Redis client, which of its errors pass by themselves, and waiting for the server."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fleetopt.config.settings import RedisSettings, without_password
from fleetopt.errors import ConfigError

log = structlog.get_logger(__name__)

UNREACHABLE: Final = (RedisConnectionError, RedisTimeoutError, OSError)
"""Errors that say nothing about the command: try again."""

NOT_NOW: Final = (*UNREACHABLE, OutOfMemoryError, ReadOnlyError)
"""Those, and what a server says that is full, or a replica that has not taken over yet."""

FIRST_PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 10.0
"""Between two attempts, growing from the one to the other."""


def connect(settings: RedisSettings) -> Redis:
    """Return a client; the connection is made at the first command."""
    try:
        client = Redis.from_url(
            settings.url,
            socket_timeout=settings.timeout_s,
            socket_connect_timeout=settings.timeout_s,
            health_check_interval=30,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=3),
        )
    except ValueError as error:
        raise ConfigError(
            f"redis.url: {error}, got {settings.shown_url!r}; expected redis://host:port/0"
        ) from error
    return client


async def wait_until_ready(client: Redis, url: str) -> None:
    """Wait for the server with growing pauses, saying so; return when it answers.

    What it refuses (a database that it has not, a user's rights) is waited for too: the operator
    mends that there, and a process that ended would say no more.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            await client.ping()
        except (*UNREACHABLE, RedisError) as error:
            log.warning(
                "Redis does not answer; start it or set redis.url (FLEETOPT_REDIS__URL)",
                url=without_password(url),
                error=str(error),
                retry_in_s=pause_s,
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)
        else:
            return
