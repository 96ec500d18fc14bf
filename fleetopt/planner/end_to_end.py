"""P(time from arrival to last token > target): TTFT, and an iteration for each further token.

All functions take a batch of pools of one engine; arrays have one entry per pool.
How far it is off: docs/planner.md, "End to end and between tokens".
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.inter_token import TokenGaps
from fleetopt.planner.length_points import LengthMix
from fleetopt.planner.mean_field import MeanField
from fleetopt.planner.target import E2eTarget
from fleetopt.planner.ttft import Queues, exceedance, own_time_s

Array = NDArray[np.float64]

_OWN: Final = 0.5
_SAFETY: Final = 1.08
"""Calibrated on 130 simulated pools, a little on the safe side."""


def token_s(field: MeanField, gaps: TokenGaps, engine: EngineProfile) -> Array:
    """Mean time of a request's further tokens, shape (pools,).

    A request's own prefill is over by then, and whoever is alone sees nobody else's. Iterations
    that take longer hold more sequences, so a sequence sees more of these.
    """
    iteration = field.iteration_s
    if not engine.prefill_is_free:
        seen = _OWN + (1.0 - _OWN) * gaps.seen_share
        iteration = gaps.decode_s + (iteration - gaps.decode_s) * seen
    return np.asarray(_SAFETY * iteration * (1.0 + np.square(gaps.deviation_s / iteration)))


def served_s(lengths: LengthMix, field: MeanField, gaps: TokenGaps, engine: EngineProfile) -> Array:
    """Time end to end without waiting, shape (pools, points)."""
    further = np.maximum(lengths.completion - 1.0, 0.0)
    own = own_time_s(lengths.prompts, field, engine)
    return np.asarray(own + further * token_s(field, gaps, engine)[:, None])


def late_share(
    state: Queues, gaps: TokenGaps, lengths: LengthMix, engine: EngineProfile, target: E2eTarget
) -> Array:
    """Share of each pool's requests that take longer end to end than the target."""
    slack = target.at(lengths.completion) - served_s(lengths, state.field, gaps, engine)
    over = lengths.prompts.share * exceedance(state, slack)
    return np.asarray(np.minimum(over.sum(axis=1), 1.0))
