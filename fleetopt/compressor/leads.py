"""Units that say what comes after them: headings, and sentences that end with a colon.

Such a unit is worth what it leads to. Without it the rest hangs in the air; without the rest it
says nothing.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.characters import SPACE, Characters
from fleetopt.compressor.scores import Scores

Positions = NDArray[np.int64]

_HASH: Final = ord("#")
_COLONS: Final = np.array([ord(":"), ord("\N{FULLWIDTH COLON}")], np.uint32)
_MAX_HEADING_CHARACTERS: Final = 160
_LED_UNITS: Final = 8
"""What a colon leads to, at most; mostly a list."""

_ABOVE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Leads:
    """Which of n units lead to others."""

    headings: Positions
    """In order; what one leads to ends at the next."""

    colons: Positions
    """In order."""

    forced: NDArray[np.bool_]
    """Of n: those that lead to text which stays in any case, such as a list or a table."""


def leads_of(characters: Characters, begin: Positions, end: Positions) -> Leads:
    """Find the units that lead to others.

    Parameters
    ----------
    characters : Characters
        Of all texts.
    begin, end : ndarray of int64, shape (n,)
        Of each unit, in order; what is between two units stays.
    """
    solid = np.flatnonzero((characters.flags & SPACE) == 0)
    n = len(begin)
    if not n or not len(solid):
        nothing = np.zeros(0, np.int64)
        return Leads(nothing, nothing, np.zeros(n, np.bool_))
    first = solid[np.minimum(np.searchsorted(solid, begin), len(solid) - 1)]
    last = solid[np.maximum(np.searchsorted(solid, end) - 1, 0)]
    is_filled = (first < end) & (last >= begin)
    is_short = end - begin <= _MAX_HEADING_CHARACTERS
    is_heading = is_filled & is_short & (characters.codes[first] == _HASH)
    is_colon = is_filled & ~is_heading & np.isin(characters.codes[last], _COLONS)
    # What stays begins where a unit ends and no other begins.
    stays_behind = np.append(begin[1:] > end[:-1], False)
    return Leads(np.flatnonzero(is_heading), np.flatnonzero(is_colon), is_colon & stays_behind)


def lifted(scores: Scores, leads: Leads) -> Scores:
    """Return the scores with each unit that leads to others worth the best of these.

    Ties go to the earlier unit, so that it is taken first; and a little more than a tie, so that
    rounding decides nothing.
    """
    if not len(leads.headings) and not len(leads.colons):
        return scores
    scores = scores.copy()
    n = len(scores)
    colons = leads.colons[leads.colons < n - 1]
    if len(colons):
        ends = np.minimum(colons + 1 + _LED_UNITS, n)
        spans = np.minimum(colons[:, None] + 1 + np.arange(_LED_UNITS), ends[:, None] - 1)
        scores[colons] = np.maximum(scores[colons], scores[spans].max(axis=1) + _ABOVE)
    headings = leads.headings
    if len(headings):
        best = np.maximum.reduceat(scores, headings)
        follows = np.append(np.diff(headings) == 1, False)
        # A heading right above another one leads to what that leads to.
        for at in np.flatnonzero(follows)[::-1].tolist():
            best[at] = max(best[at], best[at + 1])
        scores[headings] = np.maximum(scores[headings], best + _ABOVE)
    return scores
