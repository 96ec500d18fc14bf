"""The Redis client: what is waited for."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from fleetopt.config.settings import RedisSettings
from fleetopt.connectors.redis import connect, wait_until_ready


def test_a_refusal_is_waited_for_and_said(redis_url: str) -> None:
    url = f"{redis_url.rpartition('/')[0]}/9999"

    async def wait() -> None:
        client = connect(RedisSettings(url=url))
        try:
            async with asyncio.timeout(0.5):
                await wait_until_ready(client, url)
        finally:
            await client.aclose()

    with capture_logs() as said, pytest.raises(TimeoutError):
        asyncio.run(wait())
    assert "out of range" in said[0]["error"]
