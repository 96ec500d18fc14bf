"""What each line looks like on its own: its kind, and how much it speaks for or against prose.

The score is a linear one whose weights (`weights`) were fitted to lines of known content; the
features are what this file owns. The kind only names a line that isn't prose.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.content import Content
from fleetopt.compressor.lines import Array, Flags, Lines, Mark, among, key
from fleetopt.compressor.weights import FIRST, FLAGS, LAST, MARKS, PAIRS

Floats = NDArray[np.float64]
Features = dict[str, Floats | Flags]

KINDS: Final = tuple(Content)
PROSE, CODE, JSON, XML, TABLE, LOG, MATH, DATA = range(len(KINDS))
# No line says more than this, so that a run of others can outvote it.
_LIMIT: Final = 4.0

# First words: those that hardly begin lines of prose, those that begin either, and others.
_SURE: Final = (
    "def elif async await #include #define #ifdef #ifndef #endif #pragma #if #else #undef "
    "#elif func fn impl struct enum typedef extern const let var static void public private "
    "protected namespace template typename using unsigned printf println sudo apt pip npm git "
    "echo export mkdir chmod curl docker SELECT INSERT UPDATE DELETE CREATE ALTER DROP FROM "
    "WHERE JOIN VALUES console elsif endif esac fi done mut pub crate mod chan package "
    "interface extends implements throws char int float double bool boolean uint8_t size_t "
    "elseif unless foreach local my sub diff Traceback TypeError ValueError KeyError "
    "IndexError RuntimeError ImportError ModuleNotFoundError FileNotFoundError OSError "
    "ZeroDivisionError NameError SyntaxError RecursionError UnicodeDecodeError TimeoutError "
    "ReferenceError "
)
_MAYBE: Final = (
    "if else for while return import from class try except finally with raise assert pass "
    "break continue lambda yield switch case default do then use function new throw catch "
    "goto type del global nonlocal in not end begin set match cd String string self this "
    "require index Caused AttributeError AssertionError Exception Error "
)
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_SPEAKERS: Final = (
    "user User USER assistant Assistant ASSISTANT system System human Human bot Bot AI Q A Note "
    "From To Subject Date Re Question Answer Context Example Summary"
)
_LINKS: Final = "http https ftp"
_GROUPS: Final = (_SURE, _MAYBE, _MONTHS, _SPEAKERS, _LINKS)
_GROUP_OF: Final = {
    key(word): number for number, group in enumerate(_GROUPS, 1) for word in group.split()
}
_KEYS: Final = np.array(sorted(_GROUP_OF), np.uint64)
_KEY_GROUPS: Final = np.array([_GROUP_OF[int(one)] for one in _KEYS], np.uint8)


def _groups(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    at = np.minimum(np.searchsorted(_KEYS, words), len(_KEYS) - 1)
    return np.where(_KEYS[at] == words, _KEY_GROUPS[at], np.uint8(0))


def scored(lines: Lines, flags: Features) -> Floats:
    """Return each line's score: above 0 for what isn't prose, below 0 for prose."""
    score = (lines.counts @ MARKS + PAIRS * lines.pairs) / lengths(lines)
    score += FIRST[lines.character(0)] + LAST[lines.data[lines.last]]
    for name, flag in flags.items():
        if FLAGS[name]:
            score += FLAGS[name] * flag
    return np.clip(score + FLAGS["every line"], -_LIMIT, _LIMIT)


def lengths(lines: Lines) -> Floats:
    """Return how many characters each line has without white space around it."""
    return (lines.last - lines.first + 1).astype(np.float64)


def flags_of(lines: Lines) -> Features:
    """Return the features that aren't shares of characters: 0 to 1, or true and false."""
    data, first, counts = lines.data, lines.first, lines.counts
    length = lines.last - first + 1
    opening, second = data[first], data[first + 1]
    final = data[lines.last]
    group = _groups(lines.words)
    indent = first - lines.starts
    spaces = np.maximum(counts[:, Mark.SPACE] - indent, 0)
    indented = (indent >= 4) | ((indent > 0) & (data[lines.starts] == ord("\t")))
    word_length = _word_lengths(lines.words)
    after_word = data[first + word_length]
    lower = (opening >= ord("a")) & (opening <= ord("z"))
    keyed = lower & (after_word == ord(":")) & (group < 4)
    opens_or_ends = (final == ord(":")) | (final == ord("{")) | (final == ord(";"))
    commas = counts[:, Mark.COMMA]
    mark_first = _IS_MARK[opening]
    tabs = np.where(lines.gaps > 0, counts[:, Mark.TAB], 0)
    words = np.minimum(spaces, 12) / 12.0
    letters_first = ~mark_first & ~((opening >= ord("0")) & (opening <= ord("9")))
    solid = (length > 40 * (spaces + 1)) & (lines.beyond * 2 < length)
    same_first = np.zeros(len(first), np.bool_)
    same_first[1:] = (opening[1:] == opening[:-1]) & ~lines.after_blank[1:]
    same_first[:-1] |= same_first[1:]
    return {
        "sure": group == 1,
        "maybe": group == 2,
        "maybe, and opens": (group == 2) & opens_or_ends,
        "speaker": (group == 4) & (after_word == ord(":")),
        "key": keyed,
        "key, little after": keyed & (spaces <= 2),
        "indented": indented,
        "slightly indented": (indent > 0) & ~indented,
        "words": words,
        "words, indented": np.where(indented, words, 0.0),
        "words, no marks": np.where(_marks(counts) - counts[:, Mark.SPACE] <= 2, words, 0.0),
        "letter first, indented": letters_first & indented,
        "solid": solid,
        "short": length < 20,
        "beyond ASCII": lines.beyond / length,
        "dated": _dated(lines, opening, second, group),
        "commas alike": _alike(commas, 1)
        & ((commas * 18 > length) | (counts[:, Mark.DIGIT] * 2 > length)),
        "tabs alike": _alike(tabs, 1),
        "pipes alike": _alike(counts[:, Mark.PIPE], 2),
        "gaps alike": _alike(np.minimum(lines.gaps, 2), 1),
        "comments": same_first & (opening == ord("#")) & (second != ord("#")),
        "same mark again": same_first & mark_first,
        "slashes": (opening == ord("/")) & ((second == ord("/")) | (second == ord("*"))),
        "ruled": _RULES[opening] & _RULES[final],
        "heading": (opening == ord("#"))
        & ((second == ord("#")) | (second == ord(" ")))
        & lines.after_blank
        & np.append(lines.after_blank[1:], True),
        "tag": (opening == ord("<")) & (final == ord(">")),
        "option": (opening == ord("-")) & (second > ord("-")),
        "prompt": ((opening == ord("$")) & (second == ord(" ")))
        | ((opening == ord(">")) & (second == ord(">"))),
        "hunk": (opening == ord("@")) & (second == ord("@")),
        "macro": (opening == ord("\\")) & (second > ord("@")),
        "stands alone": counts[:, Mark.DIGIT] + _marks(counts) >= length,
    }


