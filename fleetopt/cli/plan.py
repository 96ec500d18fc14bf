"""`fleetopt plan`: the cheapest fleet for a trace or a length distribution."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fleetopt.cli.options import ConfigOption, OutputOption, check_input
from fleetopt.cli.output import ExitCode, Output, print_error, print_json

if TYPE_CHECKING:
    from fleetopt.cli.traffic import Traffic
    from fleetopt.config.settings import Settings
    from fleetopt.planner.plan import Infeasible, Plan, PlanRequest


def plan(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A trace, a CDF as JSON, or - for standard input."),
    ],
    arrival_rate: Annotated[
        float | None,
        typer.Option(
            metavar="PER_SECOND",
            help="Rate to plan for. Default: the trace's own; a CDF has none.",
        ),
    ] = None,
    slo_ttft_p99: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="P99 TTFT: 500ms, or 300ms+0.2ms/token."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Engine of both pools: `fleetopt profiles` lists them."),
    ] = None,
    short_profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Engine of the short pool.")
    ] = None,
    long_profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Engine of the long pool.")
    ] = None,
    long_context: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Context window of the long pool.")
    ] = None,
    admission: Annotated[
        Literal["statistical", "reserved"] | None,
        typer.Option(help="Slots by what requests use, or by the whole context."),
    ] = None,
    output_share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Completion tokens of all tokens; for a CDF only."),
    ] = None,
    gamma_max: Annotated[
        float | None, typer.Option(help="Upper limit of the compression band; 1: none.")
    ] = None,
    compressible_share: Annotated[
        float | None, typer.Option(help="Of requests whose log names no category.")
    ] = None,
    compression_penalty: Annotated[
        float | None, typer.Option(metavar="USD", help="Price of one compressed request.")
    ] = None,
    boundary: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Pin the boundary instead of searching.")
    ] = None,
    max_utilization: Annotated[float | None, typer.Option(help="Cap on a pool's load.")] = None,
    min_replicas: Annotated[int | None, typer.Option(help="Fewest replicas of a pool.")] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Most replicas of a pool.")] = None,
    node_availability: Annotated[
        float | None, typer.Option(help="Share of nodes that are up.")
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(help="Fleet whose settings hold, and whose requests are taken of a trace."),
    ] = None,
    profiles: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Engine profiles of your own.")
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the cheapest fleet of one or two pools that meets the P99 TTFT target.

    FILE is CSV (TIMESTAMP,ContextTokens,GeneratedTokens), JSON Lines of request records,
    Mooncake's JSON Lines, or a CDF of total tokens: [[tokens, fraction], ...], bare or under
    `cdf`. What is not given comes from the settings: `fleetopt config show`.
    Exit code 3: no fleet meets the target.

    \b
    Examples:
      fleetopt plan trace.csv --slo-ttft-p99 300ms+0.2ms/token --profile h100/qwen3-32b/tp2
      fleetopt plan cdf.json --arrival-rate 1000 --slo-ttft-p99 500ms --output-share 0.1
      fleetopt plan trace.csv --boundary 2048 --output json | jq .plan.cost_usd_per_h
    """
    check_input(file)
    given = {
        "profile": profile,
        "short_profile": short_profile,
        "long_profile": long_profile,
        "long_context_tokens": long_context,
        "slo_ttft_p99": slo_ttft_p99,
        "admission": admission,
        "gamma_max": gamma_max,
        "compressible_share": compressible_share,
        "compression_penalty_usd": compression_penalty,
        "max_utilization": max_utilization,
        "min_replicas": min_replicas,
        "max_replicas": max_replicas,
        "node_availability": node_availability,
    }
    settings = _settings(config, profiles, fleet, given)
    chosen = settings.for_fleet(fleet) if fleet else settings.fleet
    from fleetopt.cli.traffic import read_traffic
    from fleetopt.config.fleet import plan_request
    from fleetopt.config.profiles import load_catalogue
    from fleetopt.planner.plan import Infeasible
    from fleetopt.planner.plan import plan as find_plan

    request = plan_request(chosen, load_catalogue(settings.profiles), boundary)
    traffic = read_traffic(
        file,
        fleet=fleet,
        arrival_rate_per_s=arrival_rate,
        output_share=output_share,
        slice_s=settings.window.slice_s,
    )
    found = find_plan(traffic.workload, request)
    _print(found, traffic, request, output)
    if isinstance(found, Infeasible):
        raise typer.Exit(ExitCode.INFEASIBLE)


def _settings(
    config: Path | None, profiles: Path | None, fleet: str | None, given: dict[str, Any]
) -> Settings:
    """Return the settings with the options that were given, for the fleet that was named."""
    from fleetopt.config.settings import load_settings

    options = {key: value for key, value in given.items() if value is not None}
    if "profile" in options:  # names both pools' engine, unless they are named too
        options = {"short_profile": None, "long_profile": None, **options}
    named = {"fleets": {fleet: options}} if fleet else {"fleet": options}
    overrides: dict[str, Any] = named if options else {}
    if profiles is not None:
        overrides["profiles"] = profiles
    return load_settings(config, **overrides)


def _print(
    found: Plan | Infeasible, traffic: Traffic, request: PlanRequest, output: Output
) -> None:
    from fleetopt.cli.plan_text import as_json, describe_infeasible, describe_plan
    from fleetopt.planner.plan import Infeasible

    if output is Output.JSON:
        print_json(as_json(found, traffic, request))
    elif isinstance(found, Infeasible):
        print_error(describe_infeasible(found))
    else:
        describe_plan(found, traffic, request)
