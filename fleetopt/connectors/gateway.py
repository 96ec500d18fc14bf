"""What a gateway does with a fleet's recommendation: routes, compresses, reports. For asyncio.

Owns the promise that every request has an answer: whatever is in doubt goes, unchanged, to the
long pool with a reason, and no trouble of a service is raised. `gateway_sync` is the same for
programs without an event loop.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, Self, get_args

import structlog
from redis.asyncio import Redis

from fleetopt.compressor.options import CompressOptions
from fleetopt.compressor.outcome import Compressed, Reason, Unchanged
from fleetopt.config.settings import RedisSettings
from fleetopt.connectors.compression_client import KafkaCompressor
from fleetopt.connectors.compression_pool import CompressionPool
from fleetopt.connectors.compression_process import ModelCounter, Setup
from fleetopt.connectors.compression_wire import (
    COMPRESSION_VERSION,
    CompressionRequest,
    WireOptions,
)
from fleetopt.connectors.gateway_routes import NEVER_COMPRESSED, Route, Routes, routes_of
from fleetopt.connectors.recommendation_feed import POLL_S, FeedCounts, RecommendationFeed
from fleetopt.connectors.redis import connect
from fleetopt.connectors.request_outbox import RequestOutbox
from fleetopt.connectors.tasks import end_tasks
from fleetopt.connectors.wire import CompressionLog, RequestLog
from fleetopt.errors import ServiceError
from fleetopt.planner.recommendation import Recommendation, Status

__all__ = [
    "Answer",
    "CompressionPool",
    "Compressor",
    "Gateway",
    "GatewayReason",
    "KafkaCompressor",
    "ModelCounter",
    "Pool",
    "Prompt",
    "Reason",
    "RequestLog",
    "RequestOutbox",
    "Route",
    "Setup",
    "WireOptions",
]

log = structlog.get_logger(__name__)

FLUSH_S: Final = 5.0
TEXT_OVERHEAD_TOKENS: Final = 1
"""What an engine puts before a prompt that is a text: the token that begins it."""

Prompt = str | Sequence[Mapping[str, Any]]
Category = Literal["prose", "rag", "code", "tool", "chat", "other"]
_CATEGORIES: Final[dict[str | None, Category]] = {name: name for name in get_args(Category)}


class Pool(StrEnum):
    """Where a prompt is sent."""

    SHORT = "short"
    LONG = "long"


class GatewayReason(StrEnum):
    """Why a prompt is unchanged, beyond what compressors say."""

    NO_PLAN = "no_plan"
    NO_RESERVATION = "no_reservation"
    NO_COMPRESSOR = "no_compressor"
    PLAN_CHANGED = "plan_changed"


@dataclass(frozen=True, slots=True)
class Answer:
    """Which pool a prompt goes to, and as what."""

    pool: Pool
    prompt: Prompt
    reason: Reason | GatewayReason | None = None
    """Why it is unchanged; None for one that was compressed."""
    detail: str = ""
    tokens_before: int | None = None
    """Exact, where they were counted."""
    tokens_after: int | None = None
    """Exact; None for a prompt that is unchanged."""

    @property
    def is_compressed(self) -> bool:
        """Whether the prompt is another one than was given."""
        return self.reason is None

    @property
    def outcome(self) -> CompressionLog | None:
        """What a request log's `compression` says of it; None where none was tried."""
        if self.reason is None:
            return "compressed"
        if self.reason is GatewayReason.NO_COMPRESSOR:
            return "failed"
        return self.reason.value if isinstance(self.reason, Reason) else None


class Compressor(Protocol):
    """Whoever compresses: a `CompressionPool` in this process, or a `KafkaCompressor`."""

    async def submit(
        self,
        request: CompressionRequest,
        deadline_s: float,
        *,
        traceparent: str | None = None,
    ) -> Compressed | Unchanged:
        """Answer by the deadline, on the event loop's clock; ServiceError: nobody is there."""
        ...


