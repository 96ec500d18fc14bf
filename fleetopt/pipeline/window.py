"""Event time: which slice a request belongs to, which slices are closed, which requests are late.

Pure. One `FleetWindow` holds what one partition of the log said of one fleet; a partition's
windows together are a `PartitionWindows`, whose state always covers the log up to `position`.

A slice is *closed* when the watermark has passed its end: the newest arrival less the allowed
lateness, or its sources' promise that everything before `until_s` was reported. A request whose
slice is closed when it comes is late: counted, not sketched.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.columns import RequestColumns
from fleetopt.pipeline.sketch import Sketch, cell_s, cells_in

MAX_SOURCES: Final = 4_096
"""Sources per partition whose last sequence number is remembered; the oldest is forgotten."""

MAX_FLEETS: Final = 10_000
"""Fleets per partition; records of further ones are refused, so that names can't fill memory."""


MAX_PROMISING: Final = 64
"""Sources per fleet whose promises are waited for; the one furthest behind is left out first."""


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """How time is cut."""

    slice_s: int = 60
    slices: int = 60
    allowed_lateness_s: float = 120.0


class FleetMeta(msgspec.Struct):
    """What is known of a fleet in one partition, beside its slices."""

    newest_s: float = 0.0
    """Latest arrival; 0 before the first."""
    until_s: float = 0.0
    """Every request that arrived before this was reported; 0 without such a promise."""
    promises: dict[str, float] = {}
    """The same by source, of those that are waited for."""
    accepted: int = 0
    late: int = 0
    unmeasured: int = 0
    duplicated: int = 0
    open: list[int] = []
    """When stored: indices of the slices that are not closed."""

    def watermark_s(self, config: WindowConfig) -> float:
        """Return the time before which no slice takes requests any more."""
        return max(self.newest_s - config.allowed_lateness_s, self.until_s)


