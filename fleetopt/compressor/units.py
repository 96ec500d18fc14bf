"""Cuts prose into units: the sentences and list items that are kept or dropped as wholes.

Units lie end to end over the text, so whatever is kept is made of slices of the original. White
space before a unit belongs to it. The rules are those of written language, not a model: a
terminator before white space, a full stop of a script without spaces, a blank line, a list marker.
"""

import functools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.characters import (
    CLOSER,
    DIGIT,
    EXTENDS,
    FULL_STOP,
    JOINER,
    LETTER,
    LOWER,
    NEWLINE,
    SPACE,
    TERMINATOR,
    Characters,
)
from fleetopt.compressor.distinct import distinct

Positions = NDArray[np.int64]

# Longer units are cut: nobody writes sentences of this length.
MAX_UNIT_CHARACTERS: Final = 700
_MIN_PIECE_CHARACTERS: Final = 80

_DOT: Final = ord(".")
_LINE_FEED: Final = 10
_CARRIAGE_RETURN: Final = 13
_BULLETS: Final = np.array([ord(bullet) for bullet in "-*+•‣◦·–—"], np.uint32)
_MARKER_ENDS: Final = np.array([ord(end) for end in ".)"], np.uint32)
_MARKER_DIGITS: Final = 3
# Nobody closes more quotes and brackets than this behind one sentence, or indents a list further.
_MAX_CLOSERS: Final = 4
_MAX_INDENT: Final = 12
# After these, a dot ends no sentence. Lower case, without the dot.
_ABBREVIATIONS: Final = (
    *("mr", "mrs", "ms", "dr", "prof", "st", "mt", "jr", "sr", "gen", "col", "sgt", "capt", "lt"),
    *("rev", "hon", "pres", "gov", "sen", "rep", "vs", "fig", "figs", "vol", "pp", "ch", "sec"),
    *("eq", "eqs", "al", "inc", "ltd", "corp", "jan", "feb", "mar", "apr", "jun", "jul", "aug"),
    *("sep", "sept", "oct", "nov", "dec", "approx", "ca", "cf", "ed", "eds", "est", "dept"),
    *("univ", "ave", "blvd", "ref", "refs", "resp", "viz", "bzw", "usw", "vgl", "ggf", "evtl"),
    *("nr", "str", "sra", "dra", "mme", "mlle"),
)
_MAX_ABBREVIATION: Final = max(map(len, _ABBREVIATIONS))
_ASCII_BITS: Final = 7
_PACKED_ABBREVIATIONS: Final = np.array(
    [
        functools.reduce(lambda packed, letter: (packed << _ASCII_BITS) | ord(letter), word, 0)
        for word in _ABBREVIATIONS
    ],
    np.int64,
)


def unit_bounds(characters: Characters, piece_characters: int) -> Positions:
    """Return where units begin, and the end of the text: strictly increasing, first 0.

    A unit of more than `MAX_UNIT_CHARACTERS` is cut into pieces of at most `piece_characters`, at
    the last line break, semicolon, comma or space, never inside a combining sequence.
    """
    n = len(characters.codes)
    if n == 0:
        return np.zeros(1, np.int64)
    gaps = _Gaps.of(characters)
    starts = [_after_terminators(characters, gaps), gaps.begin[gaps.blank_line]]
    starts.append(_list_items(characters, gaps))
    starts.append(_after_full_stops(characters))
    breaks = distinct(np.concatenate(starts))
    breaks = breaks[(breaks > 0) & (breaks < n)]
    bounds = np.concatenate(([0], breaks, [n]))
    return _cut_long(characters, bounds, max(piece_characters, _MIN_PIECE_CHARACTERS))


