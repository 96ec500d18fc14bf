"""One pool, simulated until its P99 is known well enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fleetopt.planner.simulate.fleet import SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.simulation import simulate, simulate_slots, slot_service_s
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.target import TtftTarget
from validation.cache import kept

FIRST_REQUESTS: Final = 200_000
MOST_REQUESTS: Final = 6_000_000
MOST_FOR_P99: Final = 2_000_000
MOST_SLOT_REQUESTS: Final = 10_000_000
UNSETTLED: Final = 0.003
"""Warm-up lasts until an empty pool would lack no more than this share of its usual work."""

MEASURED_PER_WARM_UP: Final = 0.6
MOST_WARM_UP: Final = 0.625
P99_WITHIN: Final = 0.05
"""Half the interval of P99 over P99, at which no more requests are needed."""

_CONFIDENCE: Final = 0.95

Draw = Callable[[int, int], RequestStream]
"""So many requests, by a seed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many requests a run may take."""

    first: int = FIRST_REQUESTS
    most: int = MOST_REQUESTS
    most_for_p99: int = MOST_FOR_P99
    most_slots: int = MOST_SLOT_REQUESTS


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a pool did in all runs together; each run has a seed of its own."""

    requests: int
    runs: int
    arrival_rate_per_s: float
    utilization: float
    slot_occupancy: float
    mean_iteration_s: float
    sequence_iteration_s: float
    ttft_p99_s: float
    ttft_p99_low_s: float
    ttft_p99_high_s: float
    violation_share: float
    preempted_share: float
    growth_share: float
    is_diverging: bool
    e2e_p99_s: float
    itl_p99_s: float

    @property
    def p99_error(self) -> float:
        """Half the interval of P99 as a share of it."""
        return 0.5 * (self.ttft_p99_high_s - self.ttft_p99_low_s) / max(self.ttft_p99_s, 1e-12)


@dataclass(frozen=True, slots=True)
class SimulatedSlots:
    """What a pool did as so many servers without iterations."""

    requests: int
    arrival_rate_per_s: float
    utilization: float
    work_error: float
    """Standard error of the work that the requests bring, as a share of it."""


def simulated(
    pool: SimulatedPool,
    target: TtftTarget,
    draw: Draw,
    question: Any,
    *,
    rate_per_s: float,
    settling_s: float,
    running: float,
    seeds: tuple[int, ...] = (1,),
    limits: Limits | None = None,
) -> Simulated:
    """Run a pool on its own requests.

    Parameters
    ----------
    pool, target : SimulatedPool, TtftTarget
        What is run, and what its first tokens are held against.
    draw : callable
        Gives the requests: (count, seed) → stream.
    question : anything that JSON can hold
        Says what `draw` draws.
    rate_per_s : float
        Requests that reach the pool.
    settling_s : float
        How long it takes to fill, as of `settling_s`.
    running : float
        About how many requests are in it; so many are half done when a run begins.
    seeds : tuple of int
        One run each.
    limits : Limits, optional
        How many requests each run may take.
    """
    bounds = limits or Limits()
    settling_s = _rounded_up(settling_s)
    begun = int(float(f"{running:.1e}"))  # two digits, so that little changes make no new run
    asked = [asdict(pool), asdict(target), question, rate_per_s, seeds, asdict(bounds), settling_s]
    asked.append(begun)

    def answer() -> Simulated:
        count = _length(rate_per_s, settling_s, bounds.first, bounds.most)
        while True:
            warm_up = _warm_up(count, rate_per_s, settling_s)
            found = _combined(
                [
                    _run(pool, target, half_done(draw(count, seed), begun, seed), warm_up, seed)
                    for seed in seeds
                ]
            )
            if found.is_diverging or found.p99_error <= P99_WITHIN:
                return found
            if 2 * count > bounds.most_for_p99:
                return found
            count = min(4 * count, bounds.most_for_p99)

    return kept(asked, Simulated, answer)


def simulated_slots(
    pool: SimulatedPool,
    target: TtftTarget,
    draw: Draw,
    question: Any,
    *,
    rate_per_s: float,
    settling_s: float,
    seed: int = 1,
    limits: Limits | None = None,
) -> SimulatedSlots:
    """The same at slot level, where each request holds its slot for as long as if all were taken.

    That is longer than in the iterations of a replica with free slots, and so is the run.
    """
    bounds = limits or Limits()
    settling_s = _rounded_up(settling_s)
    asked = [asdict(pool), question, rate_per_s, seed, asdict(bounds), settling_s]

    def answer() -> SimulatedSlots:
        count = _length(rate_per_s, settling_s, bounds.first, bounds.most_slots)
        warm_up = _warm_up(count, rate_per_s, settling_s)
        return _run_slots(pool, target, draw(count, seed), warm_up, seed)

    return kept(asked, SimulatedSlots, answer)


