"""What a piece of text is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Content(StrEnum):
    """What a block is. Only prose may be shortened."""

    PROSE = "prose"
    CODE = "code"
    JSON = "json"
    XML = "xml"
    TABLE = "table"
    LOG = "log"
    MATH = "math"
    DATA = "data"
    """Base64, hexadecimal digits, lists of URLs and the like."""


@dataclass(frozen=True, slots=True)
class Block:
    """Adjacent lines of one content: code points `start` up to `end`."""

    start: int
    end: int
    content: Content
