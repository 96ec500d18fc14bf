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
from fleetopt.planner.service import PROMPT, PROMPT_SQ
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX
from fleetopt.planner.ttft import compute_s, mean_field, slot_queue

Array = NDArray[np.float64]

_POINT_OVER_LONGEST: Final = (1.0 + math.sqrt(2.0)) / 2.0
"""A bin's upper point is mean + deviation: at most so many times its longest prompt."""

_WAITS: Final = -math.log(TTFT_VIOLATIONS_MAX)


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
    is bounded as if every arrival had to wait and the prefill in progress were the longest.
    """
    servers = replicas * request.node_availability
    load, iteration, sequences, decode = mean_field(sums.per_s, servers, engine)
    running = servers * sequences
    waits, _ = slot_queue(sums.per_s, sums.slot_count, servers, running, load, engine, dispersion)
    if waits.any():
        return False
    longest = longest_tokens * _POINT_OVER_LONGEST
    per_token = decode / engine.prefill_chunk_tokens
    compute = compute_s(longest, engine)
    beside = decode + engine.per_context_token_s * longest
    own = (longest / engine.prefill_chunk_tokens + 2.0) * beside + compute
    target = request.slo_ttft_p99
    slack = np.minimum(target.at(longest) - own, target.base_s - 2.0 * decode)
    slack -= np.maximum(iteration, decode)
    if engine.prefill_is_free:
        return bool((slack >= 0.0).all())
    compute_load = 0.5 * engine.prefill_token_context_s * sums.per_s[PROMPT_SQ]
    busy = ((per_token + engine.prefill_token_s) * sums.per_s[PROMPT] + compute_load) / servers
    backlog = dispersion * busy / (np.sqrt(servers) * np.maximum(1.0 - busy, 1e-9))
    scale = 0.5 * (per_token * longest + compute) * (1.0 + backlog)
    return bool(((busy < 1.0) & (slack >= _WAITS * scale)).all())
