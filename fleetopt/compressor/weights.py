"""The score's weights, made by `python -m benchmarks.gate_fit`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.lines import Mark


def _table(weights: dict[str, float]) -> NDArray[np.float64]:
    table = np.zeros(256)
    for characters, weight in weights.items():
        for character in characters:
            table[ord(character)] = weight
    return table


def _by_mark(weights: dict[Mark, float]) -> NDArray[np.float64]:
    return np.array([weights.get(mark, 0.0) for mark in Mark])


# By the line's first character and by its last; U+0080 stands for all beyond ASCII.
FIRST: Final = _table(
    {
        "abcdefghijklmnopqrstuvwxyz": -1.14,
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ": -1.86,
        "0123456789": -0.5,
        "!": -1.88,
        '"': 1.03,
        "#": 3.18,
        "$": 1.03,
        "%": -0.18,
        "&": 0.08,
        "'": 0.22,
        "(": -1.87,
        ")": 0.75,
        "*": -5.0,
        "+": 0.61,
        "-": 1.8,
        ".": 0.74,
        "/": 1.88,
        ":": 0.53,
        ";": 0.87,
        "<": 3.27,
        "=": -1.5,
        ">": -2.12,
        "?": 0.25,
        "@": 0.63,
        "[": -1.48,
        "\\": 1.43,
        "]": 0.06,
        "_": 0.24,
        "`": -0.61,
        "{": 2.46,
        "|": 1.13,
        "}": 0.6,
        "\x80": -2.23,
    }
)
LAST: Final = _table(
    {
        "abcdefghijklmnopqrstuvwxyz": -0.78,
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ": -0.36,
        "0123456789": 0.49,
        '"': 1.08,
        "#": -0.12,
        "$": -0.02,
        "%": -0.07,
        "&": 1.63,
        "'": 3.04,
        "(": 0.86,
        ")": 0.63,
        "*": -1.98,
        "+": -0.92,
        ",": 0.29,
        "-": -0.59,
        ".": -2.66,
        "/": -0.35,
        ":": -1.08,
        ";": 3.71,
        "<": 0.13,
        "=": -1.19,
        ">": -0.42,
        "?": -2.92,
        "@": 0.37,
        "[": 0.63,
        "\\": 1.44,
        "]": 0.8,
        "_": -1.32,
        "`": -1.7,
        "{": 3.17,
        "|": 1.51,
        "}": 2.95,
        "\x80": -3.87,
    }
)
# By the share of each mark in the line, and of pairs of marks.
MARKS: Final = _by_mark(
    {
        Mark.DIGIT: 5.13,
        Mark.STOP: 1.86,
        Mark.COMMA: 1.13,
        Mark.QUOTE: 6.59,
        Mark.BRACKET: 2.02,
        Mark.PAREN: 0.86,
        Mark.SEMICOLON: 1.0,
        Mark.COLON: -0.29,
        Mark.OPERATOR: 0.65,
        Mark.ANGLE: 1.05,
        Mark.EQUALS: 0.91,
        Mark.UNDERSCORE: 4.65,
        Mark.PIPE: 3.18,
        Mark.SLASH: 1.5,
        Mark.BACKSLASH: 1.11,
        Mark.HYPHEN: -2.64,
        Mark.TICK: -1.32,
        Mark.CONTROL: 0.02,
    }
)
PAIRS: Final = 0.16
FLAGS: Final[dict[str, float]] = {
    "sure": 3.8,
    "maybe": 1.56,
    "maybe, and opens": 1.37,
    "speaker": -1.69,
    "key": 1.86,
    "key, little after": 0.29,
    "indented": 0.97,
    "slightly indented": 1.09,
    "words": -2.97,
    "words, indented": 0.1,
    "words, no marks": -1.61,
    "letter first, indented": 0.69,
    "solid": 1.71,
    "short": 0.38,
    "beyond ASCII": -0.78,
    "dated": 5.95,
    "commas alike": 2.27,
    "tabs alike": 2.11,
    "pipes alike": 1.24,
    "gaps alike": 4.22,
    "comments": 2.14,
    "same mark again": -0.25,
    "slashes": 3.35,
    "ruled": 1.0,
    "heading": -5.89,
    "tag": 0.33,
    "option": 0.99,
    "prompt": -0.41,
    "hunk": 0.37,
    "macro": 1.43,
    "stands alone": -0.47,
    "every line": 2.4,
}
