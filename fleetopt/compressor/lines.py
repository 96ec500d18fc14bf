"""A text's lines and what each consists of, as arrays.

One pass over the characters finds the marks: everything that isn't a letter. All features are
counted from these, for all lines at once. Code points beyond ASCII count as letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Mark(IntEnum):
    """What a character is; letters are 0 and not counted."""

    LETTER = 0
    SPACE = 1
    TAB = 2
    NEWLINE = 3
    DIGIT = 4
    STOP = 5
    COMMA = 6
    QUOTE = 7
    BRACKET = 8
    PAREN = 9
    SEMICOLON = 10
    COLON = 11
    OPERATOR = 12
    ANGLE = 13
    EQUALS = 14
    UNDERSCORE = 15
    PIPE = 16
    SLASH = 17
    BACKSLASH = 18
    HYPHEN = 19
    TICK = 20
    CONTROL = 21


_CHARACTERS: Final = {
    Mark.SPACE: " \r\x0b\x0c",
    Mark.TAB: "\t",
    Mark.NEWLINE: "\n",
    Mark.DIGIT: "0123456789",
    Mark.STOP: ".!?'",
    Mark.COMMA: ",",
    Mark.QUOTE: '"',
    Mark.BRACKET: "{}[]",
    Mark.PAREN: "()",
    Mark.SEMICOLON: ";",
    Mark.COLON: ":",
    Mark.OPERATOR: "+*&^%~$@#",
    Mark.ANGLE: "<>",
    Mark.EQUALS: "=",
    Mark.UNDERSCORE: "_",
    Mark.PIPE: "|",
    Mark.SLASH: "/",
    Mark.BACKSLASH: "\\",
    Mark.HYPHEN: "-",
    Mark.TICK: "`",
    Mark.CONTROL: "".join(map(chr, (*range(9), *range(14, 32), 127))),
}
_KINDS: Final = len(Mark)
_BEYOND: Final = 128
_PADDING: Final = b"\n" * 16

# What code says in two characters. A call, a letter before "(", is counted with them.
_PAIRS: Final = (
    "-> => == != && || += -= *= := :: () ); ), ): }; </ /> ${ {{ }} [] {} <= >= >> << /* */ ** "
    '": \', (" (\' "] [" =" ({ }) [{ }, .. ++ -- /: @@ ?.'
)


def _table() -> bytes:
    table = bytearray(256)
    for mark, characters in _CHARACTERS.items():
        for character in characters:
            table[ord(character)] = mark
    return bytes(table)


def _pair_table() -> Flags:
    table = np.zeros(65536, np.bool_)
    for pair in _PAIRS.split():
        table[ord(pair[0]) * 256 + ord(pair[1])] = True
    for first in map(chr, range(128)):
        if first.isalnum() or first == "_":
            table[ord(first) * 256 + ord("(")] = True
    return table


_MARKS: Final = _table()
_CODE_PAIRS: Final = _pair_table()
_NAME_BYTES: Final = bytes(
    code if code == _BEYOND or chr(code).isalnum() or chr(code) in "_#@" else 0
    for code in range(_BEYOND + 1)
) + bytes(256 - _BEYOND - 1)


def key(word: str) -> int:
    """Return a word's first eight characters as `Lines.words` has them."""
    return int.from_bytes(word[:8].encode("ascii"), "little")


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The lines that aren't blank, in order; each field but `data` has one entry a line."""

    data: NDArray[np.uint8]
    """The text's code points, those beyond ASCII as 128, and some newlines after them."""
    starts: Array
    """Where the line starts, white space included."""
    first: Array
    """Its first character that isn't white space …"""
    last: Array
    """… and its last."""
    counts: Array
    """Marks by kind, (lines, kinds)."""
    pairs: Array
    """Pairs of characters that code is made of."""
    gaps: Array
    """Runs of two spaces or more, and tabs, between words."""
    words: NDArray[np.uint64]
    """The first word's first eight characters; 0 where the line starts with a mark."""
    after_blank: Flags
    """A blank line, or nothing, stands before it."""
    size: int
    """Code points in the text."""

    @classmethod
    def of(cls, text: str) -> Lines:
        """Find the lines of a text. Their ends are LF, CRLF, and CR where there's no LF."""
        plain = _ascii(text)
        padded = plain + _PADDING
        data = np.frombuffer(padded, np.uint8)
        kinds = np.frombuffer(plain.translate(_MARKS), np.uint8)
        marks = np.flatnonzero(kinds)
        mark_kinds = kinds[marks]
        ends_line = mark_kinds == Mark.NEWLINE
        starts, ends = _borders(marks[ends_line], len(plain))
        first, last = _trimmed(starts, ends, marks, mark_kinds, kinds)
        full = np.flatnonzero(first <= last)
        if len(full) < len(starts):
            after_blank = np.diff(full, prepend=-2) > 1
            index = np.full(len(starts) + 1, -1)
            index[full] = np.arange(len(full))
            line_of = index[np.cumsum(ends_line) - ends_line]
            kept = line_of >= 0
            marks, mark_kinds, line_of = marks[kept], mark_kinds[kept], line_of[kept]
        else:
            after_blank = np.zeros(len(full), np.bool_)
            after_blank[:1] = True
            line_of = np.cumsum(ends_line) - ends_line
        starts, first, last = starts[full], first[full], last[full]
        counted = np.bincount(line_of * _KINDS + mark_kinds, minlength=len(full) * _KINDS)
        here = data[marks].astype(np.int64)
        paired = _CODE_PAIRS[here * 256 + data[marks + 1]]
        called = (here == ord("(")) & (marks > 0)
        called[called] = _CODE_PAIRS[data[marks[called] - 1].astype(np.int64) * 256 + ord("(")]
        white = (mark_kinds == Mark.SPACE) | (mark_kinds == Mark.TAB)
        wide = white[1:] & ((data[marks[1:] - 1] == 32) | (mark_kinds[1:] == Mark.TAB))
        at = np.flatnonzero(wide) + 1
        # The last of its run, and neither before the first word nor after the last.
        ended = data[marks[at] + 1]
        at = at[(ended > 32) & (marks[at] > first[line_of[at]]) & (marks[at] < last[line_of[at]])]
        lines = len(full)
        return cls(
            data=data,
            starts=starts,
            first=first,
            last=last,
            counts=counted.reshape(lines, _KINDS),
            pairs=np.bincount(line_of[paired], minlength=lines)
            + np.bincount(line_of[called], minlength=lines),
            gaps=np.bincount(line_of[at], minlength=lines),
            words=_words(padded.translate(_NAME_BYTES), first),
            after_blank=after_blank,
            size=len(plain),
        )

    def count(self, *kinds: Mark) -> Array:
        """Return how many marks of these kinds each line has."""
        total: Array = self.counts[:, kinds[0]]
        for kind in kinds[1:]:
            total = total + self.counts[:, kind]
        return total

    def character(self, offset: int) -> NDArray[np.uint8]:
        """Return the character so far after each line's first."""
        return self.data[self.first + offset]


