"""A simulation in words and as JSON, beside what the plan predicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fleetopt.cli.output import console, percent, seconds, table, tokens

if TYPE_CHECKING:
    from fleetopt.cli.plan_file import PlanFile, PlannedPool
    from fleetopt.cli.simulate_input import Input
    from fleetopt.planner.simulate.figures import Percentiles
    from fleetopt.planner.simulate.outcome import PoolFigures, Simulation, SlotFigures

FIGURES: Final[dict[str, Callable[[PoolFigures], str]]] = {
    "requests measured": lambda pool: tokens(pool.requests),
    "requests/s": lambda pool: f"{pool.arrival_rate_per_s:,.4g}",
    "replicas up": lambda pool: tokens(pool.replicas),
    "slots of each": lambda pool: tokens(pool.slots),
    "utilisation": lambda pool: percent(pool.utilization),
    "slots in use": lambda pool: percent(pool.slot_occupancy),
    "iteration": lambda pool: milliseconds(pool.mean_iteration_s),
    "P50 TTFT": lambda pool: _percentile(pool.ttft, "p50_s"),
    "P90 TTFT": lambda pool: _percentile(pool.ttft, "p90_s"),
    "P99 TTFT": lambda pool: _p99(pool.ttft),
    "P99 end to end": lambda pool: _p99(pool.e2e),
    "P99 between tokens": lambda pool: _gap_p99(pool.inter_token),
    "over the target": lambda pool: percent(pool.ttft_violation_share, 2),
    "preempted": lambda pool: percent(pool.preempted_share, 2),
    "queue grows by": lambda pool: f"{percent(pool.growth.share_of_arrivals, 2)} of arrivals",
}
PREDICTED: Final[dict[str, Callable[[PlannedPool], str]]] = {
    "utilisation": lambda pool: percent(pool.utilization),
    "slots in use": lambda pool: percent(pool.slot_occupancy),
    "iteration": lambda pool: milliseconds(pool.mean_iteration_s),
    "P99 TTFT": lambda pool: seconds(pool.ttft_p99_s),
    "P99 end to end": lambda pool: seconds(pool.e2e_p99_s),
    "P99 between tokens": lambda pool: _told_ms(pool.itl_p99_s),
    "over the target": lambda pool: percent(pool.ttft_violation_share, 2),
}
SLOT_FIGURES: Final[dict[str, Callable[[SlotFigures], str]]] = {
    "requests measured": lambda pool: tokens(pool.requests),
    "slots": lambda pool: tokens(pool.servers),
    "utilisation": lambda pool: percent(pool.utilization),
    "wait for a slot": lambda pool: percent(pool.delayed_share, 2),
    "mean wait": lambda pool: seconds(pool.mean_wait_s),
    "P99 wait": lambda pool: _p99(pool.wait),
    "queue grows by": lambda pool: f"{percent(pool.growth.share_of_arrivals, 2)} of arrivals",
}


def as_json(simulation: Simulation, planned: PlanFile, given: Input) -> dict[str, Any]:
    """Return what `--output json` prints."""
    result: dict[str, Any] = msgspec.to_builtins(simulation)
    pools = {}
    for pool, predicted in zip(simulation.pools, planned.predicted, strict=True):
        figures = msgspec.to_builtins(pool)
        figures["preemption_rate"] = pool.preemption_rate
        figures["predicted"] = {
            name: getattr(predicted, name)
            for name in (
                "utilization",
                "slot_occupancy",
                "mean_iteration_s",
                "ttft_p99_s",
                "ttft_violation_share",
                "e2e_p99_s",
                "itl_p99_s",
            )
        }
        pools[figures.pop("name")] = figures
    return {**_head(given, simulation.is_diverging), **result, "pools": pools}


def slots_as_json(figures: tuple[SlotFigures, ...], given: Input) -> dict[str, Any]:
    """Return what `--level slot --output json` prints."""
    pools = {pool.name: msgspec.to_builtins(pool) for pool in figures}
    for pool in pools.values():
        del pool["name"]
    is_diverging = any(pool.growth.is_diverging for pool in figures)
    return {**_head(given, is_diverging), "pools": pools}


def describe(simulation: Simulation, planned: PlanFile, given: Input) -> None:
    """Print a simulation for a reader, what the plan predicted in brackets."""
    out = console()
    out.print(
        f"{tokens(simulation.requests)} requests of {given.source}, {given.arrivals.value} "
        f"arrivals, {simulation.dispatch.value.replace('_', ' ')} dispatch, seed "
        f"{simulation.seed}; {seconds(simulation.measured_s)} measured after "
        f"{seconds(simulation.warm_up_s)} of warm-up",
        soft_wrap=True,
    )
    names = [pool.name for pool in simulation.pools]
    shown = table("simulated (predicted)", *(["all requests"] if len(names) == 1 else names))
    for name, figure in FIGURES.items():
        cells = []
        for pool, predicted in zip(simulation.pools, planned.predicted, strict=True):
            told = PREDICTED.get(name)
            cells.append(figure(pool) + (f" ({told(predicted)})" if told else ""))
        shown.add_row(name, *cells)
    out.print(shown)
    for line in _remarks(simulation):
        out.print(f"  - {line}", soft_wrap=True)


def describe_slots(figures: tuple[SlotFigures, ...], given: Input) -> None:
    """Print a slot-level simulation for a reader."""
    out = console()
    out.print(f"{given.source}, {given.arrivals.value} arrivals, slot by slot", soft_wrap=True)
    shown = table("simulated", *(pool.name for pool in figures))
    for name, figure in SLOT_FIGURES.items():
        shown.add_row(name, *(figure(pool) for pool in figures))
    out.print(shown)


def _told_ms(value_s: float | None) -> str:
    return "–" if value_s is None else milliseconds(value_s)


def milliseconds(value_s: float) -> str:
    """Show the time of an iteration."""
    return f"{value_s * 1e3:.1f} ms"


def _head(given: Input, is_diverging: bool) -> dict[str, Any]:
    return {
        "status": "diverging" if is_diverging else "stable",
        "source": given.source,
        "arrivals": given.arrivals,
        "notes": given.notes,
    }


def _remarks(simulation: Simulation) -> list[str]:
    remarks = []
    if simulation.compressed_share > 0:
        remarks.append(f"{percent(simulation.compressed_share)} of requests were compressed")
    if simulation.unservable_share > 0:
        remarks.append(f"{percent(simulation.unservable_share, 2)} fit into no pool: left out")
    for pool in simulation.pools:
        longest = pool.e2e and pool.e2e.p90_s
        if longest and simulation.warm_up_s < longest and not pool.growth.is_diverging:
            remarks.append(
                f"{pool.name}: the warm-up is shorter than many requests take; "
                "simulate more with --requests"
            )
        if pool.ttft and pool.ttft.p99_low_s is None:
            remarks.append(f"{pool.name}: too few requests to say how sure the P99 is")
    return remarks


def _percentile(times: Percentiles | None, name: str) -> str:
    return "–" if times is None else seconds(getattr(times, name))


def _gap_p99(times: Percentiles | None) -> str:
    return "–" if times is None else milliseconds(times.p99_s)


def _p99(times: Percentiles | None) -> str:
    if times is None:
        return "–"
    if times.p99_low_s is None or times.p99_high_s is None:
        return seconds(times.p99_s)
    return f"{seconds(times.p99_s)} ± {seconds((times.p99_high_s - times.p99_low_s) / 2)}"
