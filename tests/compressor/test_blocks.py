"""The segmenter: what stays prose, what becomes an atom, and what holds for any text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.compressor.blocks import Block, Content, blocks

PIECES = (
    "The fleet is planned again whenever the load of a pool crosses its limit.",
    "def plan(workload):",
    "    return workload.rate * 2;",
    "```python",
    "```",
    "~~~",
    "| a | b |",
    "| --- | --- |",
    "$$",
    '{"key": [1, 2, 3], "other": null}',
    "<p>text</p>",
    "2026-01-02 10:11:12,345 INFO worker: started",
    "/* a comment",
    "*/",
    '"""',
    "\\begin{equation}",
    "\\end{equation}",
    "水は重要です。これは文章です。",
    "",
    "   ",
    "\x00\x1b[31m",
    "\ud800",
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=[])),
    st.lists(st.sampled_from(PIECES)).map("\n".join),
    st.lists(st.sampled_from(PIECES)).map("\r\n".join),
    st.lists(st.sampled_from(PIECES)).map("\r".join),
)


def covered(text: str) -> tuple[Block, ...]:
    """Return the text's blocks after checking that they cover it."""
    found = blocks(text)
    assert "".join(text[block.start : block.end] for block in found) == text
    assert [block.start for block in found] == [0, *(block.end for block in found[:-1])][
        : len(found)
    ]
    return found


@given(TEXTS)
def test_blocks_cover_the_text_in_order_and_alternate(text: str) -> None:
    found = covered(text)
    assert all(block.start < block.end for block in found)
    assert all(one.content is not other.content for one, other in itertools.pairwise(found))
    assert found == blocks(text)


@given(TEXTS)
def test_blocks_begin_where_lines_begin(text: str) -> None:
    for block in covered(text)[1:]:
        assert text[block.start - 1] in "\r\n"


def test_an_empty_text_has_no_blocks() -> None:
    assert blocks("") == ()


@pytest.mark.parametrize("fence", ["```", "~~~~", "- ```", "> ```", "1. ```"])
@pytest.mark.parametrize("closed", [True, False])
def test_a_fence_protects_what_stands_in_it(fence: str, closed: bool) -> None:
    prose = "This paragraph explains in plain words what the following lines are good for.\n\n"
    inside = f"{fence}\n{prose}{prose}"
    text = prose + inside + (f"{fence.lstrip('->1. ')}\n\n{prose}" if closed else "")
    found = covered(text)
    expected = [Content.PROSE, Content.CODE] + [Content.PROSE] * closed
    assert [block.content for block in found] == expected
    assert text[found[1].start :].startswith(inside)


@pytest.mark.parametrize("text", ["\n" * 100_000, " \r\n\t" * 30_000, "\u3000"])
def test_white_space_alone_is_prose(text: str) -> None:
    assert blocks(text) == (Block(0, len(text), Content.PROSE),)


@pytest.mark.parametrize("line", ["a\n", "```\n", "$$\r", "x = 1\r\n"])
def test_very_many_very_short_lines_are_data(line: str) -> None:
    text = line * 30_000
    assert blocks(text) == (Block(0, len(text), Content.DATA),)


def test_more_spans_than_a_text_can_have_are_one_piece_of_code() -> None:
    text = "/* a comment that nothing closes\n" * 20_000
    assert blocks(text) == (Block(0, len(text), Content.CODE),)


@given(st.lists(st.sampled_from(PIECES), min_size=1).map("\n".join))
def test_an_atom_alone_is_still_no_prose(text: str) -> None:
    """Fences apart, which may be closed in the block after; prose blocks may be cut differently."""
    for block in blocks(text):
        alone = text[block.start : block.end]
        if block.content in {Content.JSON, Content.LOG, Content.MATH}:
            assert {part.content for part in blocks(alone)} != {Content.PROSE}
