"""The fleet that is simulated: pools with their slots, and who goes where."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from fleetopt.errors import ConfigError
from fleetopt.planner.availability import replicas_up
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.outcome import Plan, PoolPlan
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.simulate.state import NO_LIMIT
from fleetopt.planner.target import TtftTarget


class Dispatch(StrEnum):
    """Which replica of a pool a request goes to."""

    LEAST_LOADED = "least_loaded"
    """The one with the fewest requests, running and waiting."""

    LEAST_WORK = "least_work"
    """The one with the least prefill still to do, then the one with the fewest requests."""


@dataclass(frozen=True)
class SimulatedPool:
    """Replicas of one engine, all with the same settings.

    Parameters
    ----------
    name : str
        `short` or `long`.
    profile : EngineProfile
        What an iteration takes.
    context_tokens : int
        Longest request, prompt and completion; must fit into one replica's cache.
    replicas : int
        Replicas that are up, ≥ 1.
    slots : int
        Sequences that a replica runs at once at most, ≥ 1.
    is_paged : bool
        Whether sequences take cache as they grow, and are preempted when it is full. If not,
        each slot has reserved what it may need.

    Raises
    ------
    ConfigError
        If a figure is out of range.
    """

    name: str
    profile: EngineProfile
    context_tokens: int
    replicas: int
    slots: int
    is_paged: bool

    def __post_init__(self) -> None:
        for field in ("context_tokens", "replicas", "slots"):
            value = getattr(self, field)
            if value < 1:
                raise ConfigError(f"{self.name}.{field} is {value}; expected a whole number ≥ 1")
        if self.context_tokens > self.profile.kv_capacity_tokens:
            raise ConfigError(
                f"{self.name}.context_tokens is {self.context_tokens}, more than the cache of "
                f"{self.profile.name} holds; expected at most {self.profile.kv_capacity_tokens}"
            )

    @property
    def cache_tokens(self) -> int:
        """What the sequences of a replica share at most: without limit where slots are reserved.

        A request that fills its context and generates nothing needs no place for its last token,
        but the loop keeps one.
        """
        if not self.is_paged:
            return NO_LIMIT
        return max(self.profile.kv_capacity_tokens, self.context_tokens + 1)


@dataclass(frozen=True)
class SimulatedFleet:
    """One or two pools, and the gateway in front of them.

    A request of at most `boundary_tokens` is short. One of at most `compress_up_to_tokens` may be
    compressed to the boundary: if its class is unknown, with probability `compressible_share`.
    """

    short: SimulatedPool
    long: SimulatedPool | None
    boundary_tokens: int
    compress_up_to_tokens: int
    compressible_share: float
    target: TtftTarget

    def __post_init__(self) -> None:
        if not (math.isfinite(self.compressible_share) and 0 <= self.compressible_share <= 1):
            raise ConfigError(f"compressible_share is {self.compressible_share}; expected 0 to 1")
        if not 1 <= self.boundary_tokens <= self.short.context_tokens:
            raise ConfigError(
                f"boundary_tokens is {self.boundary_tokens}; expected 1 to the short pool's "
                f"context of {self.short.context_tokens}"
            )
        if self.compress_up_to_tokens < self.boundary_tokens:
            raise ConfigError(
                f"compress_up_to_tokens is {self.compress_up_to_tokens}, below the boundary of "
                f"{self.boundary_tokens}; expected the boundary itself for no compression"
            )

    @classmethod
    def of_plan(cls, plan: Plan, request: PlanRequest) -> Self:
        """The fleet that a plan describes: of its replicas, those that are up."""

        def pool(planned: PoolPlan, profile: EngineProfile) -> SimulatedPool:
            return SimulatedPool(
                name=planned.name,
                profile=profile,
                context_tokens=planned.context_tokens,
                replicas=int(replicas_up(planned.replicas, request.node_availability)),
                slots=planned.max_num_seqs,
                is_paged=request.admission is Admission.STATISTICAL,
            )

        # One pool is reported as short, but it serves long contexts on the long pool's engine.
        one = plan.long is None
        return cls(
            short=pool(plan.short, request.long_profile if one else request.short_profile),
            long=pool(plan.long, request.long_profile) if plan.long else None,
            boundary_tokens=plan.boundary_tokens,
            compress_up_to_tokens=max(plan.compress_up_to_tokens, plan.boundary_tokens),
            compressible_share=request.compressible_share,
            target=request.slo_ttft_p99,
        )

    @property
    def pools(self) -> tuple[SimulatedPool, ...]:
        """The short pool, and the long one if there are two."""
        return (self.short,) if self.long is None else (self.short, self.long)
