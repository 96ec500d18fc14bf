"""A plan in words and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fleetopt.cli.arrivals_text import arrivals_json, describe_burstiness, describe_rates
from fleetopt.cli.output import (
    console,
    cost,
    percent,
    power,
    replicas,
    seconds,
    table,
    tokens,
    usd,
)
from fleetopt.planner.plan import (
    BaselineName,
    Binding,
    CostUnit,
    Infeasible,
    Plan,
    PlanRequest,
    PoolPlan,
    ReasonCode,
)
from fleetopt.planner.request import SloScope

if TYPE_CHECKING:
    from rich.console import Console

    from fleetopt.cli.traffic import Traffic

REASONS: Final[dict[ReasonCode, str]] = {
    ReasonCode.TWO_POOLS_CHEAPER: "Two pools cost less than one.",
    ReasonCode.SINGLE_POOL_SUFFICIENT: "One pool meets the target and two would cost no less.",
    ReasonCode.BOUNDARY_PINNED: "The boundary was given, not searched.",
    ReasonCode.COMPRESSION_PAYS: "Compressing some requests saves more than it costs.",
    ReasonCode.COMPRESSION_NOT_WORTH_IT: "Compression would cost more than it saves.",
    ReasonCode.GAMMA_AT_LIMIT: "Gamma is at its limit: a higher one might save more.",
    ReasonCode.SLO_BINDS: "The P99 TTFT target, not throughput, sets a pool's size.",
    ReasonCode.END_TO_END_BINDS: "The P99 end-to-end target sets a pool's size.",
    ReasonCode.BETWEEN_TOKENS_BINDS: "The P99 target between tokens sets a pool's size.",
    ReasonCode.UTILIZATION_BINDS: "The cap on utilisation sets a pool's size.",
    ReasonCode.MINIMUM_BINDS: "The minimum of replicas sets a pool's size.",
    ReasonCode.REQUESTS_OVER_LONG_CONTEXT: "Some requests exceed the long context: left out.",
}
BASELINES: Final[dict[BaselineName, str]] = {
    BaselineName.ONE_POOL_RESERVED: "one pool, reserved slots",
    BaselineName.ONE_POOL_STATISTICAL: "one pool, statistical slots",
    BaselineName.TWO_POOLS_NO_COMPRESSION: "two pools, no compression",
    BaselineName.COMPRESSION_RETROFITTED: "the same, compression added",
    BaselineName.CO_DESIGNED: "this plan",
}
BINDINGS: Final[dict[Binding, str]] = {
    Binding.UTILIZATION: "load",
    Binding.PREFILL_TTFT: "prefill",
    Binding.QUEUE_WAIT: "queue",
    Binding.MINIMUM: "minimum",
    Binding.END_TO_END: "end to end",
    Binding.BETWEEN_TOKENS: "between tokens",
}

CONTEXT_LENGTH_LABEL: Final = "llm-d.ai/context-length-range"

FIGURES: Final[dict[str, Callable[[PoolPlan], str]]] = {
    "replicas": lambda pool: tokens(pool.replicas),
    "GPUs": lambda pool: tokens(pool.gpus),
    "context, tokens": lambda pool: tokens(pool.context_tokens),
    "requests/s": lambda pool: f"{pool.arrival_rate_per_s:,.4g}",
    "utilisation": lambda pool: percent(pool.utilization, 0),
    "slots in use": lambda pool: percent(pool.slot_occupancy, 0),
    "P99 TTFT": lambda pool: seconds(pool.ttft_p99_s),
    "P99 end to end": lambda pool: seconds(pool.e2e_p99_s),
    "P99 between tokens": lambda pool: seconds(pool.itl_p99_s),
    "over the target": lambda pool: percent(pool.ttft_violation_share, 2),
    "size set by": lambda pool: BINDINGS[pool.binding],
    "USD/h": lambda pool: usd(pool.cost_usd_per_h),
    "power": lambda pool: power(pool.power_w, is_upper_bound=pool.power_is_upper_bound),
}


def as_json(found: Plan | Infeasible, traffic: Traffic, request: PlanRequest) -> dict[str, Any]:
    """Return what `--output json` prints: finite numbers, units in the names."""
    result: dict[str, Any] = {
        "status": "infeasible" if isinstance(found, Infeasible) else "ok",
        "traffic": traffic_json(traffic),
        "request": request_json(request),
    }
    if isinstance(found, Infeasible):
        result["infeasible"] = infeasible_json(found)
        return result
    plan = msgspec.to_builtins(found)
    baselines = plan.pop("baselines")
    pools = {"short": plan.pop("short"), "long": plan.pop("long")}
    result["plan"] = {
        "boundary_tokens": found.boundary_tokens,
        "gamma": found.gamma,
        "short_replicas": found.short_replicas,
        "long_replicas": found.long_replicas,
        "gpus": found.gpus,
        "cost_usd_per_h": found.cost_usd_per_h,
        "ttft_violation_share": found.ttft_violation_share,
        **plan,
        "pools": {
            name: pool
            and {
                **pool,
                "engine_flags": list(plan_of.engine_flags),
                "context_length_range": plan_of.context_length_range,
            }
            for (name, pool), plan_of in zip(
                pools.items(), (found.short, found.long or found.short), strict=True
            )
        },
    }
    result["baselines"] = baselines
    return result


def infeasible_json(found: Infeasible) -> dict[str, Any]:
    """Return why there is no fleet, and what could be reached."""
    tightest = found.tightest_slo
    return {
        "reason": found.reason,
        "message": found.message,
        "tightest_slo_ttft_p99": None if tightest is None else str(tightest),
        "tightest_slo": msgspec.to_builtins(tightest),
        "tightest_slo_e2e_p99": None if found.tightest_e2e is None else str(found.tightest_e2e),
        "tightest_slo_itl_p99_s": found.tightest_itl_s,
    }


def traffic_json(traffic: Traffic) -> dict[str, Any]:
    """Return what was planned for, and what was assumed of it."""
    return {
        "source": traffic.source,
        "format": traffic.format,
        "requests": traffic.requests,
        "unmeasured_requests": traffic.unmeasured,
        "bad_rows": traffic.bad_rows,
        "unsorted_rows": traffic.unsorted_rows,
        "arrival_rate_per_s": traffic.workload.arrival_rate_per_s,
        "dispersion": traffic.workload.dispersion,
        "cached_prompt_share": traffic.workload.moments.cached_share,
        "cache_known_share": traffic.workload.cache_known_share,
        "measured_arrivals": traffic.arrivals and arrivals_json(traffic.arrivals),
        "assumptions": traffic.assumptions,
        "notes": traffic.notes,
    }


def request_json(request: PlanRequest) -> dict[str, Any]:
    """Return what was asked of the planner."""
    return {
        "short_profile": request.short_profile.name,
        "long_profile": request.long_profile.name,
        "long_context_tokens": request.long_context_tokens,
        "slo_ttft_p99": str(request.slo_ttft_p99),
        "slo_e2e_p99": None if request.slo_e2e_p99 is None else str(request.slo_e2e_p99),
        "slo_itl_p99_s": request.slo_itl_p99_s,
        "slo_scope": request.slo_scope,
        "admission": request.admission,
        "preemption_probability": request.preemption_probability,
        "max_utilization": request.max_utilization,
        "gamma_max": request.gamma_max,
        "compressible_share": request.compressible_share,
        "compression_penalty_usd": request.compression_penalty_usd,
        "min_replicas": request.min_replicas,
        "max_replicas": request.max_replicas,
        "node_availability": request.node_availability,
        "boundary_tokens": request.boundary_tokens,
        "minimise": request.minimise,
        "prices_usd_per_gpu_h": {
            engine.gpu: engine.price_usd_per_gpu_h
            for engine in (request.short_profile, request.long_profile)
        },
        "carbon_g_per_kwh": {
            engine.gpu: engine.carbon_g_per_kwh
            for engine in (request.short_profile, request.long_profile)
        },
    }


def describe_infeasible(found: Infeasible) -> str:
    """Return one line: why there is no plan, and what could be reached."""
    reachable = "" if found.tightest_slo is None else str(found.tightest_slo)
    if reachable in found.message:
        return f"infeasible: {found.message}"
    return f"infeasible: {found.message}; the tightest target that can be met: {reachable}"


def describe_plan(plan: Plan, traffic: Traffic, request: PlanRequest) -> None:
    """Print the plan for a reader."""
    out = console()
    describe_question(out, "Fleet", traffic, request)
    out.print(_engine_names(plan) + "\n", soft_wrap=True)
    out.print(f"  {_headline(plan)}", style="bold", soft_wrap=True)
    out.print(_pools(plan))
    if request.slo_scope is SloScope.FLEET:
        late = percent(plan.ttft_violation_share, 2)
        out.print(f"Of all requests together {late} are over the TTFT target.\n", soft_wrap=True)
    out.print(_baselines(plan))
    bullets(out, "Why", [REASONS[reason] for reason in plan.reasons])
    bullets(out, "Power", [_power(plan)])
    bullets(out, "Engines", engine_lines(plan.pools))
    bullets(out, "Assumed", assumed(traffic, request))
    bullets(out, "Left out", left_out(plan.unservable_share, traffic))


def describe_question(out: Console, what: str, traffic: Traffic, request: PlanRequest) -> None:
    """Print what is planned for: the traffic, its rates and the target."""
    source = f"{tokens(traffic.requests)} requests" if traffic.requests else "CDF"
    out.print(
        f"{what} for {traffic.source} ({source}) at "
        f"{traffic.workload.arrival_rate_per_s:,.4g} requests/s, "
        f"{request.targets_text}, {request.admission.value} admission",
        soft_wrap=True,
    )
    if traffic.arrivals is not None:
        rates = describe_rates(traffic.arrivals, traffic.workload.arrival_rate_per_s)
        out.print(f"Arrivals: {rates}", soft_wrap=True)


def _headline(plan: Plan) -> str:
    paid = f"{plan.gpus} GPUs, {usd(plan.cost_usd_per_h)} USD/h"
    if plan.minimised is CostUnit.CARBON:
        paid += f", least carbon: {cost(plan.minimised_per_h, plan.minimised)} kgCO2e/h"
    if plan.long is None:
        return f"One pool of {replicas(plan.short_replicas)}: {paid}"
    band = (
        f", compress up to {tokens(plan.compress_up_to_tokens)} (gamma {plan.gamma:.2f})"
        if plan.gamma > 1
        else ""
    )
    return (
        f"Two pools, split at {tokens(plan.boundary_tokens)} tokens{band}: "
        f"{plan.short_replicas} short + {plan.long_replicas} long replicas, {paid}"
    )


def _engine_names(plan: Plan) -> str:
    if plan.long is None or plan.long.profile == plan.short.profile:
        return f"Engine: {plan.short.profile}"
    return f"Engines: short {plan.short.profile}, long {plan.long.profile}"


def _pools(plan: Plan) -> Any:
    """Return a table with a column a pool: it must fit 80 columns."""
    pools = [plan.short] if plan.long is None else [plan.short, plan.long]
    shown = table("", *(["all requests"] if plan.long is None else ["short", "long"]))
    for name, figure in FIGURES.items():
        shown.add_row(name, *(figure(pool) for pool in pools))
    return shown


def _power(plan: Plan) -> str:
    """Return what is known of the fleet's power: never a figure that nobody gave."""
    if plan.power_w is None:
        engines = dict.fromkeys(pool.profile for pool in plan.pools if pool.power_w is None)
        return "unknown: " + ", ".join(f"{name} has no max_power_w" for name in engines)
    most, least = ("at most ", "at least ") if plan.power_is_upper_bound else ("", "")
    said = f"{most}{power(plan.power_w)} for the GPUs, {least}{plan.tokens_per_joule:.3g} tokens/J"
    if plan.carbon_kg_per_h is None:
        said += "; carbon unknown without carbon_g_per_kwh"
    else:
        said += f", {most}{cost(plan.carbon_kg_per_h, CostUnit.CARBON)} kgCO2e/h"
    return said + ("; idle power is unknown" if plan.power_is_upper_bound else "")


