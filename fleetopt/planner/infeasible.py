"""Why there is no plan, and the tightest target that could be met instead."""

from dataclasses import replace

from fleetopt.planner.bins import bin_holding
from fleetopt.planner.grid import Grid, Index
from fleetopt.planner.outcome import Infeasible, InfeasibleReason
from fleetopt.planner.reach import LONGEST_S, Limit, Reach, reach
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.search import cheapest
from fleetopt.planner.target import E2eTarget, TtftTarget, gap_text
from fleetopt.planner.workload import Workload


def unplannable(workload: Workload, request: PlanRequest) -> Infeasible | None:
    """What rules out a plan before any search: no traffic, or an engine that is too small."""
    if workload.moments.count == 0.0:
        return Infeasible(
            InfeasibleReason.NO_REQUESTS,
            "the workload holds no requests; keep the last plan until traffic is measured",
        )
    context = request.long_context_tokens
    if workload.moments.count_per_bin[: bin_holding(context) + 1].sum() == 0.0:
        return Infeasible(
            InfeasibleReason.NOTHING_SERVABLE,
            f"every request is longer than long_context_tokens={context}; raise it",
        )
    engine = request.long_profile
    if engine.slots_reserved(context) < 1:
        return Infeasible(
            InfeasibleReason.CONTEXT_EXCEEDS_KV,
            f"{engine.name} holds {engine.kv_capacity_tokens} KV-cache tokens, less than "
            f"long_context_tokens={context}; lower it or take more GPUs per replica",
        )
    return None


def infeasible(grid: Grid, cells: Index) -> Infeasible:
    """The reason that no cell has a fleet."""
    request = grid.request
    limit = request.max_replicas
    if limit is not None:
        unlimited = replace(grid, request=replace(request, max_replicas=None))
        fleet = cheapest(unlimited, cells)
        if fleet:
            needed = max(fleet.short_replicas, fleet.long_replicas)
            return Infeasible(
                InfeasibleReason.MAX_REPLICAS,
                f"{needed} replicas are needed in one pool and max_replicas is {limit}; raise it",
                *_in_reach(request, reach(grid, cells)),
            )
        grid = unlimited
    found = reach(grid, cells)
    missed = found.missed(request)
    slo, e2e, gap_s = _in_reach(request, found)
    if Limit.TTFT in missed or not request.has_further_targets:
        reason = InfeasibleReason.SLO_UNREACHABLE
        what = f"slo_ttft_p99={request.slo_ttft_p99}: prefill alone takes longer"
        nearest = None if slo is None else str(slo)
    elif Limit.E2E in missed:
        reason = InfeasibleReason.E2E_UNREACHABLE
        what = f"slo_e2e_p99={request.slo_e2e_p99}: generating alone takes longer"
        nearest = None if e2e is None else str(e2e)
    elif Limit.GAP in missed:
        reason = InfeasibleReason.ITL_UNREACHABLE
        what = f"slo_itl_p99={gap_text(request.slo_itl_p99_s or 0.0)}: iterations alone take longer"
        nearest = None if gap_s is None else gap_text(gap_s)
    else:
        return Infeasible(
            InfeasibleReason.SLO_UNREACHABLE,
            "no fleet can meet all targets, though each of them can be met; loosen one",
        )
    reachable = f"not even {LONGEST_S:g}s would do"
    if nearest is not None:
        reachable = f"the tightest that can be met is {nearest}"
    return Infeasible(reason, f"no fleet can meet {what}; {reachable}", slo, e2e, gap_s)


def _in_reach(
    request: PlanRequest, found: Reach
) -> tuple[TtftTarget | None, E2eTarget | None, float | None]:
    """The tightest of each target that no boundary meets; of the only one, in any case."""
    missed = found.missed(request)
    slo, e2e, gap_s = None, None, None
    if Limit.TTFT in missed or not request.has_further_targets:
        base_s = found.tightest_s(Limit.TTFT, request)
        slo = None if base_s is None else replace(request.slo_ttft_p99, base_s=base_s)
    if Limit.E2E in missed and request.slo_e2e_p99 is not None:
        base_s = found.tightest_s(Limit.E2E, request)
        e2e = None if base_s is None else replace(request.slo_e2e_p99, base_s=base_s)
    if Limit.GAP in missed:
        gap_s = found.tightest_s(Limit.GAP, request)
    return slo, e2e, gap_s
