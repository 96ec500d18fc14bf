"""The published record: what a fleet should look like, why, and how sure we are of it.

Owns the shape and its closed sets. Only str, int, float, bool, None, enums, tuples,
dataclasses and dicts by name, so that any JSON library that knows dataclasses can write and read
it.
`docs/recommendation.md` says how a reader should use each field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum

from fleetopt.errors import InputError
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.forecast.outcome import Method, MethodReason
from fleetopt.planner.outcome import BaselineName, Binding, InfeasibleReason
from fleetopt.planner.outcome import ReasonCode as PlanReason

SCHEMA_VERSION = 1


class Status(StrEnum):
    """How a reader should take the counts."""

    OK = "ok"
    STALE = "stale"
    INFEASIBLE = "infeasible"


class Confidence(StrEnum):
    """Whether the window holds enough requests to move the boundary on."""

    LOW = "low"
    NORMAL = "normal"


class DriftState(StrEnum):
    """What the last windows say about the pinned boundary."""

    NONE = "none"
    INSUFFICIENT_DATA = "insufficient_data"
    SUSPECTED = "suspected"
    MOVED = "moved"


class AlertKind(StrEnum):
    """What an operator is told about."""

    BOUNDARY_DRIFT = "boundary_drift"
    TRAFFIC_UNKNOWN = "traffic_unknown"
    SLO_INFEASIBLE = "slo_infeasible"
    PROFILE_MISMATCH = "profile_mismatch"


class CheckState(StrEnum):
    """Whether a pool's observed P99 TTFT is what its profile predicts."""

    UNKNOWN = "unknown"
    """Too few requests to tell."""
    INSIDE = "inside"
    SUSPECTED = "suspected"
    OUTSIDE = "outside"


