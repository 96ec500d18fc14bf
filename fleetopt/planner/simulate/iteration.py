"""The iteration-level loop: replicas run iterations, decode first, then prefill in arrival order.

Between arrivals and ends of sequences a replica's iterations read the same sequences, and each
takes a constant longer than the one before. So a run of them, a *segment*, is one event: n
iterations take n·first + slope·n·(n − 1)/2. An arrival that can be admitted cuts the segment of
its replica at the end of the iteration that is running.
"""

import math

from fleetopt.planner.simulate.compiled import compiled
from fleetopt.planner.simulate.heap import move, pop, push, remove
from fleetopt.planner.simulate.state import (
    BUSY_S,
    ITERATIONS,
    NO_LIMIT,
    NONE,
    PREEMPTIONS,
    RUNNING_S,
    SEQUENCE_ITERATIONS,
    Engine,
    Replicas,
    Requests,
)

_STAMP = 2.0**-33
_PER_HELD_S = 1e-6


@compiled
def advance(e: Engine, q: Requests, s: Replicas, first: int, stop: int) -> None:
    """Let the requests first … stop − 1 arrive, and everything happen before the last of them."""
    for r in range(first, stop):
        now = q.arrival_s[r]
        while s.ends.key[s.ends.order[0]] <= now:
            _end(e, q, s, s.ends.order[0])
        _arrive(e, q, s, s.load.order[0], r, now)


@compiled
def drain(e: Engine, q: Requests, s: Replicas) -> None:
    """Let everything that has arrived come to its end."""
    while s.ends.key[s.ends.order[0]] < math.inf:
        _end(e, q, s, s.ends.order[0])


@compiled
def _arrive(e: Engine, q: Requests, s: Replicas, i: int, r: int, now: float) -> None:
    """Request r joins replica i."""
    if s.waiting_head[i] == NONE:
        s.waiting_head[i] = r
    else:
        q.after[s.waiting_tail[i]] = r
    s.waiting_tail[i] = r
    s.held[i] += 1
    s.work_s[i] += _compute_s(e, q.done[r], q.need[r])
    _show_load(e, s, i)
    if s.length[i] == 0:
        _begin(e, q, s, i, now)
    elif s.waiting_head[i] == r and _has_room(e, q, s, i, r):
        _cut(s, i, now)


@compiled
def _compute_s(e: Engine, done: int, need: int) -> float:
    """Seconds of prefill between two tokens of a prompt, alone on a replica."""
    tokens = need - done
    per_token = e.prefill_token_s + 0.5 * e.prefill_token_context_s * (need + done)
    return tokens * (per_token + e.base_s / e.chunk_tokens)


@compiled
def _show_load(e: Engine, s: Replicas, i: int) -> None:
    """Rank replica i anew: by requests held, or by prefill work; ties to the longest unchanged."""
    s.dispatched[0] += 1
    key = s.held[i] + s.dispatched[0] * _STAMP
    if e.sees_work and e.is_shared_chunk:
        key = s.work_s[i] + key * _PER_HELD_S
    move(s.load, i, key)


@compiled
def _has_room(e: Engine, q: Requests, s: Replicas, i: int, r: int) -> bool:
    return s.running[i] < e.slots and s.kv[i] + q.need[r] + 1 <= e.kv_tokens


@compiled
def _duration_s(s: Replicas, i: int, iterations: int) -> float:
    """What the first iterations of replica i's segment take."""
    return iterations * s.first_s[i] + s.slope_s[i] * (0.5 * iterations * (iterations - 1))


@compiled
def _cut(s: Replicas, i: int, now: float) -> None:
    """End replica i's segment with the iteration that is running."""
    if s.length[i] == 1:
        return
    passed = now - s.start_s[i]
    first, slope = s.first_s[i], s.slope_s[i]
    linear = first - 0.5 * slope
    # slope/2·n² + linear·n = passed, in the form that is stable for a small slope
    root = 2.0 * passed / (linear + math.sqrt(linear * linear + 2.0 * slope * passed))
    n = max(int(root), 1)
    while n > 1 and _duration_s(s, i, n - 1) > passed:
        n -= 1
    while n < s.length[i] and _duration_s(s, i, n) <= passed:
        n += 1
    if n < s.length[i]:
        s.length[i] = n
        move(s.ends, i, s.start_s[i] + _duration_s(s, i, n))