class Gateway:
    """Routes a fleet's requests; use it as an async context manager.

    `route` may be called from any thread; everything else belongs to the event loop.

    Parameters
    ----------
    fleet : str
        The fleet's name.
    redis : Redis or str
        Where its recommendation is: a client of one's own, which stays open, or a URL.
    compressor : Compressor, optional
        Started and stopped by the caller. Without one nothing is compressed.
    outbox : RequestOutbox, optional
        Takes the request logs; run and closed by the gateway.
    short_context_tokens : int, optional
        What the engines of the short pool serve at present; see `short_pool_serves`.
    reserved_tokens : int, optional
        Completion tokens of a request that names no limit. By default the 99th percentile of
        whole requests, from the recommendation.
    min_kept_share : float
        As the compressors are set: what they would refuse is not sent to them.
    poll_s : float
        Time between two looks at Redis where no message comes.
    """

    def __init__(
        self,
        fleet: str,
        redis: Redis | str,
        *,
        compressor: Compressor | None = None,
        outbox: RequestOutbox | None = None,
        short_context_tokens: int | None = None,
        reserved_tokens: int | None = None,
        min_kept_share: float = CompressOptions().min_kept_share,
        poll_s: float = POLL_S,
    ) -> None:
        self.fleet = fleet
        self.reasons: Counter[str] = Counter()
        """How many prompts were `compressed`, and why the others were not."""
        self._owns_redis = isinstance(redis, str)
        self._redis = connect(RedisSettings(url=redis)) if isinstance(redis, str) else redis
        self._compressor = compressor
        self._outbox = outbox
        self._short_context_tokens = short_context_tokens
        self._reserved_tokens = reserved_tokens
        self._min_kept_share = min_kept_share
        self._routes = Routes()
        self._feed = RecommendationFeed(self._redis, fleet, self._take, poll_s=poll_s)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to follow the recommendation; returns at once, whether Redis is there or not."""
        if self._tasks:
            return
        self._tasks.append(asyncio.create_task(self._feed.run()))
        if self._outbox is not None:
            self._tasks.append(asyncio.create_task(self._outbox.run()))

    async def close(self, flush_s: float = FLUSH_S) -> None:
        """Send the logs that are left, for so long at most, and let go of Redis."""
        tasks, self._tasks = self._tasks, []
        if self._outbox is not None:
            self._outbox.finish()
            if len(tasks) > 1:
                await asyncio.wait(tasks[1:], timeout=flush_s)
            if left := self._outbox.drop_rest():
                log.warning("request logs were left at the end", dropped=left)
        await end_tasks(tasks)
        if self._owns_redis:
            await self._redis.aclose()

    @property
    def recommendation(self) -> Recommendation | None:
        """The last good one; None before the first."""
        return self._feed.last

    @property
    def is_stale(self) -> bool:
        """Whether what is routed by is not known to hold now: by its status, or by its age."""
        last = self._feed.last
        return last is None or last.status is not Status.OK or time.time() > last.valid_until_s

    @property
    def is_connected(self) -> bool:
        """Whether Redis answered when it was last asked."""
        return self._feed.is_connected

    @property
    def feed_counts(self) -> FeedCounts:
        """What came from Redis, and what was not taken."""
        return self._feed.counts

    @property
    def boundary_tokens(self) -> int | None:
        """Most tokens that are sent to the short pool; None before the first plan."""
        boundary_tokens = self._routes.boundary_tokens
        return None if boundary_tokens < 0 else boundary_tokens

    def short_pool_serves(self, context_tokens: int | None) -> None:
        """Say what the engines of the short pool serve now.

        A boundary that is above it waits for them; None: they serve every plan's boundary.
        """
        self._short_context_tokens = context_tokens
        if self._feed.last is not None:
            self._take(self._feed.last)

    def route(
        self,
        prompt_tokens: int,
        max_completion_tokens: int | None = None,
        category: str | None = None,
    ) -> Route:
        """Say where a request goes, by the last known plan; before the first, to the long pool."""
        return self._routes.route(prompt_tokens, max_completion_tokens, category)

    def route_bytes(
        self,
        prompt_bytes: int,
        max_completion_tokens: int | None = None,
        category: str | None = None,
    ) -> Route:
        """Say the same of a prompt whose UTF-8 bytes are known and whose tokens are not."""
        return self._routes.route_bytes(prompt_bytes, max_completion_tokens, category)

    async def compress(
        self,
        prompt: Prompt,
        max_completion_tokens: int | None = None,
        *,
        model: str,
        deadline_s: float,
        category: str | None = None,
        cached_prompt_tokens: int = 0,
        overhead_tokens: int | None = None,
        options: WireOptions | None = None,
        traceparent: str | None = None,
    ) -> Answer:
        """Fit a prompt into the short pool if that can be done in time; never raises for trouble.

        Parameters
        ----------
        prompt : str or sequence of messages
            A text as the engine gets it, or chat messages.
        max_completion_tokens : int, optional
            Reserved for the completion; by default as in routing.
        model : str
            Whose tokens are counted.
        deadline_s : float
            From now.
        category : str, optional
            The request's, if known: `code` and `tool` are never touched.
        cached_prompt_tokens : int
            Tokens of it that an engine has in its prefix cache.
        overhead_tokens : int, optional
            What the engine adds and the counter doesn't see. By default 0 for messages, whose
            template is counted, and 1 for a text.
        options : WireOptions, optional
            For this prompt alone; what is absent is the compressor's default.
        traceparent : str, optional
            The request's trace: over Kafka it goes with the prompt.
        """
        if overhead_tokens is None:
            overhead_tokens = TEXT_OVERHEAD_TOKENS if isinstance(prompt, str) else 0
        routes = self._routes
        reserved_tokens = max_completion_tokens
        if reserved_tokens is None:
            reserved_tokens = routes.reserved_tokens
        if routes.boundary_tokens < 0:
            return self._long(prompt, GatewayReason.NO_PLAN, "no recommendation has come yet")
        if reserved_tokens is None or reserved_tokens < 0:
            return self._long(prompt, GatewayReason.NO_RESERVATION, "name max_completion_tokens")
        if category in NEVER_COMPRESSED:
            return self._long(prompt, Reason.CONTENT, f"its category is {category}")
        if self._compressor is None:
            return self._long(prompt, GatewayReason.NO_COMPRESSOR, "this gateway has none")
        kept_tokens = reserved_tokens + overhead_tokens
        budget_tokens = routes.boundary_tokens - kept_tokens
        if budget_tokens <= 0:
            return self._long(prompt, Reason.NO_BUDGET, f"the budget is {budget_tokens} tokens")
        outcome = await self._submitted(
            self._compressor,
            prompt,
            budget_tokens,
            model,
            asyncio.get_running_loop().time() + deadline_s,
            category,
            cached_prompt_tokens,
            options,
            traceparent,
        )
        if isinstance(outcome, Answer):
            return outcome
        return self._answer(prompt, outcome, budget_tokens, kept_tokens)

    def log(self, record: RequestLog) -> None:
        """Take a request's log, to be sent in a batch; never waits, and drops the oldest."""
        if self._outbox is not None:
            self._outbox.add(record)

    async def _submitted(
        self,
        compressor: Compressor,
        prompt: Prompt,
        budget_tokens: int,
        model: str,
        deadline_s: float,
        category: str | None,
        cached_prompt_tokens: int,
        options: WireOptions | None,
        traceparent: str | None,
    ) -> Compressed | Unchanged | Answer:
        try:
            request = CompressionRequest(
                v=COMPRESSION_VERSION,
                request_id="gateway",
                fleet=self.fleet,
                model=model,
                prompt=prompt if isinstance(prompt, str) else [dict(one) for one in prompt],
                budget_tokens=budget_tokens,
                category=_CATEGORIES.get(category),
                cached_prompt_tokens=cached_prompt_tokens,
                options=WireOptions() if options is None else options,
            )
            async with asyncio.timeout_at(deadline_s):
                return await compressor.submit(request, deadline_s, traceparent=traceparent)
        except TimeoutError:
            return self._long(prompt, Reason.DEADLINE, "it was not answered in time")
        except ServiceError as error:
            return self._long(prompt, GatewayReason.NO_COMPRESSOR, str(error))
        except Exception as error:
            # The promise: a gateway's request is served whatever goes wrong here.
            # No message and no local variable is logged, as `exception` would: they may hold
            # the prompt.
            name, where = type(error).__name__, traceback.format_tb(error.__traceback__)
            log.error("compressing a prompt failed", error=name, where=where)  # noqa: TRY400
            return self._long(prompt, Reason.FAILED, type(error).__name__)

    def _answer(
        self,
        prompt: Prompt,
        outcome: Compressed | Unchanged,
        budget_tokens: int,
        kept_tokens: int,
    ) -> Answer:
        """Believe an outcome as far as it can be checked, under the plan of now."""
        if isinstance(outcome, Unchanged):
            before = outcome.tokens_before
            fits = outcome.reason is Reason.FITS and before is not None and before <= budget_tokens
            if not fits:
                return self._long(prompt, outcome.reason, outcome.detail, before)
            tokens = before
        else:
            before, tokens = outcome.tokens_before, outcome.tokens_after
            if tokens > budget_tokens or isinstance(outcome.prompt, str) != isinstance(prompt, str):
                return self._long(prompt, Reason.OVER_BUDGET, f"{tokens} tokens came back", before)
        if tokens is None or tokens + kept_tokens > self._routes.boundary_tokens:
            detail = "the boundary fell while it was compressed"
            return self._long(prompt, GatewayReason.PLAN_CHANGED, detail, before)
        if isinstance(outcome, Unchanged):
            self.reasons[outcome.reason] += 1
            return Answer(Pool.SHORT, prompt, outcome.reason, outcome.detail, before)
        self.reasons["compressed"] += 1
        return Answer(Pool.SHORT, outcome.prompt, None, "", before, tokens)

    def _long(
        self,
        prompt: Prompt,
        reason: Reason | GatewayReason,
        detail: str,
        tokens_before: int | None = None,
    ) -> Answer:
        self.reasons[reason] += 1
        return Answer(Pool.LONG, prompt, reason, detail, tokens_before)

    def _take(self, recommendation: Recommendation) -> None:
        routes = routes_of(
            recommendation,
            short_context_tokens=self._short_context_tokens,
            reserved_tokens=self._reserved_tokens,
            min_kept_share=self._min_kept_share,
        )
        if routes is not None:  # else no plan was ever made, and what is known stays
            self._routes = routes
