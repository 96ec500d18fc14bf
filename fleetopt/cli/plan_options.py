"""Options of the commands that plan, and the settings that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from fleetopt.cli.options import assigned, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetopt.config.settings import Settings
    from fleetopt.planner.engine import EngineProfile


def check_share(value: float | None) -> float | None:
    """Refuse what is no share, and say what it was."""
    if value is not None and not 0.0 <= value <= 1.0:
        raise typer.BadParameter(f"{value}; expected a number from 0 to 1")
    return value


TrafficArgument = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A trace, a CDF as JSON, or - for standard input."),
]
E2eTargetOption = Annotated[
    str | None,
    typer.Option("--slo-e2e-p99", metavar="TARGET", help="P99 end to end: 30s, or 2s+40ms/token."),
]
ItlTargetOption = Annotated[
    str | None,
    typer.Option("--slo-itl-p99", metavar="TIME", help="P99 between two tokens: 150ms."),
]
LongContextOption = Annotated[
    int | None, typer.Option(metavar="TOKENS", help="Context window of the long pool.")
]
AdmissionOption = Annotated[
    Literal["statistical", "reserved"] | None,
    typer.Option(help="Slots by what requests use, or by the whole context."),
]
OutputShareOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", callback=check_share, help="Completion tokens of all tokens; for a CDF."
    ),
]
CachedShareOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        callback=check_share,
        help="Of each prompt, cached. Default: what the trace logged.",
    ),
]
CompressibleShareOption = Annotated[
    float | None, typer.Option(help="Of requests whose log names no category.")
]
CompressionPenaltyOption = Annotated[
    float | None, typer.Option(metavar="USD", help="Price of one compressed request.")
]
BoundaryOption = Annotated[
    int | None, typer.Option(metavar="TOKENS", help="Pin the boundary instead of searching.")
]
SloScopeOption = Annotated[
    Literal["pool", "fleet"] | None,
    typer.Option(help="Whether each pool holds its P99s, or all requests of the fleet together."),
]
MaxUtilizationOption = Annotated[float | None, typer.Option(help="Cap on a pool's load.")]
MinReplicasOption = Annotated[int | None, typer.Option(help="Fewest replicas of a pool.")]
MaxReplicasOption = Annotated[int | None, typer.Option(help="Most replicas of a pool.")]
NodeAvailabilityOption = Annotated[float | None, typer.Option(help="Share of nodes that are up.")]
FleetOption = Annotated[
    str | None,
    typer.Option(help="Fleet whose settings hold, and whose requests are taken of a trace."),
]
ProfilesOption = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="Engine profiles of your own.")
]

MinimiseOption = Annotated[
    Literal["usd", "carbon"] | None,
    typer.Option(help="What to have least of: money, or the carbon of the GPUs' power."),
]
GpuPriceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GPU=USD,…", help="Your own (spot) price of a GPU hour; a number alone: of all."
    ),
]
CarbonIntensityOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GPU=G,…", help="gCO2e/kWh of the grid that feeds a GPU; a number alone: of all."
    ),
]

SETTINGS: Final[Mapping[str, str]] = {
    "profile": "profile",
    "short_profile": "short_profile",
    "long_profile": "long_profile",
    "long_context": "long_context_tokens",
    "slo_ttft_p99": "slo_ttft_p99",
    "slo_e2e_p99": "slo_e2e_p99",
    "slo_itl_p99": "slo_itl_p99",
    "slo_scope": "slo_scope",
    "admission": "admission",
    "gamma_max": "gamma_max",
    "compressible_share": "compressible_share",
    "compression_penalty": "compression_penalty_usd",
    "max_utilization": "max_utilization",
    "minimise": "minimise",
    "min_replicas": "min_replicas",
    "max_replicas": "max_replicas",
    "node_availability": "node_availability",
}
"""Which setting of a fleet each option stands for."""
BY_GPU: Final[Mapping[str, str]] = {
    "gpu_price": "prices_usd_per_gpu_h",
    "carbon_intensity": "carbon_g_per_kwh",
}
"""The same for options with a value by GPU type."""


def engines_named(
    option: str, names: Iterable[str], catalogue: Mapping[str, EngineProfile]
) -> list[EngineProfile]:
    """Return the engines that an option names."""
    from fleetopt.config.profiles import load_profile
    from fleetopt.errors import ConfigError

    try:
        return [load_profile(name, catalogue) for name in names]
    except ConfigError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


def settings_with(options: Mapping[str, Any]) -> Settings:
    """Return the settings with a command's options, for the fleet that is named among them.

    What was not given (None) changes nothing; options that are no setting play no part.
    """
    given = {
        setting: options[option]
        for option, setting in SETTINGS.items()
        if options.get(option) is not None
    }
    for option, setting in BY_GPU.items():
        if options.get(option):
            given[setting] = _by_gpu(f"--{option.replace('_', '-')}", options[option])
    if "profile" in given:  # names both pools' engine, unless they are named too
        given = {"short_profile": None, "long_profile": None, **given}
    fleet, profiles = options["fleet"], options["profiles"]
    named = {"fleets": {fleet: given}} if fleet else {"fleet": given}
    overrides: dict[str, Any] = named if given else {}
    if profiles is not None:
        overrides["profiles"] = profiles
    return load(options["config"], **overrides)


def _by_gpu(option: str, texts: Iterable[str]) -> dict[str, float]:
    from fleetopt.config.settings import OTHER_GPUS

    values = assigned(option, [part.strip() for text in texts for part in text.split(",")])
    return {gpu or OTHER_GPUS: value for gpu, value in values.items()}
