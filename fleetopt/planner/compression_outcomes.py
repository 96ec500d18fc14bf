"""What became of prompts that were to be compressed, by class and length.

Whole numbers, so that merging is exact in any order.
"""

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.bins import BINS, bin_of
from fleetopt.planner.moments import Compressibility


class CompressionOutcome(IntEnum):
    """What an attempt came to; requests that nobody tried to compress have none."""

    COMPRESSED = 0
    NOT_ELIGIBLE = 1
    """The prompt is of a kind that is sent on unchanged, whenever it is tried."""
    FAILED = 2
    """Nothing is known against the prompt: no time, no room, no token counter, or a fault."""


OUTCOME_CLASSES: Final = (Compressibility.COMPRESSIBLE, Compressibility.UNKNOWN)
"""In the order of their rows. Nobody is to compress the others."""

TOKENS_BEFORE: Final = len(CompressionOutcome)
TOKENS_AFTER: Final = TOKENS_BEFORE + 1
OUTCOME_SUMS: Final = TOKENS_AFTER + 1
"""Attempts by CompressionOutcome, then prompt tokens before and after of the compressed."""

_SHAPE: Final = (len(OUTCOME_CLASSES), BINS, OUTCOME_SUMS)
_NO_ROW: Final = -1
_ROW_OF_CLASS: Final = np.array(
    [OUTCOME_CLASSES.index(one) if one in OUTCOME_CLASSES else _NO_ROW for one in Compressibility]
)

OutcomeCounts = NDArray[np.int64]
"""Sums per class and bin of the total tokens before compression; merged by addition."""


def no_outcomes() -> OutcomeCounts:
    """Return counts of no attempt."""
    return np.zeros(_SHAPE, dtype=np.int64)


def outcome_counts(
    outcome: NDArray[np.int8],
    prompt_tokens: NDArray[np.int64],
    sent_prompt_tokens: NDArray[np.int64],
    completion_tokens: NDArray[np.int64],
    compressibility: NDArray[np.int8],
) -> OutcomeCounts:
    """Count attempts by class, length before compression, and what they came to.

    Parameters
    ----------
    outcome : NDArray[np.int8], shape (requests,)
        CompressionOutcome, below 0 where nobody tried.
    prompt_tokens, sent_prompt_tokens : NDArray[np.int64], shape (requests,)
        Before and after compression.
    completion_tokens : NDArray[np.int64], shape (requests,)
        As the engine counted them; they are part of the length.
    compressibility : NDArray[np.int8], shape (requests,)
        Compressibility; attempts on what is FIXED are left out.

    Examples
    --------
    >>> one = [np.array([value]) for value in (0, 900, 600, 100, 0)]
    >>> outcome_counts(*one).sum(axis=(0, 1)).tolist()
    [1, 0, 0, 900, 600]
    """
    row = _ROW_OF_CLASS[compressibility]
    tried = (outcome >= 0) & (row != _NO_ROW)
    counts = no_outcomes()
    at = row[tried], bin_of(prompt_tokens[tried] + completion_tokens[tried])
    np.add.at(counts, (*at, outcome[tried]), 1)
    is_compressed = outcome[tried] == CompressionOutcome.COMPRESSED
    done = at[0][is_compressed], at[1][is_compressed]
    np.add.at(counts, (*done, TOKENS_BEFORE), prompt_tokens[tried][is_compressed])
    np.add.at(counts, (*done, TOKENS_AFTER), sent_prompt_tokens[tried][is_compressed])
    return counts


EVIDENCE_OF_PRIOR: Final = 20.0
"""So many attempts count as much as what was believed before them."""


def success_shares(counts: OutcomeCounts, compressible_share: float) -> NDArray[np.float64]:
    """Share of the requests of each class and bin that a compression would shorten.

    Parameters
    ----------
    counts : OutcomeCounts
        What attempts came to in the window.
    compressible_share : float
        p_c, believed of requests whose class is unknown where nothing is known, in 0…1.

    Returns
    -------
    NDArray[np.float64], shape (classes, BINS)
        In 0…1. A bin is drawn towards its class, and a class towards 1 (compressible) or p_c.
    """
    attempts = counts[:, :, :TOKENS_BEFORE].sum(axis=2).astype(np.float64)
    done = counts[:, :, CompressionOutcome.COMPRESSED].astype(np.float64)
    believed = np.array([1.0, compressible_share])[:, None]
    k = EVIDENCE_OF_PRIOR
    of_class = done.sum(axis=1, keepdims=True) + k * believed
    of_class /= attempts.sum(axis=1, keepdims=True) + k
    return np.asarray((done + k * of_class) / (attempts + k))


def informed_by(
    values: NDArray[np.float64], counts: OutcomeCounts | None, compressible_share: float
) -> NDArray[np.float64]:
    """Move requests that compression would not shorten to those that are fixed.

    Parameters
    ----------
    values : NDArray[np.float64], shape (3, BINS, moments)
        Token moments by Compressibility and bin.
    counts : OutcomeCounts, optional
        What attempts came to; without any, nothing is moved.
    compressible_share : float
        p_c, in 0…1.

    Returns
    -------
    NDArray[np.float64], of the same shape
        The same sums over all classes. Where there is evidence, no request's class is unknown.
    """
    if counts is None:
        return values
    share = success_shares(counts, compressible_share)[:, :, None]
    tried = values[list(OUTCOME_CLASSES)]
    shortened = (share * tried).sum(axis=0)
    informed = np.zeros_like(values)
    informed[Compressibility.COMPRESSIBLE] = shortened
    informed[Compressibility.FIXED] = values[Compressibility.FIXED] + tried.sum(axis=0) - shortened
    return informed
