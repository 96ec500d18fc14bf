"""Request records as columns: what every format is decoded into and the sketch is fed with.

Owns the arrays and their limits; knows no wire format and no window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.bytes_per_token import UNKNOWN_CATEGORY
from fleetopt.planner.compression_outcomes import CompressionOutcome
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.ttft_counts import TTFT_UNKNOWN

Whole = TypeVar("Whole", np.int64, np.int16, np.int8)

MAX_TOKENS: Final = 1 << 30
"""Token counts above this are taken for corruption, not for a prompt."""

CACHE_UNKNOWN: Final = -1
"""In `cached_tokens`: the log doesn't say, or says it of a prompt that compression changed."""

BYTES_UNKNOWN: Final = -1
"""In `prompt_bytes`: the log doesn't say."""

NOT_TRIED: Final = -1
"""In `compression`: nobody tried, or the log doesn't say."""

MAX_BYTES: Final = 1 << 40

MIN_ARRIVAL_S: Final = 0.0
MAX_ARRIVAL_S: Final = 1e11
"""Epoch seconds above this (the year 5138) are milliseconds by mistake."""

CATEGORY_COMPRESSIBILITY: Final[dict[str | None, Compressibility]] = {
    "prose": Compressibility.COMPRESSIBLE,
    "rag": Compressibility.COMPRESSIBLE,
    "chat": Compressibility.COMPRESSIBLE,
    "code": Compressibility.FIXED,
    "tool": Compressibility.FIXED,
    "other": Compressibility.UNKNOWN,
    None: Compressibility.UNKNOWN,
}
"""Which categories the compressor may shorten; a log without one is unknown, not incompressible."""


COMPRESSION_OUTCOMES: Final[dict[str | None, int]] = {
    None: NOT_TRIED,
    "fits": NOT_TRIED,
    "compressed": CompressionOutcome.COMPRESSED,
    "no_budget": CompressionOutcome.NOT_ELIGIBLE,
    "too_little_prose": CompressionOutcome.NOT_ELIGIBLE,
    "keeps_too_little": CompressionOutcome.NOT_ELIGIBLE,
    "content": CompressionOutcome.NOT_ELIGIBLE,
    "prefix_cached": CompressionOutcome.NOT_ELIGIBLE,
    "invalid_prompt": CompressionOutcome.NOT_ELIGIBLE,
    "too_large": CompressionOutcome.NOT_ELIGIBLE,
    "over_budget": CompressionOutcome.NOT_ELIGIBLE,
    "no_token_counter": CompressionOutcome.FAILED,
    "counter_failed": CompressionOutcome.FAILED,
    "deadline": CompressionOutcome.FAILED,
    "overloaded": CompressionOutcome.FAILED,
    "worker_failed": CompressionOutcome.FAILED,
    "failed": CompressionOutcome.FAILED,
}
"""What a log's `compression` counts as. A prompt that fits already was not to be compressed."""


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """Requests of one fleet; all arrays have shape (n,)."""

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]  # before compression
    completion_tokens: NDArray[np.int64]
    compressibility: NDArray[np.int8]
    measured: NDArray[np.bool_]
    """False where the request arrived but its tokens are unknown: failed, rejected, no usage."""
    cached_tokens: NDArray[np.int64] | None = None
    """Of the prompt, in the prefix cache, or CACHE_UNKNOWN; None where all are unknown."""
    prompt_bytes: NDArray[np.int64] | None = None
    """UTF-8 bytes of the prompt before compression, or BYTES_UNKNOWN; None where all are."""
    category: NDArray[np.int8] | None = None
    """Index into the planner's CATEGORIES; kept with the bytes, which are told by category."""
    compression: NDArray[np.int8] | None = None
    """CompressionOutcome, or NOT_TRIED; None where none was tried."""
    sent_prompt_tokens: NDArray[np.int64] | None = None
    """After compression; kept with `compression`."""
    ttft_cell: NDArray[np.int16] | None = None
    """Of the observed time to first token and its pool, or TTFT_UNKNOWN; None where all are."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> RequestColumns:
        """Return the given rows."""
        return RequestColumns(
            self.arrival_s[rows],
            self.prompt_tokens[rows],
            self.completion_tokens[rows],
            self.compressibility[rows],
            self.measured[rows],
            None if self.cached_tokens is None else self.cached_tokens[rows],
            None if self.prompt_bytes is None else self.prompt_bytes[rows],
            None if self.category is None else self.category[rows],
            None if self.compression is None else self.compression[rows],
            None if self.sent_prompt_tokens is None else self.sent_prompt_tokens[rows],
            None if self.ttft_cell is None else self.ttft_cell[rows],
        )


def concatenate(parts: list[RequestColumns]) -> RequestColumns:
    """Join columns of one fleet in the given order; `parts` must not be empty."""
    if len(parts) == 1:
        return parts[0]
    return RequestColumns(
        np.concatenate([part.arrival_s for part in parts]),
        np.concatenate([part.prompt_tokens for part in parts]),
        np.concatenate([part.completion_tokens for part in parts]),
        np.concatenate([part.compressibility for part in parts]),
        np.concatenate([part.measured for part in parts]),
        _joined([part.cached_tokens for part in parts], parts, CACHE_UNKNOWN),
        _joined([part.prompt_bytes for part in parts], parts, BYTES_UNKNOWN),
        _joined([part.category for part in parts], parts, UNKNOWN_CATEGORY),
        _joined([part.compression for part in parts], parts, NOT_TRIED),
        _joined([part.sent_prompt_tokens for part in parts], parts, 0),
        _joined([part.ttft_cell for part in parts], parts, TTFT_UNKNOWN),
    )


def _joined(
    columns: Sequence[NDArray[Whole] | None], parts: list[RequestColumns], unknown: int
) -> NDArray[Whole] | None:
    """Join a column that parts may lack; None where all do."""
    kind = next((column.dtype for column in columns if column is not None), None)
    if kind is None:
        return None
    return np.concatenate(
        [
            np.full(len(part), unknown, dtype=kind) if column is None else column
            for column, part in zip(columns, parts, strict=True)
        ]
    )
