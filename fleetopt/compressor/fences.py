"""Spans between two lines that open and close them: fences, comments, long strings, maths.

Loops over the lines that may open or close one, never over all lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.content import Content
from fleetopt.compressor.lines import Flags, Lines, Mark, among

# Quote and list marks may stand before a fence; each alternative starts with another character.
_FENCE_WITHIN: Final = 200
# With more lines than this that may open or close a span, the text is taken as one.
_MOST: Final = 10_000
_FENCE: Final = re.compile(r"(?:[> \t]|[-*+][ \t]|[0-9]{1,9}[.)][ \t])*(`{3,}|~{3,})([^`]*)$")
_ENVIRONMENT: Final = re.compile(r"\\begin\{(\w+)(\*?)\}")
_MATHS: Final = frozenset(
    [
        "equation",
        "align",
        "alignat",
        "gather",
        "multline",
        "eqnarray",
        "math",
        "displaymath",
        "matrix",
        "cases",
        "array",
        "split",
        "tabular",
        "table",
        "longtable",
        "figure",
        "tikzpicture",
        "algorithm",
        "algorithmic",
    ]
)
_LISTINGS: Final = frozenset(("verbatim", "lstlisting", "minted", "Verbatim", "code"))
_TAGS: Final = re.compile(r"<(script|style|svg)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """From one line up to another."""

    first: int
    end: int
    content: Content


@dataclass(frozen=True, slots=True)
class _Opening:
    closing: str
    content: Content
    closes: Callable[[str], bool]
    at_once: bool
    """It is closed in the line that opens it."""


def fenced(lines: Lines, text: str, scores: NDArray[np.float64]) -> Iterator[Span]:
    """Find the spans, in order; none overlap.

    A code fence that nothing closes reaches to the end of the text; of the others, what isn't
    closed isn't one. `scores` tell a program's long strings from a prompt's quoted text.
    """
    suspects = np.flatnonzero(_suspects(lines)).tolist()
    if len(suspects) > _MOST:
        yield Span(0, len(lines.starts), Content.CODE)
        return
    shown = [text[lines.first[line] : lines.last[line] + 1] for line in suspects]
    never: set[str] = set()
    at = 0
    while at < len(suspects):
        line = suspects[at]
        opening = _opening(shown[at])
        at += 1
        if opening is None or opening.closing in never:
            continue
        end = at
        if opening.at_once:
            end -= 1
        else:
            while end < len(suspects) and not opening.closes(shown[end]):
                end += 1
        if end < len(suspects):
            after = suspects[end] + 1
            if opening.closing in _LONG_STRINGS and not _in_code(lines, scores, line, after):
                continue
            yield Span(line, after, opening.content)
            at = end + 1
        elif opening.closing[0] in "`~":
            yield Span(line, len(lines.starts), opening.content)
            return
        else:
            never.add(opening.closing)


_LONG_STRINGS: Final = ('"""', "'''")


def hunks(lines: Lines) -> Iterator[Span]:
    """Find a diff's hunks: after a line of `@@`, what starts with `+`, `-` or a space."""
    heads = lines.character(0) == ord("@")
    heads &= (lines.character(1) == ord("@")) & (lines.data[lines.starts] == ord("@"))
    if not heads.any():
        return
    others = np.flatnonzero(~_IN_HUNK[lines.data[lines.starts]])
    ends = np.append(others, len(lines.starts))
    for head in np.flatnonzero(heads).tolist():
        yield Span(head, int(ends[np.searchsorted(others, head)]), Content.CODE)


_IN_HUNK: Final = among("+- @\\")


def _suspects(lines: Lines) -> Flags:
    first, second = lines.character(0), lines.character(1)
    at_last = lines.data[lines.last]
    before_last = lines.data[np.maximum(lines.last - 1, 0)]
    suspects = (lines.count(Mark.TICK) >= 3) | (lines.count(Mark.QUOTE) >= 3)
    suspects |= (first == second) & _FIRST_TWICE[first]
    suspects |= _LISTED[first] & (lines.count(Mark.OPERATOR) >= 3)
    suspects |= (first == ord("/")) & (second == ord("*"))
    suspects |= (lines.count(Mark.OPERATOR) > 0) & (lines.count(Mark.SLASH) > 0)
    suspects |= (first == ord("\\")) & _AFTER_BACKSLASH[second]
    suspects |= (first == ord("<")) | ((first == ord("-")) & (second == ord("-")))
    suspects |= (at_last == ord(">")) | ((at_last == ord("]")) & (before_last == ord("\\")))
    suspects |= (at_last == ord("$")) & (before_last == ord("$"))
    suspects |= (at_last == ord("'")) & (before_last == ord("'"))
    return suspects


_FIRST_TWICE: Final = among("~$'")
_LISTED: Final = among(">-*+0123456789")
_AFTER_BACKSLASH: Final = among("[]be")


def _opening(line: str) -> _Opening | None:
    fence = _FENCE.match(line[:_FENCE_WITHIN])
    if fence:
        mark = fence[1]
        return _Opening(
            mark[:1], Content.CODE, lambda other: _ends_fence(other, mark), at_once=False
        )
    if line.startswith("$$"):
        return _Opening(
            "$$", Content.MATH, lambda other: "$$" in other, at_once=line.find("$$", 2) > 0
        )
    if line.startswith("\\["):
        return _Opening("\\]", Content.MATH, lambda other: "\\]" in other, at_once="\\]" in line)
    environment = _ENVIRONMENT.match(line)
    if environment and environment[1] in _MATHS | _LISTINGS:
        closing = "\\end" + environment[0][6:]
        content = Content.MATH if environment[1] in _MATHS else Content.CODE
        return _Opening(closing, content, lambda other: closing in other, at_once=closing in line)
    if line.startswith("/*"):
        return _Opening("*/", Content.CODE, lambda other: "*/" in other, at_once="*/" in line)
    if line.startswith("<!--"):
        return _Opening("-->", Content.XML, lambda other: "-->" in other, at_once="-->" in line)
    tag = _TAGS.match(line)
    if tag:
        end = f"</{tag[1].lower()}"
        return _Opening(
            end, Content.CODE, lambda other: end in other.lower(), at_once=end in line.lower()
        )
    if line.startswith("-----BEGIN "):
        return _Opening(
            "-----END ", Content.DATA, lambda other: other.startswith("-----END "), at_once=False
        )
    for quotes in _LONG_STRINGS:
        if line.count(quotes) % 2:
            return _Opening(quotes, Content.CODE, _odd(quotes), at_once=False)
    return None


def _odd(quotes: str) -> Callable[[str], bool]:
    return lambda other: other.count(quotes) % 2 == 1


def _ends_fence(line: str, opened: str) -> bool:
    fence = _FENCE.match(line[:_FENCE_WITHIN])
    return fence is not None and fence[1].startswith(opened) and not fence[2].strip()


def _in_code(lines: Lines, scores: NDArray[np.float64], first: int, end: int) -> bool:
    """Tell whether a long string stands in a program: indented, or beside lines of code."""
    indented = bool(lines.first[first] > lines.starts[first])
    around = scores[max(first - 1, 0) : first].tolist() + scores[end : end + 2].tolist()
    return indented or any(score > 0 for score in around)
