"""Bundled tokenizers: exact token counts in this process, without the engine.

The vocabularies come with `quicktok`; which model has which is ours (`model_names`), and what a
template adds too (`chat_templates`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.chat_templates import written
from fleetopt.connectors.message_text import check_unicode
from fleetopt.connectors.model_names import KnownModel, Vocabulary, known_model
from fleetopt.errors import ConfigError

if TYPE_CHECKING:
    import quicktok

_PIPE: Final = "<|"
"""How most special tokens begin; a text without it and without the others holds none."""


class BundledCounter:
    """Counts for one model in this process; may be used by several threads.

    Takes about 0.3 s and 30 MB to make. Raises ConfigError for a model that is not bundled, and
    where the package is not installed.
    """

    per_unit: Final = True

    def __init__(self, model: str) -> None:
        self.model: KnownModel = known_model(model)
        self.name = f"{self.model.name} ({self.model.vocabulary.value})"
        self._encoding = _encoding(self.model.vocabulary)
        special = sorted(self._encoding.special_tokens_set, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)))
        self._marks = (_PIPE, *(one for one in special if not one.startswith(_PIPE)))

    def count(self, text: str) -> int:
        """Tokens of the text alone."""
        try:
            ordinary: int = self._encoding.count(text)
            if not self._may_be_special(text):
                return ordinary
            return max(ordinary, self._count_with_special(text))
        except TypeError:
            check_unicode(text)
            raise

    def count_many(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each text, shape (texts,)."""
        texts = list(texts)
        try:
            offsets: NDArray[np.int64] = self._encoding.encode_batch(texts, 1)[1]
        except TypeError:
            for text in texts:
                check_unicode(text)
            raise
        counts = offsets[1:] - offsets[:-1]
        if self._may_be_special("".join(texts)):
            for at, text in enumerate(texts):
                if self._may_be_special(text):
                    counts[at] = self.count(text)
        return counts

    def count_prompt(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of a chat prompt of text: exact, or the longest way to write it."""
        counted: dict[str, int] = {}
        total = 0
        for ways in written(self.model.template, messages):
            longest = 0
            for piece in ways:
                for segment in piece.segments:
                    if segment not in counted:
                        counted[segment] = self.count(segment)
                tokens = sum(counted[segment] for segment in piece.segments)
                longest = max(longest, piece.special_tokens + tokens)
            total += longest
        return total

    def _count_with_special(self, text: str) -> int:
        """Count with special tokens read as such, in time proportional to the text.

        quicktok's own `encode_with_special` takes time with the square of it: seconds for 60 KB of
        a chat that somebody pasted.
        """
        between = self._special.split(text)
        offsets: NDArray[np.int64] = self._encoding.encode_batch(between, 1)[1]
        return int(offsets[-1]) + len(between) - 1

    def _may_be_special(self, text: str) -> bool:
        return any(mark in text for mark in self._marks)


def _encoding(vocabulary: Vocabulary) -> quicktok.Tokenizer:
    try:
        import quicktok
    except ImportError as error:
        raise ConfigError(
            "the bundled tokenizers are not installed: pip install 'fleetopt[compress]', or give "
            "the engine's address, so that its own /tokenize counts"
        ) from error
    return quicktok.get_encoding(vocabulary.value)
