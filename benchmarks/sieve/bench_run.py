"""One benchmark run of one replica, as the iteration-level simulation makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.sieve.classes import CONTEXT_TOKENS
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.simulate.compiled import column
from fleetopt.planner.simulate.draw import resampled_stream
from fleetopt.planner.simulate.iteration import advance, drain, idle
from fleetopt.planner.simulate.state import engine_of, requests_of
from fleetopt.planner.simulate.stream import RequestStream

REQUESTS: Final = 600
WINDOW_S: Final = (180.0, 1_200.0)
WARM_UP_SHARE: Final = 0.25
MAX_NUM_SEQS: Final = 256
FAILED_MAX: Final = 0.01
"""If more requests fail, there is no P99."""

_OVERLOAD_REQUESTS: Final = 3_000


@dataclass(frozen=True, slots=True)
class Result:
    """What a run found."""

    throughput_per_s: float
    completion_p99_s: float
    duration_s: float


def run(engine: EngineProfile, lengths: RequestStream, offered_per_s: float, seed: int) -> Result:
    """Offer Poisson arrivals for a window, and let all of them come to their end.

    The window is the time of 600 requests, but 3 to 20 minutes; its first quarter is warm-up.
    Throughput is the offered rate times completions per arrival in the rest of the
    window, and never more than was offered. P99 is that of the requests which arrived in it. A
    request longer than the engine's window fails at once.
    """
    window_s = float(np.clip(REQUESTS / offered_per_s, *WINDOW_S))
    count = int(np.random.default_rng(seed).poisson(offered_per_s * window_s))
    stream = resampled_stream(lengths, offered_per_s, max(count, 2), seed)
    is_served = _fits(engine, stream)
    served = stream.take(is_served)
    arrival_s, (_, end_s) = served.arrival_s, times_s(engine, served)
    from_s, until_s = WARM_UP_SHARE * window_s, float(stream.arrival_s[-1])
    inside = arrival_s >= from_s
    arrived = int((stream.arrival_s >= from_s).sum())
    completed = int(((end_s >= from_s) & (end_s <= until_s)).sum())
    failed = 1.0 - float(is_served.mean())
    p99_s = float(np.quantile((end_s - arrival_s)[inside], 0.99)) if inside.any() else np.inf
    return Result(
        offered_per_s * min(completed / arrived, 1.0),
        np.inf if failed > FAILED_MAX else p99_s,
        float(end_s.max()) if end_s.size else until_s,
    )


def capacity_per_s(engine: EngineProfile, lengths: RequestStream) -> float:
    """Return the requests per second that a replica completes when there are always more.

    Of requests longer than its window, none counts.
    """
    served = lengths.take(_fits(engine, lengths))
    stream = resampled_stream(served, 1e6, _OVERLOAD_REQUESTS, seed=0)
    ends_s = np.sort(times_s(engine, stream)[1])
    first, last = int(0.3 * ends_s.size), int(0.8 * ends_s.size)
    return float((last - first) / (ends_s[last] - ends_s[first]))


def _fits(engine: EngineProfile, stream: RequestStream) -> NDArray[np.bool_]:
    return np.asarray(stream.total_tokens <= min(CONTEXT_TOKENS, engine.kv_capacity_tokens - 1))


def times_s(
    engine: EngineProfile, stream: RequestStream
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when each request has its first and its last token.

    On one replica, whose cache is paged.
    """
    slots = min(MAX_NUM_SEQS, len(stream))
    loop = engine_of(engine, slots, engine.kv_capacity_tokens, False, (0.0, np.inf))
    requests = requests_of(
        stream.arrival_s, stream.prompt_tokens, stream.completion_tokens, stream.cached_tokens
    )
    state = idle(1, slots)
    advance(loop, requests, state, 0, len(stream))
    drain(loop, requests, state)
    return column(requests, "first_token_s"), column(requests, "end_s")
