"""The words of a text as numbers, and which unit holds which of them how often.

A word is a run of letters and digits; in a script without spaces it is a pair of characters. Words
are told apart by a 44-bit hash of their code points with fixed constants, the same everywhere.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.characters import DIGIT, EXTENDS, LETTER, UNSPACED, UPPER, Characters

Hashes = NDArray[np.uint64]

_BASE: Final = 0x9E3779B97F4A7C15
_BASE_INVERSE: Final = pow(_BASE, -1, 2**64)
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_PAIR: Final = np.uint64(0x94D049BB133111EB)
# Set in the hash of a pair of characters, clear in that of a word.
_PAIR_BIT: Final = np.uint64(1)
_MIN_PLURAL: Final = 4
_UNIT_BITS: Final = 20
_HASH_SHIFT: Final = np.uint64(_UNIT_BITS)
_UNIT_MASK: Final = np.uint64((1 << _UNIT_BITS) - 1)
# Texts with more units are refused before they come here.
MAX_UNITS: Final = 1 << _UNIT_BITS


@dataclass(frozen=True, slots=True)
class Words:
    """Every word of a text in order."""

    begin: NDArray[np.int64]
    hashes: Hashes
    # Whether the word is a number, or begins with a capital.
    number: NDArray[np.bool_]
    capital: NDArray[np.bool_]

    @classmethod
    def of(cls, characters: Characters) -> "Words":
        """Find and hash all words."""
        flags = characters.flags
        folded = characters.folded()
        begin, end = _runs((flags & (LETTER | DIGIT | EXTENDS)) > 0, (flags & UNSPACED) > 0)
        hashes = _hash_runs(folded, begin, _without_plural(folded, begin, end)) & ~_PAIR_BIT
        number, capital = (flags[begin] & DIGIT) > 0, (flags[begin] & UPPER) > 0
        pairs = _unspaced_pairs(flags)
        if len(pairs) == 0:
            return cls(begin, hashes, number, capital)
        first, second = pairs[:, 0], pairs[:, 1]
        pair_hashes = folded[first] * _PAIR + (folded[second] + np.uint64(1)) * _MIX
        all_begin = np.concatenate((begin, first))
        order = np.argsort(all_begin, kind="stable")
        neither = np.zeros(len(first), np.bool_)
        return cls(
            all_begin[order],
            np.concatenate((hashes, _scramble(pair_hashes) | _PAIR_BIT))[order],
            np.concatenate((number, neither))[order],
            np.concatenate((capital, neither))[order],
        )


@dataclass(frozen=True, slots=True)
class TermMatrix:
    """Which unit holds which term: a sparse matrix by term, then unit."""

    n_units: int
    # Per stored pair.
    term: NDArray[np.int64]
    unit: NDArray[np.int64]
    count: NDArray[np.float64]
    # Per term: its hash, its first pair, the units that hold it, whether it is a number or a name.
    hashes: Hashes
    term_begin: NDArray[np.int64]
    document_frequency: NDArray[np.float64]
    notable: NDArray[np.bool_]

    @classmethod
    def of(
        cls, hashes: Hashes, notable: NDArray[np.bool_], units: NDArray[np.int64], n_units: int
    ) -> "TermMatrix":
        """Count the words of each unit. `units` gives the unit of each word, in order."""
        keys = np.sort((hashes << _HASH_SHIFT) | units.astype(np.uint64))
        pair_begin = np.flatnonzero(_changes(keys))
        count = np.diff(np.append(pair_begin, len(keys))).astype(np.float64)
        keys = keys[pair_begin]
        terms = keys >> _HASH_SHIFT
        new_term = _changes(terms)
        term_begin = np.flatnonzero(new_term)
        term_hashes = terms[term_begin]
        term_notable = np.zeros(len(term_begin), np.bool_)
        term_notable[np.searchsorted(term_hashes, term_of(hashes[notable]))] = True
        return cls(
            n_units=n_units,
            term=np.cumsum(new_term) - 1,
            unit=(keys & _UNIT_MASK).astype(np.int64),
            count=count,
            hashes=term_hashes,
            term_begin=term_begin,
            document_frequency=np.diff(np.append(term_begin, len(keys))).astype(np.float64),
            notable=term_notable,
        )


def is_pair(hashes: Hashes) -> NDArray[np.bool_]:
    """Return which are pairs of characters of a script without spaces."""
    return (hashes & _PAIR_BIT) > 0


def term_of(hashes: Hashes) -> Hashes:
    """Cut word hashes to the bits that a `TermMatrix` keeps."""
    return (hashes << _HASH_SHIFT) >> _HASH_SHIFT


def _changes(values: Hashes) -> NDArray[np.bool_]:
    changes = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _runs(
    inside: NDArray[np.bool_], apart: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    spaced = np.zeros(len(inside) + 2, np.int8)
    spaced[1:-1] = inside & ~apart
    edges = np.flatnonzero(spaced[1:] != spaced[:-1])
    return edges[0::2], edges[1::2]


def _unspaced_pairs(flags: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return the positions of neighbours in a script without spaces, over marks between them."""
    at = np.flatnonzero(flags & UNSPACED)
    if len(at) < 2:
        return np.zeros((0, 2), np.int64)
    near = np.flatnonzero(at[1:] - at[:-1] <= 2)
    return np.stack((at[near], at[near + 1]), axis=1)


def _hash_runs(
    codes: NDArray[np.uint32], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> Hashes:
    """Return a polynomial hash of each run, by differences of one running sum (mod 2^64)."""
    power, inverse = _powers(_rounded(len(codes) + 1))
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum((codes + np.uint64(1)) * power[: len(codes)], out=sums[1:])
    return _scramble((sums[end] - sums[begin]) * inverse[begin])


def _without_plural(
    codes: NDArray[np.uint32], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return ends before a final s, so that a question about chloroplasts finds a chloroplast."""
    plural = (end - begin >= _MIN_PLURAL) & (codes[end - 1] == ord("s"))
    plural &= codes[end - 2] != ord("s")
    singular: NDArray[np.int64] = end - plural
    return singular


def _scramble(hashes: Hashes) -> Hashes:
    hashes = hashes ^ (hashes >> np.uint64(30))
    hashes = hashes * _MIX
    return hashes ^ (hashes >> np.uint64(27))


def _rounded(length: int) -> int:
    return 1 << max(length - 1, 1 << 14).bit_length()


@lru_cache(maxsize=2)
def _powers(length: int) -> tuple[Hashes, Hashes]:
    return _power_table(_BASE, length), _power_table(_BASE_INVERSE, length)


def _power_table(base: int, length: int) -> Hashes:
    table = np.full(length, base, np.uint64)
    table[0] = 1
    return np.multiply.accumulate(table)
