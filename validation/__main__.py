"""`python -m validation`: plans, simulates, and writes what comes out to docs/validation.md."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from rich.console import Console

from benchmarks import paper_table
from benchmarks.report import Machine, PageError, Table, put
from fleetopt.errors import FleetOptError
from validation import cheapest, traffic
from validation.cache import ROOT
from validation.measure import measure
from validation.rows import Arrivals, Row, design, quick_design
from validation.simulated import Limits
from validation.summary import fleets_summary, summary
from validation.tables import fleet_table, row_tables
from validation.text import lines

EXAMPLES: Final = """\
examples:
  python -m validation                    everything into docs/validation.md, 10 to 30 minutes
  python -m validation --quick            a few small runs of everything, shown only
  python -m validation --list             the rows there are
  python -m validation rows --rows 'qwen.* chat poisson 100/s'
                                          the rows that match, shown only
  python -m validation rows --rows 'qwen.* chat' --rate 300 --target 300ms+0.1ms/token
                                          the same at another rate and target
  python -m validation rows --rows poisson --json out.json
"""
PAGE: Final = ROOT / "docs" / "validation.md"
PARTS: Final = ("rows", "fleets", "paper")
QUICK: Final = Limits(first=20_000, most=100_000, most_for_p99=40_000, most_slots=400_000)
QUICK_FLEETS: Final = 2
PAPER_REQUESTS: Final = {True: 60_000, False: paper_table.REQUESTS}
PACKAGES: Final = ("numpy", "scipy", "numba")
_notes = Console(stderr=True, highlight=False, soft_wrap=True)

Asked = TypeVar("Asked", bound=Row)
Found = TypeVar("Found")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    parts = options.parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: choose {', '.join(PARTS)}")
    rows = list(_asked(quick_design() if options.quick else design(), options))
    if not rows:
        parser.error("no row matches; --list shows them all")
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    missing = set(traffic.TRACES) | set(traffic.CDFS)
    if missing := missing - set(traffic.names()):
        _notes.print(f"left out, as {traffic.DATA} lacks them: {', '.join(sorted(missing))}")
    try:
        _run(parts, rows, options)
    except (FleetOptError, PageError) as error:
        print(f"validation: {error}", file=sys.stderr)
        return 1
    return 0


def _run(parts: Sequence[str], rows: list[Row], options: argparse.Namespace) -> None:
    machine = Machine.this(PACKAGES)
    is_whole = not (options.quick or _chooses(options))
    results: dict[str, object] = {}

    def show(name: str, body: str) -> None:
        print(body, end="\n\n")
        if is_whole:
            put(name, f"{body}\n\n*{machine.sentence()}*", PAGE)

    if "rows" in parts:
        limits = QUICK if options.quick else Limits()
        found = _each(partial(measure, limits=limits), rows, options.jobs)
        results["rows"] = found
        print("\n".join(lines(found)), end="\n\n")
        if not _chooses(options):
            show("summary", summary(found))
        if is_whole:
            put("rows", _markdown(row_tables(found)), PAGE)
    if "fleets" in parts:
        questions = cheapest.QUESTIONS[:QUICK_FLEETS] if options.quick else cheapest.QUESTIONS
        requests = cheapest.QUICK_REQUESTS if options.quick else cheapest.REQUESTS
        answers = _each(partial(cheapest.answer, requests=requests), questions, options.jobs)
        results["fleets"] = answers
        show("fleets", f"{fleets_summary(answers)}\n\n{fleet_table(answers).markdown()}")
    if "paper" in parts and (cases := paper_table.available()):
        if options.quick:
            cases = cases[:1]
        tables = paper_table.tables(cases, PAPER_REQUESTS[options.quick])
        results["paper"] = tables
        show("paper", _markdown(tables))
    if options.json:
        document = {"machine": machine, **results}
        Path(options.json).write_bytes(msgspec.json.encode(document))


def _markdown(tables: Iterable[Table]) -> str:
    return "\n\n".join(table.markdown() for table in tables)


def _chooses(options: argparse.Namespace) -> bool:
    """Whether these are not the rows that the page shows."""
    return any((options.rows, options.rate, options.target, options.arrivals))


def _each(work: Callable[[Asked], Found], questions: Sequence[Asked], jobs: int) -> list[Found]:
    """Results in the order of the questions; those that take longest begin first."""
    began_s = time.monotonic()
    found: dict[str, Found] = {}

    def take(name: str, result: Found) -> None:
        found[name] = result
        passed_s = time.monotonic() - began_s
        _notes.print(f"{len(found)}/{len(questions)}  {passed_s:.0f} s  {name}")

    slow_first = sorted(questions, key=lambda row: row.rate_per_s, reverse=True)
    if jobs == 1:
        for row in slow_first:
            take(row.name, work(row))
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as workers:
            futures = {workers.submit(work, row): row.name for row in slow_first}
            for future in as_completed(futures):
                take(futures[future], future.result())
    return [found[row.name] for row in questions]


def _asked(rows: Iterable[Row], options: argparse.Namespace) -> Iterator[Row]:
    """Rows that match one of the patterns, changed as asked; none twice."""
    seen = set()
    for row in rows:
        if options.rows and not any(re.search(one, row.name) for one in options.rows):
            continue
        changed = replace(
            row,
            rate_per_s=options.rate or row.rate_per_s,
            target=options.target or row.target,
            arrivals=Arrivals(options.arrivals) if options.arrivals else row.arrivals,
        )
        if changed.name not in seen:
            seen.add(changed.name)
            yield changed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation",
        description="Hold the planner's figures against simulations of the fleets that it plans.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few, small runs; docs stay as they are"
    )
    parser.add_argument(
        "--rows",
        action="append",
        metavar="REGEX",
        help="only rows whose names match; may be given more than once; docs stay as they are",
    )
    parser.add_argument("--list", action="store_true", help="names of the rows, and nothing else")
    parser.add_argument("--rate", type=float, metavar="PER_S", help="instead of the rows' own")
    parser.add_argument("--target", metavar="TTFT", help="instead of the rows' own")
    parser.add_argument("--arrivals", choices=[*Arrivals], help="instead of the rows' own")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once; default: 2")
    parser.add_argument("--json", metavar="FILE", help="write all figures there too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
