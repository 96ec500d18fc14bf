"""`fleetopt simulate`: run a plan's fleet iteration by iteration, on a trace's requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from fleetopt.cli.options import ConfigOption, OutputOption, check_input, settings_from
from fleetopt.cli.output import ExitCode, Output, print_error, print_json, print_note
from fleetopt.cli.progress import progress

REQUESTS_OVER_S: Final = 300.0
FEWEST_REQUESTS: Final = 100_000
MOST_REQUESTS: Final = 1_000_000
SLOW_REQUESTS: Final = 200_000
"""With more than this, plain Python takes long enough to say how it would be faster."""

if TYPE_CHECKING:
    from fleetopt.cli.plan_file import PlanFile
    from fleetopt.cli.simulate_input import Input


def simulate(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN.json", help="What `fleetopt plan --output json` printed; - for stdin."
        ),
    ],
    trace: Annotated[
        str, typer.Option(metavar="FILE", help="The requests: a trace, or a CDF as JSON.")
    ],
    rate: Annotated[
        float | None,
        typer.Option(metavar="PER_SECOND", help="Arrivals. Default: what was planned for."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=100, help="About how many. Default: 5 minutes', 100,000 to 1,000,000."),
    ] = None,
    arrivals: Annotated[
        Literal["recorded", "poisson"] | None,
        typer.Option(help="Recorded: many tenants, each like the trace. Default for a trace."),
    ] = None,
    dispatch: Annotated[
        Literal["least_loaded", "least_work"],
        typer.Option(help="Replica with the fewest requests, or the least prefill."),
    ] = "least_loaded",
    level: Annotated[
        Literal["iteration", "slot"],
        typer.Option(help="Every iteration, or slots at a constant speed."),
    ] = "iteration",
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    cached_share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Of each prompt, cached. Default: what the trace logged."),
    ] = None,
    output_share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Completion tokens of all tokens; for a CDF only."),
    ] = None,
    fleet: Annotated[str | None, typer.Option(help="Whose requests to take of a trace.")] = None,
    profiles: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Engine profiles of your own.")
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Simulate the fleet of a plan, and show it beside what the plan predicted.

    Every replica runs iterations as its engine profile says. A trace is scaled to the rate as
    independent tenants: copies that start at moments of their own. See docs/simulation.md.
    Exit code 1: a pool's queue grows without end.

    \b
    Examples:
      fleetopt plan trace.csv --slo-ttft-p99 2s --output json > plan.json
      fleetopt simulate plan.json --trace trace.csv
      fleetopt simulate plan.json --trace trace.csv --rate 200 --dispatch least_work
      fleetopt simulate plan.json --trace trace.csv --arrivals poisson --requests 1000000 --seed 7
      fleetopt simulate plan.json --trace cdf.json --output-share 0.1 --output json
    """
    check_input(plan)
    check_input(trace)
    if plan == trace == "-":
        raise typer.BadParameter("PLAN.json and --trace can't both be standard input")
    if rate is not None and not 0 < rate < float("inf"):
        raise typer.BadParameter(f"--rate {rate}: expected a number above 0")
    from fleetopt.cli.plan_file import read_plan
    from fleetopt.cli.simulate_input import Arrivals, Wanted, read_input
    from fleetopt.config.profiles import load_catalogue

    settings = settings_from(config, profiles=profiles)
    planned = read_plan(plan, load_catalogue(settings.profiles))
    rate_per_s = planned.arrival_rate_per_s if rate is None else rate
    given = read_input(
        trace,
        Wanted(
            rate_per_s=rate_per_s,
            requests=enough_requests(rate_per_s) if requests is None else requests,
            arrivals=None if arrivals is None else Arrivals(arrivals),
            fleet=fleet,
            output_share=output_share,
            cached_share=cached_share,
            seed=seed,
        ),
    )
    for note in given.notes:
        print_note(note)
    run = _run_slots if level == "slot" else _run_iterations
    diverging = run(planned, given, dispatch, seed, output)
    if diverging:
        print_error(f"diverging: the queue of the {' and the '.join(diverging)} pool grows")
        raise typer.Exit(ExitCode.FAILED)


def enough_requests(rate_per_s: float) -> int:
    """Requests that show a P99 and outlast the slowest of them."""
    return int(min(max(REQUESTS_OVER_S * rate_per_s, FEWEST_REQUESTS), MOST_REQUESTS))


def _run_iterations(
    planned: PlanFile, given: Input, dispatch: str, seed: int, output: Output
) -> list[str]:
    """Simulate and print; return which pools diverge."""
    from fleetopt.cli.simulate_text import as_json, describe
    from fleetopt.planner.simulate.compiled import IS_COMPILED
    from fleetopt.planner.simulate.fleet import Dispatch
    from fleetopt.planner.simulate.simulation import simulate as run

    if len(given.stream) > SLOW_REQUESTS and not IS_COMPILED:
        print_note("with `pip install fleetopt[simulate]` this runs about 14 times as fast")
    with progress("simulated", lambda: len(given.stream)) as advance:
        done = run(
            planned.fleet,
            given.stream,
            dispatch=Dispatch(dispatch),
            seed=seed,
            on_progress=advance,
        )
    if output is Output.JSON:
        print_json(as_json(done, planned, given))
    else:
        describe(done, planned, given)
    return [pool.name for pool in done.pools if pool.growth.is_diverging]


def _run_slots(planned: PlanFile, given: Input, _: str, seed: int, output: Output) -> list[str]:
    """The same slot by slot, where there is nothing to dispatch."""
    from fleetopt.cli.simulate_text import describe_slots, slots_as_json
    from fleetopt.planner.simulate.simulation import simulate_slots

    figures = simulate_slots(planned.fleet, given.stream, seed=seed)
    if output is Output.JSON:
        print_json(slots_as_json(figures, given))
    else:
        describe_slots(figures, given)
    return [pool.name for pool in figures if pool.growth.is_diverging]
