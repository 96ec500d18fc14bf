"""A fleet's newest recommendation, followed for as long as a program runs.

Owns the judgement which record counts; whatever Redis does, the last good one stays. For a reader
that must go on without Redis; `RecommendationStore.follow` is for one that only shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from fleetopt.connectors.recommendation_store import (
    RecommendationStore,
    recommendation_channel,
    recommendation_key,
)
from fleetopt.connectors.redis import FIRST_PAUSE_S, MAX_PAUSE_S
from fleetopt.errors import InputError
from fleetopt.planner.recommendation import Recommendation

log = structlog.get_logger(__name__)

POLL_S: Final = 5.0


@dataclass(slots=True)
class FeedCounts:
    """What came, and what was not taken."""

    taken: int = 0
    broken: int = 0
    """Values that are no recommendation of this fleet, each counted once while it stays."""
    older: int = 0
    """Records of an older revision."""
    disconnects: int = 0
    """Attempts that ended because Redis did not answer or refused."""


class RecommendationFeed:
    """Hands every recommendation that counts to `take`, which raises InputError for a broken one.

    A record counts if its revision is above the last one's. A lower one counts only if it was
    published later: Redis has lost its data then, and the planner begins anew.
    """

    def __init__(
        self,
        client: Redis,
        fleet: str,
        take: Callable[[Recommendation], None],
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self.counts = FeedCounts()
        self.last: Recommendation | None = None
        self.is_connected = False
        self._client = client
        self._store = RecommendationStore(client)
        self._fleet = fleet
        self._take = take
        self._poll_s = poll_s
        self._value: bytes | str | None = None

    async def run(self) -> None:
        """Follow until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._read()
                async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.subscribe(recommendation_channel(self._fleet))
                    while True:
                        await self._read()
                        self.is_connected = True
                        pause_s = FIRST_PAUSE_S
                        await pubsub.get_message(timeout=self._poll_s)
            except (RedisError, OSError) as error:
                self.is_connected = False
                self.counts.disconnects += 1
                log.warning(
                    "Redis does not answer; the last known recommendation stays",
                    fleet=self._fleet,
                    error=str(error),
                    retry_in_s=pause_s,
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def judge(self, value: bytes | str) -> None:
        """Take a stored record if it counts; count it if not."""
        try:
            recommendation = self._store.decode(value)
            self._check_fleet(recommendation)
            if not self._counts(recommendation):
                self.counts.older += 1
                return
            self._take(recommendation)
        except InputError as error:
            self._break(str(error))
        else:
            self.last = recommendation
            self.counts.taken += 1

    async def _read(self) -> None:
        try:
            value = await self._client.get(recommendation_key(self._fleet))
        except ResponseError as error:  # the key holds something that is no string
            if not str(error).startswith("WRONGTYPE"):
                raise
            value = str(error).encode()
        if value is not None and value != self._value:
            self._value = value
            self.judge(value)

    def _check_fleet(self, recommendation: Recommendation) -> None:
        if recommendation.fleet != self._fleet:
            raise InputError(f"a recommendation of fleet {recommendation.fleet!r}")

    def _counts(self, recommendation: Recommendation) -> bool:
        last = self.last
        return (
            last is None
            or recommendation.revision > last.revision
            or recommendation.published_at_s > last.published_at_s
        )

    def _break(self, text: str) -> None:
        self.counts.broken += 1
        log.warning(
            "what Redis holds is no recommendation; the last known one stays",
            fleet=self._fleet,
            error=text,
        )
