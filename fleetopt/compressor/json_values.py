"""JSON within a text, wherever it stands: also on one line, and with prose inside it.

What the eye of `evidence` takes for prose may be the texts of a JSON value; leaving one of them out
would break it. So whatever parses as JSON is found by parsing it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from fleetopt.compressor.content import Content
from fleetopt.compressor.fences import Span
from fleetopt.compressor.lines import Lines

# Shorter values stand in sentences, as citations and examples.
_MIN_CHARACTERS: Final = 80
# A text with more beginnings that parse as nothing holds no JSON worth the time.
_MAX_FAILURES: Final = 100
_BEGINNING: Final = re.compile(r'\{\s?"|\[\s?[\[{"]')
_DECODER: Final = json.JSONDecoder()


def json_values(lines: Lines, text: str) -> Iterator[Span]:
    """Find the lines that hold a JSON object or array, in order; none overlap."""
    at = failures = done = 0
    while failures < _MAX_FAILURES:
        found = _BEGINNING.search(text, at)
        if found is None:
            return
        begin = found.start()
        try:
            _, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            failures += 1
            at = begin + 1
            continue
        at = end
        if end - begin < _MIN_CHARACTERS:
            continue
        first, last = np.searchsorted(lines.starts, (begin, end - 1), side="right") - 1
        first = max(int(first), done)
        done = int(last) + 1
        if first < done:
            yield Span(first, done, Content.JSON)
