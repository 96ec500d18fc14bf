"""What the compressor asks of whoever counts tokens. A protocol only: it opens no tokenizer.

A budget is kept in the engine's own tokens, so a counter either counts as the engine does or
refuses. There is no estimate behind this protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens as one engine does; the same text always has the same count.

    Every method raises InputError for a text that is not valid Unicode (a lone surrogate), and
    ServiceError where a service that counts does not answer.
    """

    @property
    def name(self) -> str:
        """What counts, for people: model and vocabulary, or model and address."""
        ...

    @property
    def per_unit(self) -> bool:
        """Whether `count_many` is cheap, so that thousands of short texts may be counted."""
        ...

    def count(self, text: str) -> int:
        """Tokens of the text alone, without template, start or end tokens.

        Where the text spells a special token: as the engine reads it, or the larger of both
        readings (as that token, and as ordinary text).
        """
        ...

    def count_many(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each text, shape (texts,): the same as `count` of each."""
        ...

    def count_prompt(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of a chat prompt, with its template and the start of the answer.

        Never fewer than the engine sees. Raises InputError for what can't be counted so: images
        and other parts that are not text, and tools where the template for them is not known.
        """
        ...
