"""The requests that reach one pool of a fleet, at any length.

A pool sees its own share of the traffic, so a pool that few requests reach is simulated for as
long as it takes to know its P99. Poisson arrivals stay Poisson when they are split; tenants'
arrivals are drawn whole and then split.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from fleetopt.planner.arrivals import ArrivalStatistics
from fleetopt.planner.simulate.draw import resampled_stream
from fleetopt.planner.simulate.fleet import SimulatedFleet
from fleetopt.planner.simulate.routing import route
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.simulate.tenants import tenant_stream
from validation import traffic

_ROUTED: Final = 200_000
_SLICE_S: Final = 60.0
_CELLS_PER_SLICE: Final = 600
_MOST_OBSERVED: Final = 2_000_000
_MOST_REQUESTS: Final = 6_000_000


@dataclass(frozen=True)
class PoolTraffic:
    """What reaches one pool: which requests, and what share of all arrivals they are."""

    routed: RequestStream
    share: float


def pools_traffic(name: str, fleet: SimulatedFleet) -> tuple[PoolTraffic, ...]:
    """The requests of this traffic as each of the fleet's pools gets them.

    A small set is repeated first, so that chance decides often enough who may be compressed.
    """
    recorded = traffic.requests(name)
    rows = np.arange(max(_ROUTED // len(recorded), 1) * len(recorded)) % len(recorded)
    repeated = recorded.at(np.arange(rows.size, dtype=np.float64), rows)
    parts = route(fleet, repeated, np.random.default_rng(0)).streams
    return tuple(PoolTraffic(part, len(part) / rows.size) for part in parts)


def poisson(part: PoolTraffic, rate_per_s: float, count: int, seed: int) -> RequestStream:
    """So many of the pool's requests, with Poisson arrivals; the rate is that of all requests."""
    return resampled_stream(part.routed, rate_per_s * part.share, count, seed)


def tenants(
    name: str, fleet: SimulatedFleet, pool: int, rate_per_s: float, count: int, seed: int
) -> RequestStream:
    """What reaches one pool of about so many requests of independent tenants."""
    whole = tenant_stream(traffic.requests(name), rate_per_s, min(count, _MOST_REQUESTS), seed)
    return route(fleet, whole, np.random.default_rng(seed)).streams[pool]


@cache
def observed(name: str, rate_per_s: float) -> ArrivalStatistics:
    """What the product measures on an hour of tenants, or on as much of it as is practical."""
    count = min(3_600.0 * rate_per_s, float(_MOST_OBSERVED))
    stream = tenant_stream(traffic.requests(name), rate_per_s, int(count), seed=1_000)
    slices = max(int(count / rate_per_s / _SLICE_S), 1)
    cells = slices * _CELLS_PER_SLICE
    cell = (stream.arrival_s * (_CELLS_PER_SLICE / _SLICE_S)).astype(np.int64)
    per_cell = np.bincount(cell, minlength=cells)[:cells]
    per_slice = per_cell.reshape(slices, -1).sum(axis=1)
    return ArrivalStatistics.from_counts(per_slice, _SLICE_S, per_cell, _SLICE_S / _CELLS_PER_SLICE)
