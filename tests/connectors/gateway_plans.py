"""Recommendations that the tests of the gateway's side route by, and how they get into Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import redis

from fleetopt.connectors.recommendation_store import recommendation_channel, recommendation_key
from fleetopt.planner.recommendation import Recommendation
from tests.planner.traffic import Fleet, short_traffic

BOUNDARY = 4_096
UP_TO = 6_144
SOON_S = 20.0
"""Limit of what is waited for; nothing is asserted about how long it took."""


@cache
def _planned() -> Recommendation:
    fleet = Fleet()
    fleet.see(short_traffic(), 0)
    return fleet.last


def recommendation(
    fleet: str,
    revision: int = 1,
    boundary_tokens: int = BOUNDARY,
    compress_up_to_tokens: int = UP_TO,
    **fields: Any,
) -> Recommendation:
    """A planned fleet's recommendation with a boundary of the test's choice."""
    planned = _planned()
    assert planned.active is not None
    now_s = time.time()
    known = {
        "fleet": fleet,
        "revision": revision,
        "published_at_s": now_s,
        "valid_until_s": now_s + 600.0,
        "boundary_tokens": boundary_tokens,
        "compress_up_to_tokens": compress_up_to_tokens,
        "active": replace(
            planned.active,
            boundary_tokens=boundary_tokens,
            compress_up_to_tokens=compress_up_to_tokens,
        ),
    }
    return replace(planned, **{**known, **fields})


def publish(client: redis.Redis, plan: Recommendation) -> None:
    """Write and announce a recommendation, whatever revision is there."""
    put(client, plan.fleet, msgspec.json.encode(plan))


def put(client: redis.Redis, fleet: str, value: bytes) -> None:
    """Write and announce any value."""
    client.set(recommendation_key(fleet), value)
    client.publish(recommendation_channel(fleet), value)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens on this event loop."""
    async with asyncio.timeout(SOON_S):
        while not condition():
            await asyncio.sleep(0.01)
