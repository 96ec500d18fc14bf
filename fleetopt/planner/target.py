"""The P99 targets that each pool must meet: to the first token, to the last, and between two."""

import math
import re
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError

VIOLATIONS_MAX: Final = 0.01
"""P99: at most this share of a pool's requests, or of their tokens, may exceed a target."""

TTFT_VIOLATIONS_MAX: Final = VIOLATIONS_MAX

_UNITS_S: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME: Final = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(us|µs|ms|s)"
_TARGET: Final = re.compile(rf"\s*{_TIME}\s*(?:\+\s*{_TIME}\s*/\s*tok(?:en)?\s*)?", re.IGNORECASE)


@dataclass(frozen=True)
class TtftTarget:
    """P99 time to first token, affine in the prompt: base_s + per_prompt_token_s · i."""

    base_s: float
    per_prompt_token_s: float = 0.0

    def __post_init__(self) -> None:
        _check("slo_ttft_p99", base_s=self.base_s, per_prompt_token_s=self.per_prompt_token_s)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "500ms", "60s" or "300ms+0.2ms/token".

        Raises
        ------
        ConfigError
            If the text is none of these.

        Examples
        --------
        >>> TtftTarget.parse("300ms+0.2ms/token")
        TtftTarget(base_s=0.3, per_prompt_token_s=0.0002)
        """
        return cls(*_parsed("slo_ttft_p99", text, "500ms, 60s or 300ms+0.2ms/token"))

    def __str__(self) -> str:
        return _text(self.base_s, self.per_prompt_token_s)

    def at(self, prompt_tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Target in seconds for each prompt length."""
        return self.base_s + self.per_prompt_token_s * prompt_tokens


@dataclass(frozen=True)
class E2eTarget:
    """P99 time from arrival to last token: base_s + per_completion_token_s · o."""

    base_s: float
    per_completion_token_s: float = 0.0

    def __post_init__(self) -> None:
        _check(
            "slo_e2e_p99", base_s=self.base_s, per_completion_token_s=self.per_completion_token_s
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "30s" or "2s+40ms/token", of the completion.

        Raises
        ------
        ConfigError
            If the text is none of these.
        """
        return cls(*_parsed("slo_e2e_p99", text, "30s or 2s+40ms/token"))

    def __str__(self) -> str:
        return _text(self.base_s, self.per_completion_token_s)

    def at(self, completion_tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Target in seconds for each completion length."""
        return self.base_s + self.per_completion_token_s * completion_tokens


def parse_gap_s(text: str) -> float:
    """Read "50ms": a P99 time between two tokens, in seconds.

    Raises
    ------
    ConfigError
        If the text is no time above 0.
    """
    base_s, slope_s = _parsed("slo_itl_p99", text, "50ms")
    if slope_s or base_s == 0.0:
        raise ConfigError(f"slo_itl_p99 is {text!r}; expected a time above 0 such as 50ms")
    return base_s


def gap_text(seconds: float) -> str:
    """Write what `parse_gap_s` reads."""
    return _time_text(seconds)


def _check(target: str, **parts_s: float) -> None:
    for name, value in parts_s.items():
        if not (math.isfinite(value) and value >= 0.0):
            raise ConfigError(f"{target}.{name} is {value}; expected a finite number ≥ 0")
    if not any(parts_s.values()):
        raise ConfigError(f"{target} is zero; expected a time such as 500ms")


def _parsed(target: str, text: str, examples: str) -> tuple[float, float]:
    match = _TARGET.fullmatch(text)
    if match is None:
        raise ConfigError(f"{target} is {text!r}; expected a time such as {examples}")
    base, base_unit, slope, slope_unit = match.groups()
    per_token_s = float(slope) * _UNITS_S[slope_unit.lower()] if slope else 0.0
    return float(base) * _UNITS_S[base_unit.lower()], per_token_s


def _text(base_s: float, per_token_s: float) -> str:
    base = _time_text(base_s)
    return f"{base}+{_time_text(per_token_s)}/token" if per_token_s else base


def _time_text(seconds: float) -> str:
    return f"{seconds:.12g}s" if seconds >= 1.0 else f"{seconds * 1e3:.12g}ms"