_BYTE_ENDS: Final = np.array([1 << (8 * byte) for byte in range(8)], np.uint64)
_IS_MARK: Final = np.array([33 <= code < 127 and not chr(code).isalnum() for code in range(256)])


def _marks(counts: Array) -> Array:
    total: Array = counts.sum(axis=1) - counts[:, Mark.DIGIT]
    return total


def _word_lengths(words: NDArray[np.uint64]) -> Array:
    """Return how many of the eight characters there are."""
    return np.searchsorted(_BYTE_ENDS, words, side="right")


def _alike(counted: Array, least: int) -> Flags:
    """Tell where a line has as many as the line before or after it, and at least so many."""
    alike = np.zeros(len(counted), np.bool_)
    alike[1:] = (counted[1:] == counted[:-1]) & (counted[1:] >= least)
    alike[:-1] |= alike[1:]
    return alike


def _dated(
    lines: Lines, opening: NDArray[np.uint8], second: NDArray[np.uint8], group: NDArray[np.uint8]
) -> Flags:
    """Tell where a date and time, an address and a date, or a time and a level stand first."""
    counts = lines.counts
    digits = (opening >= 48) & (opening < 58)
    bracketed = (opening == ord("[")) & (second >= 48) & (second < 58)
    at = lines.first + bracketed
    clock = counts[:, Mark.COLON] >= 2
    date = (digits | bracketed) & clock & _DATE_MARKS[lines.data[at + 4]]
    date &= lines.data[at + 4] == lines.data[at + 7]
    brackets = counts[:, Mark.BRACKET]
    address = digits & clock & (counts[:, Mark.STOP] >= 3) & (brackets >= 2)
    dated: Flags = date | address | ((group == 3) & clock) | (bracketed & clock & (brackets >= 4))
    return dated


_DATE_MARKS: Final = among("-/.")


def named(lines: Lines, flags: Features) -> NDArray[np.int8]:
    """Name each line as if it weren't prose."""
    counts = lines.counts
    opening, final = lines.character(0), lines.data[lines.last]
    length = lines.last - lines.first + 1
    quotes, colons = counts[:, Mark.QUOTE], counts[:, Mark.COLON]
    kind = np.full(len(length), CODE, np.int8)
    solid = flags["solid"].astype(np.bool_)
    commas = counts[:, Mark.COMMA]
    solid &= (counts[:, Mark.BRACKET] + quotes < length / 20) & (counts[:, Mark.PAREN] == 0)
    kind[solid] = DATA
    json = _JSON_FIRST[opening] & (quotes >= 2) & (colons + commas > 0)
    kind[json & ((opening != ord('"')) | (colons > 0) | (commas == 1))] = JSON
    kind[(opening == ord("<")) & (counts[:, Mark.ANGLE] >= 2)] = XML
    plain = (kind != JSON) & (kind != XML) & ~_CODE_LAST[final]
    plain &= (lines.pairs <= 2 * quotes) & (counts[:, Mark.EQUALS] == 0)
    for name in ("commas alike", "tabs alike", "gaps alike", "pipes alike"):
        kind[flags[name].astype(np.bool_) & plain] = TABLE
    kind[flags["ruled"].astype(np.bool_)] = TABLE
    kind[flags["dated"].astype(np.bool_)] = LOG
    kind[flags["macro"].astype(np.bool_)] = MATH
    return kind


_JSON_FIRST: Final = among('{["')
_RULES: Final = among("|+")
_CODE_LAST: Final = among("{};(:")
