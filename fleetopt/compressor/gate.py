"""The content gate: may a text be shortened at all?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fleetopt.compressor.blocks import Block, Content, blocks

__all__ = ["Block", "Content", "blocks", "content_of", "content_of_category", "main_content"]

_BY_CATEGORY: Final = {
    "prose": Content.PROSE,
    "rag": Content.PROSE,
    "chat": Content.PROSE,
    "code": Content.CODE,
    "tool": Content.JSON,
}


def content_of(text: str, category: str | None = None) -> Content:
    """Return what a text mainly is; a category that its caller gave it wins."""
    given = content_of_category(category)
    return main_content(blocks(text)) if given is None else given


def content_of_category(category: str | None) -> Content | None:
    """Return what a caller's category says of the content; None where it says nothing."""
    return _BY_CATEGORY.get(category or "")


def main_content(found: Iterable[Block]) -> Content:
    """Return what the blocks mainly are: prose where half of the characters or more are."""
    sizes = dict.fromkeys(Content, 0)
    for block in found:
        sizes[block.content] += block.end - block.start
    if 2 * sizes[Content.PROSE] >= sum(sizes.values()):
        return Content.PROSE
    del sizes[Content.PROSE]
    return max(sizes, key=lambda content: sizes[content])
