"""Options that several commands share, and the checks that make a wrong one a usage error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetopt.cli.output import ExitCode, Output, print_note

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetopt.config.settings import Settings

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="YAML file with settings; FLEETOPT_… variables and options win over it.",
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", help="Form of the result.")]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT,…",
        help="Kafka brokers. Default: kafka.bootstrap_servers.",
    ),
]


def help_if_alone(context: typer.Context) -> None:
    """Show the help of a group of commands when none of them is named: a usage error."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(ExitCode.USAGE)


def settings_from(config: Path | None, **overrides: Any) -> Settings:
    """Read the settings; options that were left out (None) change nothing."""
    given: dict[str, Any] = {}
    for name, override in overrides.items():
        value = (
            {key: each for key, each in override.items() if each is not None}
            if isinstance(override, dict)
            else override
        )
        if value not in (None, {}):
            given[name] = value
    return load(config, **given)


def load(config: Path | None, **given: Any) -> Settings:
    """Read the settings, and say which variables only look like some."""
    import os

    from fleetopt.config.settings import load_settings, setting_paths
    from fleetopt.config.variables import unknown_variables

    settings = load_settings(config, **given)
    for remark in unknown_variables(os.environ, setting_paths()):
        print_note(remark)
    return settings


def check_fleet(name: str) -> str:
    """Refuse a name that no fleet can have."""
    import msgspec

    from fleetopt.connectors.wire import FleetName

    try:
        return msgspec.convert(name, FleetName)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(
            f"--fleet {name!r}: expected 1 to 200 characters without white space and braces"
        ) from error


def check_input(path: str) -> str:
    """Refuse an input file that is not there; a pipe will do."""
    if path != "-" and (not path or not Path(path).exists() or Path(path).is_dir()):
        reason = "is a folder" if path and Path(path).is_dir() else "there is no such file"
        raise typer.BadParameter(f"{path or repr(path)}: {reason}")
    return path


def assigned(option: str, texts: Iterable[str] | None) -> dict[str, float]:
    """Read `VALUE` (for all, under the empty name) and `NAME=VALUE`."""
    found = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0.0 < number < float("inf"):
            raise typer.BadParameter(f"{option} {text!r}: expected a number > 0, or NAME=NUMBER")
        found[name.lower()] = number
    return found
