"""The content gate: may a text be shortened at all?"""

from __future__ import annotations

from typing import Final

from fleetopt.compressor.blocks import Block, Content, blocks

__all__ = ["Block", "Content", "blocks", "content_of"]

_BY_CATEGORY: Final = {
    "prose": Content.PROSE,
    "rag": Content.PROSE,
    "chat": Content.PROSE,
    "code": Content.CODE,
    "tool": Content.JSON,
}


def content_of(text: str, category: str | None = None) -> Content:
    """Return what a text mainly is; a category that its caller gave it wins.

    A text is prose where half of it or more is, blank lines aside.
    """
    if category in _BY_CATEGORY:
        return _BY_CATEGORY[category]
    sizes = dict.fromkeys(Content, 0)
    for block in blocks(text):
        sizes[block.content] += block.end - block.start
    if 2 * sizes[Content.PROSE] >= sum(sizes.values()):
        return Content.PROSE
    del sizes[Content.PROSE]
    return max(sizes, key=lambda content: sizes[content])
