"""JSON is found wherever it stands, and what only looks like it is not."""

from __future__ import annotations

import json

import pytest

from fleetopt.compressor.blocks import blocks
from fleetopt.compressor.content import Content

PROSE = "The river rose in the night. Nobody in the valley had seen it so high. "
ROWS = json.dumps([{"id": at, "text": PROSE * 3} for at in range(20)])


def contents(text: str) -> list[tuple[Content, str]]:
    return [(block.content, text[block.start : block.end]) for block in blocks(text)]


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        json.dumps({"rows": list(range(500))}),
        json.dumps({"a": PROSE * 5}, ensure_ascii=False),
        json.dumps([PROSE] * 5),
        "\n".join(json.dumps({"id": at, "text": PROSE * 2}) for at in range(20)),
    ],
    ids=["rows", "numbers", "one text", "list of texts", "lines"],
)
def test_texts_within_json_are_json(text: str) -> None:
    assert [content for content, _ in contents(text)] == [Content.JSON]


def test_json_between_prose_stays_whole() -> None:
    found = contents(f"{PROSE * 10}\n{ROWS}\n{PROSE * 10}")
    assert [content for content, _ in found] == [Content.PROSE, Content.JSON, Content.PROSE]
    assert found[1][1].strip() == ROWS


def test_json_within_a_line_keeps_the_line() -> None:
    found = contents(f"{PROSE * 10}\nThe rows are {ROWS} and no more.\n{PROSE * 10}")
    assert [content for content, _ in found] == [Content.PROSE, Content.JSON, Content.PROSE]


@pytest.mark.parametrize(
    "text",
    [
        f'{PROSE * 5}["He" said so]. {PROSE * 5}',
        f'{PROSE * 5}{{"a": 1}} is an object. {PROSE * 5}',
        PROSE * 5 + '{"never closed ' + PROSE * 5,
    ],
    ids=["brackets", "short", "unclosed"],
)
def test_what_is_no_json_or_little_of_it_is_prose(text: str) -> None:
    assert [content for content, _ in contents(text)] == [Content.PROSE]


@pytest.mark.parametrize("piece", ['{"a":', '[["', '{"', "[[", '["a",'])
def test_beginnings_without_end_do_no_harm(piece: str) -> None:
    """Neither the parser's recursion nor tries without number take a text down."""
    text = piece * 100_000
    assert "".join(part for _, part in contents(text)) == text
