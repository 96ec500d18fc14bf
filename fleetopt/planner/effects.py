"""What goes into the replanner and what comes out: events and effects, all frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleetopt.planner.recommendation import (
    AlertKind,
    BytesPerToken,
    Evidence,
    Lengths,
    Recommendation,
)
from fleetopt.planner.ttft_counts import TtftCounts
from fleetopt.planner.workload import Workload

Details = tuple[tuple[str, str | int | float], ...]
"""Names and values that go with an alert, in a fixed order."""


class Trigger(StrEnum):
    """Why the replanner is asked now."""

    INTERVAL = "interval"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class Observed:
    """The window was looked at; without a workload or without requests, traffic is unknown."""

    workload: Workload | None
    evidence: Evidence | None
    trigger: Trigger = Trigger.INTERVAL
    lengths: Lengths | None = None
    """Better percentiles than the workload's bins give, where a digest was kept."""
    bytes_per_token: Mapping[str, BytesPerToken] = field(default_factory=dict)
    """By category, where request logs say how many bytes a prompt had."""
    ttfts: TtftCounts | None = None
    """Observed times to first token, where request logs say them and the pool."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing has been heard of the fleet's traffic since `since_s`: unknown, not zero."""

    since_s: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Every request of the window was reported, and there was none: zero, not unknown."""

    evidence: Evidence


Event = Observed | Idle | Silent


@dataclass(frozen=True, slots=True)
class Publish:
    """Write this recommendation, compare-and-set on its revision."""

    recommendation: Recommendation


@dataclass(frozen=True, slots=True)
class RaiseAlert:
    """Tell the operator; where this kind fires already, the new text replaces the old one."""

    kind: AlertKind
    text: str
    details: Details = ()


@dataclass(frozen=True, slots=True)
class ResolveAlert:
    """The alert of this kind is over."""

    kind: AlertKind


Effect = Publish | RaiseAlert | ResolveAlert
