"""Results as tables for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.report import Table
from validation.cheapest import WITHIN, Answer, FoundFleet, Kind
from validation.measure import PoolResult, RowResult, Verdict

_COLUMNS: Final = (
    "engine, arrivals, target",
    "requests/s",
    "pool",
    "replicas × slots",
    "load: planned, slots",
    "",
    "occupancy: planned, simulated",
    "",
    "iteration, ms",
    "P99 TTFT, s: planned, simulated",
    "ratio",
    "P99 end to end, s",
    "ratio",
    "P99 between tokens, ms",
    "ratio",
    "over target",
    "preempted",
)


def row_tables(results: Sequence[RowResult]) -> list[Table]:
    """A table for each traffic, with a line for each pool; what misses its goal is in bold."""
    names = dict.fromkeys(result.row.traffic for result in results)
    return [
        Table(name, _COLUMNS, list(_lines(one for one in results if one.row.traffic == name)))
        for name in names
    ]


def fleet_table(answers: Sequence[Answer]) -> Table:
    """The cheapest fleets that the simulation accepts, and the planner's beside them."""
    return Table(
        "Replicas of the cheapest fleets that the simulation accepts",
        ("traffic, target", *Kind, "the planner's choice", "costs more by", "accepted"),
        [
            (
                f"{one.row.traffic} {one.row.rate_per_s:g}/s, {one.row.target}",
                *(_fleet(one.cheapest[kind], one.best) for kind in Kind),
                _fleet(one.planned),
                _marked(f"{one.planned_over_best:+.1%}", one.planned_over_best <= WITHIN),
                "yes" if one.is_accepted else "**no**",
            )
            for one in answers
        ],
    )


def _fleet(fleet: FoundFleet, best: FoundFleet | None = None) -> str:
    if not fleet.is_found:
        return "none found"
    counts = " + ".join(f"{count:,}" for count in fleet.replicas)
    if len(fleet.replicas) == 1:
        text = counts
    else:
        gamma = "" if fleet.gamma == 1.0 else f", γ {fleet.gamma:.2f}"
        text = f"{sum(fleet.replicas):,} = {counts} (B {fleet.boundary_tokens:,}{gamma})"
    return _marked(text, best is None or fleet.cost_usd_per_h > best.cost_usd_per_h)


def _lines(results: Iterable[RowResult]) -> Iterable[Sequence[str]]:
    for result in results:
        row = result.row
        admission = "" if row.admission == "statistical" else f", {row.admission}"
        name = f"{row.engine}, {row.arrivals}, {row.target}{admission}"
        if result.infeasible:
            yield (name, f"{row.rate_per_s:,.0f}", "no plan", *[""] * (len(_COLUMNS) - 3))
        for number, pool in enumerate(result.pools):
            first = (name, f"{row.rate_per_s:,.0f}") if number == 0 else ("", "")
            yield (*first, *_pool(result, pool))


def _pool(result: RowResult, pool: PoolResult) -> Sequence[str]:
    said, seen, slots = pool.predicted, pool.simulated, pool.slot_level
    place = pool.name
    if pool.name == "short":
        gamma = "" if result.gamma == 1.0 else f", γ {result.gamma:.2f}"
        place = f"short, B {result.boundary_tokens:,}{gamma}"

    def goal(text: str, verdict: Verdict) -> str:
        return _marked(text, verdict is Verdict.HOLDS or not pool.is_counted)

    return (
        place,
        f"{pool.replicas:,} × {pool.slots:,}{'' if pool.is_counted else ' *'}",
        f"{said.utilization:.3f}, {slots.utilization:.3f}",
        goal(f"{pool.utilization_error:+.1%}", pool.utilization),
        f"{said.slot_occupancy:.3f}, {seen.slot_occupancy:.3f}",
        goal(f"{pool.occupancy_error:+.1%}", pool.occupancy),
        f"{1e3 * said.mean_iteration_s:.1f}, {1e3 * seen.mean_iteration_s:.1f} "
        f"({1e3 * seen.sequence_iteration_s:.1f})",
        f"{said.ttft_p99_s:.3f}, {seen.ttft_p99_s:.3f} ± {seen.p99_error:.1%}",
        goal(f"{1.0 + pool.p99_error:.2f}", pool.p99),
        f"{said.e2e_p99_s:.2f}, {seen.e2e_p99_s:.2f}",
        f"{1.0 + pool.e2e_error:.2f}",
        f"{1e3 * said.itl_p99_s:.1f}, {1e3 * seen.itl_p99_s:.1f}",
        f"{1.0 + pool.itl_error:.2f}",
        _marked(f"{seen.violation_share:.2%}", pool.meets_target),
        _marked(f"{seen.preempted_share:.2%}", not seen.is_diverging)
        + (" **diverges**" if seen.is_diverging else ""),
    )


def _marked(text: str, is_fine: bool) -> str:
    return text if is_fine else f"**{text}**"
