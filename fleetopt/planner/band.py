"""The compression band B < L ≤ γB: which of its requests move to the short pool, and as what.

A compressed request arrives with i = B − o: priced so, and never as an average short one.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KEPT_PROMPT_SHARE: Final = 0.125
"""A compressed prompt keeps at least this share of B: the system prompt, the last turn and the
tool definitions are never cut, so a request whose output leaves less room stays long."""


def fitting_share(moments: Array, boundary_tokens: Array) -> Array:
    """Share of a group's requests that surely leave room for a compressed prompt under B.

    Parameters
    ----------
    moments : shape (…, 6)
        n, Σi, Σo, … of each group of requests.
    boundary_tokens : shape (…,)
        B.

    Returns
    -------
    Array, shape (…,)
        In 0…1: Cantelli's lower bound on P(o ≤ B − room), from the mean and the variance of o
        alone, so that no output length distribution makes it too high; 0 where even the mean
        output doesn't fit.
    """
    count = np.maximum(moments[..., 0], 1e-300)
    mean = moments[..., 2] / count
    variance = np.maximum(moments[..., 5] / count - mean * mean, 0.0)
    room = boundary_tokens * (1.0 - KEPT_PROMPT_SHARE) - mean
    fits = room * room
    share = fits / np.maximum(fits + variance, 1e-300)
    return np.where((room > 0.0) & (moments[..., 0] > 0.0), share, 0.0)


def compressed(moments: Array, boundary_tokens: Array) -> Array:
    """Moments of the same requests after compression to i = B − o.

    Parameters
    ----------
    moments : shape (…, 6)
        Moments before compression; only n, Σo and Σo² matter.
    boundary_tokens : shape (…,)
        B.
    """
    count, output, output_sq = moments[..., 0], moments[..., 2], moments[..., 5]
    prompt = boundary_tokens * count - output
    cross = boundary_tokens * output - output_sq
    prompt_sq = boundary_tokens * prompt - cross
    return np.stack([count, prompt, output, prompt_sq, cross, output_sq], axis=-1)
