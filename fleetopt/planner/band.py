"""The compression band B < L ≤ γB: which of its requests move to the short pool, and as what.

A compressed request arrives with i = B − o: priced so, and never as an average short one.
What is cut from a prompt breaks the cached prefix, so none of a compressed one is cached.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.moments import (
    CACHED,
    CACHED_SQ,
    COMPLETION,
    COMPLETION_SQ,
    COUNT,
    CROSS,
    PROMPT,
    PROMPT_SQ,
)

Array = NDArray[np.float64]

KEPT_PROMPT_SHARE: Final = 0.125
"""A compressed prompt keeps at least this share of B: the system prompt, the last turn and the
tool definitions are never cut, so a request whose output leaves less room stays long."""


def stay_share(mean_output: Array, deviation: Array, boundary_tokens: Array) -> Array:
    """Share of a group's requests that leave no room for a compressed prompt under B.

    Parameters
    ----------
    mean_output : Array
        Mean of o in each group, tokens.
    deviation : Array
        Standard deviation of o in each group, tokens.
    boundary_tokens : Array
        B, of a shape that broadcasts with both.

    Returns
    -------
    Array
        In 0…1: P(o > room) for outputs about as spread as those of chat and agents; 1 where even
        the mean output doesn't fit. Not above what holds for every distribution (Cantelli).

    Notes
    -----
    With x = (room − mean)/deviation it is exp(−0.55 − 0.85·x − 0.12·x²), fitted to Azure's chat
    trace and to generated chat, agentic and long-context traffic, or the exponential tail
    exp(−1 − x) where that is more. What doesn't stay in one pool is counted in the other, so a
    bound that is far off would be wrong in either.
    """
    room = room_tokens(boundary_tokens) - mean_output
    x = np.minimum(np.maximum(room, 0.0) / np.maximum(deviation, 1e-6), 700.0)
    exponent = np.minimum(0.55 + x * (0.85 + 0.12 * x), 1.0 + x)
    return np.where(room > 0.0, np.minimum(np.exp(-exponent), 1.0 / (1.0 + x * x)), 1.0)


def room_tokens(boundary_tokens: Array) -> Array:
    """The longest output that leaves room for a compressed prompt under B."""
    return boundary_tokens * (1.0 - KEPT_PROMPT_SHARE)


def compressed(moments: Array, boundary_tokens: Array) -> Array:
    """Moments of the same requests after compression to i = B − o.

    Parameters
    ----------
    moments : shape (8, …)
        Moments before compression; only n, Σo and Σo² matter.
    boundary_tokens : shape (…,)
        B, at least every output.

    Returns
    -------
    shape (8, …)
        Σi = B·n − Σo, Σi·o = B·Σo − Σo² and Σi² = B·Σi − Σi·o; nothing is cached.
    """
    after = np.array(moments)
    count, output, output_sq = moments[COUNT], moments[COMPLETION], moments[COMPLETION_SQ]
    after[PROMPT] = boundary_tokens * count - output
    after[CROSS] = boundary_tokens * output - output_sq
    after[PROMPT_SQ] = boundary_tokens * after[PROMPT] - after[CROSS]
    after[CACHED] = after[CACHED_SQ] = 0.0
    return after
