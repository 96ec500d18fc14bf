"""Who runs on a replica: admission in order of arrival, and preemption of whoever came last.

Paged admission takes a request as soon as its prompt fits into what is free of the cache;
reserved admission is paged admission to a cache without limit: slots alone decide.
"""

from fleetopt.planner.simulate.compiled import compiled
from fleetopt.planner.simulate.heap import remove
from fleetopt.planner.simulate.state import NONE, Engine, Replica, Request


@compiled
def has_room(e: Engine, replica: Replica, request: Request) -> bool:
    """Whether a replica can take this request now."""
    return replica.running < e.slots and replica.kv + request.need + 1 <= e.kv_tokens


@compiled
def wait(q: list[Request], replica: Replica, r: int) -> None:
    """Request r is last in line."""
    if replica.waiting_head == NONE:
        replica.waiting_head = r
    else:
        q[replica.waiting_tail].after = r
    replica.waiting_tail = r


@compiled
def admit(q: list[Request], replica: Replica) -> None:
    """The first in line takes a slot, and its place among those that prefill."""
    r = replica.waiting_head
    request = q[r]
    replica.waiting_head = request.after
    request.after = NONE
    if replica.prefill_head == NONE:
        replica.prefill_head = r
    else:
        q[replica.prefill_tail].after = r
    replica.prefill_tail = r
    request.before_running = replica.running_tail
    request.after_running = NONE
    if replica.running_tail != NONE:
        q[replica.running_tail].after_running = r
    replica.running_tail = r
    replica.running += 1
    replica.kv += request.need + 1


@compiled
def leave(q: list[Request], replica: Replica, r: int) -> None:
    """Request r gives up its slot."""
    before, after = q[r].before_running, q[r].after_running
    if before != NONE:
        q[before].after_running = after
    if after != NONE:
        q[after].before_running = before
    else:
        replica.running_tail = before
    replica.running -= 1


@compiled
def preempt(q: list[Request], replica: Replica, endings: list[int], base: int) -> int:
    """Whoever was admitted last waits, first in line, and is recomputed; return who it is.

    Its prefill then covers what it has generated too.
    """
    r = replica.running_tail
    request = q[r]
    leave(q, replica, r)
    if request.last_iteration > 0:  # it was decoding
        at = base
        while endings[at] != r:
            at += 1
        remove(endings, base, replica.decoding, q, at - base)
        left = request.last_iteration - replica.iteration
        request.need = request.prompt + request.completion - left
        request.last_iteration = 0
        replica.decoding -= 1
        replica.context -= request.need
        replica.kv -= request.need
    else:
        _unchain(q, replica, r)
        replica.kv -= request.need + 1
    request.done = request.cached
    request.preemptions += 1
    request.after = replica.waiting_head
    if replica.waiting_head == NONE:
        replica.waiting_tail = r
    replica.waiting_head = r
    return r


@compiled
def _unchain(q: list[Request], replica: Replica, r: int) -> None:
    """Take request r, the last one, off the prefilling list."""
    previous, at = NONE, replica.prefill_head
    while at != r:
        previous, at = at, q[at].after
    if previous == NONE:
        replica.prefill_head = NONE
    else:
        q[previous].after = NONE
    replica.prefill_tail = previous
