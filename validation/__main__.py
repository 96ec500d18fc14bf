"""`python -m validation`: plans, simulates, and shows both side by side."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from benchmarks.report import Machine
from validation.measure import RowResult, measure
from validation.rows import Arrivals, Row, design
from validation.simulated import Limits
from validation.text import lines

EXAMPLES: Final = """\
examples:
  python -m validation --list                               the rows there are
  python -m validation --rows 'qwen.* chat poisson 100/s'   those that match, shown
  python -m validation --rows 'qwen.* chat' --rate 300 --target 300ms+0.1ms/token
                                                            the same at another rate and target
  python -m validation --rows poisson --quick --json out.json
"""
QUICK: Final = Limits(first=30_000, most=300_000, most_for_p99=100_000)
_notes = Console(stderr=True, highlight=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    rows = list(_asked(design(), options))
    if not rows:
        parser.error("no row matches; --list shows them all")
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    limits = QUICK if options.quick else Limits()
    results = _measured(rows, limits, options.jobs)
    print("\n".join(lines(results)))
    if options.json:
        document = {"machine": Machine.this(), "rows": results}
        Path(options.json).write_bytes(msgspec.json.encode(document))
    return 0


def _measured(rows: list[Row], limits: Limits, jobs: int) -> list[RowResult]:
    """Results in the rows' order; those that take longest begin first."""
    began_s = time.monotonic()
    found: dict[str, RowResult] = {}
    with ProcessPoolExecutor(jobs) as workers:
        slow_first = sorted(rows, key=lambda row: row.rate_per_s, reverse=True)
        for future in as_completed([workers.submit(measure, row, limits) for row in slow_first]):
            result = future.result()
            found[result.name] = result
            passed_s = time.monotonic() - began_s
            _notes.print(f"{len(found)}/{len(rows)}  {passed_s:.0f} s  {result.name}")
    return [found[row.name] for row in rows]


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
        "--rows",
        action="append",
        metavar="REGEX",
        help="only rows whose names match; may be given more than once",
    )
    parser.add_argument("--list", action="store_true", help="names of the rows, and nothing else")
    parser.add_argument("--rate", type=float, metavar="PER_S", help="instead of the rows' own")
    parser.add_argument("--target", metavar="TTFT", help="instead of the rows' own")
    parser.add_argument("--arrivals", choices=[*Arrivals], help="instead of the rows' own")
    parser.add_argument("--quick", action="store_true", help="fewer requests: wider intervals")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once; default: 2")
    parser.add_argument("--json", metavar="FILE", help="write all figures there too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
