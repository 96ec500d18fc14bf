"""`fleetopt sieve compare`: policies on a grid of which every run is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetopt.cli.options import OutputOption
from fleetopt.cli.output import ExitCode, Output, print_json, print_note
from fleetopt.cli.progress import progress

if TYPE_CHECKING:
    from fleetopt.planner.sieve.policies import Policy
    from fleetopt.planner.sieve.prior import Prior
    from fleetopt.planner.sieve.table import Table

_ORDERS = 200


def compare(
    grid: Annotated[str, typer.Argument(metavar="GRID.csv", help="Results of every run.")],
    classes: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Demands and targets. Default: GRID.toml."),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="Predictions. Default: GRID.prior.csv, if it is there."
        ),
    ] = None,
    no_prior: Annotated[bool, typer.Option("--no-prior", help="Know nothing beforehand.")] = False,
    gpus: Annotated[str, typer.Option(metavar="N,…", help="Budgets of GPUs.")] = "16,32,64",
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="sieve, random, exhaustive, cheapest, capacity, halving. Default: all.",
        ),
    ] = None,
    orders: Annotated[int, typer.Option(min=2, help="Random orders of the runs.")] = _ORDERS,
    seed: Annotated[int, typer.Option(min=0, help="Of the first order.")] = 0,
    tolerance: Annotated[
        float, typer.Option(help="Share of demand: with no more to gain, profiling stops.")
    ] = 0.02,
    same: Annotated[
        float, typer.Option(help="Share of demand by which a decision may miss the oracle's.")
    ] = 0.01,
    noise_throughput: Annotated[
        float, typer.Option(help="How far a single run's throughput may be off, as a share.")
    ] = 0.05,
    noise_p99: Annotated[
        float, typer.Option("--noise-p99", help="The same of its completion P99.")
    ] = 0.3,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the GPU-seconds, as SVG or PNG.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare ways to choose the next benchmark run on a grid whose every run is known.

    Every policy decides from the same intervals; only what it measures differs. For each it is
    said how many GPU-seconds it takes until its decision is the oracle's and stays so, against
    uniform random order; where it stops by itself, and what it then loses; and how often a
    certificate was false. Intervals in brackets hold the mean with 95 % (bootstrap over orders).

    \b
    Examples:
      fleetopt sieve compare benchmarks/sieve/grids/h100-qwen3-32b.csv
      fleetopt sieve compare grid.csv --gpus 32 --policy sieve,random --orders 50
      fleetopt sieve compare grid.csv --classes mine.toml --no-prior --output json
    """
    from fleetopt.cli.sieve_compare_text import comparison_json, show_comparison
    from fleetopt.connectors.sieve_grid import read_table
    from fleetopt.planner.sieve.compare import compare as compared
    from fleetopt.planner.sieve.evidence import Noise
    from fleetopt.planner.sieve.sieve import Sieve

    budgets, policies = _budgets(gpus), _policies(policy)
    noise = Noise(noise_throughput, noise_p99)
    if plot is not None:
        _check_plot(plot)
    tables = [
        read_table(grid, str(classes or Path(grid).with_suffix(".toml")), budget)
        for budget in budgets
    ]
    known = _prior(grid, prior, tables[0], no_prior=no_prior)
    found = {}
    walks = len(budgets) * orders * len({*policies, "random"})
    done = 0
    with progress("walked", lambda: walks, "ways through the grid") as advance:

        def one_more() -> None:
            nonlocal done
            done += 1
            advance(done)

        for budget, table in zip(budgets, tables, strict=True):
            sieve = Sieve(table.grid, budget, noise, known, tolerance)
            found[budget] = compared(
                policies, sieve, table, orders=orders, seed=seed, same=same, progress=one_more
            )
    if plot is not None:
        from fleetopt.cli.sieve_plot import draw_comparison

        draw_comparison(found, plot)
        print_note(f"drew {plot}")
    if output is Output.JSON:
        print_json(comparison_json(found, tables[0]))
    else:
        show_comparison(found, tables[0], has_prior=known is not None)
    raise typer.Exit(ExitCode.DONE)


def _budgets(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 10_000 for part in parts):
        raise typer.BadParameter(f"--gpus {text}: expected whole numbers with commas between")
    return list(dict.fromkeys(map(int, parts)))


def _policies(text: str | None) -> list[Policy]:
    from fleetopt.planner.sieve.policies import Policy

    if text is None:
        return list(Policy)
    names = [part.strip() for part in text.split(",")]
    unknown = [name for name in names if name not in list(Policy)]
    if unknown:
        raise typer.BadParameter(
            f"--policy {unknown[0]!r} is unknown; expected {', '.join(Policy)}"
        )
    return [Policy(name) for name in dict.fromkeys(names)]


def _prior(grid: str, path: Path | None, table: Table, *, no_prior: bool) -> Prior | None:
    from fleetopt.connectors.sieve_grid import read_prior

    if no_prior:
        if path is not None:
            raise typer.BadParameter("--no-prior leaves predictions out: leave --prior out")
        return None
    beside = Path(grid).with_suffix(".prior.csv")
    if path is None and not beside.is_file():
        return None
    return read_prior(str(path or beside), table.grid)


def _check_plot(path: Path) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise typer.BadParameter("--plot needs matplotlib: run pip install 'fleetopt[report]'")
    if path.suffix not in (".svg", ".png"):
        raise typer.BadParameter(f"--plot {path}: expected a name that ends in .svg or .png")
