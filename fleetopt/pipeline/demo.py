"""The demonstration: real services, a real worker and generated traffic that shifts on the way.

Owns the order of things and the account at the end; showing them is the caller's business.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from redis.asyncio import Redis
from redis.exceptions import RedisError

from fleetopt.config.settings import Settings, load_settings
from fleetopt.connectors.alert import Alert
from fleetopt.connectors.producer import RequestProducer
from fleetopt.connectors.recommendation_store import RecommendationStore
from fleetopt.connectors.redis import connect
from fleetopt.connectors.topics import ensure_topic
from fleetopt.errors import ServiceError
from fleetopt.pipeline.child import ChildProcess
from fleetopt.pipeline.counts import Counts, read_counts
from fleetopt.pipeline.embedded import EmbeddedServices
from fleetopt.pipeline.generator import Archetype, Schedule, generate
from fleetopt.pipeline.replay import Replay, Timestamps, WallClock
from fleetopt.planner.recommendation import Recommendation

T = TypeVar("T")

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
                counts = await _beside(_counted(redis, settings, state, process))
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
    await _beside(
        _send(settings, state, seed), _follow(redis, state), _show(redis, state, show, worker)
    )


async def _beside(work: Coroutine[None, None, T], *watchers: Coroutine[None, None, None]) -> T:
    """Return what `work` returns; watchers run as long as it does, and may fail it.

    Each runs in a task of its own, so that whoever cancels us is heard at once.
    """
    working = asyncio.create_task(work)
    watching = [asyncio.create_task(watcher) for watcher in watchers]
    try:
        await asyncio.wait([working, *watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(working, *watching)
    try:
        for task in watching:
            if not task.cancelled():
                task.result()
        return working.result()
    except RedisError as error:
        raise ServiceError(f"Redis stopped answering: {error}") from error


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they end: Redis's and Kafka's clients may lose a cancellation."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.5)


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


async def _counted(redis: Redis, settings: Settings, state: DemoState, worker: _Worker) -> Counts:
    """Return the stored counts once they have reached what was sent, or at the limit."""
    deadline_s = time.monotonic() + COUNTING_LIMIT_S
    while True:
        worker.check()
        counts = await read_counts(redis, settings)
        if counts.total >= state.sent or time.monotonic() > deadline_s:
            await _look(RecommendationStore(redis), state)
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
