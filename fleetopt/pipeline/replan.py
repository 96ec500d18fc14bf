"""Sketches into recommendations: one Faust service that plans for the fleets this worker owns.

Owns when to plan (a timer; at once when a pool's load crosses its limit) and the way of the
planner's effects into Redis. What they are is the replanner's decision, and it is pure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from faust import Service
from redis.asyncio import Redis
from redis.exceptions import RedisError

from fleetopt.config.fleet import forecast_config, replan_config
from fleetopt.config.profiles import load_catalogue
from fleetopt.config.settings import Settings
from fleetopt.connectors.alert import Alert
from fleetopt.connectors.kafka import partition_of
from fleetopt.connectors.recommendation_store import RecommendationStore
from fleetopt.connectors.redis import NOT_NOW
from fleetopt.errors import FleetOptError
from fleetopt.pipeline import checkpoint
from fleetopt.pipeline.ingest import Ingest
from fleetopt.pipeline.ownership import Stirred
from fleetopt.pipeline.sketch import Sketch
from fleetopt.pipeline.view import FleetView, event_of, view
from fleetopt.pipeline.window import WindowConfig
from fleetopt.planner.choice import ReplanConfig
from fleetopt.planner.effects import (
    Effect,
    Publish,
    RaiseAlert,
    ResolveAlert,
    Silent,
    Trigger,
)
from fleetopt.planner.forecast.outcome import ForecastConfig
from fleetopt.planner.recommendation import Recommendation
from fleetopt.planner.replanner import (
    ReplannerState,
    overloaded,
    resume,
    step,
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Fleet:
    """What this worker remembers of a fleet that it plans for."""

    config: ReplanConfig
    state: ReplannerState
    progress: tuple[float, int] = (0.0, 0)
    """Watermark and accepted records when last seen to change."""
    heard_s: float = 0.0
    """When that was."""


class Replan(Service):
    """Plans for each fleet whose key belongs to a partition of this worker."""

    def __init__(self, settings: Settings, redis: Redis, ingest: Ingest, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self._ingest = ingest
        self._catalogue = load_catalogue(settings.profiles)
        self._forecast = forecast_config(settings)
        self._recommendations = RecommendationStore(redis, settings.redis.history)
        self._fleets: dict[str, _Fleet] = {}
        self._refused: dict[str, str] = {}
        self._planned_for: frozenset[int] = frozenset()
        self._due_s = 0.0

    @Service.task
    async def _rounds(self) -> None:
        """Plan for all fleets when it is time or when fleets came to us; else check their load."""
        while not self.should_stop:
            try:
                owned = self._ingest.owned_partitions
                if owned != self._planned_for or time.monotonic() >= self._due_s:
                    self._due_s = time.monotonic() + self.settings.replan.interval_s
                    await self._replan_all()
                    self._planned_for = owned
                else:
                    await self._check_loads()
            except (*NOT_NOW, FleetOptError, RedisError) as error:
                log.warning("Redis does not take plans in this round", error=str(error))
            await self.sleep(self.settings.replan.load_check_s)

    async def _replan_all(self) -> None:
        store = self._ingest.store
        if store is None:
            return
        owned = {name for name in await store.fleets(self._ingest.partitions) if self._owns(name)}
        for gone in self._fleets.keys() - owned:
            del self._fleets[gone]
        for name in sorted(owned):
            await self._replan(name, Trigger.INTERVAL)
            await asyncio.sleep(0)

    async def _check_loads(self) -> None:
        for name, change in sorted(self._ingest.take_stirred().items()):
            if not self._owns(name):
                continue
            fleet = self._fleets.get(name)
            if fleet is None or fleet.state.last is None:
                await self._replan(name, Trigger.INTERVAL)
            elif _may_overload(fleet.state.last, change):
                with self._one_fleet(name):
                    seen = await self._look(name)
                    if overloaded(fleet.state, seen.workload, fleet.config.request):
                        await self._step(name, Trigger.LOAD, seen)

    def _owns(self, fleet: str) -> bool:
        partitions = self._ingest.partitions
        return partition_of(fleet, partitions) in self._ingest.owned_partitions

    async def _replan(self, name: str, trigger: Trigger) -> None:
        with self._one_fleet(name):
            await self._step(name, trigger, await self._look(name))
            self._refused.pop(name, None)

    @contextmanager
    def _one_fleet(self, name: str) -> Iterator[None]:
        """Keep what is wrong with one fleet from keeping the others from their plans."""
        try:
            yield
        except NOT_NOW:
            raise
        except (FleetOptError, RedisError) as error:  # such as a key that is not ours
            if self._refused.get(name) != str(error):
                self._refused[name] = str(error)
                log.error("no plan for this fleet", fleet=name, error=str(error))  # noqa: TRY400

    async def _step(self, name: str, trigger: Trigger, seen: FleetView) -> None:
        fleet = await self._fleet(name)
        now_s = time.time()
        progress = (seen.watermark_s, seen.accepted)
        if progress != fleet.progress:
            fleet.progress, fleet.heard_s = progress, now_s
        is_silent = now_s - fleet.heard_s > self.settings.replan.stale_after_s
        event = Silent(since_s=fleet.heard_s) if is_silent else event_of(seen, trigger)
        state, effects = step(fleet.state, event, now_s, fleet.config)
        if await self._carry_out(name, effects, now_s):
            fleet.state = state
        else:
            log.info("another worker planned for this fleet: going on from its plan", fleet=name)
            fleet.state = resume(await self._recommendations.read(name))

    async def _fleet(self, name: str) -> _Fleet:
        """Return what is remembered of a fleet, taken from its last recommendation at first."""
        known = self._fleets.get(name)
        if known is None:
            config = replan_config(name, self.settings, self._catalogue)
            last = await self._recommendations.read(name)
            known = self._fleets[name] = _Fleet(config, resume(last), heard_s=time.time())
        return known

    async def _look(self, name: str) -> FleetView:
        store = self._ingest.store
        parts = [] if store is None else await store.load_fleet(name, self._ingest.partitions)
        # Merging takes milliseconds, and a forecast up to tens of them: not on the event loop.
        return await asyncio.to_thread(_view_of, self._ingest.window, parts, self._forecast)

    async def _carry_out(self, name: str, effects: Iterable[Effect], now_s: float) -> bool:
        """Publish and alert; returns False, and alerts nobody, where another was faster."""
        alerts: list[Alert] = []
        for effect in effects:
            match effect:
                case Publish(recommendation):
                    if not await self._recommendations.publish(recommendation):
                        return False
                    log.info(
                        "recommendation",
                        fleet=name,
                        revision=recommendation.revision,
                        status=recommendation.status.value,
                        boundary_tokens=recommendation.boundary_tokens,
                        gamma=recommendation.gamma,
                        short_replicas=recommendation.short_replicas,
                        long_replicas=recommendation.long_replicas,
                        reasons=[reason.value for reason in recommendation.reasons],
                    )
                case RaiseAlert():
                    alerts.append(
                        Alert(
                            name, effect.kind.value, True, now_s, effect.text, dict(effect.details)
                        )
                    )
                case ResolveAlert():
                    alerts.append(Alert(name, effect.kind.value, False, now_s, ""))
        for alert in alerts:
            log.warning("alert", fleet=name, kind=alert.kind, firing=alert.firing, text=alert.text)
            await self._recommendations.alert(alert)
        return True


def _view_of(
    config: WindowConfig,
    parts: Iterable[tuple[bytes, Mapping[int, bytes]]],
    forecast: ForecastConfig,
) -> FleetView:
    """Return the view of stored parts; it shares nothing with anyone else."""
    return view(
        config,
        [
            (
                checkpoint.decode_meta(meta),
                {index: Sketch.from_bytes(data) for index, data in slices.items()},
            )
            for meta, slices in parts
        ],
        forecast,
    )


def _may_overload(last: Recommendation, change: Stirred) -> bool:
    """Whether the load can have risen: another mix of lengths, or more than was planned for.

    A look at all the sketches costs milliseconds, so it is not taken for every write.
    """
    planned = last.evidence
    return (
        change.slice_closed
        or planned is None
        or change.rate_per_s > planned.planned_arrival_rate_per_s
    )
