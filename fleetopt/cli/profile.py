"""`fleetopt profile`: engine profiles of one's own, measured, imported or estimated."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetopt.cli import profiles
from fleetopt.cli.options import ConfigOption, assigned, check_input, help_if_alone, settings_from
from fleetopt.cli.output import print_note
from fleetopt.cli.profile_hardware import from_hardware
from fleetopt.cli.profile_options import (
    ChunkOption,
    FileOption,
    FormOption,
    PriceOption,
    TensorParallelOption,
    form_of,
)
from fleetopt.cli.profile_text import FittedEngine, show_fits, show_profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetopt.connectors.timing_points import TimedEngine

app = typer.Typer(
    help="Measure, estimate and show engine profiles.",
    epilog="A profile written with -o is used at once: `fleetopt plan … --profiles FILE.toml`.",
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    help_if_alone(context)


@app.command()
def fit(
    file: Annotated[
        str, typer.Argument(metavar="POINTS.csv", help="Timings, or - for standard input.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only engines of this name, such as 'h100/*/tp2'."),
    ] = None,
    kv_capacity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]TOKENS",
            help="KV-cache tokens of a replica. Default: the catalogue's of the same name.",
        ),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="[GPU=]USD", help="Price of a GPU hour. Default: the catalogue's."),
    ] = None,
    prefill_chunk: ChunkOption = 2048,
    output: FormOption = None,
    write_to: FileOption = None,
) -> None:
    """Fit engine profiles to timings of single iterations.

    POINTS.csv has the columns gpu, model, tensor_parallel, kind, context_tokens, batch and
    milliseconds. kind `decode`: an iteration that gives `batch` sequences of `context_tokens` one
    token each. kind `prefill`: one that takes in `batch` whole prompts of `context_tokens`. Each
    engine needs two batch sizes, two contexts and three prompt lengths; more show how well it fits.

    \b
    Examples:
      fleetopt profile fit points.csv
      fleetopt profile fit points.csv --only 'h100/*' --output json
      fleetopt profile fit points.csv --kv-capacity 284000 --price 2.5 -o mine.toml
      fleetopt plan trace.csv --profiles mine.toml --profile h100/qwen3-32b/tp2
    """
    check_input(file)
    from fleetopt.config.profiles import load_catalogue
    from fleetopt.connectors.timing_points import read_timing_file
    from fleetopt.errors import InputError
    from fleetopt.planner.profile_fit import fit_profile

    source = "standard input" if file == "-" else file
    capacities, prices = assigned("--kv-capacity", kv_capacity), assigned("--price", price)
    catalogue = load_catalogue()
    fitted, from_catalogue = [], 0
    for engine in _chosen(read_timing_file(file), only):
        try:
            found = fit_profile(engine.points)
        except InputError as error:
            raise InputError(f"{source}: {engine.name}: {error}") from error
        capacity = _for_name(capacities, engine.name)
        if capacity is None and engine.name in catalogue:
            capacity = catalogue[engine.name].kv_capacity_tokens
            from_catalogue += 1
        fitted.append(
            FittedEngine(
                name=engine.name,
                gpu=engine.gpu,
                model=engine.model,
                gpus_per_replica=engine.tensor_parallel,
                fit=found,
                prefill_chunk_tokens=prefill_chunk,
                kv_capacity_tokens=None if capacity is None else int(capacity),
                own_price_usd_per_gpu_h=_for_name(prices, engine.gpu),
                source=f"fitted to {found.decode_points} decode and {found.prefill_points} "
                f"prefill timings of {source}",
            )
        )
    if from_catalogue:
        print_note(f"KV capacity is the catalogue's for {from_catalogue} of {len(fitted)} engines")
    show_fits(fitted, form_of(output, write_to), write_to)


@app.command("import-aiconfigurator")
def import_aiconfigurator(
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="h100, or a system of it such as h100_pcie.")
    ],
    model: Annotated[str, typer.Option(metavar="NAME", help="Model, such as Qwen/Qwen3-32B.")],
    tp: TensorParallelOption = 1,
    backend: Annotated[str, typer.Option(help="vllm, trtllm or sglang.")] = "vllm",
    price: PriceOption = None,
    prefill_chunk: ChunkOption = 2048,
    output: FormOption = None,
    write_to: FileOption = None,
) -> None:
    """Fit a profile to the operator timings of aiconfigurator, where that is installed.

    It is a package of NVIDIA's (Apache-2.0) with timings measured on silicon. FleetOpt does not
    need it.

    \b
    Examples:
      fleetopt profile import-aiconfigurator --gpu h100 --model Qwen/Qwen3-32B --tp 2
      fleetopt profile import-aiconfigurator --gpu l40s --model Qwen/Qwen3-8B --price 0.9 -o my.toml
    """
    from fleetopt.connectors.aiconfigurator import time_engine
    from fleetopt.planner.profile_fit import fit_profile

    imported = time_engine(gpu.lower(), model, tp, backend)
    engine = imported.engine
    fitted = FittedEngine(
        name=engine.name,
        gpu=engine.gpu,
        model=engine.model,
        gpus_per_replica=engine.tensor_parallel,
        fit=fit_profile(engine.points),
        prefill_chunk_tokens=prefill_chunk,
        kv_capacity_tokens=imported.kv_capacity_tokens,
        own_price_usd_per_gpu_h=price,
        source=f"{imported.source}, least squares",
    )
    show_fits([fitted], form_of(output, write_to), write_to)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `fleetopt profile list` says.")],
    profiles: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Engine profiles of your own.")
    ] = None,
    config: ConfigOption = None,
    output: FormOption = None,
    write_to: FileOption = None,
) -> None:
    """Show one profile of the catalogue, or of your own: as TOML, a start for another.

    \b
    Examples:
      fleetopt profile show h100/qwen3-32b/tp2
      fleetopt profile show h100/qwen3-32b/tp2 -o mine.toml
    """
    from fleetopt.config.profiles import load_profile

    settings = settings_from(config, profiles=profiles)
    profile = load_profile(name, settings.profiles)
    # Written down with its price: the file that it came from may set it, and may not come along.
    show_profile(profile, form_of(output, write_to), write_to, has_own_price=True)


app.command("from-hardware")(from_hardware)
app.command("list")(profiles.profiles)


def _chosen(engines: list[TimedEngine], patterns: list[str] | None) -> list[TimedEngine]:
    chosen = [
        engine
        for engine in engines
        if not patterns or any(fnmatchcase(engine.name, pattern.lower()) for pattern in patterns)
    ]
    if not chosen:
        raise typer.BadParameter(
            f"--only {' '.join(patterns or ())} fits no engine; there are "
            + ", ".join(engine.name for engine in engines)
        )
    return chosen


def _for_name(values: Mapping[str, float], name: str) -> float | None:
    return values.get(name, values.get(""))
