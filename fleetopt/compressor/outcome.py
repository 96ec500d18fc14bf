"""What compression answers: a prompt that fits, or why the prompt stays as it is."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetopt.compressor.cut import Cut
from fleetopt.compressor.messages import Message

Prompt = str | Sequence[Message]


class Reason(enum.StrEnum):
    """Why a prompt is sent on unchanged. A closed set: metrics count by it."""

    FITS = "fits"
    NO_BUDGET = "no_budget"
    TOO_LITTLE_PROSE = "too_little_prose"
    KEEPS_TOO_LITTLE = "keeps_too_little"
    CONTENT = "content"
    PREFIX_CACHED = "prefix_cached"
    NO_TOKEN_COUNTER = "no_token_counter"  # noqa: S105 - not a password
    COUNTER_FAILED = "counter_failed"
    INVALID_PROMPT = "invalid_prompt"
    TOO_LARGE = "too_large"
    OVER_BUDGET = "over_budget"
    DEADLINE = "deadline"
    OVERLOADED = "overloaded"
    WORKER_FAILED = "worker_failed"
    FAILED = "failed"


class Stage(enum.StrEnum):
    """The steps of a compression, for the time that each takes."""

    COUNT = "count"
    SPLIT = "split"
    SCORE = "score"
    SELECT = "select"


@dataclass(frozen=True, slots=True)
class Compressed:
    """A prompt that fits its budget, made of slices of the original."""

    prompt: str | list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
    # What was kept and what not; None once the result has crossed a process border.
    cut: Cut | None = None
    stage_s: Mapping[Stage, float] = field(default_factory=dict)

    @property
    def kept_share(self) -> float:
        """Tokens after, of tokens before."""
        return self.tokens_after / self.tokens_before


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The prompt is to be sent as it is, to a pool that it fits."""

    reason: Reason
    detail: str
    tokens_before: int | None = None
    stage_s: Mapping[Stage, float] = field(default_factory=dict)
