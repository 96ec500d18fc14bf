"""An alert as it is stored and sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Alert:
    """Something an operator should know of, or that it is over."""

    fleet: str
    kind: str
    firing: bool
    at_s: float
    text: str
    details: Mapping[str, str | int | float | None] = field(default_factory=dict)
