"""Plans, baselines and workloads into published records."""

from collections.abc import Sequence

import numpy as np

from fleetopt.planner.bins import EDGES_TOKENS
from fleetopt.planner.compression_outcomes import (
    TOKENS_AFTER,
    TOKENS_BEFORE,
    CompressionOutcome,
    OutcomeCounts,
)
from fleetopt.planner.forecast.outcome import Forecast
from fleetopt.planner.moments import COMPLETION, COUNT, PROMPT
from fleetopt.planner.outcome import Baseline, Infeasible, Plan, PoolPlan
from fleetopt.planner.recommendation import (
    BaselineRecord,
    CompressionRecord,
    ForecastRecord,
    InfeasibleRecord,
    Lengths,
    PlanRecord,
    PoolRecord,
)
from fleetopt.planner.target import gap_text
from fleetopt.planner.workload import Workload


def plan_record(plan: Plan) -> PlanRecord:
    """Record of a plan as it was computed."""
    return PlanRecord(
        boundary_tokens=plan.boundary_tokens,
        gamma=plan.gamma,
        compress_up_to_tokens=plan.compress_up_to_tokens,
        short=pool_record(plan.short),
        long=None if plan.long is None else pool_record(plan.long),
        gpus=plan.gpus,
        gpu_cost_usd_per_h=plan.gpu_cost_usd_per_h,
        compression_usd_per_h=plan.compression_usd_per_h,
        cost_usd_per_h=plan.cost_usd_per_h,
        compressed_share=plan.compressed_share,
        tokens_before_per_s=plan.tokens_before_per_s,
        tokens_after_per_s=plan.tokens_after_per_s,
        unservable_share=plan.unservable_share,
        marginal_gpus_below=plan.marginal_gpus_below,
        marginal_gpus_above=plan.marginal_gpus_above,
        reasons=plan.reasons,
        minimised=plan.minimised,
        minimised_per_h=plan.minimised_per_h,
        power_w=plan.power_w,
        power_is_upper_bound=plan.power_is_upper_bound,
        carbon_kg_per_h=plan.carbon_kg_per_h,
        tokens_per_joule=plan.tokens_per_joule,
    )


def pool_record(pool: PoolPlan) -> PoolRecord:
    """Record of a pool at the replicas that it was planned with."""
    return PoolRecord(
        replicas=pool.replicas,
        needed_replicas=pool.replicas,
        gpus=pool.gpus,
        profile=pool.profile,
        context_tokens=pool.context_tokens,
        max_num_seqs=pool.max_num_seqs,
        arrival_rate_per_s=pool.arrival_rate_per_s,
        utilization=pool.utilization,
        slot_occupancy=pool.slot_occupancy,
        ttft_p99_s=pool.ttft_p99_s,
        binding=pool.binding,
        cost_usd_per_h=pool.cost_usd_per_h,
        engine_flags=pool.engine_flags,
        power_w=pool.power_w,
        carbon_kg_per_h=pool.carbon_kg_per_h,
        e2e_p99_s=pool.e2e_p99_s,
        itl_p99_s=pool.itl_p99_s,
    )


def baseline_records(
    baselines: Sequence[Baseline], active: PlanRecord
) -> tuple[BaselineRecord, ...]:
    """The baselines, with what the active plan saves against each that meets the target."""
    return tuple(_baseline_record(baseline, active) for baseline in baselines)


def infeasible_record(infeasible: Infeasible) -> InfeasibleRecord:
    """Record of why there is no plan."""
    slo, e2e, gap_s = infeasible.tightest_slo, infeasible.tightest_e2e, infeasible.tightest_itl_s
    return InfeasibleRecord(
        reason=infeasible.reason,
        text=infeasible.message,
        tightest_slo=None if slo is None else str(slo),
        tightest_e2e=None if e2e is None else str(e2e),
        tightest_itl=None if gap_s is None else gap_text(gap_s),
    )


def forecast_record(forecast: Forecast | None) -> ForecastRecord | None:
    """Record of how a rate was forecast."""
    if forecast is None:
        return None
    return ForecastRecord(
        method=forecast.method,
        reason=forecast.reason,
        horizon_s=forecast.horizon_s,
        quantile=forecast.quantile,
        season_s=forecast.season_s,
    )


def lengths_of(workload: Workload) -> Lengths:
    """Mean and percentiles of the total tokens of a workload with requests in it.

    A percentile is the upper edge of the bin that holds it: at most 9 % above the true one.
    """
    sums = workload.moments.values.sum(axis=(0, 1))
    cumulative = np.cumsum(workload.moments.count_per_bin)
    shares = np.array([0.5, 0.9, 0.99])
    index = np.searchsorted(cumulative, shares * cumulative[-1], side="left")
    p50, p90, p99 = (int(EDGES_TOKENS[min(i, EDGES_TOKENS.size - 1)]) for i in index)
    return Lengths(
        mean_tokens=float((sums[PROMPT] + sums[COMPLETION]) / sums[COUNT]),
        p50_tokens=p50,
        p90_tokens=p90,
        p99_tokens=p99,
    )


def _baseline_record(baseline: Baseline, active: PlanRecord) -> BaselineRecord:
    is_comparable = baseline.feasible and baseline.minimised_per_h > 0.0
    ratio = None
    if is_comparable and active.minimised_per_h is not None:
        ratio = 1.0 - active.minimised_per_h / baseline.minimised_per_h
    saving = baseline.cost_usd_per_h - active.cost_usd_per_h
    return BaselineRecord(
        name=baseline.name,
        boundary_tokens=baseline.boundary_tokens,
        gamma=baseline.gamma,
        short_replicas=baseline.short_replicas,
        long_replicas=baseline.long_replicas,
        gpus=baseline.gpus,
        cost_usd_per_h=baseline.cost_usd_per_h,
        feasible=baseline.feasible,
        saving_usd_per_h=saving if is_comparable else None,
        saving_ratio=ratio,
        power_w=baseline.power_w,
        carbon_kg_per_h=baseline.carbon_kg_per_h,
    )


def compression_record(counts: OutcomeCounts | None) -> CompressionRecord | None:
    """What compressions came to; None where nobody tried, which is unknown and not zero."""
    if counts is None:
        return None
    sums = counts.sum(axis=(0, 1))
    attempted = int(sums[:TOKENS_BEFORE].sum())
    if not attempted:
        return None
    before = int(sums[TOKENS_BEFORE])
    return CompressionRecord(
        attempted=attempted,
        compressed_share=int(sums[CompressionOutcome.COMPRESSED]) / attempted,
        not_eligible_share=int(sums[CompressionOutcome.NOT_ELIGIBLE]) / attempted,
        failed_share=int(sums[CompressionOutcome.FAILED]) / attempted,
        kept_share=int(sums[TOKENS_AFTER]) / before if before else None,
    )
