"""What the iteration-level loop works on: an engine, its requests and its replicas.

A request is on at most one list of its replica, waiting or prefilling, chained by `after`; from
its admission to its end it is on the running list, chained both ways.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.simulate.compiled import rows

NONE = -1
"""The end of a chain."""

NO_LIMIT = 2**62


class Engine(NamedTuple):
    """What one iteration takes, and what a replica holds."""

    base_s: float  # W
    per_sequence_s: float  # h
    per_context_token_s: float  # κ
    prefill_token_s: float  # p
    prefill_token_context_s: float  # c
    chunk_tokens: int  # ch
    is_shared_chunk: bool  # one budget for all, or a chunk for each sequence
    slots: int
    kv_tokens: int  # NO_LIMIT where slots are reserved
    sees_work: bool  # the dispatcher counts prefill work
    from_s: float  # the measured window
    to_s: float


@dataclass(slots=True)
class Request:
    """One request, in order of arrival."""

    arrival_s: float = 0.0
    first_token_s: float = -1.0  # not yet
    end_s: float = -1.0
    prompt: int = 0
    completion: int = 1  # ≥ 1
    cached: int = 0  # < prompt, or 0
    need: int = 0  # tokens to prefill: the prompt, and what was generated before a preemption
    done: int = 0  # of them
    chunk: int = 0  # of them in each iteration of the present segment
    last_iteration: int = 0  # of its replica, while it decodes
    after: int = NONE  # on its waiting or prefilling list
    before_running: int = NONE
    after_running: int = NONE
    preemptions: int = 0


@dataclass(slots=True)
class Replica:
    """One replica. A segment is a run of iterations of the same sequences."""

    start_s: float = 0.0  # of the segment
    first_s: float = 0.0  # its first iteration takes
    slope_s: float = 0.0  # and each next one so much more
    work_s: float = 0.0  # prefill that is outstanding
    length: int = 0  # iterations in the segment; 0 while idle
    iteration: int = 0  # done before it
    decoding: int = 0  # k
    prefilling: int = 0  # sequences that have a chunk in the segment
    running: int = 0  # admitted
    held: int = 0  # and waiting
    context: int = 0  # tokens that the next iteration reads for decoding
    kv: int = 0  # tokens of cache that running sequences hold, or will after prefill
    waiting_head: int = NONE
    waiting_tail: int = NONE
    prefill_head: int = NONE
    prefill_tail: int = NONE
    running_tail: int = NONE


@dataclass(slots=True)
class Totals:
    """Integrals over the measured window and over all replicas."""

    busy_s: float = 0.0
    running_s: float = 0.0
    iterations: float = 0.0
    sequence_iterations: float = 0.0
    sequence_s: float = 0.0  # of iterations, for each sequence in them
    preemptions: int = 0
    dispatched: int = 0  # how often a replica's load changed, since the beginning


def engine_of(
    profile: EngineProfile,
    slots: int,
    kv_tokens: int,
    sees_work: bool,
    window_s: tuple[float, float],
) -> Engine:
    """An engine as the loop wants it."""
    return Engine(
        base_s=float(profile.base_iteration_s),
        per_sequence_s=float(profile.per_sequence_s),
        per_context_token_s=float(profile.per_context_token_s),
        prefill_token_s=float(profile.prefill_token_s),
        prefill_token_context_s=float(profile.prefill_token_context_s),
        chunk_tokens=int(profile.prefill_chunk_tokens),
        is_shared_chunk=not profile.prefill_is_free,
        slots=slots,
        kv_tokens=kv_tokens,
        sees_work=sees_work,
        from_s=float(window_s[0]),
        to_s=float(window_s[1]),
    )


def requests_of(
    arrival_s: NDArray[np.float64],
    prompt: NDArray[np.int64],
    completion: NDArray[np.int64],
    cached: NDArray[np.int64],
) -> list[Request]:
    """Requests that have not arrived yet."""
    cached = np.minimum(cached, np.maximum(prompt - 1, 0))  # the last token is always computed
    return rows(
        Request,
        prompt.size,
        arrival_s=arrival_s,
        prompt=prompt,
        completion=np.maximum(completion, 1),
        cached=cached,
        need=prompt,
        done=cached,
    )
