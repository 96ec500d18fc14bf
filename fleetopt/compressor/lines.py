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
# Wider white space at a line's ends is looked up instead of walked over.
_STEPS: Final = 32
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
    return table


_MARKS: Final = _table()
_CODE_PAIRS: Final = _pair_table()
_BEFORE_CALL: Final = np.array(
    [chr(c).isalnum() or c == ord("_") for c in range(128)] + [False] * 128
)
_NAME_BYTES: Final = np.array(
    [
        c if c == _BEYOND or (c < _BEYOND and (chr(c).isalnum() or chr(c) in "_#@")) else 0
        for c in range(256)
    ],
    np.uint8,
)


def among(characters: str) -> Flags:
    """Return a table of bytes: which are one of these characters."""
    return np.array([chr(code) in characters for code in range(256)])


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
    beyond: Array
    """Characters beyond ASCII."""
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
        kinds = np.frombuffer(padded.translate(_MARKS), np.uint8)
        size = len(plain)
        # White space between words would be most of the marks; it's counted on its own.
        marks = np.flatnonzero(kinds[:size] > Mark.TAB)
        mark_kinds = kinds[marks]
        ends_line = mark_kinds == Mark.NEWLINE
        starts, ends = _borders(marks[ends_line], size)
        first, last = _trimmed(starts, ends, kinds)
        full = np.flatnonzero(first <= last)
        line_of = np.cumsum(ends_line) - ends_line
        after_blank = np.zeros(len(full), np.bool_)
        after_blank[:1] = True
        if len(full) < len(starts):
            after_blank = np.diff(full, prepend=-2) > 1
            index = np.full(len(starts) + 1, -1)
            index[full] = np.arange(len(full))
            line_of = index[line_of]
            kept = line_of >= 0
            marks, mark_kinds, line_of = marks[kept], mark_kinds[kept], line_of[kept]
            starts, first, last = starts[full], first[full], last[full]
        lines = len(full)
        counts = np.bincount(line_of * _KINDS + mark_kinds, minlength=lines * _KINDS)
        counts = counts.reshape(lines, _KINDS)
        counts[:, Mark.SPACE] = _counted(data[:size] == ord(" "), starts)
        if b"\t" in plain:
            counts[:, Mark.TAB] = _counted(kinds[:size] == Mark.TAB, starts)
        return cls(
            data=data,
            starts=starts,
            first=first,
            last=last,
            counts=counts,
            pairs=_pairs(data, marks, line_of, lines),
            gaps=_gaps(kinds, first, last),
            words=_words(data, first),
            beyond=(
                np.zeros(lines, np.int64) if text.isascii() else _counted(data[:size] >> 7, starts)
            ),
            after_blank=after_blank,
            size=size,
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
        clipped = np.empty(len(codes), np.uint8)
        np.minimum(codes, np.uint32(_BEYOND), out=clipped, casting="unsafe")
        plain = clipped.tobytes()
    if b"\r" in plain and b"\n" not in plain:
        plain = plain.replace(b"\r", b"\n")
    return plain


def _counted(flags: NDArray[np.generic], starts: Array) -> Array:
    """Return how many are set from each line's start to the next's."""
    if not len(starts):
        return np.zeros(0, np.int64)
    counted: Array = np.add.reduceat(flags.view(np.uint8), starts, dtype=np.int32)
    return counted.astype(np.int64)


def _pairs(data: NDArray[np.uint8], marks: Array, line_of: Array, lines: int) -> Array:
    here = data[marks].astype(np.intp)
    paired = _CODE_PAIRS[here * 256 + data[marks + 1]]
    called = np.flatnonzero(here == ord("("))
    # At the text's very start, the byte before is the padding's newline.
    called = called[_BEFORE_CALL[data[marks[called] - 1]]]
    return np.bincount(np.concatenate((line_of[paired], line_of[called])), minlength=lines)


def _gaps(kinds: NDArray[np.uint8], first: Array, last: Array) -> Array:
    """Count runs of two white spaces or more, and tabs, between words."""
    white = (kinds - np.uint8(1)) < Mark.TAB
    second = white[1:] & white[:-1]
    second |= kinds[1:] == Mark.TAB
    if not second.any():
        return np.zeros(len(first), np.int64)
    at = np.flatnonzero(second) + 1
    # The last of its run; the padding is no white space.
    at = at[~white[at + 1]]
    line = np.searchsorted(first, at, side="right") - 1
    at, line = at[line >= 0], line[line >= 0]
    return np.bincount(line[at < last[line]], minlength=len(first))


def _borders(newlines: Array, size: int) -> tuple[Array, Array]:
    """Return where lines start, and where their newline (or the text's end) is."""
    if len(newlines) and newlines[-1] == size - 1:
        return np.concatenate(([0], newlines[:-1] + 1)), newlines
    return np.concatenate(([0], newlines + 1)), np.concatenate((newlines, [size]))


def _trimmed(starts: Array, ends: Array, kinds: NDArray[np.uint8]) -> tuple[Array, Array]:
    """Return each line's first and last character that isn't white space (last < first: blank)."""
    first, last = starts.copy(), ends - 1
    open_lines = np.flatnonzero(starts < ends)
    for edge, step in ((first, 1), (last, -1)):
        at = open_lines
        for _ in range(_STEPS):
            at = at[(kinds[edge[at]] - np.uint8(1)) < Mark.TAB]
            if not len(at):
                break
            edge[at] += step
            at = at[first[at] <= last[at]]
        else:
            solid = np.flatnonzero((kinds - np.uint8(1)) >= Mark.TAB)
            after = np.searchsorted(solid, edge[at], side="left" if step > 0 else "right")
            edge[at] = solid[after] if step > 0 else np.append(-1, solid)[after]
            edge[at] = np.clip(edge[at], starts[at] - 1, ends[at])
    return first, last


def _words(data: NDArray[np.uint8], first: Array) -> NDArray[np.uint64]:
    """Return the name characters from each position on, up to eight, as one number."""
    windows = np.ndarray((len(data) - 7,), np.dtype("<u8"), buffer=data, strides=(1,))
    eight = _NAME_BYTES[windows[first].view(np.uint8)].view(np.dtype("<u8"))
    low = np.uint64(0x7F7F7F7F7F7F7F7F)
    # The high bit of each byte that is 0; then everything below the lowest of them.
    zero = ~(((eight & low) + low) | eight | low)
    below = (zero & (~zero + np.uint64(1))) - np.uint64(1)
    words: NDArray[np.uint64] = eight & below
    return words