class FleetWindow:
    """One fleet's open slices in one partition, and which stored ones changed or expired."""

    def __init__(self, config: WindowConfig, meta: FleetMeta | None = None) -> None:
        self.config = config
        self.meta = meta or FleetMeta()
        self.slices: dict[int, Sketch] = {}
        self.changed: set[int] = set()

    def update(self, columns: RequestColumns) -> None:
        """Add requests in the order of the log."""
        if not len(columns):
            return
        config, meta = self.config, self.meta
        arrival_s = columns.arrival_s
        indices = np.floor_divide(arrival_s, config.slice_s).astype(np.int64)
        latest_s = max(meta.newest_s, float(arrival_s.max()))
        closed_until_s = max(latest_s - config.allowed_lateness_s, meta.until_s)
        if (int(indices.min()) + 1) * config.slice_s <= closed_until_s:
            # Each request is judged by those before it, so that batching changes nothing.
            before_s = np.maximum.accumulate(np.concatenate(([meta.newest_s], arrival_s[:-1])))
            watermarks_s = np.maximum(before_s - config.allowed_lateness_s, meta.until_s)
            on_time = (indices + 1) * config.slice_s > watermarks_s
            meta.late += int(len(columns) - on_time.sum())
            columns, indices = columns.take(on_time), indices[on_time]
        meta.newest_s = latest_s
        meta.accepted += len(columns)
        meta.unmeasured += int(len(columns) - columns.measured.sum())
        self._fill(columns, indices)

    def promise(self, until_s: float, src: str = "") -> None:
        """Take a source's word that every request that arrived before `until_s` was reported.

        With several sources (gateways of one fleet) the one furthest behind counts, unless it is
        behind by more than the allowed lateness: that one may have ended. Slices between the last
        such time (at the first promise: the newest request) and the new one that saw no request
        are idle from now on, not unknown. Closed ones stay as they are: whether they saw requests
        is not known here any more.
        """
        meta, slice_s = self.meta, self.config.slice_s
        until_s = self._until_s(until_s, src)
        if until_s <= meta.until_s:
            return
        end = int(until_s // slice_s)
        known_s = meta.until_s or meta.newest_s
        first = int(known_s // slice_s) if known_s else end - 1
        for index in range(max(first, self.closed_below, end - self.config.slices), end):
            if index not in self.slices:
                self._slice(index)
        meta.until_s = until_s
        self._forget_expired()

    def _until_s(self, until_s: float, src: str) -> float:
        """Note a source's promise, and return what all that are waited for have promised."""
        promises = self.meta.promises
        promises[src] = max(until_s, promises.get(src, 0.0))
        if len(promises) > MAX_PROMISING:
            del promises[min(promises, key=promises.__getitem__)]
        waited_s = max(promises.values()) - self.config.allowed_lateness_s
        self.meta.promises = {name: at_s for name, at_s in promises.items() if at_s >= waited_s}
        return min(self.meta.promises.values())

    @property
    def closed_below(self) -> int:
        """Index of the first slice that is not closed."""
        return int(self.meta.watermark_s(self.config) // self.config.slice_s)

    @property
    def oldest(self) -> int:
        """Index of the oldest slice that a plan may look at."""
        return self.closed_below - self.config.slices

    def open_indices(self) -> list[int]:
        """Return which of the slices at hand still take requests."""
        closed_below = self.closed_below
        return sorted(index for index in self.slices if index >= closed_below)

    def stored(self) -> None:
        """Note that all changes are stored; closed slices are forgotten here."""
        self.slices = {index: self.slices[index] for index in self.open_indices()}
        self.changed.clear()

    def _slice(self, index: int) -> Sketch:
        sketch = self.slices.get(index)
        if sketch is None:
            sketch = self.slices[index] = Sketch.for_slice(self.config.slice_s)
        self.changed.add(index)
        return sketch

    def _fill(self, columns: RequestColumns, indices: NDArray[np.int64]) -> None:
        """Sketch the requests whose slices a plan may look at, now that all are known."""
        oldest = self.oldest
        if len(columns) and int(indices.min()) < oldest:
            recent = indices >= oldest
            columns, indices = columns.take(recent), indices[recent]
        self._forget_expired()
        if not len(columns):
            return
        slice_s = self.config.slice_s
        cells = ((columns.arrival_s - indices * slice_s) / cell_s(slice_s)).astype(np.int64)
        np.minimum(cells, cells_in(slice_s) - 1, out=cells)  # rounded up to the slice's end
        first = int(indices[0])
        if (indices == first).all():
            self._slice(first).update(columns, cells)
            return
        order = np.argsort(indices, kind="stable")
        starts = np.flatnonzero(np.diff(indices[order])) + 1
        for rows in np.split(order, starts):
            self._slice(int(indices[rows[0]])).update(columns.take(rows), cells[rows])

    def _forget_expired(self) -> None:
        """Drop slices that no plan looks at: a leap in time must not fill the memory."""
        oldest = self.oldest
        for index in [index for index in self.slices if index < oldest]:
            del self.slices[index]
            self.changed.discard(index)


@dataclass(slots=True)
class PartitionWindows:
    """All that a partition of the log said, up to `position`."""

    config: WindowConfig
    position: int = 0
    """Offset of the first message that is not covered."""
    fleets: dict[str, FleetWindow] = field(default_factory=dict)
    sources: OrderedDict[str, int] = field(default_factory=OrderedDict)
    rejected: dict[str, int] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def fleet(self, name: str) -> FleetWindow | None:
        """Return the fleet's window, made at need; None where there are too many fleets."""
        window = self.fleets.get(name)
        if window is None:
            if len(self.fleets) >= MAX_FLEETS:
                return None
            window = self.fleets[name] = FleetWindow(self.config)
        self.changed.add(name)
        return window

    def is_repeated(self, src: str, seq: int) -> bool:
        """Say whether the source sent this batch before, and remember it as sent."""
        if not src:
            return False
        last = self.sources.get(src)
        if last is not None and seq <= last:
            return True
        self.sources[src] = seq
        self.sources.move_to_end(src)
        if len(self.sources) > MAX_SOURCES:
            self.sources.popitem(last=False)
        return False

    def reject(self, reason: str, count: int = 1) -> None:
        """Count messages or rows that were refused."""
        self.rejected[reason] = self.rejected.get(reason, 0) + count
