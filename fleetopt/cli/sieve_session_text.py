"""What a profiling session has decided, in words and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleetopt.cli.output import console, percent, table
from fleetopt.planner.sieve.decision import Verdict

if TYPE_CHECKING:
    from fleetopt.pipeline.sieve_session import Session
    from fleetopt.planner.sieve.allocation import Allocation
    from fleetopt.planner.sieve.grid import Point
    from fleetopt.planner.sieve.sieve import State

_ENDS: Final = ("low", "likely", "high")


def progress_line(session: Session, state: State, point: Point) -> str:
    """Say what is run now, and how far the decision is."""
    sieve = session.problem.sieve
    made = int(session.evidence.runs.sum())
    return (
        f"run {made + 1}: {sieve.grid.label(point)}; so far {session.evidence.cost_gpu_s:,.0f} "
        f"GPU-s, gap {percent(state.decision.gap)} of at most {percent(sieve.tolerance)}"
    )


def show_session(session: Session, state: State) -> None:
    """Print the allocation, how certain it is, and what it took."""
    out, grid, decision = console(), session.problem.sieve.grid, state.decision
    chosen = decision.conservative
    made = table("class", *(one.name for one in grid.configurations), "demand/s", "served/s")
    for one, request_class in enumerate(grid.classes):
        made.add_row(
            request_class.name,
            *(str(count) for count in chosen.replicas[one]),
            f"{request_class.demand_per_s:,.4g}",
            f"{chosen.served_per_s[one]:,.4g}",
        )
    out.print(
        f"Replicas on {chosen.gpus} of {session.problem.sieve.budget} GPUs, serving at least "
        f"{percent(chosen.min_fulfilment)} of every class's demand within its target:",
        soft_wrap=True,
    )
    out.print(made)
    out.print(certificate(session, state), soft_wrap=True)
    out.print(
        f"\n{int(session.evidence.runs.sum())} runs, {session.evidence.cost_gpu_s:,.0f} GPU-s; all "
        f"{grid.offered_per_s.size * grid.repeats} would take about "
        f"{grid.repeats * float(grid.cost_gpu_s.sum()):,.0f}.",
        soft_wrap=True,
    )
    for name, measured in session.measured_profiles().items():
        if measured is not None:
            known = measured.speed_low is not None and measured.speed_high is not None
            within = f" [{measured.speed_low:.2f}, {measured.speed_high:.2f}]" if known else ""
            out.print(
                f"{name} is {measured.speed:.2f}{within} times as fast as its profile, by "
                f"{measured.runs} {'run' if measured.runs == 1 else 'runs'}."
            )


def certificate(session: Session, state: State) -> str:
    """Return the verdict in words, with what it is conditional on."""
    sieve, decision = session.problem.sieve, state.decision
    said = {
        Verdict.FEASIBLE: "Certified feasible: every class is served in full.",
        Verdict.INFEASIBLE: (
            f"Certified infeasible: no allocation serves more than "
            f"{percent(decision.optimistic.min_fulfilment)} of every class's demand."
        ),
        Verdict.UNDECIDED: "Undecided: whether every class can be served in full isn't known.",
    }[decision.verdict]
    if sieve.is_certain(state):
        said += f" No other allocation gains more than {percent(sieve.tolerance)} of demand."
    else:
        said += f" Another allocation may gain {percent(decision.gap)} of demand."
    return f"{said} That holds if {'; '.join(_conditions(session, state))}."


def _conditions(session: Session, state: State) -> list[str]:
    sieve = session.problem.sieve
    given = [
        f"a single run's throughput is within {percent(sieve.noise.throughput, 0)} and its P99 "
        f"within {percent(sieve.noise.completion_p99, 0)} of the mean of "
        f"{sieve.grid.repeats} runs, which counts as the truth",
        "more load is never faster",
        "a class's requests are in production as they were in the benchmark, and a replica serves "
        "one class",
    ]
    if sieve.prior is not None and state.known.speed is not None:
        given.append(
            f"engines that were not measured are within a factor {sieve.prior.speeds[-1]:.2g} of "
            f"their profiles, their P99s within {sieve.prior.shape_error:.2g} of what the planner "
            "says at that speed, and classes on one configuration within "
            f"{sieve.prior.neighbour_error:.2g} of each other"
        )
        wrong = [
            f"{one.name} on {other.name}"
            for one, row in zip(sieve.grid.classes, state.known.speed.is_contradicted, strict=True)
            for other, is_wrong in zip(sieve.grid.configurations, row, strict=True)
            if is_wrong
        ]
        if wrong:
            given.append(f"(the profile is contradicted and not used for {', '.join(wrong)})")
    return given


def session_json(session: Session, state: State) -> dict[str, Any]:
    """Return what `--output json` prints."""
    grid, decision = session.problem.sieve.grid, state.decision
    names = [one.name for one in grid.configurations]

    def allocation(one: Allocation) -> dict[str, Any]:
        return {
            "gpus": one.gpus,
            "min_fulfilment": one.min_fulfilment,
            "total_served_per_s": one.total_served_per_s,
            "replicas": {
                request_class.name: dict(zip(names, map(int, row), strict=True))
                for request_class, row in zip(grid.classes, one.replicas, strict=True)
            },
        }

    return {
        "verdict": decision.verdict.value,
        "is_certain": session.problem.sieve.is_certain(state),
        "gap": decision.gap,
        "tolerance": session.problem.sieve.tolerance,
        "conditions": _conditions(session, state),
        "gpus": session.problem.sieve.budget,
        "runs": int(session.evidence.runs.sum()),
        "cost_gpu_s": session.evidence.cost_gpu_s,
        "failed_runs": sum(one.failure is not None for one in session.journal.runs),
        "unused_runs": len(session.foreign),
        "allocation": allocation(decision.conservative),
        "optimistic": allocation(decision.optimistic),
        "usable_per_s": {
            request_class.name: {
                name: {
                    end: float(values[one, other])
                    for end, values in zip(_ENDS, state.usable_per_s, strict=True)
                }
                for other, name in enumerate(names)
            }
            for one, request_class in enumerate(grid.classes)
        },
        "measured_profiles": {
            name: None
            if measured is None
            else {
                "speed": measured.speed,
                "speed_low": measured.speed_low,
                "speed_high": measured.speed_high,
                "runs": measured.runs,
            }
            for name, measured in session.measured_profiles().items()
        },
    }