@compiled
def _begin(e: Engine, q: Requests, s: Replicas, i: int, now: float) -> None:
    """Start replica i's next segment."""
    if s.kv[i] > e.kv_tokens:
        while s.kv[i] > e.kv_tokens:
            _preempt(e, q, s, i, now)
    else:
        while s.waiting_head[i] != NONE and _has_room(e, q, s, i, s.waiting_head[i]):
            _admit(q, s, i)
    s.start_s[i] = now
    decoding = s.decoding[i]
    if s.prefill_head[i] == NONE and decoding == 0:
        s.length[i] = 0
        move(s.ends, i, math.inf)
        return
    s.first_s[i] = (
        e.base_s + e.per_sequence_s * decoding + e.per_context_token_s * s.context[i]
    )
    s.slope_s[i] = e.per_context_token_s * decoding
    s.prefilling[i] = 0
    length = NO_LIMIT
    if s.prefill_head[i] != NONE:
        length = _plan_prefill(e, q, s, i)
    if decoding > 0:
        next_end = q.last_iteration[s.endings[i * e.slots]] - s.iteration[i]
        length = min(length, next_end)
        if e.kv_tokens != NO_LIMIT:
            length = min(length, (e.kv_tokens - s.kv[i]) // decoding + 1)
    s.length[i] = length
    move(s.ends, i, now + _duration_s(s, i, length))


@compiled
def _plan_prefill(e: Engine, q: Requests, s: Replicas, i: int) -> int:
    """Give prefilling sequences their chunks; return how many iterations can go on so.

    As long as every sequence with a chunk takes a whole one and is not done with it, the next
    iteration is the same. A shared budget is then the first sequence's alone.
    """
    r = s.prefill_head[i]
    whole = NO_LIMIT
    budget = e.chunk_tokens
    count, tokens, context, before, growth = 0, 0, 0, 0.0, 0
    while r != NONE and budget > 0:
        left = q.need[r] - q.done[r]
        chunk = min(budget, left)
        whole = min(whole, (left - 1) // e.chunk_tokens)
        q.chunk[r] = chunk
        count += 1
        tokens += chunk
        context += q.done[r] + chunk
        before += chunk * (q.done[r] + 0.5 * chunk)
        growth += chunk
        if e.is_shared_chunk:
            budget -= chunk
        r = q.after[r]
    s.prefilling[i] = count
    s.first_s[i] += (
        e.per_sequence_s * count
        + e.per_context_token_s * context
        + e.prefill_token_s * tokens
        + e.prefill_token_context_s * before
    )
    if whole < 1 or (e.sees_work and e.is_shared_chunk):
        return 1
    s.slope_s[i] += e.per_context_token_s * growth
    if e.is_shared_chunk:
        s.slope_s[i] += e.prefill_token_context_s * growth * e.chunk_tokens
    return whole


@compiled
def _admit(q: Requests, s: Replicas, i: int) -> None:
    """The first waiting request of replica i takes a slot."""
    r = s.waiting_head[i]
    s.waiting_head[i] = q.after[r]
    q.after[r] = NONE
    if s.prefill_head[i] == NONE:
        s.prefill_head[i] = r
    else:
        q.after[s.prefill_tail[i]] = r
    s.prefill_tail[i] = r
    last = s.running_tail[i]
    q.before_running[r] = last
    q.after_running[r] = NONE
    if last != NONE:
        q.after_running[last] = r
    s.running_tail[i] = r
    s.running[i] += 1
    s.kv[i] += q.need[r] + 1


@compiled
def _leave(q: Requests, s: Replicas, i: int, r: int) -> None:
    """Take request r off replica i's running list."""
    before, after = q.before_running[r], q.after_running[r]
    if before != NONE:
        q.after_running[before] = after
    if after != NONE:
        q.before_running[after] = before
    else:
        s.running_tail[i] = before
    s.running[i] -= 1


@compiled
def _preempt(e: Engine, q: Requests, s: Replicas, i: int, now: float) -> None:
    """The sequence admitted last gives up its cache and waits, first in line, to be recomputed."""
    r = s.running_tail[i]
    _leave(q, s, i, r)
    left = q.last_iteration[r] - s.iteration[i]
    if q.last_iteration[r] > 0:  # it was decoding
        base, size = i * e.slots, s.decoding[i]
        at = 0
        while s.endings[base + at] != r:
            at += 1
        remove(s.endings, base, size, q.last_iteration, at)
        s.decoding[i] -= 1
        context = q.prompt[r] + q.completion[r] - left
        s.context[i] -= context
        s.kv[i] -= context
        q.need[r] = context
        q.last_iteration[r] = 0
    else:
        s.kv[i] -= q.need[r] + 1
        _unchain_prefill(q, s, i, r)
        s.work_s[i] -= _compute_s(e, q.done[r], q.need[r])
    q.done[r] = q.cached[r]
    q.preemptions[r] += 1
    if e.from_s <= now <= e.to_s:
        s.sums[PREEMPTIONS] += 1.0
    s.work_s[i] += _compute_s(e, q.done[r], q.need[r])
    q.after[r] = s.waiting_head[i]
    if s.waiting_head[i] == NONE:
        s.waiting_tail[i] = r
    s.waiting_head[i] = r


@compiled
def _unchain_prefill(q: Requests, s: Replicas, i: int, r: int) -> None:
    """Take request r, the last one, off replica i's prefilling list."""
    previous, at = NONE, s.prefill_head[i]
    while at != r:
        previous, at = at, q.after[at]
    if previous == NONE:
        s.prefill_head[i] = NONE
    else:
        q.after[previous] = NONE
    s.prefill_tail[i] = previous


@compiled
def _measure(e: Engine, s: Replicas, i: int, end_s: float) -> None:
    """Add replica i's segment to the sums, as far as it lies in the measured window."""
    start_s = s.start_s[i]
    inside = min(end_s, e.to_s) - max(start_s, e.from_s)
    if inside <= 0.0:
        return
    iterations = s.length[i] * (inside / (end_s - start_s))
    s.sums[BUSY_S] += inside
    s.sums[RUNNING_S] += s.running[i] * inside
    s.sums[ITERATIONS] += iterations
    s.sums[SEQUENCE_ITERATIONS] += (s.decoding[i] + s.prefilling[i]) * iterations


@compiled
def _end(e: Engine, q: Requests, s: Replicas, i: int) -> None:
    """End replica i's segment: sequences end, first tokens come, the next segment starts."""
    now = s.ends.key[i]
    _measure(e, s, i, now)
    length, held = s.length[i], s.held[i]
    s.iteration[i] += length
    s.context[i] += length * s.decoding[i]
    s.kv[i] += length * s.decoding[i]
    base = i * e.slots
    while s.decoding[i] > 0:
        r = s.endings[base]
        if q.last_iteration[r] > s.iteration[i]:
            break
        pop(s.endings, base, s.decoding[i], q.last_iteration)
        s.decoding[i] -= 1
        s.context[i] -= q.prompt[r] + q.completion[r]
        _finish(q, s, i, r, now)
    if s.prefilling[i] > 0:
        _end_prefill(e, q, s, i, now)
    if s.held[i] != held or (e.sees_work and s.prefilling[i] > 0):
        if s.prefill_head[i] == NONE and s.waiting_head[i] == NONE:
            s.work_s[i] = 0.0  # not what rounding leaves of it
        _show_load(e, s, i)
    _begin(e, q, s, i, now)


@compiled
def _finish(q: Requests, s: Replicas, i: int, r: int, now: float) -> None:
    """Request r has its last token."""
    s.kv[i] -= q.prompt[r] + q.completion[r]
    s.held[i] -= 1
    q.end_s[r] = now
    q.last_iteration[r] = 0
    _leave(q, s, i, r)


@compiled
def _end_prefill(e: Engine, q: Requests, s: Replicas, i: int, now: float) -> None:
    """Book the segment's chunks; whoever is done with its prefill has a token and decodes."""
    r = s.prefill_head[i]
    kept_head, kept_tail = NONE, NONE
    for _ in range(s.prefilling[i]):
        after = q.after[r]
        before = q.done[r]
        q.done[r] += s.length[i] * q.chunk[r]
        s.work_s[i] -= _compute_s(e, before, q.done[r])
        if q.done[r] < q.need[r]:
            if kept_head == NONE:
                kept_head = r
            else:
                q.after[kept_tail] = r
            kept_tail = r
        else:
            q.after[r] = NONE
            _start_decoding(e, q, s, i, r, now)
        r = after
    if kept_head == NONE:
        s.prefill_head[i] = r
    else:
        s.prefill_head[i] = kept_head
        q.after[kept_tail] = r
    if r == NONE:
        s.prefill_tail[i] = kept_tail


@compiled
def _start_decoding(e: Engine, q: Requests, s: Replicas, i: int, r: int, now: float) -> None:
    """Request r has a token out of its prefill: the first one, or the next after a preemption."""
    if q.first_token_s[r] < 0.0:
        q.first_token_s[r] = now
    generated = q.need[r] - q.prompt[r] + 1
    left = q.completion[r] - generated
    if left == 0:
        _finish(q, s, i, r, now)
        return
    q.last_iteration[r] = s.iteration[i] + left
    push(s.endings, i * e.slots, s.decoding[i], q.last_iteration, r)
    s.decoding[i] += 1
    s.context[i] += q.need[r] + 1