class PublishReason(StrEnum):
    """Why this recommendation was published and differs from the one before."""

    FIRST_PLAN = "first_plan"
    INTERVAL = "interval"
    LOAD_CROSSED_LIMIT = "load_crossed_limit"
    BOUNDARY_MOVED = "boundary_moved"
    PINNED_BOUNDARY_INFEASIBLE = "pinned_boundary_infeasible"
    CONFIGURATION_CHANGED = "configuration_changed"
    GAMMA_CHANGED = "gamma_changed"
    REPLICAS_GREW = "replicas_grew"
    REPLICAS_SHRANK = "replicas_shrank"
    REPLICAS_HELD_IN_DEAD_BAND = "replicas_held_in_dead_band"
    DRIFT_SUSPECTED = "drift_suspected"
    DRIFT_DETECTED = "drift_detected"
    DRIFT_CLEARED = "drift_cleared"
    INSUFFICIENT_DATA = "insufficient_data"
    TRAFFIC_UNKNOWN = "traffic_unknown"
    TRAFFIC_RETURNED = "traffic_returned"
    HELD_LAST_PLAN = "held_last_plan"
    IDLE_CONFIRMED = "idle_confirmed"
    SLO_INFEASIBLE = "slo_infeasible"
    SLO_FEASIBLE_AGAIN = "slo_feasible_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRecord:
    """How the planned rate was forecast: for how long, how sure, by which method and why so.

    `season_s` is null where the method has no season.
    """

    method: Method
    reason: MethodReason
    horizon_s: float
    quantile: float
    season_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was measured: event time from `window_from_s` up to `window_to_s`, epoch seconds."""

    window_from_s: float
    window_to_s: float
    sample_count: int
    measured_slices: int
    window_slices: int
    planned_arrival_rate_per_s: float
    mean_arrival_rate_per_s: float
    peak_arrival_rate_per_s: float
    cached_prompt_share: float = 0.0  # of all prompt tokens; unknown ones count as not cached
    cache_known_share: float = 0.0  # of the requests, those whose cached tokens were logged
    forecast: ForecastRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Total tokens of a request: mean and percentiles, from a digest where one was kept."""

    mean_tokens: float
    p50_tokens: int
    p90_tokens: int
    p99_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesPerToken:
    """UTF-8 bytes of a prompt per token: geometric mean, and the band that holds 95 % of them."""

    mean: float
    low: float
    high: float
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionRecord:
    """What compressions in the window came to; the three shares of those tried make 1."""

    attempted: int
    compressed_share: float
    not_eligible_share: float
    failed_share: float
    kept_share: float | None  # tokens after, of tokens before, of the compressed


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEffect:
    """What the fleet costs more, as a ratio, if one figure of a profile is a tenth worse.

    Null where no fleet would meet the target then.
    """

    profile: str
    figure: str
    cost_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCheck:
    """A pool's observed P99 TTFT against what its engine profile predicts, give or take.

    `measurement` is the one most worth taking where the pool is outside, else null.
    """

    pool: str
    profile: str
    requests: int
    observed_ttft_p99_s: float
    predicted_low_s: float
    predicted_high_s: float
    state: CheckState
    windows_in_row: int
    counted_to_s: float | None
    measurement: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """One pool: what to run, and the figures predicted at exactly these replicas.

    `needed_replicas` is what the plan asks for; `replicas` may be more while the dead band holds.
    """

    replicas: int
    needed_replicas: int
    gpus: int
    profile: str
    context_tokens: int
    max_num_seqs: int
    arrival_rate_per_s: float
    utilization: float
    slot_occupancy: float | None
    ttft_p99_s: float | None
    binding: Binding
    cost_usd_per_h: float
    engine_flags: tuple[str, ...]
    power_w: float | None = None
    carbon_kg_per_h: float | None = None
    e2e_p99_s: float | None = None
    itl_p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One plan: where requests go, what each pool runs, and what it costs."""

    boundary_tokens: int
    gamma: float
    compress_up_to_tokens: int
    short: PoolRecord
    long: PoolRecord | None
    gpus: int
    gpu_cost_usd_per_h: float
    compression_usd_per_h: float
    cost_usd_per_h: float
    compressed_share: float
    tokens_before_per_s: float
    tokens_after_per_s: float
    unservable_share: float
    marginal_gpus_below: float | None
    marginal_gpus_above: float | None
    reasons: tuple[PlanReason, ...]
    minimised: CostUnit = CostUnit.USD
    minimised_per_h: float | None = None
    power_w: float | None = None
    power_is_upper_bound: bool = False
    carbon_kg_per_h: float | None = None
    tokens_per_joule: float | None = None

    @property
    def long_replicas(self) -> int:
        """Replicas of the long pool; a plan of one pool has none."""
        return 0 if self.long is None else self.long.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRecord:
    """A fleet that one could run instead, and what the active plan saves against it."""

    name: BaselineName
    boundary_tokens: int
    gamma: float
    short_replicas: int
    long_replicas: int
    gpus: int
    cost_usd_per_h: float
    feasible: bool
    saving_usd_per_h: float | None
    saving_ratio: float | None
    power_w: float | None = None
    carbon_kg_per_h: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far the pinned boundary is from the best one.

    `counted_to_s` is the end of the last window that counted in the row (or moved the boundary).
    """

    state: DriftState
    windows_in_row: int
    counted_to_s: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """An alert that has been raised and not resolved."""

    kind: AlertKind
    since_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasibleRecord:
    """Why there is no fleet, and the tightest target that one could meet (`300ms+0.2ms/token`).

    Where there are several targets, those that can be met are null.
    """

    reason: InfeasibleReason
    text: str
    tightest_slo: str | None
    tightest_e2e: str | None = None
    tightest_itl: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What is published for one fleet; `revision` rises by one with every publication.

    The flat fields repeat the active plan for readers that take one number by its key. They are
    null where nothing is known, never 0: a 0 in `long_replicas` means a fleet of one pool.
    """

    fleet: str
    revision: int
    status: Status
    published_at_s: float
    computed_at_s: float
    valid_until_s: float
    reasons: tuple[PublishReason, ...]
    confidence: Confidence
    evidence: Evidence | None
    lengths: Lengths | None
    active: PlanRecord | None
    optimal: PlanRecord | None
    regret_ratio: float | None
    boundary_since_s: float | None
    boundary_lengths: Lengths | None
    drift: Drift
    baselines: tuple[BaselineRecord, ...]
    infeasible: InfeasibleRecord | None
    alerts: tuple[FiringAlert, ...]
    boundary_tokens: int | None
    gamma: float | None
    compress_up_to_tokens: int | None
    short_replicas: int | None
    long_replicas: int | None
    cost_usd_per_h: float | None
    bytes_per_token: dict[str, BytesPerToken] = field(default_factory=dict)  # by category
    compression: CompressionRecord | None = None  # None where nobody tried
    depends_on: tuple[ProfileEffect, ...] = ()  # the most first
    profile_checks: tuple[ProfileCheck, ...] = ()  # of pools whose logs say their TTFT
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        """Refuse what no reader could use: another schema, no revision, numbers not finite."""
        if self.schema_version != SCHEMA_VERSION:
            raise InputError(
                f"recommendation of fleet {self.fleet!r}: schema_version {self.schema_version}, "
                f"this program reads {SCHEMA_VERSION}: run the same FleetOpt everywhere"
            )
        if self.revision < 1:
            raise InputError(
                f"recommendation of fleet {self.fleet!r}: revision {self.revision}, "
                "revisions are counted from 1"
            )
        if self.active is None and self.status is not Status.INFEASIBLE:
            raise InputError(
                f"recommendation of fleet {self.fleet!r}: status {self.status} without an active "
                "plan; only an infeasible one may lack it"
            )
        for path, value in _numbers(self, ""):
            if not math.isfinite(value):
                raise InputError(
                    f"recommendation of fleet {self.fleet!r}: {path} is {value}; every number "
                    "must be finite, and what is unknown must be null"
                )


def _numbers(value: object, path: str) -> list[tuple[str, float]]:
    if isinstance(value, float):
        return [(path, value)]
    if isinstance(value, tuple):
        return [n for i, item in enumerate(value) for n in _numbers(item, f"{path}[{i}]")]
    if isinstance(value, dict):
        return [n for key, item in value.items() for n in _numbers(item, f"{path}.{key}")]
    if is_dataclass(value) and not isinstance(value, type):
        return [
            number
            for each in fields(value)
            for number in _numbers(getattr(value, each.name), f"{path}.{each.name}".lstrip("."))
        ]
    return []
