"""`fleetopt whatif`: the cheapest fleet for every combination of rates, targets and engines."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Final

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
    engines_named,
    settings_with,
)
from fleetopt.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetopt.planner.engine import EngineProfile
    from fleetopt.planner.plan import Infeasible, Plan, PlanRequest
    from fleetopt.planner.workload import Workload

MAX_ROWS: Final = 2_000
"""A row takes 5 to 50 ms, and nobody reads more."""


@dataclass(frozen=True, slots=True)
class Row:
    """One combination, and the fleet that was found for it."""

    arrival_rate_per_s: float
    request: PlanRequest
    found: Plan | Infeasible

    @property
    def minimised_per_h(self) -> float:
        """What the fleet costs in the unit that is minimised; infinite where there is none."""
        from fleetopt.planner.plan import Plan

        return self.found.minimised_per_h if isinstance(self.found, Plan) else math.inf


def whatif(
    context: typer.Context,
    file: TrafficArgument,
    arrival_rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PER_SECOND,…",
            help="Rates to plan for. Default: the trace's own; a CDF has none.",
        ),
    ] = None,
    slo_ttft_p99: Annotated[
        list[str] | None,
        typer.Option(metavar="TARGET,…", help="P99 TTFT: 500ms, or 300ms+0.2ms/token."),
    ] = None,
    slo_e2e_p99: E2eTargetOption = None,
    slo_itl_p99: ItlTargetOption = None,
    slo_scope: SloScopeOption = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,…", help="Engines: every pair of them, short and long pool."),
    ] = None,
    short_profile: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,…", help="Engines of the short pool only."),
    ] = None,
    long_profile: Annotated[
        list[str] | None, typer.Option(metavar="NAME,…", help="Engines of the long pool only.")
    ] = None,
    gamma_max: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBER,…", help="Upper limits of the compression band; 1: none."),
    ] = None,
    sort: Annotated[bool, typer.Option("--sort", help="Cheapest first.")] = False,
    long_context: LongContextOption = None,
    admission: AdmissionOption = None,
    output_share: OutputShareOption = None,
    cached_share: CachedShareOption = None,
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
    fleet: FleetOption = None,
    profiles: ProfilesOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Plan for every combination of rates, targets, engines and gamma limits: one table.

    The first six options may be repeated, or take several values with commas between them.
    What is not given comes from the settings, as for `fleetopt plan`.
    Exit code 3: no combination has a fleet that meets its target.

    \b
    Examples:
      fleetopt whatif trace.csv --arrival-rate 10,20,40 --slo-ttft-p99 500ms,1s,2s
      fleetopt whatif trace.csv --profile h100/qwen3-32b/tp2 --profile h200/qwen3-32b/tp2 --sort
      fleetopt whatif trace.csv --profile h100/qwen3-32b/tp2,a100/qwen3-32b/tp2 --gpu-price a100=0.7
      fleetopt whatif cdf.json --arrival-rate 1000 --gamma-max 1,1.5,2 --output json
    """
    check_input(file)
    swept = ("slo_ttft_p99", "profile", "short_profile", "long_profile", "gamma_max")
    settings = settings_with({**context.params, **dict.fromkeys(swept)})
    chosen = settings.for_fleet(fleet) if fleet else settings.fleet
    from fleetopt.cli.traffic import assume_cached, read_traffic
    from fleetopt.cli.whatif_text import as_json, describe
    from fleetopt.config.fleet import fleet_catalogue, forecast_config, plan_request
    from fleetopt.config.profiles import load_catalogue
    from fleetopt.planner.plan import Infeasible

    rates = _numbers("--arrival-rate", arrival_rate)
    targets = _values("--slo-ttft-p99", slo_ttft_p99)
    engines = _values("--profile", profile)
    shorts = _values("--short-profile", short_profile)
    longs = _values("--long-profile", long_profile)
    gammas = _numbers("--gamma-max", gamma_max)
    _check_rows(rates, targets, shorts or engines, longs or engines, gammas)
    path = settings.path_of(fleet)
    catalogue = fleet_catalogue(chosen, load_catalogue(settings.profiles), path)
    base = plan_request(chosen, catalogue, boundary, path)
    every = engines_named("--profile", engines, catalogue)
    pools = (
        engines_named("--short-profile", shorts, catalogue) or every or [base.short_profile],
        engines_named("--long-profile", longs, catalogue) or every or [base.long_profile],
    )
    requests = _requests(base, targets, pools, gammas)
    traffic = read_traffic(
        file,
        fleet=fleet,
        arrival_rates_per_s=rates,
        output_share=output_share,
        slice_s=settings.window.slice_s,
        forecast=forecast_config(settings),
    )
    assume_cached(traffic, cached_share)
    found = _plans(traffic.workload, rates or [traffic.workload.arrival_rate_per_s], requests)
    if output is Output.JSON:
        print_json(as_json(found, traffic, is_sorted=sort))
    else:
        describe(found, traffic, is_sorted=sort)
    if all(isinstance(row.found, Infeasible) for row in found):
        print_error("infeasible: no combination has a fleet that meets its target")
        raise typer.Exit(ExitCode.INFEASIBLE)


def _check_rows(*axes: Sequence[object]) -> None:
    """Refuse more combinations than a table can show."""
    counts = [max(len(axis), 1) for axis in axes]
    rows = math.prod(counts)
    if rows > MAX_ROWS:
        factors = " × ".join(str(count) for count in counts if count > 1)
        raise typer.BadParameter(
            f"{factors} = {rows:,} combinations; expected at most {MAX_ROWS:,}: give fewer values"
        )


def _requests(
    base: PlanRequest,
    targets: Sequence[str],
    engines: tuple[Sequence[EngineProfile], Sequence[EngineProfile]],
    gammas: Sequence[float],
) -> list[PlanRequest]:
    """Every combination; an axis without values keeps the base's."""
    from fleetopt.planner.target import TtftTarget

    slos = [TtftTarget.parse(text) for text in targets] or [base.slo_ttft_p99]
    return [
        replace(base, slo_ttft_p99=slo, short_profile=one, long_profile=other, gamma_max=gamma)
        for slo, one, other, gamma in product(slos, *engines, gammas or [base.gamma_max])
    ]


def _plans(
    workload: Workload, rates_per_s: Sequence[float], requests: Sequence[PlanRequest]
) -> list[Row]:
    from fleetopt.planner.plan import plan

    asked = list(product(rates_per_s, requests))
    rows = []
    with progress("planned", lambda: len(asked), unit="combinations") as advance:
        for rate_per_s, request in asked:
            found = plan(workload.scaled_to(rate_per_s), request)
            rows.append(Row(rate_per_s, request, found))
            advance(len(rows))
    return rows


def _values(option: str, given: Sequence[str] | None) -> list[str]:
    """The values of an option that is repeated or holds several, each once."""
    values = [part.strip() for text in given or () for part in text.split(",")]
    if not all(values):
        raise typer.BadParameter(
            f"{option} {','.join(values)!r}: a value is empty; expected values with commas between"
        )
    return list(dict.fromkeys(values))


def _numbers(option: str, given: Sequence[str] | None) -> list[float]:
    numbers = []
    for text in _values(option, given):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise typer.BadParameter(f"{option} {text}: expected a number")
        numbers.append(number)
    return list(dict.fromkeys(numbers))
