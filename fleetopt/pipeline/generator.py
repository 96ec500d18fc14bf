"""Traffic made to order: lognormal mixtures of request kinds, Poisson or bursty, that may shift.

Pure: the random generator and the start are arguments, and the same seed makes the same traffic.
The three archetypes are those of the FleetOpt paper (arXiv 2603.16514): lengths concentrated
below the boundary, dispersed around it, and concentrated above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError

MAX_PROMPT_TOKENS: Final = 120_000
MAX_COMPLETION_TOKENS: Final = 8_000
STEP_S: Final = 1.0
"""The rate and the mix are constant within a step."""


class Archetype(StrEnum):
    """Where a traffic's lengths lie."""

    CONCENTRATED_BELOW = "concentrated-below"
    DISPERSED = "dispersed"
    CONCENTRATED_ABOVE = "concentrated-above"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request: its share and its lognormal lengths."""

    share: float
    category: str
    prompt_median_tokens: float
    prompt_sigma: float
    completion_median_tokens: float
    completion_sigma: float


MIXES: Final[dict[Archetype, tuple[Kind, ...]]] = {
    Archetype.CONCENTRATED_BELOW: (
        Kind(0.82, "chat", 400, 0.65, 180, 0.6),
        Kind(0.10, "rag", 900, 0.4, 160, 0.6),
        Kind(0.08, "code", 4_000, 0.4, 120, 0.8),
    ),
    Archetype.DISPERSED: (
        Kind(0.50, "chat", 700, 0.9, 200, 0.7),
        Kind(0.35, "tool", 4_000, 0.5, 220, 0.6),
        Kind(0.15, "code", 18_000, 0.3, 300, 0.6),
    ),
    Archetype.CONCENTRATED_ABOVE: (
        Kind(0.15, "chat", 700, 0.9, 200, 0.7),
        Kind(0.65, "tool", 9_000, 0.6, 150, 0.8),
        Kind(0.20, "code", 13_000, 0.5, 250, 0.8),
    ),
}
"""Medians in tokens; sigma is the standard deviation of the logarithm.

On h100/qwen3-32b/tp2 with a target of 300ms+0.2ms/token the best boundaries are about 4,300, 8,192
and 8,500 tokens, at 200 to 1,000 requests/s; staying at the first one's after a shift to the
second costs 18 to 40 % more than moving.
"""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What traffic to make.

    From `shift_at_s` (after the start) the mix turns from `archetype` into `shift_to`, linearly
    within `transition_s`. `dispersion` is the index of dispersion of the counts per second:
    1 is Poisson, more is bursty. Of each prompt about `cached_share` is logged as found in the
    prefix cache, as much more as less; where that is None, nothing is said of the cache.
    """

    archetype: Archetype
    rate_per_s: float
    duration_s: float
    shift_to: Archetype | None = None
    shift_at_s: float = 0.0
    transition_s: float = 0.0
    dispersion: float = 1.0
    cached_share: float | None = None

    def __post_init__(self) -> None:
        for name, lowest in (
            ("rate_per_s", 0.0),
            ("duration_s", 0.0),
            ("shift_at_s", 0.0),
            ("transition_s", 0.0),
            ("dispersion", 1.0),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= lowest):
                raise InputError(f"{name} is {value}; expected a finite number ≥ {lowest:g}")
        if self.cached_share is not None and not 0.0 <= self.cached_share <= 1.0:
            raise InputError(f"cached_share is {self.cached_share}; expected 0 to 1")

    def share_after_shift(self, elapsed_s: float) -> float:
        """Return the share of requests that the new mix makes."""
        if self.shift_to is None or elapsed_s < self.shift_at_s:
            return 0.0
        if elapsed_s >= self.shift_at_s + self.transition_s:
            return 1.0
        return (elapsed_s - self.shift_at_s) / self.transition_s