def _baselines(plan: Plan) -> Any:
    unit = plan.minimised
    shown = table("compared with", "split at", "short", "long", "GPUs", unit.per_h, "saved")
    for one in plan.baselines:
        if not one.feasible:
            shown.add_row(BASELINES[one.name], "–", "–", "–", "–", "–", f"({one.reason})")
            continue
        shown.add_row(
            BASELINES[one.name],
            tokens(one.boundary_tokens) if one.long_replicas else "–",
            tokens(one.short_replicas),
            tokens(one.long_replicas),
            tokens(one.gpus),
            cost(one.minimised_per_h, unit),
            "" if one.name is BaselineName.CO_DESIGNED else percent(one.saving_ratio),
        )
    return shown


def engine_lines(pools: Sequence[PoolPlan]) -> list[str]:
    """Return each pool's settings for vLLM, and its label for llm-d where there are several."""
    if len(pools) == 1:
        return [" ".join(pools[0].engine_flags)]
    return [
        f"{pool.name}: {' '.join(pool.engine_flags)}, "
        f"label {CONTEXT_LENGTH_LABEL}={pool.context_length_range}"
        for pool in pools
    ]


def assumed(traffic: Traffic, request: PlanRequest) -> list[str]:
    """Return what was taken for granted."""
    lines = [*traffic.assumptions, *_cached(traffic)]
    if traffic.arrivals is not None:
        index = describe_burstiness(traffic.arrivals)
        lines.append(f"burstiness as measured: index of dispersion {index} (1 is Poisson)")
    lines.append(
        f"{percent(request.compressible_share, 0)} of requests without a category may be "
        f"compressed, at {1e6 * request.compression_penalty_usd:g} USD per million"
    )
    return lines


def _cached(traffic: Traffic) -> list[str]:
    """Say what the prefix cache saves, where a trace says it."""
    known = traffic.workload.cache_known_share
    if traffic.is_cache_assumed or known == 0.0:
        return []
    share = traffic.workload.moments.cached_share
    unknown = "" if known == 1.0 else f"; known of {percent(known)} of requests, 0 for the others"
    return [f"{percent(share)} of prompt tokens come from the prefix cache{unknown}"]


def left_out(unservable_share: float, traffic: Traffic) -> list[str]:
    """Return what the fleet is not planned for."""
    lines = list(traffic.notes)
    if unservable_share > 0:
        lines.append(f"{percent(unservable_share, 2)} of requests are longer than the long context")
    return lines


def bullets(out: Console, title: str, lines: list[str]) -> None:
    """Print a title and its lines, if there are any."""
    if lines:
        out.print(title, style="bold")
        for line in lines:
            out.print(f"  - {line}", soft_wrap=True)
