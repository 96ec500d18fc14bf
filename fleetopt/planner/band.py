"""The compression band B < L ≤ γB: which of its requests move to the short pool, and as what.

A compressed request arrives with i = B − o: priced so, and never as an average short one.
What is cut from a prompt breaks the cached prefix, so none of a compressed one is cached.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.moments import CACHED, CACHED_SQ

Array = NDArray[np.float64]

KEPT_PROMPT_SHARE: Final = 0.125
"""A compressed prompt keeps at least this share of B: the system prompt, the last turn and the
tool definitions are never cut, so a request whose output leaves less room stays long."""


def fitting_share(mean_output: Array, output_variance: Array, boundary_tokens: Array) -> Array:
    """Share of a group's requests that leave room for a compressed prompt under B.

    Parameters
    ----------
    mean_output : Array
        Mean of o in each group, tokens.
    output_variance : Array
        Variance of o in each group, tokens².
    boundary_tokens : Array
        B, of a shape that broadcasts with both.

    Returns
    -------
    Array
        In 0…1: P(o ≤ room) if o has an exponential tail of this mean and variance, which is
        1 − exp(−1 − (room − mean)/deviation); 0 where even the mean output doesn't fit.

    Notes
    -----
    A bound that holds for every distribution is of no use here: too few are as wrong as too
    many, since what is not counted in one pool is counted in the other.
    """
    room = boundary_tokens * (1.0 - KEPT_PROMPT_SHARE) - mean_output
    deviations = room / np.sqrt(np.maximum(output_variance, 1e-12))
    return np.where(room > 0.0, -np.expm1(-1.0 - np.clip(deviations, 0.0, 700.0)), 0.0)


def compressed(moments: Array, boundary_tokens: Array) -> Array:
    """Moments of the same requests after compression to i = B − o.

    Parameters
    ----------
    moments : shape (8, …)
        Moments before compression; only n, Σo and Σo² matter.
    boundary_tokens : shape (…,)
        B.
    """
    after = np.array(moments)
    count, output, output_sq = moments[0], moments[2], moments[5]
    after[1] = boundary_tokens * count - output
    after[4] = boundary_tokens * output - output_sq
    after[3] = boundary_tokens * after[1] - after[4]
    after[CACHED] = after[CACHED_SQ] = 0.0
    return after
