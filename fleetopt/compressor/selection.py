"""Which units stay: the best that fit, then an exact recount of what they make together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Token counts of units don't add up exactly: their text joins differently.
_FIRST_MARGIN_TOKENS: Final = 16
_NEXT_MARGIN_TOKENS: Final = 2
_MAX_ROUNDS: Final = 4
# Good enough: another recount would cost more than it could add.
FILL: Final = 0.98

Kept = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Selection:
    """Kept units and the exact tokens of the whole prompt with them."""

    kept: Kept
    tokens: int


def select(
    scores: NDArray[np.float64],
    unit_tokens: NDArray[np.int64],
    forced: Kept,
    fixed_tokens: int,
    budget_tokens: int,
    recount: Callable[[Kept], int],
) -> Selection | None:
    """Keep the best units within the budget; None where no round ends within it.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
        Higher is better; ties go to the earlier unit.
    unit_tokens : ndarray of int64, shape (n,)
        About the tokens of each unit.
    forced : ndarray of bool, shape (n,)
        Taken before all others, as far as they fit.
    fixed_tokens : int
        About the tokens of everything that isn't a unit.
    budget_tokens : int
        Most tokens that the whole prompt may have.
    recount : callable
        Exact tokens of the whole prompt with the given units.
    """
    order = np.lexsort((np.arange(len(scores)), -scores, ~forced))
    ordered_tokens = unit_tokens[order]
    room = budget_tokens - fixed_tokens - _FIRST_MARGIN_TOKENS
    best: Selection | None = None
    tried: set[int] = set()
    for _ in range(_MAX_ROUNDS):
        if room < 0:
            break
        kept = np.zeros(len(scores), np.bool_)
        taken = fill(ordered_tokens, room)
        kept[order[taken]] = True
        estimate = int(ordered_tokens[taken].sum())
        if estimate in tried:
            break
        tried.add(estimate)
        exact = recount(kept)
        if exact <= budget_tokens and (best is None or exact > best.tokens):
            best = Selection(kept, exact)
        if (FILL * budget_tokens <= exact <= budget_tokens) or (
            exact <= budget_tokens and kept.all()
        ):
            break
        room = estimate + budget_tokens - exact - _NEXT_MARGIN_TOKENS
    return best


def fill(tokens: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """Return the indices taken when each that still fits is taken, in order."""
    taken = []
    begin = 0
    while begin < len(tokens):
        # Every unit has a token or more, so no more than `room` of them can fit.
        total = np.cumsum(tokens[begin : begin + room + 1])
        fits = int(np.searchsorted(total, room, side="right"))
        taken.append(np.arange(begin, begin + fits))
        if fits:
            room -= int(total[fits - 1])
        begin += fits
        # On to the next that fits by itself.
        later = np.flatnonzero(tokens[begin:] <= room)
        if len(later) == 0:
            break
        begin += int(later[0])
    return np.concatenate(taken) if taken else np.zeros(0, np.int64)
