"""What a plan says: the fleet, what it is predicted to do, and why it was chosen."""

from dataclasses import dataclass
from enum import StrEnum

from fleetopt.planner.cost import CostUnit
from fleetopt.planner.target import E2eTarget, TtftTarget


class Binding(StrEnum):
    """The constraint that set a pool's number of replicas."""

    UTILIZATION = "utilization"
    PREFILL_TTFT = "prefill_ttft"
    QUEUE_WAIT = "queue_wait"
    MINIMUM = "minimum"
    END_TO_END = "end_to_end"
    BETWEEN_TOKENS = "between_tokens"


class BaselineName(StrEnum):
    """The fleets that every plan is compared with."""

    ONE_POOL_RESERVED = "one_pool_reserved"
    ONE_POOL_STATISTICAL = "one_pool_statistical"
    TWO_POOLS_NO_COMPRESSION = "two_pools_no_compression"
    COMPRESSION_RETROFITTED = "compression_retrofitted"
    CO_DESIGNED = "co_designed"


class ReasonCode(StrEnum):
    """Why the plan is as it is."""

    TWO_POOLS_CHEAPER = "two_pools_cheaper"
    SINGLE_POOL_SUFFICIENT = "single_pool_sufficient"
    BOUNDARY_PINNED = "boundary_pinned"
    COMPRESSION_PAYS = "compression_pays"
    COMPRESSION_NOT_WORTH_IT = "compression_not_worth_it"
    GAMMA_AT_LIMIT = "gamma_at_limit"
    SLO_BINDS = "slo_binds"
    UTILIZATION_BINDS = "utilization_binds"
    MINIMUM_BINDS = "minimum_binds"
    END_TO_END_BINDS = "end_to_end_binds"
    BETWEEN_TOKENS_BINDS = "between_tokens_binds"
    REQUESTS_OVER_LONG_CONTEXT = "requests_over_long_context"


class InfeasibleReason(StrEnum):
    """Why there is no plan."""

    NO_REQUESTS = "no_requests"
    NOTHING_SERVABLE = "nothing_servable"
    CONTEXT_EXCEEDS_KV = "context_exceeds_kv"
    SLO_UNREACHABLE = "slo_unreachable"
    MAX_REPLICAS = "max_replicas"
    E2E_UNREACHABLE = "e2e_unreachable"
    ITL_UNREACHABLE = "itl_unreachable"


@dataclass(frozen=True)
class PoolPlan:
    """One pool: its size, its engine's settings and what it is predicted to do."""

    name: str
    profile: str
    context_tokens: int
    replicas: int
    gpus: int
    max_num_seqs: int
    arrival_rate_per_s: float
    utilization: float
    slot_occupancy: float
    mean_iteration_s: float
    ttft_p99_s: float
    ttft_violation_share: float
    wait_p99_s: float
    binding: Binding
    cost_usd_per_h: float
    max_num_batched_tokens: int
    min_tokens: int = 0  # a request that is routed here has at least so many
    power_w: float | None = None
    power_is_upper_bound: bool = False
    carbon_kg_per_h: float | None = None
    e2e_p99_s: float = 0.0
    itl_p99_s: float = 0.0

    @property
    def context_length_range(self) -> str:
        """The value of llm-d's label `llm-d.ai/context-length-range`; both ends belong to it."""
        return f"{self.min_tokens}-{self.context_tokens}"

    @property
    def engine_flags(self) -> tuple[str, ...]:
        """The vLLM flags that make an engine the one planned for."""
        return (
            f"--max-model-len={self.context_tokens}",
            f"--max-num-seqs={self.max_num_seqs}",
            f"--max-num-batched-tokens={self.max_num_batched_tokens}",
        )


@dataclass(frozen=True)
class Baseline:
    """Another fleet for the same traffic and target, to compare the plan with.

    Where it can't meet the target, `feasible` is false, `reason` says why, its counts and
    cost are 0 and `saving_ratio` is None. The saving is in the unit that was minimised.
    """

    name: BaselineName
    boundary_tokens: int
    gamma: float
    short_replicas: int
    long_replicas: int
    gpus: int
    cost_usd_per_h: float
    saving_ratio: float | None
    feasible: bool = True
    reason: str = ""
    minimised_per_h: float = 0.0
    power_w: float | None = None
    carbon_kg_per_h: float | None = None


@dataclass(frozen=True)
class Plan:
    """The cheapest fleet found that meets the target.

    One pool is reported as `short` with B = the long context, γ = 1 and no `long`.
    `cost_usd_per_h` is GPUs plus the price of compression. `minimised_per_h` is the same in the
    unit that was minimised, and so `cost_usd_per_h` itself unless that was carbon. Power is that
    of the GPUs; it, its carbon and tokens per joule are None where they are unknown, and an
    upper bound (tokens per joule a lower one) where idle GPUs' power is unknown.
    """

    boundary_tokens: int
    gamma: float
    compress_up_to_tokens: int
    short: PoolPlan
    long: PoolPlan | None
    gpu_cost_usd_per_h: float
    compression_usd_per_h: float
    compressed_share: float
    compressed_per_s: float
    tokens_before_per_s: float
    tokens_after_per_s: float
    unservable_share: float
    marginal_gpus_below: float | None
    marginal_gpus_above: float | None
    minimised: CostUnit
    minimised_per_h: float
    power_w: float | None
    power_is_upper_bound: bool
    carbon_kg_per_h: float | None
    tokens_per_joule: float | None
    baselines: tuple[Baseline, ...] = ()
    reasons: tuple[ReasonCode, ...] = ()

    @property
    def ttft_violation_share(self) -> float:
        """Of all requests, those whose TTFT exceeds the target."""
        rate = sum(pool.arrival_rate_per_s for pool in self.pools)
        late = sum(pool.ttft_violation_share * pool.arrival_rate_per_s for pool in self.pools)
        return late / rate if rate > 0.0 else 0.0

    @property
    def pools(self) -> tuple[PoolPlan, ...]:
        """The one pool, or the short and the long one."""
        return (self.short, self.long) if self.long else (self.short,)

    @property
    def short_replicas(self) -> int:
        """Replicas of the short pool, or of the only one."""
        return self.short.replicas

    @property
    def long_replicas(self) -> int:
        """Replicas of the long pool; 0 where one pool serves all."""
        return self.long.replicas if self.long else 0

    @property
    def gpus(self) -> int:
        """GPUs of the whole fleet."""
        return self.short.gpus + (self.long.gpus if self.long else 0)

    @property
    def cost_usd_per_h(self) -> float:
        """GPUs plus the price of compression."""
        return self.gpu_cost_usd_per_h + self.compression_usd_per_h


@dataclass(frozen=True)
class Infeasible:
    """There is no fleet for this request, and what could be reached instead."""

    reason: InfeasibleReason
    message: str
    tightest_slo: TtftTarget | None = None
    tightest_e2e: E2eTarget | None = None
    tightest_itl_s: float | None = None
