"""`fleetopt sieve`: which benchmark is worth running, and when the fleet decision is certain."""

from __future__ import annotations

import typer

from fleetopt.cli.options import help_if_alone
from fleetopt.cli.sieve_compare import compare

app = typer.Typer(
    help="Measure only what can change the fleet decision.",
    epilog="How it decides, and what its certificate means: docs/sieve.md.",
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    help_if_alone(context)


app.command("compare")(compare)
