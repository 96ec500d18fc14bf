"""The demonstration: real services, a real worker and generated traffic that shifts on the way.

Owns the order of things and the account at the end; showing them is the caller's business.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from redis.asyncio import Redis
from redis.exceptions import RedisError

from fleetopt.config.settings import Settings, load_settings
from fleetopt.connectors.alert import Alert
from fleetopt.connectors.producer import RequestProducer
from fleetopt.connectors.recommendation_store import RecommendationStore
from fleetopt.connectors.redis import connect
from fleetopt.connectors.topics import ensure_topic
from fleetopt.errors import FleetOptError, ServiceError
from fleetopt.pipeline.child import ChildProcess
from fleetopt.pipeline.counts import Counts, read_counts
from fleetopt.pipeline.embedded import EmbeddedServices
from fleetopt.pipeline.generator import Archetype, Schedule, generate
from fleetopt.pipeline.replay import Replay, Timestamps, WallClock
from fleetopt.planner.recommendation import Recommendation

FLEET: Final = "demo"
SHIFT_AT_SHARE: Final = 0.45
"""Share of the duration after which the traffic begins to shift."""

TRANSITION_S: Final = 3.0
COUNTING_LIMIT_S: Final = 30.0
POLL_S: Final = 0.5


@dataclass(slots=True)
class DemoState:
    """What there is to show at a moment."""

    schedule: Schedule
    started_s: float
    """Epoch seconds at which the traffic began; 0 before."""
    sent: int = 0
    recommendations: list[Recommendation] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)

    @property
    def newest(self) -> Recommendation | None:
        """The newest recommendation."""
        return self.recommendations[-1] if self.recommendations else None

    def elapsed_s(self, now_s: float) -> float:
        """Return for how long there has been traffic."""
        return max(0.0, now_s - self.started_s) if self.started_s else 0.0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What came of it."""

    state: DemoState
    counts: Counts


def schedule(duration_s: float, rate_per_s: float) -> Schedule:
    """Return the demo's traffic: concentrated below the boundary, then dispersed around it."""
    return Schedule(
        archetype=Archetype.CONCENTRATED_BELOW,
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        shift_to=Archetype.DISPERSED,
        shift_at_s=SHIFT_AT_SHARE * duration_s,
        transition_s=TRANSITION_S,
    )


def demo_settings(bootstrap_servers: str, redis_url: str) -> Settings:
    """Return settings under which a minute shows what takes hours in production."""
    return load_settings(
        kafka={
            "bootstrap_servers": bootstrap_servers,
            "partitions": 2,
            "session_timeout_s": 3,
        },
        redis={"url": redis_url},
        window={"slice_s": 1, "slices": 12, "allowed_lateness_s": 1},
        ingest={"flush_interval_s": 0.25},
        replan={"interval_s": 2, "load_check_s": 0.5, "stale_after_s": 10},
        worker={"log_format": "console"},
        fleet={
            "profile": "h100/qwen3-32b/tp2",
            "long_context_tokens": 32_768,
            "slo_ttft_p99": "300ms+0.2ms/token",
        },
    )


async def run_demo(
    traffic: Schedule,
    seed: int,
    show: Callable[[DemoState], Awaitable[None]],
    data_dir: Path | None = None,
) -> DemoResult:
    """Run the demonstration; `show` is called twice a second and at the end.

    Raises ServiceError where a service or the worker fails.
    """
    state = DemoState(traffic, started_s=0.0)
    with (
        tempfile.TemporaryDirectory(prefix="fleetopt-demo-") as folder,
        EmbeddedServices(data_dir or folder) as services,
    ):
        settings = demo_settings(services.bootstrap_servers, services.redis_url)
        redis = connect(settings.redis)
        try:
            async with _worker(settings, Path(folder) / "worker.log") as process:
                await _run_traffic(settings, redis, state, seed, show, process)
                counts = await _counted(redis, settings, state.sent, process)
                await _look(RecommendationStore(redis), state)
            await show(state)
        finally:
            await redis.aclose()
    return DemoResult(state, counts)


