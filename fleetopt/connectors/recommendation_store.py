"""Recommendations and alerts in Redis: what gateways and autoscalers are told, and how.

Owns the keys, which docs/stream.md lists. Those of a fleet share a hash tag, so that one script may
touch them on Redis Cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import msgspec
import structlog
from redis.asyncio import Redis

from fleetopt.connectors.alert import Alert
from fleetopt.connectors.redis import FIRST_PAUSE_S, MAX_PAUSE_S, UNREACHABLE
from fleetopt.errors import InputError
from fleetopt.planner.recommendation import Recommendation

log = structlog.get_logger(__name__)

_PUBLISH = """
local stored = redis.call('GET', KEYS[1])
if stored then
  local revision = cjson.decode(stored)['revision']
  if revision >= tonumber(ARGV[1]) then
    return revision
  end
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'recommendation', ARGV[2])
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[4], ARGV[2])
return 0
"""


def recommendation_key(fleet: str) -> str:
    """Return the key that holds a fleet's newest recommendation as JSON."""
    return f"fleetopt:{{{fleet}}}:recommendation"


def recommendation_channel(fleet: str) -> str:
    """Return the channel that carries each recommendation when it is written."""
    return f"fleetopt:{{{fleet}}}:recommendations"


def history_key(fleet: str) -> str:
    """Return the capped stream of a fleet's recommendations."""
    return f"fleetopt:{{{fleet}}}:history"


def alerts_key(fleet: str) -> str:
    """Return the capped stream of a fleet's alerts."""
    return f"fleetopt:{{{fleet}}}:alerts"


class RecommendationStore:
    """Writes and reads what is recommended to a fleet."""

    def __init__(self, client: Redis, history: int = 1_000) -> None:
        self._client = client
        self._history = history
        self._publish = client.register_script(_PUBLISH)
        self._decoder = msgspec.json.Decoder(Recommendation)

    async def read(self, fleet: str) -> Recommendation | None:
        """Return the newest recommendation, None before the first."""
        value = await self._client.get(recommendation_key(fleet))
        return None if value is None else self.decode(value)

    def decode(self, value: bytes | str) -> Recommendation:
        """Read a recommendation's JSON; raises InputError for anything else."""
        try:
            return self._decoder.decode(value)
        except (msgspec.DecodeError, ValueError) as error:
            raise InputError(
                f"not a recommendation of this version of FleetOpt: {error}; "
                "update this program, or delete the key to plan afresh"
            ) from error

    async def publish(self, recommendation: Recommendation) -> bool:
        """Write key, history and channel in one step unless a revision as new is there.

        Returns False where somebody else's revision is as new or newer: read it and go on from it.
        """
        fleet = recommendation.fleet
        newer = await self._publish(
            keys=[recommendation_key(fleet), history_key(fleet)],
            args=[
                recommendation.revision,
                msgspec.json.encode(recommendation),
                self._history,
                recommendation_channel(fleet),
            ],
        )
        return int(cast(int, newer)) == 0

    async def alert(self, alert: Alert) -> None:
        """Append an alert to its fleet's stream of alerts and tell the channel of that name."""
        key, value = alerts_key(alert.fleet), msgspec.json.encode(alert)
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.xadd(key, {"alert": value}, maxlen=self._history, approximate=True)
            pipe.publish(key, value)
            await pipe.execute()

    async def alerts(self, fleet: str, limit: int = 100) -> list[Alert]:
        """Return the fleet's last alerts, oldest first."""
        entries = cast(
            list[tuple[bytes, dict[bytes, bytes]]],
            await self._client.xrevrange(alerts_key(fleet), count=limit),
        )
        return [
            msgspec.json.decode(fields[b"alert"], type=Alert) for _, fields in reversed(entries)
        ]

    async def follow(self, fleet: str, poll_s: float = 5.0) -> AsyncIterator[Recommendation]:
        """Yield the newest recommendation and every later one, through restarts of Redis.

        PubSub is a nudge that may get lost, so the key is read after subscribing, whenever a
        message comes, and every `poll_s`; revisions that were overtaken meanwhile are skipped.
        """
        seen = 0
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.subscribe(recommendation_channel(fleet))
                    while True:
                        newest = await self.read(fleet)
                        if newest is not None and newest.revision != seen:
                            seen = newest.revision
                            yield newest
                        pause_s = FIRST_PAUSE_S
                        await pubsub.get_message(timeout=poll_s)
            except UNREACHABLE as error:
                log.warning("Redis does not answer", error=str(error), retry_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)
