"""Streams, pools and runs that the simulation's tests share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.simulate.compiled import column
from fleetopt.planner.simulate.fleet import Dispatch, SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.iteration import advance, drain, idle
from fleetopt.planner.simulate.state import engine_of, requests_of
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.target import TtftTarget
from tests.planner.examples import H100, Tokens


def pool(
    replicas: int = 1,
    slots: int = 64,
    engine: EngineProfile = H100,
    kv_tokens: int | None = None,
    context_tokens: int = 16_384,
) -> SimulatedPool:
    """Reserved slots, or a paged cache of so many tokens."""
    if kv_tokens is None:
        return SimulatedPool("short", engine, context_tokens, replicas, slots, is_paged=False)
    small = replace(engine, kv_capacity_tokens=kv_tokens)
    context = min(context_tokens, kv_tokens)
    return SimulatedPool("short", small, context, replicas, slots, is_paged=True)


def fleet(only: SimulatedPool, target: str = "2s") -> SimulatedFleet:
    """A fleet of one pool."""
    context = only.context_tokens
    return SimulatedFleet(only, None, context, context, 0.0, TtftTarget.parse(target))


def stream(
    arrival_s: ArrayLike,
    prompt: ArrayLike,
    completion: ArrayLike,
    cached: ArrayLike | int = 0,
    kind: Compressibility = Compressibility.UNKNOWN,
) -> RequestStream:
    """Requests of one class; scalars hold for all."""
    at = np.asarray(arrival_s, dtype=np.float64)

    def column_of(values: ArrayLike) -> NDArray[np.int64]:
        return np.broadcast_to(np.asarray(values, dtype=np.int64), at.shape)

    return RequestStream(
        at,
        column_of(prompt),
        column_of(completion),
        column_of(cached),
        np.full(at.shape, int(kind), dtype=np.int64),
    )


def poisson(tokens: tuple[Tokens, Tokens], rate_per_s: float, seed: int = 7) -> RequestStream:
    """These requests, in their order, at random moments."""
    at = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_per_s, tokens[0].size))
    return stream(at, *tokens)


@dataclass(frozen=True)
class Times:
    """What became of each request."""

    first_token_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    preemptions: NDArray[np.int64]


def times(
    only: SimulatedPool, given: RequestStream, dispatch: Dispatch = Dispatch.LEAST_LOADED
) -> Times:
    """Run one pool, and look at each request."""
    sees_work = dispatch is Dispatch.LEAST_WORK
    engine = engine_of(only.profile, only.slots, only.cache_tokens, sees_work, (0.0, 1.0))
    requests = requests_of(
        given.arrival_s, given.prompt_tokens, given.completion_tokens, given.cached_tokens
    )
    state = idle(only.replicas, only.slots)
    advance(engine, requests, state, 0, len(given))
    drain(engine, requests, state)
    return Times(*(column(requests, name) for name in ("first_token_s", "end_s", "preemptions")))