async def _run_traffic(
    settings: Settings,
    redis: Redis,
    state: DemoState,
    seed: int,
    show: Callable[[DemoState], Awaitable[None]],
    worker: _Worker,
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(_follow(redis, state))
            showing = group.create_task(_show(redis, state, show, worker))
            try:
                await _send(settings, state, seed)
            finally:
                await _end(following, showing)
    except* (FleetOptError, RedisError) as failed:
        raise _first(failed) from None


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks until they end: redis-py may lose a cancellation while it connects."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.5)


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    """Return the failure that the others followed from."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FleetOptError):
        return error
    return ServiceError(f"Redis stopped answering: {error}")


async def _send(settings: Settings, state: DemoState, seed: int) -> None:
    kafka = settings.kafka
    await ensure_topic(kafka.bootstrap_servers, kafka.topic, kafka.partitions, kafka.retention_s)

    def on_progress(sent: int) -> None:
        state.sent = sent

    async with RequestProducer(kafka.bootstrap_servers, kafka.topic) as producer:
        state.started_s = time.time()
        replay = Replay(
            producer,
            speed=1.0,
            timestamps=Timestamps.NOW,
            slice_s=settings.window.slice_s,
            clock=WallClock(),
            on_progress=on_progress,
        )
        rng = np.random.default_rng(seed)
        await replay.run(generate(state.schedule, FLEET, state.started_s, rng))
        if producer.sent.refused_records:
            raise ServiceError(
                f"the broker refused {producer.sent.refused_records} records: "
                f"{producer.sent.first_refusal}"
            )


async def _follow(redis: Redis, state: DemoState) -> None:
    async for recommendation in RecommendationStore(redis).follow(FLEET, poll_s=1.0):
        state.recommendations.append(recommendation)


async def _show(
    redis: Redis,
    state: DemoState,
    show: Callable[[DemoState], Awaitable[None]],
    worker: _Worker,
) -> None:
    store = RecommendationStore(redis)
    while True:
        worker.check()
        state.alerts = await store.alerts(FLEET)
        await show(state)
        await asyncio.sleep(POLL_S)


async def _look(store: RecommendationStore, state: DemoState) -> None:
    """Take in what came after the last look."""
    state.alerts = await store.alerts(FLEET)
    newest = await store.read(FLEET)
    seen = state.newest
    if newest is not None and (seen is None or newest.revision > seen.revision):
        state.recommendations.append(newest)


async def _counted(redis: Redis, settings: Settings, sent: int, worker: _Worker) -> Counts:
    """Return the stored counts once they have reached what was sent, or at the limit."""
    deadline_s = time.monotonic() + COUNTING_LIMIT_S
    while True:
        worker.check()
        counts = await read_counts(redis, settings)
        if counts.total >= sent or time.monotonic() > deadline_s:
            return counts
        await asyncio.sleep(0.2)


class _Worker:
    """The worker's process, and its log for when it fails."""

    def __init__(self, process: ChildProcess, log: Path) -> None:
        self._process = process
        self._log = log

    def check(self) -> None:
        status = self._process.exit_status()
        if status is not None:
            tail = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
            raise ServiceError(f"the worker ended with status {status}: {' / '.join(tail)}")


@asynccontextmanager
async def _worker(settings: Settings, log: Path) -> AsyncIterator[_Worker]:
    configuration = log.with_name("fleetopt.json")  # JSON is YAML
    configuration.write_text(settings.model_dump_json(), encoding="utf-8")
    process = ChildProcess(
        [sys.executable, "-m", "fleetopt", "worker", "--config", str(configuration)],
        log,
        grace_s=10.0,
        # The user's own settings are for the user's own services.
        env={key: value for key, value in os.environ.items() if not key.startswith("FLEETOPT_")},
    )
    try:
        yield _Worker(process, log)
    finally:
        await asyncio.to_thread(process.stop)