class _Gaps:
    """The runs of white space that have something before and after them."""

    __slots__ = ("begin", "blank_line", "end", "line")

    def __init__(self, begin: Positions, end: Positions, lines: Positions) -> None:
        self.begin = begin
        self.end = end
        self.line = lines >= 1
        self.blank_line = lines >= 2

    @classmethod
    def of(cls, characters: Characters) -> "_Gaps":
        space = (characters.flags & SPACE) > 0
        edges = np.flatnonzero(space[1:] != space[:-1]) + 1
        if space[0]:
            edges = edges[1:]
        edges = edges[: len(edges) // 2 * 2]
        begin, end = edges[0::2], edges[1::2]
        newline = (characters.flags & NEWLINE) > 0
        # \r\n is one line break.
        newline[:-1] &= (characters.codes[:-1] != _CARRIAGE_RETURN) | (
            characters.codes[1:] != _LINE_FEED
        )
        breaks = np.concatenate(([0], np.cumsum(newline)))
        return cls(begin, end, breaks[end] - breaks[begin])


def _after_terminators(characters: Characters, gaps: _Gaps) -> Positions:
    """Return gaps that follow a terminator, perhaps with closing quotes between them."""
    flags = characters.flags
    capital = (flags[gaps.end] & LOWER) == 0
    begin: Positions = gaps.begin[capital]
    last = _before(flags, begin, CLOSER, _MAX_CLOSERS)
    ends = (flags[last] & TERMINATOR) > 0
    begin, last = begin[ends], last[ends]
    dotted = np.flatnonzero(characters.codes[last] == _DOT)
    if len(dotted) == 0:
        return begin
    dot = last[dotted]
    # One place more than is looked up, so that a longer word is seen to be longer.
    word_begin = _before(flags, dot, LETTER | DIGIT | EXTENDS, _MAX_ABBREVIATION + 1) + 1
    length = dot - word_begin
    first = flags[word_begin]
    initial = (length == 1) & ((first & LETTER) > 0)
    number = (length >= 1) & (length <= _MARKER_DIGITS) & ((first & DIGIT) > 0)
    number[number] = _at_line_start(flags, word_begin[number])
    keep = ~(initial | number)
    short = np.flatnonzero(keep & (length >= 2) & (length <= _MAX_ABBREVIATION))
    packed = _packed(characters, word_begin[short], length[short])
    keep[short] = ~np.isin(packed, _PACKED_ABBREVIATIONS)
    stays = np.ones(len(begin), np.bool_)
    stays[dotted] = keep
    sentences: Positions = begin[stays]
    return sentences


def _before(flags: NDArray[np.uint16], at: Positions, classes: int, most: int) -> Positions:
    """Return the last place before each position that isn't of these classes, -1 at the start.

    Looks back over `most` characters of the classes and no further.
    """
    place = at - 1
    moving = np.arange(len(at))
    for _ in range(most):
        here = place[moving]
        moving = moving[(here >= 0) & ((flags[here] & classes) > 0)]
        if len(moving) == 0:
            break
        place[moving] -= 1
    return place


def _at_line_start(flags: NDArray[np.uint16], at: Positions) -> NDArray[np.bool_]:
    """Return whether only a few blanks stand between the position and the line break before it."""
    place = at - 1
    for _ in range(_MAX_INDENT):
        place = np.where(
            (place >= 0) & ((flags[place] & (SPACE | NEWLINE)) == SPACE), place - 1, place
        )
    return (place < 0) | ((flags[place] & NEWLINE) > 0)


def _packed(characters: Characters, begin: Positions, length: Positions) -> Positions:
    """Return short words as numbers, seven bits a letter, in lower case; 0 for other letters."""
    packed = np.zeros(len(begin), np.int64)
    for place in range(_MAX_ABBREVIATION):
        inside = np.flatnonzero(length > place)
        letter = characters.codes[begin[inside] + place].astype(np.int64)
        packed[inside] = (packed[inside] << _ASCII_BITS) | np.where(letter < 128, letter | 32, 0)
    return packed


def _after_full_stops(characters: Characters) -> Positions:
    """Return positions after a stop that needs no white space, and after quotes that close it."""
    flags = characters.flags
    at: Positions = np.flatnonzero(flags & FULL_STOP) + 1
    joined = CLOSER | FULL_STOP | TERMINATOR | EXTENDS
    at = at[at < len(flags)]
    moving = np.arange(len(at))
    for _ in range(_MAX_CLOSERS):
        moving = moving[(flags[at[moving]] & joined) > 0]
        at[moving] += 1
        moving = moving[at[moving] < len(flags)]
        if len(moving) == 0:
            break
    at = at[at < len(flags)]
    ends: Positions = at[(flags[at] & joined) == 0]
    return ends


def _list_items(characters: Characters, gaps: _Gaps) -> Positions:
    """Return gaps with a line break before `- `, `* `, `1. `, `12) ` and the like."""
    begin, marker = gaps.begin[gaps.line], gaps.end[gaps.line]
    n = len(characters.codes)
    codes = np.concatenate((characters.codes, np.zeros(_MARKER_DIGITS + 2, np.uint32)))
    flags = np.concatenate((characters.flags, np.zeros(_MARKER_DIGITS + 2, np.uint16)))
    item = np.isin(codes[marker], _BULLETS) & ((flags[marker + 1] & SPACE) > 0)
    numbered = np.ones(len(marker), np.bool_)
    for digits in range(1, _MARKER_DIGITS + 1):
        numbered &= (flags[marker + digits - 1] & DIGIT) > 0
        ends = np.isin(codes[marker + digits], _MARKER_ENDS)
        item |= numbered & ends & ((flags[marker + digits + 1] & SPACE) > 0)
    return begin[item & (marker < n)]


def _cut_long(characters: Characters, bounds: Positions, piece: int) -> Positions:
    long = np.flatnonzero(np.diff(bounds) > MAX_UNIT_CHARACTERS)
    if len(long) == 0:
        return bounds
    cuts: list[int] = []
    for unit in long:
        cuts += _pieces(characters, int(bounds[unit]), int(bounds[unit + 1]), piece)
    return distinct(np.concatenate((bounds, np.array(cuts, np.int64))))


def _pieces(characters: Characters, begin: int, end: int, piece: int) -> list[int]:
    """Return the cuts inside one long unit."""
    cuts = []
    piece = min(piece, MAX_UNIT_CHARACTERS)
    while end - begin > piece:
        begin = _cut(characters, begin, begin + piece, end)
        if begin < end:
            cuts.append(begin)
    return cuts


_CUT_AFTER: Final = (ord(";"), ord(","), 0xFF1B, 0xFF0C, 0x3001)


def _cut(characters: Characters, begin: int, limit: int, end: int) -> int:
    """Return the best place for a cut in (begin, limit]; beyond it where a cluster is longer."""
    codes, flags = characters.codes, characters.flags
    half = begin + (limit - begin) // 2
    window = flags[half:limit]
    lines = np.flatnonzero(window & NEWLINE)
    if len(lines) and half + lines[-1] > begin:
        return _whole_cluster(characters, half + int(lines[-1]), begin, end)
    for code in _CUT_AFTER:
        found = np.flatnonzero(codes[half : limit - 1] == code)
        if len(found):
            return _whole_cluster(characters, half + int(found[-1]) + 1, begin, end)
    spaces = np.flatnonzero(window & SPACE)
    if len(spaces) and half + spaces[-1] > begin:
        return _whole_cluster(characters, half + int(spaces[-1]), begin, end)
    return _whole_cluster(characters, limit, begin, end)


def _whole_cluster(characters: Characters, cut: int, begin: int, end: int) -> int:
    """Move a cut back to where a combining or joined sequence begins, else on to its end."""
    back = cut
    while back > begin and _inside(characters, back):
        back -= 1
    if back > begin:
        return back
    while cut < end and _inside(characters, cut):
        cut += 1
    return cut


def _inside(characters: Characters, position: int) -> bool:
    flags, codes = characters.flags, characters.codes
    return bool(
        flags[position] & EXTENDS
        or flags[position - 1] & JOINER
        or (codes[position] == _LINE_FEED and codes[position - 1] == _CARRIAGE_RETURN)
    )
