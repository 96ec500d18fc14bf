"""`fleetopt generate`: traffic made to order."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from fleetopt.cli.options import check_fleet
from fleetopt.errors import InputError

ArchetypeName = Literal["concentrated-below", "dispersed", "concentrated-above"]
DEFAULT_START_S = 946_684_800.0


def generate(
    archetype: Annotated[ArchetypeName, typer.Option(help="Where lengths lie.")],
    duration: Annotated[
        float, typer.Option(metavar="SECONDS", help="Length of the trace.", min=0.0)
    ] = 600.0,
    rate: Annotated[
        float, typer.Option(metavar="PER_SECOND", help="Requests per second.", min=0.0, max=1e6)
    ] = 100.0,
    shift_to: Annotated[
        ArchetypeName | None, typer.Option(help="Archetype that the traffic turns into.")
    ] = None,
    shift_at: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="When the shift begins. Default: half way.", min=0.0),
    ] = None,
    transition: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the shift takes.", min=0.0)
    ] = 60.0,
    dispersion: Annotated[
        float,
        typer.Option(help="Index of dispersion of counts per second: 1 is Poisson.", min=1.0),
    ] = 1.0,
    cached_share: Annotated[
        float | None,
        typer.Option(help="Of each prompt, logged as cached. Default: not logged.", min=0, max=1),
    ] = None,
    fleet: Annotated[str, typer.Option(help="Fleet that the requests belong to.")] = "default",
    start: Annotated[
        float,
        typer.Option(metavar="EPOCH_SECONDS", help="Arrival time that the trace starts at."),
    ] = DEFAULT_START_S,
    seed: Annotated[int, typer.Option(help="The same seed makes the same traffic.", min=0)] = 0,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Default: standard output.")
    ] = None,
) -> None:
    """Write traffic as JSON Lines: a mixture of request kinds, which may shift on the way.

    \b
    Examples:
      fleetopt generate --archetype dispersed --rate 50 --duration 3600 --to day.jsonl
      fleetopt generate --archetype concentrated-above --cached-share 0.6 --to turns.jsonl
      fleetopt generate --archetype concentrated-below --shift-to dispersed --shift-at 300 \\
          --rate 400 --duration 600 | fleetopt replay - --speed 10
    """
    if shift_to is None and shift_at is not None:
        raise typer.BadParameter("--shift-at needs --shift-to: what does the traffic turn into?")
    check_fleet(fleet)
    if not 0 < start < 1e11:
        raise typer.BadParameter(f"--start {start:g}: expected epoch seconds above 0")
    import msgspec
    import numpy as np

    from fleetopt.pipeline import generator

    schedule = generator.Schedule(
        archetype=generator.Archetype(archetype),
        rate_per_s=rate,
        duration_s=duration,
        shift_to=None if shift_to is None else generator.Archetype(shift_to),
        shift_at_s=duration / 2 if shift_at is None else shift_at,
        transition_s=transition,
        dispersion=dispersion,
        cached_share=cached_share,
    )
    encoder = msgspec.json.Encoder()
    with ExitStack() as stack:
        try:
            file = stack.enter_context(to.open("wb")) if to else sys.stdout.buffer
        except OSError as error:
            raise InputError(f"can't write {to}: {error.strerror}") from error
        for records in generator.generate(schedule, fleet, start, np.random.default_rng(seed)):
            file.write(encoder.encode_lines(records))
        file.flush()
