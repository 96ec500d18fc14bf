"""What a plan is asked for: engines, target, limits and prices."""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from fleetopt.errors import ConfigError
from fleetopt.planner.bins import EDGES_TOKENS, nearest_edges
from fleetopt.planner.cost import SECONDS_PER_HOUR, CostUnit, Rate, rate
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.target import E2eTarget, TtftTarget, gap_text

GAMMA_LIMIT: Final = 16.0
_LONGEST_GAP_S: Final = 3600.0
LEAST_SHARE: Final = 0.01
"""Of a pool's time or of its nodes; with less, counts lose their meaning before they are found."""

DEFAULT_COMPRESSION_PENALTY_USD: Final = 1e-6
"""One USD per million compressed requests: about 1 % of what serving a request costs.

It stops γ from rising where compression hardly saves anything, and leaves it alone where
it pays. Set it to what a worse answer costs you.
"""


class SloScope(StrEnum):
    """Whose requests a target's P99 is taken over."""

    POOL = "pool"
    """Each pool's own: at most 1 % of its requests miss the target."""

    FLEET = "fleet"
    """All pools' together: one pool may miss more if the other misses less."""


class Admission(StrEnum):
    """How many sequences a replica runs at once."""

    RESERVED = "reserved"
    STATISTICAL = "statistical"


@dataclass(frozen=True)
class PlanRequest:
    """Everything a plan depends on besides the workload.

    A pinned `boundary_tokens` is a bin edge below the long context, or the long context
    itself, which means one pool.

    Raises
    ------
    ConfigError
        If a field is out of range; the message starts with its name.
    """

    short_profile: EngineProfile
    long_profile: EngineProfile
    long_context_tokens: int
    slo_ttft_p99: TtftTarget
    admission: Admission = Admission.STATISTICAL
    preemption_probability: float = 0.001  # ε
    max_utilization: float = 0.85  # ρ_max
    gamma_max: float = 2.0
    compressible_share: float = 0.75  # p_c, of requests whose class is unknown
    compression_penalty_usd: float = DEFAULT_COMPRESSION_PENALTY_USD
    min_replicas: int = 1
    max_replicas: int | None = None
    node_availability: float = 1.0
    boundary_tokens: int | None = None
    minimise: CostUnit = CostUnit.USD
    slo_e2e_p99: E2eTarget | None = None
    slo_itl_p99_s: float | None = None  # between two tokens
    slo_scope: SloScope = SloScope.POOL  # of TTFT and end to end; between tokens it is each pool's

    def __post_init__(self) -> None:
        _between("max_utilization", self.max_utilization, LEAST_SHARE, 1.0)
        _inside("max_utilization", self.max_utilization, 0.0, 1.0)
        _inside("preemption_probability", self.preemption_probability, 0.0, 0.5)
        _between("compressible_share", self.compressible_share, 0.0, 1.0)
        _between("compression_penalty_usd", self.compression_penalty_usd, 0.0, 1e6)
        _between("gamma_max", self.gamma_max, 1.0, GAMMA_LIMIT)
        _between("node_availability", self.node_availability, LEAST_SHARE, 1.0)
        if self.min_replicas < 1:
            raise ConfigError(f"min_replicas is {self.min_replicas}; expected ≥ 1")
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            raise ConfigError(
                f"max_replicas is {self.max_replicas}; expected ≥ min_replicas={self.min_replicas}"
            )
        if self.slo_itl_p99_s is not None:
            _inside("slo_itl_p99_s", self.slo_itl_p99_s, 0.0, _LONGEST_GAP_S)
        _check_context(self.long_context_tokens)
        _ = self.short_rate, self.long_rate  # refuses an engine whose cost is unknown
        if self.boundary_tokens is not None:
            check_boundary(self.boundary_tokens, self.long_context_tokens)

    @property
    def targets_text(self) -> str:
        """All targets in words, such as "P99 TTFT at most 1s, P99 between tokens at most 50ms"."""
        said = [f"P99 TTFT at most {self.slo_ttft_p99}"]
        if self.slo_e2e_p99 is not None:
            said.append(f"P99 end to end at most {self.slo_e2e_p99}")
        if self.slo_itl_p99_s is not None:
            said.append(f"P99 between tokens at most {gap_text(self.slo_itl_p99_s)}")
        scope = " over the fleet" if self.slo_scope is SloScope.FLEET else ""
        return ", ".join(said) + scope

    @property
    def has_further_targets(self) -> bool:
        """Whether there are targets beside the TTFT."""
        return self.slo_e2e_p99 is not None or self.slo_itl_p99_s is not None

    @cached_property
    def short_rate(self) -> Rate:
        """What the short pool's engine costs in the unit that is minimised."""
        return rate(self.short_profile, self.minimise)

    @cached_property
    def long_rate(self) -> Rate:
        """What the long pool's engine costs in the unit that is minimised."""
        return rate(self.long_profile, self.minimise)

    @cached_property
    def compression_penalty(self) -> float:
        """Price of one compressed request in the unit that is minimised.

        In carbon it is that of the time for which its price in USD pays a fully used replica
        of the long pool: quality is worth as much of a GPU in either unit.
        """
        if self.minimise is CostUnit.USD:
            return self.compression_penalty_usd
        hours = self.compression_penalty_usd / self.long_profile.price_usd_per_replica_h
        return hours * (self.long_rate.per_replica + self.long_rate.per_load)

    def compression_usd_per_h(self, compressed_per_s: float) -> float:
        """Price of compressing so many requests, in USD whatever is minimised."""
        return compressed_per_s * self.compression_penalty_usd * SECONDS_PER_HOUR


def check_boundary(boundary_tokens: int, long_context_tokens: int) -> None:
    """Refuse a pinned boundary that is neither a bin edge below C_l nor C_l itself."""
    if boundary_tokens == long_context_tokens:
        return
    if boundary_tokens > long_context_tokens:
        raise ConfigError(
            f"boundary_tokens is {boundary_tokens}, above long_context_tokens="
            f"{long_context_tokens}; expected a bin edge below it, or it itself for one pool"
        )
    edges = nearest_edges(boundary_tokens)
    if edges != (boundary_tokens,):
        listed = " or ".join(str(edge) for edge in edges)
        verb = "is" if len(edges) == 1 else "are"
        raise ConfigError(
            f"boundary_tokens is {boundary_tokens}, not a bin edge; the nearest {verb} {listed}"
        )


def _check_context(tokens: int) -> None:
    low, high = int(EDGES_TOKENS[1]), int(EDGES_TOKENS[-1])
    if not low <= tokens <= high:
        raise ConfigError(f"long_context_tokens is {tokens}; expected {low} to {high}")


def _between(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise ConfigError(f"{name} is {value}; expected {low:g} to {high:g}")


def _inside(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low < value < high):
        raise ConfigError(f"{name} is {value}; expected more than {low:g} and less than {high:g}")