def _ascii(text: str) -> bytes:
    if text.isascii():
        plain = text.encode("ascii")
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        plain = np.minimum(codes, _BEYOND).astype(np.uint8).tobytes()
    if b"\r" in plain and b"\n" not in plain:
        plain = plain.replace(b"\r", b"\n")
    return plain


def _borders(newlines: Array, size: int) -> tuple[Array, Array]:
    """Return where lines start, and where their newline (or the text's end) is."""
    if len(newlines) and newlines[-1] == size - 1:
        return np.concatenate(([0], newlines[:-1] + 1)), newlines
    return np.concatenate(([0], newlines + 1)), np.concatenate((newlines, [size]))


def _trimmed(
    starts: Array,
    ends: Array,
    marks: Array,
    mark_kinds: NDArray[np.uint8],
    kinds: NDArray[np.uint8],
) -> tuple[Array, Array]:
    """Return each line's first and last character that isn't white space (last < first: blank)."""
    first, last = starts.copy(), ends - 1
    white = (mark_kinds == Mark.SPACE) | (mark_kinds == Mark.TAB)
    joined = white[1:] & white[:-1] & (np.diff(marks) == 1)
    full = np.flatnonzero(starts < ends)

    def is_white(at: Array) -> Flags:
        found: Flags = (kinds[at] == Mark.SPACE) | (kinds[at] == Mark.TAB)
        return found

    indented = full[is_white(starts[full])]
    if len(indented):
        run_ends = np.append(np.flatnonzero(~joined), len(marks) - 1)
        at = np.searchsorted(marks, starts[indented])
        first[indented] = marks[run_ends[np.searchsorted(run_ends, at)]] + 1
    trailing = full[is_white(ends[full] - 1)]
    if len(trailing):
        run_starts = np.append(0, np.flatnonzero(~joined) + 1)
        at = np.searchsorted(marks, ends[trailing] - 1)
        last[trailing] = marks[run_starts[np.searchsorted(run_starts, at, side="right") - 1]] - 1
    return first, last


def _words(names: bytes, first: Array) -> NDArray[np.uint64]:
    """Return the first eight name characters from each position as one number."""
    windows = np.ndarray((len(names) - 7,), np.dtype("<u8"), buffer=names, strides=(1,))
    eight = windows[first].astype(np.uint64)
    low = np.uint64(0x7F7F7F7F7F7F7F7F)
    # The high bit of each byte that is 0; then everything below the lowest of them.
    zero = ~(((eight & low) + low) | eight | low)
    below = (zero & (~zero + np.uint64(1))) - np.uint64(1)
    return eight & below
