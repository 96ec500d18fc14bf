"""The iteration-level loop: replicas run iterations, decode first, then prefill in arrival order.

Between arrivals and ends of sequences a replica's iterations read the same sequences, and each
takes a constant longer than the one before. So a run of them, a *segment*, is one event: n
iterations take n·first + slope·n·(n − 1)/2. An arrival that can be admitted cuts the segment of
its replica at the end of the iteration that is running.
"""

import math
from typing import NamedTuple

from fleetopt.planner.simulate.admission import admit, has_room, leave, preempt, wait
from fleetopt.planner.simulate.compiled import compiled, ints, rows
from fleetopt.planner.simulate.gaps import GAP_BINS, count_gaps
from fleetopt.planner.simulate.heap import Ranking, move, push, ranking, remove
from fleetopt.planner.simulate.state import (
    NO_LIMIT,
    NONE,
    Engine,
    Replica,
    Request,
    Totals,
)

_STAMP = 2.0**-33
_PER_HELD_S = 1e-6


class State(NamedTuple):
    """All replicas of a pool."""

    replicas: list[Replica]
    endings: list[int]  # slots places for each replica: its decoding requests, a heap
    ends: Ranking  # replicas by the end of their segment, infinite while idle
    load: Ranking  # replicas as the dispatcher sees them
    totals: list[Totals]  # one
    gaps: list[int]  # times between tokens, by bin


def idle(replicas: int, slots: int) -> State:
    """Replicas without requests."""
    return State(
        replicas=rows(Replica, replicas),
        endings=ints(replicas * slots),
        ends=ranking(replicas, math.inf),
        load=ranking(replicas, 0.0),
        totals=rows(Totals, 1),
        gaps=ints(GAP_BINS),
    )


@compiled
def advance(e: Engine, q: list[Request], s: State, first: int, stop: int) -> None:
    """Let requests first … stop − 1 arrive, and all happen that does before the last of them."""
    for r in range(first, stop):
        now = q[r].arrival_s
        while s.ends[s.ends[0].item].key <= now:
            _end(e, q, s, s.ends[0].item)
        _arrive(e, q, s, s.load[0].item, r, now)


@compiled
def drain(e: Engine, q: list[Request], s: State) -> None:
    """Let all that has arrived come to its end."""
    while s.ends[s.ends[0].item].key < math.inf:
        _end(e, q, s, s.ends[0].item)


@compiled
def _arrive(e: Engine, q: list[Request], s: State, i: int, r: int, now: float) -> None:
    replica = s.replicas[i]
    wait(q, replica, r)
    replica.held += 1
    replica.work_s += _compute_s(e, q[r].done, q[r].need)
    _show_load(e, s, i)
    if replica.length == 0:
        _begin(e, q, s, i, now)
    elif replica.waiting_head == r and has_room(e, replica, q[r]):
        _cut(s, i, now)


@compiled
def _compute_s(e: Engine, done: int, need: int) -> float:
    """Seconds of prefill between two tokens of a prompt, alone on a replica."""
    per_token = e.prefill_token_s + 0.5 * e.prefill_token_context_s * (need + done)
    return (need - done) * (per_token + e.base_s / e.chunk_tokens)


@compiled
def _show_load(e: Engine, s: State, i: int) -> None:
    """Rank replica i anew, by requests held or by prefill work; ties to the longest unchanged."""
    s.totals[0].dispatched += 1
    key = s.replicas[i].held + s.totals[0].dispatched * _STAMP
    if e.sees_work and e.is_shared_chunk:
        key = s.replicas[i].work_s + key * _PER_HELD_S
    move(s.load, i, key)


@compiled
def _duration_s(replica: Replica, iterations: int) -> float:
    """What the first iterations of a segment take."""
    grown = 0.5 * iterations * (iterations - 1)
    return iterations * replica.first_s + replica.slope_s * grown


