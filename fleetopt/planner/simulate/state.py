"""The columns that the iteration-level loop works on: engine, requests, replicas.

All are tuples of columns (see `compiled`). A request is on at most one list of its replica,
waiting or prefilling, chained by `after`; it is on the running list from admission to its end.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.simulate.compiled import Floats, Ints, floats, ints
from fleetopt.planner.simulate.heap import Ranking, ranking

NONE = -1
"""The end of a chain."""

NO_LIMIT = 2**62

# Places in Replicas.sums: integrals over the measured window and over all replicas.
BUSY_S = 0
RUNNING_S = 1
ITERATIONS = 2
SEQUENCE_ITERATIONS = 3
PREEMPTIONS = 4
SUMS = 5


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


class Requests(NamedTuple):
    """Columns by request, in order of arrival."""

    arrival_s: Floats
    prompt: Ints
    completion: Ints  # ≥ 1
    cached: Ints  # < prompt, or 0
    need: Ints  # tokens to prefill: the prompt, and what was generated before a preemption
    done: Ints  # of them
    chunk: Ints  # of them in each iteration of the present segment
    after: Ints  # next on its waiting or prefilling list
    before_running: Ints
    after_running: Ints
    last_iteration: Ints  # of its replica, while it decodes
    first_token_s: Floats  # −1: not yet
    end_s: Floats  # −1: not yet
    preemptions: Ints


class Replicas(NamedTuple):
    """Columns by replica. A segment is a run of iterations of the same sequences."""

    start_s: Floats  # of the segment
    first_s: Floats  # its first iteration takes
    slope_s: Floats  # and each next one so much more
    length: Ints  # iterations in it; 0 while idle
    iteration: Ints  # done before it
    decoding: Ints  # k
    prefilling: Ints  # sequences that have a chunk in it
    running: Ints  # admitted
    held: Ints  # and waiting
    context: Ints  # tokens that the next iteration reads for decoding
    kv: Ints  # tokens of cache that running sequences hold or will after prefill
    work_s: Floats  # prefill compute that is outstanding
    waiting_head: Ints
    waiting_tail: Ints
    prefill_head: Ints
    prefill_tail: Ints
    running_tail: Ints
    endings: Ints  # slots places a replica: heap of decoding requests by last iteration
    ends: Ranking  # by the end of the segment, infinite while idle
    load: Ranking  # as the dispatcher sees it
    dispatched: Ints  # one number: how often `load` changed
    sums: Floats


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
        from_s=window_s[0],
        to_s=window_s[1],
    )


def requests_of(
    arrival_s: NDArray[np.float64],
    prompt: NDArray[np.int64],
    completion: NDArray[np.int64],
    cached: NDArray[np.int64],
) -> Requests:
    """Requests that have not arrived yet."""
    zeros = np.zeros(prompt.size, dtype=np.int64)
    none = np.full(prompt.size, NONE, dtype=np.int64)
    never = np.full(prompt.size, -1.0)
    cached = np.minimum(cached, np.maximum(prompt - 1, 0))  # the last token is always computed
    return Requests(
        arrival_s=floats(arrival_s),
        prompt=ints(prompt),
        completion=ints(np.maximum(completion, 1)),
        cached=ints(cached),
        need=ints(prompt),
        done=ints(cached),
        chunk=ints(zeros),
        after=ints(none),
        before_running=ints(none),
        after_running=ints(none),
        last_iteration=ints(zeros),
        first_token_s=floats(never),
        end_s=floats(never),
        preemptions=ints(zeros),
    )


def replicas_of(count: int, slots: int) -> Replicas:
    """Idle replicas."""
    zeros = np.zeros(count, dtype=np.int64)
    none = np.full(count, NONE, dtype=np.int64)
    nothing = np.zeros(count)
    return Replicas(
        start_s=floats(nothing),
        first_s=floats(nothing),
        slope_s=floats(nothing),
        length=ints(zeros),
        iteration=ints(zeros),
        decoding=ints(zeros),
        prefilling=ints(zeros),
        running=ints(zeros),
        held=ints(zeros),
        context=ints(zeros),
        kv=ints(zeros),
        work_s=floats(nothing),
        waiting_head=ints(none),
        waiting_tail=ints(none),
        prefill_head=ints(none),
        prefill_tail=ints(none),
        running_tail=ints(none),
        endings=ints(np.zeros(count * slots, dtype=np.int64)),
        ends=ranking(count, np.inf),
        load=ranking(count, 0.0),
        dispatched=ints(np.zeros(1, dtype=np.int64)),
        sums=floats(np.zeros(SUMS)),
    )
