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
        "abcdefghijklmnopqrstuvwxyz": -0.77,
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ": -1.29,
        "0123456789": -0.09,
        "!": -1.9,
        '"': 0.43,
        "#": 1.17,
        "$": 1.11,
        "%": -0.17,
        "&": 0.06,
        "'": 0.14,
        "(": -1.93,
        ")": 0.71,
        "*": -4.84,
        "+": 0.98,
        "-": 1.81,
        ".": 0.78,
        "/": 1.9,
        ":": 0.44,
        ";": 0.88,
        "<": 3.4,
        "=": -1.5,
        ">": -2.01,
        "?": 0.34,
        "@": 0.8,
        "[": -1.43,
        "\\": 1.56,
        "]": 0.05,
        "_": 0.12,
        "`": -1.3,
        "{": 2.54,
        "|": 1.47,
        "}": 0.56,
        "\x80": -1.83,
    }
)
LAST: Final = _table(
    {
        "abcdefghijklmnopqrstuvwxyz": -0.72,
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ": -0.32,
        "0123456789": 0.47,
        "!": 0.02,
        '"': 1.1,
        "#": -0.23,
        "$": -0.02,
        "%": -0.05,
        "&": 1.75,
        "'": 3.0,
        "(": 0.86,
        ")": 0.73,
        "*": -1.94,
        "+": -0.94,
        ",": 0.34,
        "-": -0.61,
        ".": -2.7,
        "/": -0.38,
        ":": -0.49,
        ";": 3.55,
        "<": 0.11,
        "=": -1.16,
        ">": -0.46,
        "?": -2.88,
        "@": 0.53,
        "[": 0.7,
        "\\": 1.36,
        "]": 0.97,
        "_": -1.35,
        "`": -3.29,
        "{": 3.23,
        "|": 1.77,
        "}": 3.05,
        "~": 0.01,
        "\x80": -3.83,
    }
)
# By the share of each mark in the line, and of pairs of marks.
MARKS: Final = _by_mark(
    {
        Mark.DIGIT: 5.0,
        Mark.STOP: 2.02,
        Mark.COMMA: 1.32,
        Mark.QUOTE: 6.83,
        Mark.BRACKET: 1.94,
        Mark.PAREN: 0.98,
        Mark.SEMICOLON: 1.09,
        Mark.COLON: -0.19,
        Mark.OPERATOR: -1.47,
        Mark.ANGLE: 0.96,
        Mark.EQUALS: 0.92,
        Mark.UNDERSCORE: 5.1,
        Mark.PIPE: 3.29,
        Mark.SLASH: 2.01,
        Mark.BACKSLASH: 1.56,
        Mark.HYPHEN: -2.72,
        Mark.TICK: -1.89,
        Mark.CONTROL: 0.01,
    }
)
PAIRS: Final = 0.32
FLAGS: Final[dict[str, float]] = {
    "sure": 3.51,
    "maybe": 1.41,
    "maybe, and opens": 1.09,
    "speaker": -1.79,
    "key": 1.83,
    "key, little after": 0.31,
    "indented": 1.43,
    "slightly indented": 0.96,
    "words": -3.24,
    "words, indented": 0.77,
    "words, no marks": -1.66,
    "letter first, indented": -0.15,
    "solid": 1.59,
    "short": 0.17,
    "beyond ASCII": -0.94,
    "dated": 6.0,
    "commas alike": 2.21,
    "tabs alike": 2.02,
    "pipes alike": 1.49,
    "gaps alike": 4.29,
    "comments": 4.06,
    "same mark again": 0.06,
    "slashes": 3.3,
    "tag": 0.29,
    "option": 1.12,
    "prompt": -0.42,
    "hunk": 0.53,
    "macro": 1.56,
    "stands alone": -0.27,
    "every line": 2.18,
}
