"""An engine profile from benchmark runs: the predicted one, at the speed that the runs show.

Runs of whole request mixes near an engine's capacity don't tell its coefficients apart. They tell
how fast it is: the speed at which the planner predicts the P99 that was seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.sieve.predict import at_speed, one_replica
from fleetopt.planner.workload import Workload

FURTHEST: Final = 4.0
"""Factor of speed beyond which a run says nothing of this profile."""

_CONFIDENCE: Final = 0.95
_WITHIN: Final = 1e-3
_LATEST_S: Final = 1e6


@dataclass(frozen=True, slots=True)
class Seen:
    """One run of one configuration: what it was offered, and the P99 from sending to the end."""

    workload: Workload
    offered_per_s: float
    completion_p99_s: float


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """A profile as measured, and its speed against the predicted one with a 95 % interval.

    The interval is None where there is one run only.
    """

    profile: EngineProfile
    speed: float
    speed_low: float | None
    speed_high: float | None
    runs: int


def measured_profile(
    predicted: EngineProfile, seen: Sequence[Seen], context_tokens: int
) -> MeasuredProfile | None:
    """Return the profile that explains the runs; None if no run says anything.

    Parameters
    ----------
    predicted : EngineProfile
        What the configuration was predicted with.
    seen : sequence of Seen
        Its runs, of any classes; those without a finite P99 are not looked at.
    context_tokens : int
        The engine's window.
    """
    logs = np.array(
        [
            math.log(speed)
            for one in seen
            if (speed := _speed(predicted, one, context_tokens)) is not None
        ]
    )
    if not logs.size:
        return None
    mean = float(logs.mean())
    low = high = None
    if logs.size > 1:
        error = float(logs.std(ddof=1)) / math.sqrt(logs.size)
        half = float(stdtrit(logs.size - 1, 0.5 + 0.5 * _CONFIDENCE)) * error
        low, high = math.exp(mean - half), math.exp(mean + half)
    speed = math.exp(mean)
    within = "" if low is None or high is None else f" (95 %: {low:.2f} to {high:.2f})"
    profile = replace(
        at_speed(predicted, speed),
        source=f"{speed:.2f} times as fast{within} as {predicted.name}, by {logs.size} benchmark "
        f"runs; {predicted.source or 'which names no source'}",
    )
    return MeasuredProfile(profile, speed, low, high, int(logs.size))


def _speed(predicted: EngineProfile, one: Seen, context_tokens: int) -> float | None:
    """Return the speed at which a run's P99 is predicted; None if there is none within reach."""
    if not math.isfinite(one.completion_p99_s):
        return None

    def lateness(log_speed: float) -> float:
        engine = at_speed(predicted, math.exp(log_speed))
        _, p99_s = one_replica(engine, one.workload, one.offered_per_s, context_tokens)
        return math.log(min(p99_s, _LATEST_S) / one.completion_p99_s)

    end = math.log(FURTHEST)
    if not lateness(-end) > 0.0 > lateness(end):
        return None
    return math.exp(brentq(lateness, -end, end, xtol=_WITHIN))