def generate(
    schedule: Schedule, fleet: str, start_s: float, rng: np.random.Generator
) -> Iterator[list[RequestLog]]:
    """Yield the traffic step by step, in order of arrival, from `start_s` on."""
    steps = math.ceil(schedule.duration_s / STEP_S)
    made = 0
    (caches,) = rng.spawn(1)  # of its own, so that the lengths are the same without a cache
    for step in range(steps):
        elapsed_s = step * STEP_S
        length_s = min(STEP_S, schedule.duration_s - elapsed_s)
        records = _step(schedule, fleet, start_s, elapsed_s, length_s, made, rng)
        made += len(records)
        yield (
            records
            if schedule.cached_share is None
            else _cached(records, schedule.cached_share, caches)
        )


def _step(
    schedule: Schedule,
    fleet: str,
    start_s: float,
    elapsed_s: float,
    length_s: float,
    made: int,
    rng: np.random.Generator,
) -> list[RequestLog]:
    count = _count(schedule.rate_per_s * length_s, schedule.dispersion, rng)
    arrival_s = np.sort(start_s + elapsed_s + rng.uniform(0.0, length_s, count))
    shifted = rng.random(count) < schedule.share_after_shift(elapsed_s)
    records: list[RequestLog | None] = [None] * count
    for archetype, rows in (
        (schedule.archetype, np.flatnonzero(~shifted)),
        (schedule.shift_to, np.flatnonzero(shifted)),
    ):
        if archetype is None or not len(rows):
            continue
        kinds, prompts, completions = draw(archetype, len(rows), rng)
        for row, kind, prompt, completion in zip(
            rows.tolist(), kinds.tolist(), prompts.tolist(), completions.tolist(), strict=True
        ):
            records[row] = RequestLog(
                fleet=fleet,
                request_id=f"g{made + row}",
                arrival_s=float(arrival_s[row]),
                prompt_tokens=prompt,
                completion_tokens=completion,
                category=MIXES[archetype][kind].category,
            )
    return [record for record in records if record is not None]


def _cached(records: list[RequestLog], share: float, rng: np.random.Generator) -> list[RequestLog]:
    """Return the records with what was cached of each prompt; its last token never is."""
    spread = min(share, 1.0 - share)
    shares = rng.uniform(share - spread, share + spread, len(records))
    return [
        msgspec.structs.replace(
            record,
            cached_prompt_tokens=min(int(one * record.prompt_tokens), record.prompt_tokens - 1),
        )
        for record, one in zip(records, shares.tolist(), strict=True)
    ]


def draw(
    archetype: Archetype, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw requests of a mix.

    Returns
    -------
    tuple of arrays, shape (count,) each
        The kind's index in `MIXES[archetype]`, prompt tokens and completion tokens, both ≥ 1.
    """
    mix = MIXES[archetype]
    kinds = rng.choice(len(mix), size=count, p=[kind.share for kind in mix])
    of_kind = np.array(
        [
            (
                math.log(kind.prompt_median_tokens),
                kind.prompt_sigma,
                math.log(kind.completion_median_tokens),
                kind.completion_sigma,
            )
            for kind in mix
        ]
    )[kinds]
    prompts = rng.lognormal(of_kind[:, 0], of_kind[:, 1])
    completions = rng.lognormal(of_kind[:, 2], of_kind[:, 3])
    return (
        kinds.astype(np.int64),
        np.clip(np.rint(prompts), 1, MAX_PROMPT_TOKENS).astype(np.int64),
        np.clip(np.rint(completions), 1, MAX_COMPLETION_TOKENS).astype(np.int64),
    )


def _count(mean: float, dispersion: float, rng: np.random.Generator) -> int:
    """Draw a step's count: Poisson, or Poisson with a gamma-distributed rate."""
    if dispersion > 1.0 and mean > 0.0:
        mean = float(rng.gamma(mean / (dispersion - 1.0), dispersion - 1.0))
    return int(rng.poisson(mean))
