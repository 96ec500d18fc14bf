"""The P99 time to first token that each pool must meet."""

import math
import re
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError

TTFT_VIOLATIONS_MAX: Final = 0.01
"""P99: at most this share of a pool's requests may exceed the target."""

_UNITS_S: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME: Final = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(us|µs|ms|s)"
_TARGET: Final = re.compile(rf"\s*{_TIME}\s*(?:\+\s*{_TIME}\s*/\s*tok(?:en)?\s*)?", re.IGNORECASE)


@dataclass(frozen=True)
class TtftTarget:
    """P99 time to first token, affine in the prompt: base_s + per_prompt_token_s · i."""

    base_s: float
    per_prompt_token_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("base_s", "per_prompt_token_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"slo_ttft_p99.{name} is {value}; expected a finite number ≥ 0")
        if self.base_s == 0.0 and self.per_prompt_token_s == 0.0:
            raise ConfigError("slo_ttft_p99 is zero; expected a time such as 500ms")

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
        match = _TARGET.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"slo_ttft_p99 is {text!r}; expected a time such as 500ms, 60s or 300ms+0.2ms/token"
            )
        base, base_unit, slope, slope_unit = match.groups()
        per_token_s = float(slope) * _UNITS_S[slope_unit.lower()] if slope else 0.0
        return cls(float(base) * _UNITS_S[base_unit.lower()], per_token_s)

    def __str__(self) -> str:
        base = _time_text(self.base_s)
        if self.per_prompt_token_s == 0.0:
            return base
        return f"{base}+{_time_text(self.per_prompt_token_s)}/token"

    def at(self, prompt_tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Target in seconds for each prompt length."""
        return self.base_s + self.per_prompt_token_s * prompt_tokens


def _time_text(seconds: float) -> str:
    return f"{seconds:.12g}s" if seconds >= 1.0 else f"{seconds * 1e3:.12g}ms"
