"""A text as blocks of prose and of what must stay as it is.

Each line speaks for or against prose (`evidence`), spans with a start and an end are found first
(`fences`), and the cheapest division of the lines in two kinds decides the rest: a line that says
little goes with those around it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.content import Block, Content
from fleetopt.compressor.evidence import KINDS, PROSE, XML, flags_of, named, scored
from fleetopt.compressor.fences import fenced, hunks
from fleetopt.compressor.json_values import json_values
from fleetopt.compressor.lines import Array, Flags, Lines

__all__ = ["Block", "Content", "blocks"]

_CERTAIN: Final = 1e6
# What it costs to go from prose to something else or back: at a blank line, and elsewhere.
_CHANGE_AT_BLANK: Final = 1.0
_CHANGE: Final = 1.6
# Above this many lines of fewer characters in the mean, blank ones included, a text is data: no
# prose is written so, and looking at each line would take too long.
_MANY_LINES: Final = 20_000
_SHORT_LINE: Final = 16


def blocks(text: str) -> tuple[Block, ...]:
    """Divide a text into blocks: in order, without gaps, neighbours of different content.

    A newline belongs to the block before it, and so do blank lines. Offsets are in code points.
    """
    if not text:
        return ()
    if text.isspace():
        return (Block(0, len(text), Content.PROSE),)
    breaks = text.count("\n") or text.count("\r")
    if breaks > _MANY_LINES and len(text) < _SHORT_LINE * breaks:
        return (Block(0, len(text), Content.DATA),)
    lines = Lines.of(text)
    if not len(lines.starts):
        return (Block(0, len(text), Content.PROSE),)
    flags = flags_of(lines)
    scores = scored(lines, flags)
    spans = [*fenced(lines, text, scores), *hunks(lines), *json_values(lines, text)]
    if not spans and scores.max() <= 0:
        return (Block(0, len(text), Content.PROSE),)
    kinds = named(lines, flags)
    for span in spans:
        scores[span.first : span.end] = _CERTAIN
        kinds[span.first : span.end] = KINDS.index(span.content)
    atoms = _divided(scores, lines.after_blank)
    return tuple(_merged(lines, kinds, scores, atoms))


def _divided(scores: NDArray[np.float64], after_blank: Flags) -> Flags:
    """Return which lines are atoms: the division of the highest score, changes paid for."""
    side = scores > 0
    firsts = np.flatnonzero(np.append(True, side[1:] != side[:-1]))
    sums = np.add.reduceat(scores, firsts).tolist()
    changes = np.where(after_blank[firsts], _CHANGE_AT_BLANK, _CHANGE).tolist()
    prose, atom = 0.0, -_CHANGE_AT_BLANK
    from_atom: list[bool] = []
    from_prose: list[bool] = []
    for gain, change in zip(sums, changes, strict=True):
        to_prose, to_atom = atom - change > prose, prose - change > atom
        from_atom.append(to_prose)
        from_prose.append(to_atom)
        prose, atom = (
            atom - change if to_prose else prose,
            (prose - change if to_atom else atom) + gain,
        )
    state = atom > prose
    states: list[bool] = []
    for to_prose, to_atom in zip(reversed(from_atom), reversed(from_prose), strict=True):
        states.append(state)
        state = not to_atom if state else to_prose
    lengths = np.diff(np.append(firsts, len(scores)))
    return np.repeat(np.array(states[::-1], np.bool_), lengths)


def _merged(
    lines: Lines, kinds: NDArray[np.int8], scores: NDArray[np.float64], atoms: Flags
) -> Iterator[Block]:
    """Name each run of atoms by what most of its characters speak for."""
    firsts = np.flatnonzero(np.append(True, atoms[1:] != atoms[:-1]))
    weights = np.where(scores > 0, lines.last - lines.first + 1, 0)
    contents = [
        KINDS[_kind(kinds[first:end], weights[first:end])] if atoms[first] else Content.PROSE
        for first, end in _pairs(firsts, len(atoms))
    ]
    starts = lines.starts[firsts].tolist()
    starts[0] = 0
    for start, end, content in zip(starts, [*starts[1:], lines.size], contents, strict=True):
        yield Block(start, end, content)


def _pairs(firsts: Array, total: int) -> Iterator[tuple[int, int]]:
    bounds = [*firsts.tolist(), total]
    yield from itertools.pairwise(bounds)


def _kind(kinds: NDArray[np.int8], weights: Array) -> int:
    if kinds[0] == XML and np.count_nonzero(kinds == XML) > 1:
        # Attributes and embedded scripts on lines of their own belong to the markup.
        return XML
    votes = np.bincount(kinds, weights=weights, minlength=len(KINDS))
    votes[PROSE] = -1
    return int(votes.argmax())
