"""A recommendation in words: what `watch`, `replay --offline` and the demo print."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleetopt.cli.arrivals_text import METHODS
from fleetopt.cli.output import cost, percent, seconds, tokens, usd
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.outcome import BaselineName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetopt.planner.recommendation import PoolRecord, ProfileEffect, Recommendation

_INDENT = "    "


def describe(recommendation: Recommendation) -> list[str]:
    """Return lines: the plan, each pool, what is saved, why, and what fires."""
    return list(_lines(recommendation))


def _lines(it: Recommendation) -> Iterator[str]:
    at = datetime.fromtimestamp(it.computed_at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    yield f"{at}  {it.fleet}  revision {it.revision}  {it.status.value}: {headline(it)}"
    if it.active is not None:
        yield f"{_INDENT}{'short' if it.active.long else 'all'}: {_pool(it.active.short)}"
        if it.active.long is not None:
            yield f"{_INDENT}long: {_pool(it.active.long)}"
        savings = [
            f"{percent(one.saving_ratio, 0)} against {one.name.value.replace('_', ' ')}"
            for one in it.baselines
            if one.saving_ratio is not None and one.name is not BaselineName.CO_DESIGNED
        ]
        if savings:
            yield f"{_INDENT}saves {', '.join(savings)}"
    if it.evidence is not None:
        share = it.evidence.cached_prompt_share
        cached = f", {percent(share, 0)} of prompt tokens cached" if share else ""
        found = it.evidence.forecast
        method = f" by {METHODS[found.method]}" if found else ""
        yield (
            f"{_INDENT}measured {tokens(it.evidence.sample_count)} requests{cached}, planned for "
            f"{it.evidence.planned_arrival_rate_per_s:,.1f}/s{method}, "
            f"confidence {it.confidence.value}"
        )
    if it.compression is not None:
        tried = it.compression
        kept = f" to {percent(tried.kept_share, 0)} of its tokens" if tried.kept_share else ""
        yield (
            f"{_INDENT}compression: {percent(tried.compressed_share, 0)} of "
            f"{tokens(tried.attempted)} tried{kept}, not eligible "
            f"{percent(tried.not_eligible_share, 0)}, failed {percent(tried.failed_share, 0)}"
        )
    if it.depends_on:
        yield f"{_INDENT}depends most on: {'; '.join(map(effect_text, it.depends_on))}"
    for check in it.profile_checks:
        yield (
            f"{_INDENT}{check.pool} pool's P99 TTFT seen {seconds(check.observed_ttft_p99_s)}, "
            f"predicted {seconds(check.predicted_low_s)} to {seconds(check.predicted_high_s)}: "
            f"{check.state.value}"
        )
    yield f"{_INDENT}because: {', '.join(reason.value for reason in it.reasons)}"
    if it.regret_ratio is not None:
        drift = f"; {it.drift.text}" if it.drift.text else ""
        yield f"{_INDENT}boundary: regret {percent(it.regret_ratio)}, {it.drift.state.value}{drift}"
    if it.infeasible is not None:
        reachable = it.infeasible.tightest_slo
        said = reachable is None or reachable in it.infeasible.text
        hint = "" if said else f"; what can be met: {reachable}"
        yield f"{_INDENT}infeasible: {it.infeasible.text}{hint}"
    for alert in it.alerts:
        yield f"{_INDENT}ALERT {alert.kind.value}: {alert.text}"


def effect_text(one: ProfileEffect) -> str:
    """Return what a figure of a profile means to the cost."""
    more = (
        "no fleet meets the target"
        if one.cost_ratio is None
        else f"the fleet costs {percent(one.cost_ratio)} more"
    )
    return f"{one.figure} of {one.profile}: a tenth worse, {more}"


def headline(it: Recommendation) -> str:
    """Return the plan in one line."""
    plan = it.active
    if plan is None:
        return "no plan"
    paid = f"{plan.gpus} GPUs, {usd(plan.cost_usd_per_h)} USD/h"
    if plan.carbon_kg_per_h is not None:
        most = "at most " if plan.power_is_upper_bound else ""
        paid += f", {most}{cost(plan.carbon_kg_per_h, CostUnit.CARBON)} kgCO2e/h"
    if plan.long is None:
        return f"one pool of {plan.short.replicas}, {paid}"
    return (
        f"split at {tokens(plan.boundary_tokens)} tokens, gamma {plan.gamma:.2f}, "
        f"{plan.short.replicas} short + {plan.long.replicas} long, {paid}"
    )


def _pool(pool: PoolRecord) -> str:
    held = f" ({pool.needed_replicas} needed)" if pool.needed_replicas != pool.replicas else ""
    return (
        f"{pool.replicas} replicas{held}, context {tokens(pool.context_tokens)}, "
        f"utilisation {percent(pool.utilization, 0)}, P99 TTFT {seconds(pool.ttft_p99_s)}, "
        f"{pool.binding.value.replace('_', ' ')} binds"
    )