def _run(
    pool: SimulatedPool, target: TtftTarget, stream: RequestStream, warm_up: float, seed: int
) -> Simulated:
    figures = simulate(_alone(pool, target), stream, seed=seed, warm_up_share=warm_up).pools[0]
    ttft = figures.ttft
    p99 = ttft.p99_s if ttft else 0.0
    low = ttft.p99_low_s if ttft else None
    high = ttft.p99_high_s if ttft else None
    return Simulated(
        requests=figures.requests,
        runs=1,
        arrival_rate_per_s=figures.arrival_rate_per_s,
        utilization=figures.utilization,
        slot_occupancy=figures.slot_occupancy,
        mean_iteration_s=figures.mean_iteration_s,
        sequence_iteration_s=figures.sequence_iteration_s,
        ttft_p99_s=p99,
        ttft_p99_low_s=0.0 if low is None else low,
        ttft_p99_high_s=2.0 * p99 if high is None else high,
        violation_share=figures.ttft_violation_share,
        preempted_share=figures.preempted_share,
        growth_share=figures.growth.share_of_arrivals,
        is_diverging=figures.growth.is_diverging,
        e2e_p99_s=figures.e2e.p99_s if figures.e2e else 0.0,
        itl_p99_s=figures.inter_token.p99_s if figures.inter_token else 0.0,
    )


def _run_slots(
    pool: SimulatedPool, target: TtftTarget, stream: RequestStream, warm_up: float, seed: int
) -> SimulatedSlots:
    figures = simulate_slots(_alone(pool, target), stream, seed=seed, warm_up_share=warm_up)[0]
    work_s = slot_service_s(pool, stream)
    variance = float(work_s.var()) / max(float(work_s.mean()) ** 2, 1e-300)
    measured_s = stream.span_s * (1.0 - warm_up)
    return SimulatedSlots(
        requests=figures.requests,
        arrival_rate_per_s=figures.requests / measured_s,
        utilization=figures.utilization,
        work_error=math.sqrt((1.0 + variance) / max(figures.requests, 1)),
    )


def _alone(pool: SimulatedPool, target: TtftTarget) -> SimulatedFleet:
    context = pool.context_tokens
    return SimulatedFleet(pool, None, context, context, 0.0, target)


def settling_s(service_s: NDArray[np.float64]) -> float:
    """How long an empty pool takes until it holds all but a small share of its usual work.

    What is missing after t, of requests that stay for S, is E[max(S − t, 0)] / E[S]. A few that
    stay for long can hold much of the work, so this may be many times their mean.
    """
    stay_s = np.sort(service_s)
    beyond_s = np.concatenate((np.cumsum(stay_s[::-1])[::-1][1:], [0.0]))
    longer = np.arange(stay_s.size - 1, -1, -1)
    missing_s = beyond_s - longer * stay_s
    return float(stay_s[np.argmax(missing_s <= UNSETTLED * stay_s.sum())])


def half_done(stream: RequestStream, count: int, seed: int) -> RequestStream:
    """The stream, with so many requests at its beginning that have come part of their way.

    They are drawn as a look at a busy pool would find them, in proportion to their tokens; what
    they have generated belongs to their prompts, all of which is cached.
    """
    if not count or not len(stream):
        return stream
    rng = np.random.default_rng(seed)
    o = stream.completion_tokens
    found = np.searchsorted(np.cumsum(o), rng.uniform(0.0, float(o.sum()), count))
    generated = np.floor(rng.random(count) * o[found]).astype(np.int64)
    prompt = stream.prompt_tokens[found] + generated
    begun = (prompt, o[found] - generated, prompt, stream.compressibility[found])
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "compressibility")
    joined = [
        np.concatenate((first, getattr(stream, name)))
        for name, first in zip(names, begun, strict=True)
    ]
    arrival_s = np.concatenate((np.full(count, stream.arrival_s[0]), stream.arrival_s))
    return RequestStream(arrival_s, *joined)


def _length(rate_per_s: float, settling_s: float, fewest: int, most: int) -> int:
    wanted = int((1.0 + MEASURED_PER_WARM_UP) * settling_s * rate_per_s)
    return min(max(fewest, wanted), most)


def _warm_up(count: int, rate_per_s: float, settling_s: float) -> float:
    return min(max(settling_s * rate_per_s / count, 0.2), MOST_WARM_UP)


def _rounded_up(seconds: float) -> float:
    """To a power of √2: what is predicted only sets the length of a run, and must not renew it."""
    return float(2.0 ** (0.5 * math.ceil(2.0 * math.log2(max(seconds, 1e-3)))))


def _combined(runs: list[Simulated]) -> Simulated:
    """Means over the runs; P99's interval is the wider of the runs' own and that between them."""
    if len(runs) == 1:
        return runs[0]

    def mean(field: str) -> float:
        return float(np.mean([getattr(run, field) for run in runs]))

    p99 = np.array([run.ttft_p99_s for run in runs])
    own = [0.5 * (run.ttft_p99_high_s - run.ttft_p99_low_s) for run in runs]
    between = float(p99.std(ddof=1)) * float(stdtrit(len(runs) - 1, 0.5 + _CONFIDENCE / 2.0))
    half = max(math.hypot(*own) / len(runs), between / math.sqrt(len(runs)))
    shared: tuple[str, ...] = (
        "arrival_rate_per_s",
        "utilization",
        "slot_occupancy",
    )
    shared += ("mean_iteration_s", "sequence_iteration_s", "violation_share", "preempted_share")
    shared += ("e2e_p99_s", "itl_p99_s")
    return Simulated(
        requests=sum(run.requests for run in runs),
        runs=len(runs),
        ttft_p99_s=float(p99.mean()),
        ttft_p99_low_s=max(float(p99.mean()) - half, 0.0),
        ttft_p99_high_s=float(p99.mean()) + half,
        growth_share=mean("growth_share"),
        is_diverging=any(run.is_diverging for run in runs),
        **{field: mean(field) for field in shared},
    )
