"""`fleetopt plan`: the cheapest fleet for a trace or a length distribution."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetopt.cli.options import ConfigOption, OutputOption, check_input
from fleetopt.cli.output import ExitCode, Output, print_error, print_json, print_note
from fleetopt.cli.plan_options import (
    AdmissionOption,
    BoundaryOption,
    CachedShareOption,
    CarbonIntensityOption,
    CompressibleShareOption,
    CompressionPenaltyOption,
    E2eTargetOption,
    FleetOption,
    GpuPriceOption,
    ItlTargetOption,
    LongContextOption,
    MaxReplicasOption,
    MaxUtilizationOption,
    MinimiseOption,
    MinReplicasOption,
    NodeAvailabilityOption,
    OutputShareOption,
    ProfilesOption,
    SloScopeOption,
    TrafficArgument,
    settings_with,
)
from fleetopt.cli.pools import compare_pools, pool_engines, pool_profiles

if TYPE_CHECKING:
    from fleetopt.cli.traffic import Traffic
    from fleetopt.cli.validation import Validation
    from fleetopt.planner.explain import Explanation
    from fleetopt.planner.plan import Infeasible, Plan, PlanRequest


def plan(
    context: typer.Context,
    file: TrafficArgument,
    arrival_rate: Annotated[
        float | None,
        typer.Option(
            metavar="PER_SECOND",
            help="Rate to plan for, as it is. Default: forecast from the trace; a CDF has none.",
        ),
    ] = None,
    slo_ttft_p99: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="P99 TTFT: 500ms, or 300ms+0.2ms/token."),
    ] = None,
    slo_e2e_p99: E2eTargetOption = None,
    slo_itl_p99: ItlTargetOption = None,
    slo_scope: SloScopeOption = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Engine of all pools: `fleetopt profiles` lists them. With --pools also several, "
            "with commas between: each pool gets the cheapest.",
        ),
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
    pools: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=16,
            help="Compare the cheapest fleets of 1, 2 … N pools: what does a further one gain?",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Say why: cost of other boundaries, rates and targets."),
    ] = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Simulate the fleet on the traffic, and compare.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a page with charts too; it is replaced."),
    ] = None,
    fleet: FleetOption = None,
    profiles: ProfilesOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the cheapest fleet of one or two pools that meets the P99 targets.

    FILE is CSV (TIMESTAMP,ContextTokens,GeneratedTokens), JSON Lines of request records,
    Mooncake's JSON Lines, or a CDF of total tokens: [[tokens, fraction], ...], bare or under
    `cdf`. What is not given comes from the settings: `fleetopt config show`.
    Exit code 3: no fleet meets the target. With --validate, 1: a pool's queue grows without end.

    \b
    Examples:
      fleetopt plan trace.csv --slo-ttft-p99 300ms+0.2ms/token --profile h100/qwen3-32b/tp2
      fleetopt plan cdf.json --arrival-rate 1000 --slo-ttft-p99 500ms --output-share 0.1
      fleetopt plan trace.csv --arrival-rate 200 --slo-ttft-p99 1s --explain
      fleetopt plan trace.csv --slo-ttft-p99 1s --slo-e2e-p99 2s+40ms/token --slo-itl-p99 150ms
      fleetopt plan trace.csv --arrival-rate 200 --cached-share 0.5
      fleetopt plan trace.csv --arrival-rate 200 --slo-ttft-p99 1s --pools 4
      fleetopt plan trace.csv --minimise carbon --carbon-intensity 350 --slo-ttft-p99 2s
      fleetopt plan trace.csv --slo-ttft-p99 1s --validate --html report.html
      fleetopt plan trace.csv --boundary 2048 --output json | jq .plan.cost_usd_per_h
    """
    check_input(file)
    engines = pool_engines(context.params)
    if html is not None:
        from fleetopt.cli.report import check_page

        check_page(html, file, profiles, config)
    if validate:
        from fleetopt.cli.validation import check_twice

        check_twice(file)
    settings = settings_with({**context.params, "profile": engines[0] if engines else None})
    chosen = settings.for_fleet(fleet) if fleet else settings.fleet
    from fleetopt.cli.traffic import assume_cached, read_traffic
    from fleetopt.config.fleet import fleet_catalogue, forecast_config, plan_request
    from fleetopt.config.profiles import load_catalogue
    from fleetopt.planner.plan import Infeasible
    from fleetopt.planner.plan import plan as find_plan

    catalogue, path = load_catalogue(settings.profiles), settings.path_of(fleet)
    request = plan_request(chosen, catalogue, boundary, path)
    choice = pool_profiles(engines, fleet_catalogue(chosen, catalogue, path))
    traffic = read_traffic(
        file,
        fleet=fleet,
        arrival_rates_per_s=() if arrival_rate is None else (arrival_rate,),
        output_share=output_share,
        slice_s=settings.window.slice_s,
        forecast=forecast_config(settings),
    )
    assume_cached(traffic, cached_share)
    if pools is not None:
        compare_pools(traffic, request, pools, choice, output)
        return
    found = find_plan(traffic.workload, request)
    why, validation = None, None
    if not isinstance(found, Infeasible):
        if explain or html is not None:
            from fleetopt.planner.explain import explain as explain_plan

            why = explain_plan(traffic.workload, request, found)
        if validate:
            from fleetopt.cli.validation import validate as simulate

            validation = simulate(
                found,
                request,
                file,
                rate_per_s=traffic.workload.arrival_rate_per_s,
                fleet=fleet,
                output_share=output_share,
                cached_share=cached_share,
            )
    if html is not None:
        from fleetopt.cli.report import page_of, write_page

        result = _as_json(found, traffic, request, why, validation)
        write_page(html, page_of(found, traffic, request, why, validation, result))
        print_note(f"wrote {html}")
    _print(found, traffic, request, output, why if explain else None, validation)
    if isinstance(found, Infeasible):
        raise typer.Exit(ExitCode.INFEASIBLE)
    if validation and validation.diverging:
        print_error(
            f"diverging: the queue of the {' and the '.join(validation.diverging)} pool grows"
        )
        raise typer.Exit(ExitCode.FAILED)


def _print(
    found: Plan | Infeasible,
    traffic: Traffic,
    request: PlanRequest,
    output: Output,
    why: Explanation | None,
    validation: Validation | None,
) -> None:
    from fleetopt.cli.explain_text import describe_explanation
    from fleetopt.cli.plan_text import describe_infeasible, describe_plan
    from fleetopt.planner.plan import Infeasible

    if output is Output.JSON:
        print_json(_as_json(found, traffic, request, why, validation))
    elif isinstance(found, Infeasible):
        print_error(describe_infeasible(found))
    else:
        describe_plan(found, traffic, request)
        if why:
            describe_explanation(why, found, traffic.workload, request)
        if validation:
            validation.describe()


def _as_json(
    found: Plan | Infeasible,
    traffic: Traffic,
    request: PlanRequest,
    why: Explanation | None,
    validation: Validation | None,
) -> dict[str, Any]:
    from fleetopt.cli.explain_text import explanation_json
    from fleetopt.cli.plan_text import as_json

    result = as_json(found, traffic, request)
    if why:
        result["explanation"] = explanation_json(why)
    if validation:
        result["validation"] = validation.json()
    return result
