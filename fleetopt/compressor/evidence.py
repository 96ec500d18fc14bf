"""What each line looks like on its own: its kind, and how much it speaks for or against prose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.content import Content
from fleetopt.compressor.lines import Lines, Mark, key

KINDS: Final = tuple(Content)
PROSE, CODE, JSON, XML, TABLE, LOG, MATH, DATA = range(len(KINDS))


def _keys(words: str) -> NDArray[np.uint64]:
    return np.unique(np.array([key(word) for word in words.split()], np.uint64))


# Words that begin lines of code far more often than lines of prose …
_SURE: Final = _keys(
    "def elif async await @property @override @static #include #define #ifdef #ifndef #endif "
    "#pragma #if #else #undef #elif func fn impl struct enum typedef extern const let var "
    "static void public private protected namespace template typename using unsigned printf "
    "println fmt sudo apt pip npm git echo export mkdir chmod curl docker cd SELECT INSERT "
    "UPDATE DELETE CREATE ALTER DROP FROM WHERE JOIN LEFT INNER GROUP ORDER VALUES println! "
    "console elsif endif esac fi done mut pub crate mod match defer chan package interface "
    "extends implements throws @Override @Test char int float double bool boolean string "
    "String uint8_t size_t auto self this "
)
# … and words that begin either.
_MAYBE: Final = _keys(
    "if else for while return import from class try except finally with raise assert pass break "
    "continue lambda yield switch case default do then use function new throw catch goto type del "
    "global nonlocal in not end begin set"
)
_LEVELS: Final = _keys(
    "INFO WARN WARNING ERROR DEBUG TRACE FATAL CRITICAL NOTICE SEVERE info warn error debug"
)
_SPEAKERS: Final = _keys(
    "user User USER assistant Assistant system System human Human bot Bot ai AI q Q a A note Note "
    "http https ftp from From to To subject Subject date Date Re re"
)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """One entry a line."""

    kind: NDArray[np.int8]
    """What the line is if it isn't prose."""
    score: NDArray[np.float64]
    """Above 0 for atoms, below 0 for prose, near 0 undecided."""


def evidence(lines: Lines) -> Evidence:
    """Look at each line on its own, and at its next where tables show by that."""
    count = lines.count
    first, second = lines.character(0), lines.character(1)
    final = lines.data[lines.last]
    length = (lines.last - lines.first + 1).astype(np.float64)
    spaces = count(Mark.SPACE, Mark.TAB)
    sure = np.isin(lines.words, _SURE)
    maybe = np.isin(lines.words, _MAYBE)
    indented = lines.first - lines.starts >= 4
    indented |= (lines.first > lines.starts) & (lines.data[lines.starts] == 9)

    hard = count(
        Mark.BRACKET, Mark.SEMICOLON, Mark.OPERATOR, Mark.EQUALS, Mark.UNDERSCORE, Mark.BACKSLASH
    )
    soft = count(Mark.PAREN, Mark.QUOTE, Mark.COLON, Mark.ANGLE, Mark.SLASH, Mark.PIPE)
    density = (hard + 0.5 * soft + lines.pairs) / length
    brace = np.isin(final, _bytes("{};"))
    ends_colon = final == ord(":")
    slashes = (first == ord("/")) & ((second == ord("/")) | (second == ord("*")))
    hashes = (first == ord("#")) & (second != ord("#")) & ~lines.after_blank
    no_letters = length <= count(*[m for m in Mark if m not in (Mark.LETTER, Mark.DIGIT)])
    # A sentence: words with spaces between, hardly any mark but commas and stops.
    words = np.minimum(spaces + 1, length / 5)
    sentence = np.minimum(words, 12) / 6

    score = 10.0 * density - 0.4 - sentence
    score += 1.5 * sure + 0.5 * maybe + 1.2 * brace + (0.3 + maybe) * ends_colon * (maybe | sure)
    score += 1.5 * slashes + 0.4 * hashes + 0.4 * indented + 1.0 * (no_letters & (hard + soft > 0))
    score += 1.0 * np.isin(first, _bytes("@$}{"))

    kind = np.full(len(length), CODE, np.int8)
    return Evidence(kind=kind, score=score)


def _bytes(characters: str) -> NDArray[np.uint8]:
    return np.frombuffer(characters.encode("ascii"), np.uint8)