@compiled
def _cut(s: State, i: int, now: float) -> None:
    """End replica i's segment with the iteration that is running."""
    replica = s.replicas[i]
    if replica.length == 1:
        return
    passed = now - replica.start_s
    # slope/2·n² + linear·n = passed, solved in the form that is stable for a small slope
    linear = replica.first_s - 0.5 * replica.slope_s
    root = linear + math.sqrt(linear * linear + 2.0 * replica.slope_s * passed)
    n = max(int(2.0 * passed / root), 1)
    while n > 1 and _duration_s(replica, n - 1) > passed:
        n -= 1
    while n < replica.length and _duration_s(replica, n) <= passed:
        n += 1
    if n < replica.length:
        replica.length = n
        move(s.ends, i, replica.start_s + _duration_s(replica, n))


@compiled
def _begin(e: Engine, q: list[Request], s: State, i: int, now: float) -> None:
    """Start replica i's next segment."""
    replica = s.replicas[i]
    if replica.kv > e.kv_tokens:
        _make_room(e, q, s, i, now)
    else:
        while replica.waiting_head != NONE and has_room(e, replica, q[replica.waiting_head]):
            admit(q, replica)
    replica.start_s = now
    decoding = replica.decoding
    if replica.prefill_head == NONE and decoding == 0:
        replica.length = 0
        move(s.ends, i, math.inf)
        return
    context_s = e.per_context_token_s * replica.context
    replica.first_s = e.base_s + e.per_sequence_s * decoding + context_s
    replica.slope_s = e.per_context_token_s * decoding
    replica.prefilling = 0
    length = NO_LIMIT
    if replica.prefill_head != NONE:
        length = _chunk(e, q, replica)
    if decoding > 0:
        length = min(length, q[s.endings[i * e.slots]].last_iteration - replica.iteration)
        if e.kv_tokens != NO_LIMIT:
            length = min(length, (e.kv_tokens - replica.kv) // decoding + 1)
    replica.length = length
    move(s.ends, i, now + _duration_s(replica, length))


@compiled
def _make_room(e: Engine, q: list[Request], s: State, i: int, now: float) -> None:
    """Preempt until the next iteration's tokens fit into replica i's cache."""
    replica = s.replicas[i]
    while replica.kv > e.kv_tokens:
        request = q[replica.running_tail]
        if request.last_iteration == 0:
            replica.work_s -= _compute_s(e, request.done, request.need)
        r = preempt(q, replica, s.endings, i * e.slots)
        replica.work_s += _compute_s(e, q[r].done, q[r].need)
        if e.from_s <= now <= e.to_s:
            s.totals[0].preemptions += 1
    if e.sees_work:
        _show_load(e, s, i)


@compiled
def _chunk(e: Engine, q: list[Request], replica: Replica) -> int:
    """Give prefilling sequences their chunks; return for how many iterations they stay the same.

    They do as long as every sequence with a chunk takes a whole one and is not done with it.
    A shared budget is then the first sequence's alone.
    """
    r = replica.prefill_head
    same = NO_LIMIT
    budget = e.chunk_tokens
    count, tokens, context, pairs = 0, 0, 0, 0.0
    while r != NONE and budget > 0:
        request = q[r]
        left = request.need - request.done
        chunk = min(budget, left)
        request.chunk = chunk
        same = min(same, (left - 1) // e.chunk_tokens)
        count += 1
        tokens += chunk
        context += request.done + chunk
        pairs += chunk * (request.done + 0.5 * chunk)
        if e.is_shared_chunk:
            budget -= chunk
        r = request.after
    replica.prefilling = count
    replica.first_s += (
        e.per_sequence_s * count
        + e.per_context_token_s * context
        + e.prefill_token_s * tokens
        + e.prefill_token_context_s * pairs
    )
    if same < 1 or (e.sees_work and e.is_shared_chunk):  # a dispatcher sees every chunk go
        return 1
    replica.slope_s += e.per_context_token_s * tokens
    replica.slope_s += e.prefill_token_context_s * tokens * e.chunk_tokens
    return same


@compiled
def _end(e: Engine, q: list[Request], s: State, i: int) -> None:
    """End replica i's segment: sequences end, first tokens come, the next segment starts."""
    now = s.ends[i].key
    replica = s.replicas[i]
    _measure(e, s, replica, now)
    held, prefilling, base = replica.held, replica.prefilling, i * e.slots
    replica.iteration += replica.length
    replica.context += replica.length * replica.decoding
    replica.kv += replica.length * replica.decoding
    while replica.decoding > 0 and q[s.endings[base]].last_iteration <= replica.iteration:
        r = s.endings[base]
        remove(s.endings, base, replica.decoding, q, 0)
        replica.decoding -= 1
        replica.context -= q[r].prompt + q[r].completion
        _finish(q, replica, r, now)
    if prefilling > 0:
        _end_chunks(e, q, s, i, now)
    if replica.held != held or (e.sees_work and prefilling > 0):
        if replica.prefill_head == NONE and replica.waiting_head == NONE:
            replica.work_s = 0.0  # not what rounding leaves of it
        _show_load(e, s, i)
    _begin(e, q, s, i, now)


@compiled
def _measure(e: Engine, s: State, replica: Replica, end_s: float) -> None:
    """Add a segment to the totals, as far as it lies in the measured window."""
    inside_s = min(end_s, e.to_s) - max(replica.start_s, e.from_s)
    if inside_s <= 0.0:
        return
    totals = s.totals[0]
    iterations = replica.length * (inside_s / (end_s - replica.start_s))
    totals.busy_s += inside_s
    totals.running_s += replica.running * inside_s
    totals.iterations += iterations
    sequences = replica.decoding + replica.prefilling
    totals.sequence_iterations += sequences * iterations
    totals.sequence_s += sequences * inside_s
    if replica.decoding > 0 and end_s <= e.to_s:
        first_s, slope_s = replica.first_s, replica.slope_s
        count_gaps(s.gaps, e.base_s, first_s, slope_s, replica.length, replica.decoding)


@compiled
def _finish(q: list[Request], replica: Replica, r: int, now: float) -> None:
    """Request r has its last token."""
    request = q[r]
    replica.kv -= request.prompt + request.completion
    replica.held -= 1
    request.end_s = now
    request.last_iteration = 0
    leave(q, replica, r)


@compiled
def _end_chunks(e: Engine, q: list[Request], s: State, i: int, now: float) -> None:
    """Book the segment's chunks; whoever is done with its prefill has a token and decodes."""
    replica = s.replicas[i]
    r = replica.prefill_head
    kept_head, kept_tail = NONE, NONE
    for _ in range(replica.prefilling):
        request = q[r]
        after, before = request.after, request.done
        request.done += replica.length * request.chunk
        replica.work_s -= _compute_s(e, before, request.done)
        if request.done < request.need:
            if kept_head == NONE:
                kept_head = r
            else:
                q[kept_tail].after = r
            kept_tail = r
        else:
            request.after = NONE
            _decode(e, q, s, i, r, now)
        r = after
    replica.prefill_head = r if kept_head == NONE else kept_head
    if kept_tail != NONE:
        q[kept_tail].after = r
    if r == NONE:
        replica.prefill_tail = kept_tail


@compiled
def _decode(e: Engine, q: list[Request], s: State, i: int, r: int, now: float) -> None:
    """Request r has a token out of its prefill: the first one, or the next after a preemption."""
    request, replica = q[r], s.replicas[i]
    if request.first_token_s < 0.0:
        request.first_token_s = now
    left = request.prompt + request.completion - request.need - 1
    if left == 0:
        _finish(q, replica, r, now)
        return
    request.last_iteration = replica.iteration + left
    push(s.endings, i * e.slots, replica.decoding, q, r)
    replica.decoding += 1
    replica.context += request.need + 1
