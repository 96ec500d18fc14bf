"""The length bins that every sketch and every plan share: eight per octave, aligned, mergeable.

B and γB always fall on an edge, so nothing is ever interpolated inside a bin.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

BINS_PER_OCTAVE: Final = 8
FIRST_EDGE_TOKENS: Final = 64
OCTAVES: Final = 14

EDGES_TOKENS: Final[NDArray[np.int64]] = np.floor(
    FIRST_EDGE_TOKENS * 2.0 ** (np.arange(OCTAVES * BINS_PER_OCTAVE + 1) / BINS_PER_OCTAVE)
).astype(np.int64)
"""Inclusive upper edges floor(64 · 2^(k/8)), k = 0 … 112: from 64 to 1,048,576 tokens."""
EDGES_TOKENS.setflags(write=False)

BINS: Final = EDGES_TOKENS.size + 1
"""Bin 0 holds L ≤ 64; bin k holds EDGES[k-1] < L ≤ EDGES[k]; the last holds all above."""


def bin_of(total_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the bin that each request's total tokens (prompt + completion) fall in."""
    return np.searchsorted(EDGES_TOKENS, total_tokens, side="left")


def bin_holding(tokens: int) -> int:
    """Index of the bin that holds a request of this length."""
    return int(np.searchsorted(EDGES_TOKENS, tokens, side="left"))


def nearest_edges(tokens: int) -> tuple[int, ...]:
    """The edges at or next to `tokens`: one when it is an edge, else the ones on both sides."""
    above = bin_holding(tokens)
    if above < EDGES_TOKENS.size and EDGES_TOKENS[above] == tokens:
        return (tokens,)
    around = EDGES_TOKENS[max(above - 1, 0) : above + 1]
    return tuple(int(edge) for edge in around)
