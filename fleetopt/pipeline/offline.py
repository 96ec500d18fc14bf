"""A trace straight through the core: the same decoding, windows, view and replanner, no services.

Time is the trace's own. Plans are made as often as the stream would make them at the given speed:
every `replan.interval_s` of the time that the replay would take, and at once when a pool's load
crosses its limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleetopt.config.fleet import forecast_config, replan_config
from fleetopt.config.settings import Settings
from fleetopt.connectors.producer import ROWS_PER_BATCH, batch_of
from fleetopt.connectors.wire import COLUMNS_VERSION, RequestBatch, RequestLog, encode_batch
from fleetopt.pipeline.fold import fold
from fleetopt.pipeline.view import FleetView, event_of, view
from fleetopt.pipeline.window import PartitionWindows, WindowConfig
from fleetopt.planner.choice import ReplanConfig
from fleetopt.planner.effects import Effect, Trigger
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.replanner import ReplannerState, overloaded, step


@dataclass(frozen=True, slots=True)
class _Message:
    """A message as the broker would have handed it over."""

    offset: int
    value: bytes
    timestamp: int = 0
    """0 is none: an arrival in a trace is never in the future."""


@dataclass(slots=True)
class _Fleet:
    """What is remembered of a fleet, and when it is looked at next."""

    config: ReplanConfig
    next_plan_s: float
    next_check_s: float
    state: ReplannerState
    checked: tuple[int, int] = (0, 0)
    """First open slice and most requests in one, when its load was last checked."""


class Offline:
    """A sink for `Replay` that plans instead of sending; `on_effect` gets what comes of it.

    Raises ConfigError at a fleet's first request where its settings can't be planned with.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Mapping[str, EngineProfile],
        speed: float,
        on_effect: Callable[[str, float, Effect], None],
    ) -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._plan_every_s = settings.replan.interval_s * speed
        self._check_every_s = settings.replan.load_check_s * speed
        self._on_effect = on_effect
        self._window = WindowConfig(
            settings.window.slice_s, settings.window.slices, settings.window.allowed_lateness_s
        )
        self._forecast = forecast_config(settings)
        self._windows = PartitionWindows(self._window)
        self._fleets: dict[str, _Fleet] = {}
        self._newest_s = 0.0

    @property
    def accepted(self) -> int:
        """Requests that were counted."""
        return sum(window.meta.accepted for window in self._windows.fleets.values())

    @property
    def late(self) -> int:
        """Requests that came when their slice was closed."""
        return sum(window.meta.late for window in self._windows.fleets.values())

    async def send(self, fleet: str, records: list[RequestLog]) -> None:
        """Count requests, and plan whenever it is time to."""
        known = self._fleet(fleet, records[0].arrival_s)
        start = 0
        for at, record in enumerate(records):
            due_s = min(known.next_plan_s, known.next_check_s)
            if record.arrival_s >= due_s:
                self._count(fleet, records[start:at])
                start = at
                self._look(fleet, known, record.arrival_s)
        self._count(fleet, records[start:])
        self._newest_s = max(self._newest_s, records[-1].arrival_s)

    async def heartbeat(self, fleet: str, until_s: float) -> None:
        """Take the promise that nothing earlier will come."""
        self._fold(RequestBatch(v=COLUMNS_VERSION, fleet=fleet, until_s=until_s))
        self._newest_s = max(self._newest_s, until_s)

    async def flush(self) -> None:
        """Plan on all that came."""
        for name, fleet in self._fleets.items():
            self._plan(name, fleet, self._newest_s, Trigger.INTERVAL, self._view(name))

    def _fleet(self, name: str, now_s: float) -> _Fleet:
        fleet = self._fleets.get(name)
        if fleet is None:
            fleet = self._fleets[name] = _Fleet(
                config=replan_config(name, self._settings, self._catalogue),
                next_plan_s=now_s + self._plan_every_s,
                next_check_s=now_s + self._check_every_s,
                state=ReplannerState(),
            )
        return fleet

    def _count(self, fleet: str, records: list[RequestLog]) -> None:
        for start in range(0, len(records), ROWS_PER_BATCH):
            self._fold(batch_of(fleet, records[start : start + ROWS_PER_BATCH]))

    def _fold(self, batch: RequestBatch) -> None:
        message = _Message(self._windows.position, encode_batch(batch))
        fold(self._windows, [message], self._settings.kafka.max_future_s)

    def _look(self, name: str, fleet: _Fleet, now_s: float) -> None:
        """Plan or check the load, whichever is due; a silence is one look, not many."""
        # A replay at this speed promises as it goes that nothing earlier will come.
        due_s = min(fleet.next_plan_s, fleet.next_check_s)
        self._fold(RequestBatch(v=COLUMNS_VERSION, fleet=name, until_s=due_s))
        if now_s >= fleet.next_plan_s:
            planned_s = fleet.next_plan_s
            self._plan(name, fleet, planned_s, Trigger.INTERVAL, self._view(name))
            fleet.next_plan_s = _next_s(planned_s, self._plan_every_s, now_s)
        elif self._may_be_overloaded(name, fleet):
            seen = self._view(name)
            if seen.workload is not None and overloaded(
                fleet.state, seen.workload, fleet.config.request
            ):
                self._plan(name, fleet, fleet.next_check_s, Trigger.LOAD, seen)
        fleet.next_check_s = _next_s(fleet.next_check_s, self._check_every_s, now_s)

    def _may_be_overloaded(self, name: str, fleet: _Fleet) -> bool:
        """Say whether the workload changed: it does when a slice closes or an open one fills."""
        window = self._windows.fleets[name]
        fullest = max(
            (window.slices[index].arrival_count for index in window.open_indices()), default=0
        )
        seen = (window.closed_below, fullest)
        changed = seen[0] != fleet.checked[0] or seen[1] > fleet.checked[1]
        if changed:
            fleet.checked = seen
        return changed and fleet.state.last is not None

    def _view(self, name: str) -> FleetView:
        window = self._windows.fleets[name]
        return view(self._window, [(window.meta, window.slices)], self._forecast)

    def _plan(
        self, name: str, fleet: _Fleet, now_s: float, trigger: Trigger, seen: FleetView
    ) -> None:
        fleet.state, effects = step(fleet.state, event_of(seen, trigger), now_s, fleet.config)
        for effect in effects:
            self._on_effect(name, now_s, effect)


def _next_s(due_s: float, every_s: float, now_s: float) -> float:
    """Return the first due time after `now_s`."""
    if math.isinf(every_s):
        return math.inf
    return due_s + every_s * (math.floor((now_s - due_s) / every_s) + 1)
