"""`fleetopt profiles`: the engines that a plan can be made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetopt.cli.options import ConfigOption, OutputOption, settings_from
from fleetopt.cli.output import Output, console, print_json, table, tokens, usd


def profiles(
    profiles: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Engine profiles of your own.")
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the catalogue of engine profiles, with those of your own.

    \b
    Examples:
      fleetopt profiles
      fleetopt profile list --profiles mine.toml --output json
    """
    import msgspec

    from fleetopt.config.profiles import load_catalogue

    settings = settings_from(config, profiles=profiles)
    catalogue = load_catalogue(settings.profiles)
    if output is Output.JSON:
        print_json([msgspec.to_builtins(profile) for profile in catalogue.values()])
        return
    shown = table("name", "GPUs", "iteration ms", "prefill us/token", "KV tokens", "USD/replica h")
    for name, profile in catalogue.items():
        shown.add_row(
            name,
            str(profile.gpus_per_replica),
            f"{profile.base_iteration_s * 1e3:.1f}",
            f"{profile.prefill_token_s * 1e6:.1f}",
            tokens(profile.kv_capacity_tokens),
            usd(profile.price_usd_per_replica_h),
        )
    console().print(shown)
