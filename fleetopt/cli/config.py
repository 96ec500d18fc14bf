"""`fleetopt config`: are the settings right, and which ones are in force."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fleetopt.cli.options import OutputOption, help_if_alone, settings_from
from fleetopt.cli.output import Output, console, print_json, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetopt.config.settings import Settings

_VALUE_WIDTH: Final = 36

app = typer.Typer(
    help="Check and show the settings.",
    epilog="Settings come from FLEETOPT_… variables (FLEETOPT_KAFKA__TOPIC is kafka.topic), then "
    "from the file, then from the defaults.",
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    help_if_alone(context)


FileArgument = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="YAML file with settings.")
]


@app.command()
def check(file: FileArgument = None) -> None:
    """Check every setting, the profiles that it names, and the SLOs.

    \b
    Examples:
      fleetopt config check fleetopt.yaml
      FLEETOPT_WINDOW__SLICE_S=30 fleetopt config check
    """
    settings = settings_from(file)
    fleets = _check_fleets(settings)
    defaults = _flat(type(settings).model_construct().model_dump(mode="json"))
    changed = [path for path, value, _ in _effective(settings, file) if defaults.get(path) != value]
    where = f"{file}: OK" if file else "OK"
    typer.echo(
        f"{where}; {len(changed)} settings differ from their defaults, "
        f"{len(fleets)} fleets have settings of their own"
    )


@app.command()
def show(file: FileArgument = None, output: OutputOption = Output.TABLE) -> None:
    """Print every setting in force, and where it comes from.

    \b
    Examples:
      fleetopt config show
      fleetopt config show fleetopt.yaml --output json
    """
    settings = settings_from(file)
    if output is Output.JSON:
        print_json(_public(settings))
        return
    shown = table("setting", "value", "from")
    shown.columns[0].no_wrap = True
    for column in shown.columns[1:]:
        column.justify, column.no_wrap, column.overflow = "left", False, "fold"
    for path, value, source in _effective(settings, file):
        shown.add_row(path, "–" if value is None else str(value), source or "default")
    # A long path folds; it pushes no setting out of sight.
    shown.columns[0].min_width = max(len(path) for path, _, _ in _effective(settings, file))
    shown.columns[1].min_width = _VALUE_WIDTH
    console().print(shown)


def _check_fleets(settings: Settings) -> list[str]:
    """Raise ConfigError if a fleet, or the base of all, can't be planned for."""
    from fleetopt.config.fleet import plan_request
    from fleetopt.config.profiles import load_catalogue

    catalogue = load_catalogue(settings.profiles)
    for name in (None, *settings.fleets):
        fleet = settings.fleet if name is None else settings.for_fleet(name)
        plan_request(fleet, catalogue, path="fleet" if name is None else f"fleets.{name}")
    return list(settings.fleets)


def _effective(settings: Settings, file: Path | None) -> Iterator[tuple[str, Any, str]]:
    """Yield each setting's path, value and source; the source of a default is empty."""
    in_file = _flat(_read(file)) if file else {}
    in_environment = {
        name.removeprefix("FLEETOPT_").lower().replace("__", "."): name
        for name in os.environ
        if name.upper().startswith("FLEETOPT_")
    }
    for path, value in _flat(_public(settings)).items():
        parents = [path[: at.start()] for at in re.finditer(r"\.", path)]
        variable = next(
            (in_environment[key] for key in (path, *parents) if key in in_environment), None
        )
        if variable:
            yield path, value, variable
        elif path in in_file:
            yield path, value, str(file)
        else:
            yield path, value, ""


def _public(settings: Settings) -> dict[str, Any]:
    """Return the settings as they may be shown: without a password."""
    values = settings.model_dump(mode="json")
    values["redis"]["url"] = settings.redis.shown_url
    return values


def _read(file: Path) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(file.read_text()) or {}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, dict):
            flat[f"{prefix}{key}"] = value
    return flat
