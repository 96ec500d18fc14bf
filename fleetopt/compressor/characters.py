"""A text as an array of code points, and what kind of character each one is.

Everything on the hot path works on these arrays: one table lookup for a whole text, no loop over
characters. Classes come from the Unicode database that ships with Python.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

LETTER: Final = 1
DIGIT: Final = 2
SPACE: Final = 4
NEWLINE: Final = 8
# Scripts that put no spaces between words: their words are read as pairs of characters.
UNSPACED: Final = 16
# Belongs to the character before it: combining marks, variation selectors, joiners.
EXTENDS: Final = 32
UPPER: Final = 64
LOWER: Final = 128
# Ends a sentence where white space follows.
TERMINATOR: Final = 256
# Ends a sentence whatever follows.
FULL_STOP: Final = 512
# May stand between a terminator and the white space: quotes and brackets that close.
CLOSER: Final = 1024
# Joins the character after it to the one before: ZERO WIDTH JOINER.
JOINER: Final = 2048

_TERMINATORS: Final = ".!?…‽"
_FULL_STOPS: Final = "。！？｡।॥؟۔။።"
_CLOSERS: Final = "\"'”’»)]}」』）】》"
_NEWLINES: Final = "\n\r\u0085\u2028\u2029"
_ZERO_WIDTH_JOINER: Final = 0x200D
_UNSPACED_RANGES: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_EXTENDING_RANGES: Final = (
    (0xFE00, 0xFE0F),  # variation selectors
    (0x1F3FB, 0x1F3FF),  # skin tones
    (0xE0020, 0xE007F),  # tags of flags
    (0xE0100, 0xE01EF),
)
# Beyond this only ideographs and marks, which the ranges above name.
_DATABASE_END: Final = 0x20000
_TABLE_SIZE: Final = 0x110000

_CATEGORY_FLAGS: Final = {
    "Lu": LETTER | UPPER,
    "Lt": LETTER | UPPER,
    "Ll": LETTER | LOWER,
    "Lm": LETTER,
    "Lo": LETTER,
    "Nd": DIGIT,
    "Nl": DIGIT,
    "No": DIGIT,
    "Mn": EXTENDS,
    "Mc": EXTENDS,
    "Me": EXTENDS,
    "Zs": SPACE,
    "Pe": CLOSER,
    "Pf": CLOSER,
}


@dataclass(frozen=True, slots=True)
class Characters:
    """The code points of a text and their class flags, both of the text's length."""

    codes: NDArray[np.uint32]
    flags: NDArray[np.uint16]

    @classmethod
    def of(cls, text: str) -> "Characters":
        """Look the whole text up. Lone surrogates are kept as they are, without a class."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        return cls(codes=codes, flags=_flag_table()[codes])

    def folded(self) -> NDArray[np.uint32]:
        """Return the code points in lower case, where that is one code point as well."""
        return _fold_table()[self.codes]


@lru_cache(maxsize=1)
def _flag_table() -> NDArray[np.uint16]:
    flags = np.zeros(_TABLE_SIZE, np.uint16)
    flags[:_DATABASE_END] = [
        _CATEGORY_FLAGS.get(unicodedata.category(chr(code)), 0) for code in range(_DATABASE_END)
    ]
    for first, last in _UNSPACED_RANGES:
        spaced = (flags[first : last + 1] & EXTENDS) > 0
        flags[first : last + 1] |= np.where(spaced, 0, LETTER | UNSPACED).astype(np.uint16)
    for first, last in _EXTENDING_RANGES:
        flags[first : last + 1] = EXTENDS
    for characters, flag in (
        (_TERMINATORS, TERMINATOR),
        (_FULL_STOPS, FULL_STOP),
        (_CLOSERS, CLOSER),
    ):
        for character in characters:
            flags[ord(character)] |= flag
    for character in "\t\x0b\x0c" + _NEWLINES:
        flags[ord(character)] |= SPACE
    for character in _NEWLINES:
        flags[ord(character)] |= NEWLINE
    flags[_ZERO_WIDTH_JOINER] = EXTENDS | JOINER
    flags.setflags(write=False)
    return flags


@lru_cache(maxsize=1)
def _fold_table() -> NDArray[np.uint32]:
    table = np.arange(_TABLE_SIZE, dtype=np.uint32)
    for code in range(_DATABASE_END):
        lower = chr(code).lower()
        if len(lower) == 1:
            table[code] = ord(lower)
    table.setflags(write=False)
    return table
