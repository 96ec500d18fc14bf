"""The simulation's front door: simulate(fleet, stream) → Simulation."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import InputError
from fleetopt.planner.simulate.compiled import column, row
from fleetopt.planner.simulate.figures import growth, percentiles
from fleetopt.planner.simulate.fleet import Dispatch, SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.gaps import gap_percentiles
from fleetopt.planner.simulate.iteration import State, advance, drain, idle
from fleetopt.planner.simulate.outcome import PoolFigures, Simulation, SlotFigures
from fleetopt.planner.simulate.routing import Routed, route
from fleetopt.planner.simulate.slots import waits_s
from fleetopt.planner.simulate.state import Request, Totals, engine_of, requests_of
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.target import TtftTarget

WARM_UP_SHARE: Final = 0.2
_STEP: Final = 10_000

Window = tuple[float, float]
Progress = Callable[[int], None]


def simulate(
    fleet: SimulatedFleet,
    stream: RequestStream,
    *,
    dispatch: Dispatch = Dispatch.LEAST_LOADED,
    seed: int = 0,
    warm_up_share: float = WARM_UP_SHARE,
    on_progress: Progress | None = None,
) -> Simulation:
    """Run every iteration of every replica, and every request to its last token.

    Parameters
    ----------
    fleet : SimulatedFleet
        Pools, boundary and target.
    stream : RequestStream
        What the gateway receives.
    dispatch : Dispatch
        How a pool chooses a replica. Of equals it takes the one that has not changed for longest.
    seed : int
        Of the draw that decides who of unknown class may be compressed.
    warm_up_share : float
        Of the stream's time, which is not measured: the fleet starts empty. 0 to below 1.
    on_progress : callable, optional
        Called now and then with the number of requests that have arrived at their pools.

    Returns
    -------
    Simulation
        The same for the same arguments, whether loops are compiled or not.
    """
    routed, window = _opened(fleet, stream, warm_up_share, seed)
    pools, before = [], 0
    for pool, part in zip(fleet.pools, routed.streams, strict=True):
        done = before

        def report(count: int, done: int = done) -> None:
            if on_progress:
                on_progress(done + count)

        pools.append(_run(pool, part, fleet.target, dispatch, window, report))
        before += len(part)
    return Simulation(
        pools=tuple(pools),
        requests=len(stream),
        compressed_share=float(routed.is_compressed.mean()),
        unservable_share=float(routed.is_unservable.mean()),
        warm_up_s=window[0] - float(stream.arrival_s[0]),
        measured_s=window[1] - window[0],
        seed=seed,
        dispatch=dispatch,
    )


def simulate_slots(
    fleet: SimulatedFleet,
    stream: RequestStream,
    *,
    seed: int = 0,
    warm_up_share: float = WARM_UP_SHARE,
) -> tuple[SlotFigures, ...]:
    """Take each pool for c = replicas · slots servers at the speed of full replicas.

    This agrees with the planner's utilisation by construction, and checks its arithmetic.
    """
    routed, window = _opened(fleet, stream, warm_up_share, seed)
    return tuple(
        _serve(pool, part, window) for pool, part in zip(fleet.pools, routed.streams, strict=True)
    )


def slot_service_s(pool: SimulatedPool, stream: RequestStream) -> NDArray[np.float64]:
    """How long each request holds a slot when all slots are taken.

    n·((W/n + h)·I + κ·K + p·i + (c/2)·i²), with I = i/ch + ½ + o iterations and
    K = (i/ch + ½)·i/2 + o·(i + o/2) context-iterations.
    """
    engine = pool.profile
    i = stream.prompt_tokens.astype(np.float64)
    o = stream.completion_tokens.astype(np.float64)
    prefill = i / engine.prefill_chunk_tokens + 0.5
    context = 0.5 * prefill * i + o * (i + 0.5 * o)
    of_its_own = engine.per_sequence_s * (prefill + o) + engine.per_context_token_s * context
    of_its_own += i * (engine.prefill_token_s + 0.5 * engine.prefill_token_context_s * i)
    return np.asarray(engine.base_iteration_s * (prefill + o) + pool.slots * of_its_own)


def _opened(
    fleet: SimulatedFleet, stream: RequestStream, warm_up_share: float, seed: int
) -> tuple[Routed, Window]:
    """The requests of each pool, and the measured window."""
    if not 0.0 <= warm_up_share < 1.0:
        raise InputError(f"warm_up_share is {warm_up_share}; expected at least 0 and less than 1")
    if len(stream) < 2 or stream.span_s <= 0.0:
        raise InputError(
            f"{len(stream)} requests over {stream.span_s} s; expected two or more at different "
            "times to simulate"
        )
    window = (
        float(stream.arrival_s[0]) + warm_up_share * stream.span_s,
        float(stream.arrival_s[-1]),
    )
    return route(fleet, stream, np.random.default_rng(seed)), window


def _run(
    pool: SimulatedPool,
    stream: RequestStream,
    target: TtftTarget,
    dispatch: Dispatch,
    window: Window,
    report: Progress,
) -> PoolFigures:
    slots = min(pool.slots, max(len(stream), 1))  # more are never taken
    sees_work = dispatch is Dispatch.LEAST_WORK
    engine = engine_of(pool.profile, slots, pool.cache_tokens, sees_work, window)
    requests = requests_of(
        stream.arrival_s, stream.prompt_tokens, stream.completion_tokens, stream.cached_tokens
    )
    state = idle(pool.replicas, slots)
    for first in range(0, len(stream), _STEP):
        stop = min(first + _STEP, len(stream))
        advance(engine, requests, state, first, stop)
        report(stop)
    drain(engine, requests, state)
    return _figures(pool, stream, target, window, requests, state)


def _figures(
    pool: SimulatedPool,
    stream: RequestStream,
    target: TtftTarget,
    window: Window,
    requests: list[Request],
    state: State,
) -> PoolFigures:
    measured_s = window[1] - window[0]
    replica_s = pool.replicas * measured_s
    totals = row(Totals, state.totals, 0)
    inside = stream.arrival_s >= window[0]
    end_s = column(requests, "end_s")
    first_s = column(requests, "first_token_s")
    ttft_s = (first_s - stream.arrival_s)[inside]
    allowed_s = target.at(stream.prompt_tokens[inside].astype(np.float64))
    count = int(inside.sum())
    preempted = column(requests, "preemptions")[inside] > 0
    base_s = pool.profile.base_iteration_s
    work_s = totals.busy_s + base_s * (totals.sequence_iterations / pool.slots - totals.iterations)
    return PoolFigures(
        name=pool.name,
        replicas=pool.replicas,
        slots=pool.slots,
        requests=count,
        warm_up_requests=len(stream) - count,
        arrival_rate_per_s=count / measured_s,
        utilization=work_s / replica_s,
        busy_share=totals.busy_s / replica_s,
        slot_occupancy=totals.running_s / (replica_s * pool.slots),
        mean_iteration_s=_ratio(totals.busy_s, totals.iterations),
        sequence_iteration_s=_ratio(totals.sequence_s, totals.sequence_iterations),
        ttft=percentiles(ttft_s),
        e2e=percentiles((end_s - stream.arrival_s)[inside]),
        inter_token=gap_percentiles(state.gaps, base_s),
        ttft_violation_share=float((ttft_s > allowed_s).mean()) if count else 0.0,
        preemptions=totals.preemptions,
        preempted_share=float(preempted.mean()) if count else 0.0,
        growth=growth(stream.arrival_s, first_s, window),
    )


def _serve(pool: SimulatedPool, stream: RequestStream, window: Window) -> SlotFigures:
    servers = pool.replicas * pool.slots
    service_s = slot_service_s(pool, stream)
    wait_s = waits_s(stream.arrival_s, service_s, servers)
    start_s = stream.arrival_s + wait_s
    end_s = start_s + service_s
    busy_s = np.maximum(np.minimum(end_s, window[1]) - np.maximum(start_s, window[0]), 0.0).sum()
    inside = stream.arrival_s >= window[0]
    measured = wait_s[inside]
    return SlotFigures(
        name=pool.name,
        servers=servers,
        requests=int(inside.sum()),
        utilization=float(busy_s) / (servers * (window[1] - window[0])),
        delayed_share=float((measured > 0.0).mean()) if measured.size else 0.0,
        mean_wait_s=float(measured.mean()) if measured.size else 0.0,
        wait=percentiles(measured),
        growth=growth(stream.arrival_s, start_s, window),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else 0.0
