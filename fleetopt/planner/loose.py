"""Targets so loose that every request meets them, whatever its prompt.

A shortcut, not a model: it accepts only what P(TTFT > target) accepts too, from three figures of
a pool instead of its whole mix of prompts. Where utilisation decides, it is all that is needed.
"""

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.availability import replicas_up
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.mean_field import mean_field
from fleetopt.planner.pool import Sums
from fleetopt.planner.prefill_queue import running_iteration, shared_budget
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.slot_queue import slot_queue
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX
from fleetopt.planner.ttft import NEGLIGIBLE_DELAY, Bursts, Queues, exceedance, longest_own_time_s

Array = NDArray[np.float64]


def surely_meets(
    sums: Sums,
    prompts: Array,
    longest_tokens: Array,
    replicas: Array,
    engine: EngineProfile,
    request: PlanRequest,
    bursts: Bursts,
) -> bool:
    """Whether all these pools meet the target at the longest prompt and at the shortest.

    Parameters
    ----------
    sums : Sums
        The pools' work and slots.
    prompts : shape (2, pools)
        Mean u of the computed tokens of the pools' prompt points, and at least that of q.
    longest_tokens : shape (pools,)
        At least as long as any prompt point of the pool.
    replicas : shape (pools,)
        Provisioned, more than the load.
    engine : EngineProfile
        The engine of all of them.
    request : PlanRequest
        Its target and node availability.
    bursts : Bursts
        Of the arrivals.

    Returns
    -------
    bool
        True is certain; False says nothing, and the mix of prompts decides.

    Notes
    -----
    Between the two the slack is concave, so it is smallest at one of them. Moments of prefill
    times are bounded by that of the longest prompt: u² ≤ q and s ≤ steepest · longest. The means
    are those of the prompt points, not of the work: what compression leaves of a bin is taken to
    be like the whole bin there, and so is how much of it is cached.
    """
    if request.has_further_targets:
        return False
    servers = replicas_up(replicas, request.node_availability)
    per_s = sums.per_s
    field = mean_field(per_s, servers, engine, bursts.prefill)
    waits, scale = slot_queue(per_s, sums.slot_count, servers, field, engine, bursts.slots)
    if (waits > NEGLIGIBLE_DELAY).any():
        return False
    if engine.prefill_is_free:
        queue = running_iteration(field)
    else:
        a = field.decode_s / engine.prefill_chunk_tokens + engine.prefill_token_s
        b = 0.5 * engine.prefill_token_context_s
        u, q = prompts
        steepest = a + b * longest_tokens
        mean = np.maximum(a * u + b * q, 1e-300)
        residual = 0.5 * steepest * steepest * q / mean  # u² ≤ q
        tail = steepest * longest_tokens / 3.0
        attention = b * q / np.maximum(u, 1e-300)
        full = field.decode_s + engine.prefill_chunk_tokens * (engine.prefill_token_s + attention)
        busy = per_s[REQUESTS] / servers * mean
        queue = shared_budget(busy, full, residual, tail, servers, field, bursts.prefill)
    target = request.slo_ttft_p99
    ends = np.stack([np.zeros_like(longest_tokens), longest_tokens], axis=1)
    slack = target.at(ends) - longest_own_time_s(ends, field, engine)
    over = exceedance(Queues(field, queue, waits, scale), slack)
    return bool((over <= TTFT_VIOLATIONS_MAX).all())
