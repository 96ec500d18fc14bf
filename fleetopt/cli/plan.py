"""`fleetopt plan`: the cheapest fleet for a trace or a length distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetopt.cli.options import ConfigOption, OutputOption, check_input
from fleetopt.cli.output import ExitCode, Output, print_error, print_json
from fleetopt.cli.plan_options import (
    AdmissionOption,
    BoundaryOption,
    CachedShareOption,
    CarbonIntensityOption,
    CompressibleShareOption,
    CompressionPenaltyOption,
    FleetOption,
    GpuPriceOption,
    LongContextOption,
    MaxReplicasOption,
    MaxUtilizationOption,
    MinimiseOption,
    MinReplicasOption,
    NodeAvailabilityOption,
    OutputShareOption,
    ProfilesOption,
    TrafficArgument,
    settings_with,
)

if TYPE_CHECKING:
    from fleetopt.cli.traffic import Traffic
    from fleetopt.planner.plan import Infeasible, Plan, PlanRequest


def plan(
    context: typer.Context,
    file: TrafficArgument,
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
    long_context: LongContextOption = None,
    admission: AdmissionOption = None,
    output_share: OutputShareOption = None,
    cached_share: CachedShareOption = None,
    gamma_max: Annotated[
        float | None, typer.Option(help="Upper limit of the compression band; 1: none.")
    ] = None,
    compressible_share: CompressibleShareOption = None,
    compression_penalty: CompressionPenaltyOption = None,
    minimise: MinimiseOption = None,
    gpu_price: GpuPriceOption = None,
    carbon_intensity: CarbonIntensityOption = None,
    boundary: BoundaryOption = None,
    max_utilization: MaxUtilizationOption = None,
    min_replicas: MinReplicasOption = None,
    max_replicas: MaxReplicasOption = None,
    node_availability: NodeAvailabilityOption = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Say why: cost of other boundaries, rates and targets."),
    ] = False,
    fleet: FleetOption = None,
    profiles: ProfilesOption = None,
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
      fleetopt plan trace.csv --arrival-rate 200 --slo-ttft-p99 1s --explain
      fleetopt plan trace.csv --arrival-rate 200 --cached-share 0.5
      fleetopt plan trace.csv --minimise carbon --carbon-intensity 350 --slo-ttft-p99 2s
      fleetopt plan trace.csv --boundary 2048 --output json | jq .plan.cost_usd_per_h
    """
    check_input(file)
    settings = settings_with(context.params)
    chosen = settings.for_fleet(fleet) if fleet else settings.fleet
    from fleetopt.cli.traffic import assume_cached, read_traffic
    from fleetopt.config.fleet import plan_request
    from fleetopt.config.profiles import load_catalogue
    from fleetopt.planner.plan import Infeasible
    from fleetopt.planner.plan import plan as find_plan

    request = plan_request(
        chosen, load_catalogue(settings.profiles), boundary, settings.path_of(fleet)
    )
    traffic = read_traffic(
        file,
        fleet=fleet,
        arrival_rates_per_s=() if arrival_rate is None else (arrival_rate,),
        output_share=output_share,
        slice_s=settings.window.slice_s,
    )
    assume_cached(traffic, cached_share)
    found = find_plan(traffic.workload, request)
    _print(found, traffic, request, output, is_explained=explain)
    if isinstance(found, Infeasible):
        raise typer.Exit(ExitCode.INFEASIBLE)


def _print(
    found: Plan | Infeasible,
    traffic: Traffic,
    request: PlanRequest,
    output: Output,
    *,
    is_explained: bool,
) -> None:
    from fleetopt.cli.plan_text import as_json, describe_infeasible, describe_plan
    from fleetopt.planner.plan import Infeasible

    if isinstance(found, Infeasible):
        if output is Output.JSON:
            print_json(as_json(found, traffic, request))
        else:
            print_error(describe_infeasible(found))
        return
    from fleetopt.cli.explain_text import describe_explanation, explanation_json
    from fleetopt.planner.explain import explain

    why = explain(traffic.workload, request, found) if is_explained else None
    if output is Output.JSON:
        explained = {"explanation": explanation_json(why)} if why else {}
        print_json(as_json(found, traffic, request) | explained)
        return
    describe_plan(found, traffic, request)
    if why:
        describe_explanation(why, found, traffic.workload, request)
