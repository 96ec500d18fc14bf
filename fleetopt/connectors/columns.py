"""Request records as columns: what every format is decoded into and the sketch is fed with.

Owns the arrays and their limits; knows no wire format and no window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.moments import Compressibility

MAX_TOKENS: Final = 1 << 30
"""Token counts above this are taken for corruption, not for a prompt."""

CACHE_UNKNOWN: Final = -1
"""In `cached_tokens`: the log doesn't say, or says it of a prompt that compression changed."""

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
        _cached(parts),
    )


def _cached(parts: list[RequestColumns]) -> NDArray[np.int64] | None:
    if all(part.cached_tokens is None for part in parts):
        return None
    return np.concatenate(
        [
            np.full(len(part), CACHE_UNKNOWN, dtype=np.int64)
            if part.cached_tokens is None
            else part.cached_tokens
            for part in parts
        ]
    )
