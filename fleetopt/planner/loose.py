"""Targets so loose that every request meets them, whatever its prompt.

A shortcut, not a model: it accepts only what P(TTFT > target) accepts too, from three figures of
a pool instead of its whole mix of prompts. Where utilisation decides, it is all that is needed.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.pool import Sums
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import PROMPT_SQ
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX
from fleetopt.planner.ttft import compute_s, mean_field, prefill_load, slot_queue

Array = NDArray[np.float64]

_WAITS: Final = -math.log(0.5 * TTFT_VIOLATIONS_MAX)
"""Half of what is allowed: a margin for what three figures don't tell."""

_WORTH_A_LOOK: Final = 4.0
"""With less than so many times its own prefill, the longest prompt's waits must be worked out."""


def surely_meets(
    sums: Sums,
    longest_tokens: Array,
    replicas: Array,
    engine: EngineProfile,
    request: PlanRequest,
    dispersion: float,
) -> bool:
    """Whether all these pools meet the target at the longest prompt and at the shortest.

    Between them the slack is concave, so it is smallest at one of the two. The wait for prefill
    is bounded as if every arrival had to wait, with E[S²] ≤ (S/i of the longest)² · E[i²].
    """
    target, compute = request.slo_ttft_p99, compute_s(longest_tokens, engine)
    if (target.at(longest_tokens) < _WORTH_A_LOOK * compute).any():
        return False
    servers = replicas * request.node_availability
    load, iteration, sequences, decode = mean_field(sums.per_s, servers, engine)
    running = servers * sequences
    waits, _ = slot_queue(sums.per_s, sums.slot_count, servers, running, load, engine, dispersion)
    if waits.any():
        return False
    beside = decode + engine.per_context_token_s * longest_tokens
    own = (longest_tokens / engine.prefill_chunk_tokens + 2.0) * beside + compute
    slack = np.minimum(target.at(longest_tokens) - own, target.base_s - 2.0 * decode)
    slack -= np.maximum(iteration, decode)
    if engine.prefill_is_free:
        return bool((slack >= 0.0).all())
    work = prefill_load(sums.per_s, decode, engine)
    busy = work / servers
    service = decode / engine.prefill_chunk_tokens * longest_tokens + compute
    steepest = service / longest_tokens
    residual = 0.5 * steepest * steepest * sums.per_s[PROMPT_SQ] / np.maximum(work, 1e-300)
    residual += service / (3.0 * servers)
    backlog = dispersion * busy / (np.sqrt(servers) * np.maximum(1.0 - busy, 1e-9))
    return bool(((busy < 1.0) & (slack >= _WAITS * residual * (1.0 + backlog))).all())
