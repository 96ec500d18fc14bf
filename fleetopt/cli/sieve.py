"""`fleetopt sieve`: which benchmark is worth running, and when the fleet decision is certain."""

from __future__ import annotations

import typer

from fleetopt.cli.options import help_if_alone
from fleetopt.cli.sieve_compare import compare
from fleetopt.cli.sieve_run import example, run, status

app = typer.Typer(
    help="Measure only what can change the fleet decision.",
    epilog="Exit codes beside the usual ones: 3 certified infeasible, 4 undecided. How it decides, "
    "and what a certificate means: docs/sieve.md.",
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    help_if_alone(context)


app.command("run")(run)
app.command("status")(status)
app.command("example")(example)
app.command("compare")(compare)
