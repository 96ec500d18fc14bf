"""A prior from engine profiles: what the planner says that one replica does at each load."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError
from fleetopt.planner.bins import EDGES_TOKENS
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.figures import fleet_at
from fleetopt.planner.outcome import Plan
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.sieve.grid import Grid
from fleetopt.planner.sieve.prior import Prior
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

Array = NDArray[np.float64]

DEFAULT_SPEED_ERROR: Final = 1.6
"""Factor by which an engine may be faster or slower than a profile that was not measured on it."""

SPEEDS: Final = 9
UNSERVED_MAX: Final = 0.01
"""If more requests don't fit into the engine's window, it holds no P99."""

_LONGEST_P99_S: Final = 1e4
"""More means a queue that never ends."""

_LONGEST_SHARE: Final = 0.001
"""Requests that may be left out of what a window is chosen for."""

_OFTEN: Final = 0.49
"""An engine that is left to itself admits while its cache has room, and preempts when it fills."""

_ANY_TTFT: Final = TtftTarget(3600.0)
_TIMES: Final = (
    "base_iteration_s",
    "per_sequence_s",
    "per_context_token_s",
    "prefill_token_s",
    "prefill_token_context_s",
)


def predict(
    grid: Grid,
    engines: Sequence[EngineProfile],
    workloads: Sequence[Workload],
    context_tokens: int,
    speed_error: float = DEFAULT_SPEED_ERROR,
) -> Prior:
    """Return the planner's predictions for every cell, at speeds up to a factor off.

    Parameters
    ----------
    grid
        What can be measured.
    engines
        One for each of the grid's configurations.
    workloads
        One for each of the grid's classes; their rates play no part.
    context_tokens
        The engines' window, as far as their cache holds it.
    speed_error
        Factor by which an engine may be faster or slower than its profile says, > 1.

    Raises
    ------
    ConfigError
        If the factor is not above 1, or there are too many or too few engines or workloads.
    """
    if not 1.0 < speed_error < np.inf:
        raise ConfigError(f"speed_error is {speed_error}; expected a finite factor > 1")
    if (len(workloads), len(engines)) != grid.shape[:2]:
        raise ConfigError(
            f"{len(workloads)} workloads and {len(engines)} engines for a grid of "
            f"{grid.shape[0]} classes and {grid.shape[1]} configurations; expected one for each"
        )
    speeds = np.geomspace(1.0 / speed_error, speed_error, SPEEDS)
    throughput, p99 = np.zeros((2, *grid.shape, SPEEDS))
    for point in grid.points():
        engine, workload = engines[point.configuration], workloads[point.request_class]
        offered = float(grid.offered_per_s[point])
        for at, speed in enumerate(speeds):
            throughput[point][at], p99[point][at] = one_replica(
                at_speed(engine, float(speed)), workload, offered, context_tokens
            )
    return Prior(speeds, throughput, p99)


def capacity_per_s(engine: EngineProfile, workload: Workload, context_tokens: int) -> float | None:
    """Return the rate at which one replica is full; None if it can't serve these requests."""
    window = _window(engine, workload, context_tokens)
    if window is None:
        return None
    utilization = _alone(engine, workload.scaled_to(1.0), window).short.utilization
    return 1.0 / utilization if utilization > 0.0 else None


def at_speed(engine: EngineProfile, speed: float) -> EngineProfile:
    """Return the engine with all its times divided by `speed`."""
    return replace(engine, **{name: getattr(engine, name) / speed for name in _TIMES})


def one_replica(
    engine: EngineProfile, workload: Workload, offered_per_s: float, context_tokens: int
) -> tuple[float, float]:
    """Return throughput and completion P99 of a replica that is offered Poisson arrivals.

    P99 is infinite where the replica can't keep up, or too many requests don't fit.
    """
    window = _window(engine, workload, context_tokens)
    if window is None:
        return 0.0, np.inf
    plan = _alone(engine, workload.scaled_to(offered_per_s), window)
    utilization = plan.short.utilization
    served_per_s = offered_per_s * (1.0 - plan.unservable_share)
    if utilization >= 1.0:
        return served_per_s / utilization, np.inf
    p99_s = plan.short.e2e_p99_s
    if plan.unservable_share > UNSERVED_MAX or p99_s > _LONGEST_P99_S:
        p99_s = np.inf
    return served_per_s, p99_s


def _alone(engine: EngineProfile, workload: Workload, window_tokens: int) -> Plan:
    """Return the figures of a fleet of one replica."""
    request = PlanRequest(
        engine, engine, window_tokens, _ANY_TTFT, gamma_max=1.0, preemption_probability=_OFTEN
    )
    return fleet_at(workload, request, window_tokens, 1.0, (1, 0))


def _window(engine: EngineProfile, workload: Workload, context_tokens: int) -> int | None:
    """Return the shortest window that nearly all requests fit into, a bin's edge.

    None if the engine's cache holds none. The planner keeps a whole window free in the cache;
    an engine that is left to itself fills it.
    """
    limit = min(context_tokens, engine.kv_capacity_tokens)
    edges = EDGES_TOKENS[: np.searchsorted(EDGES_TOKENS, limit, side="right")]
    if edges.size == 0:
        return None
    count = workload.moments.count_per_bin
    longer = 1.0 - np.cumsum(count)[: edges.size] / count.sum()
    fits = np.flatnonzero(longer <= _LONGEST_SHARE)
    return int(edges[fits[0]] if fits.size else edges[-1])
