"""`python -m benchmarks`: measures, shows, and writes the tables of docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec
from rich.console import Console

from benchmarks import (
    compression,
    compression_corpus,
    compression_pool,
    compression_speed,
    compression_tables,
    digests,
    forecast,
    gate,
    ingest,
    peer,
    planner,
    pools,
    regret,
    report,
    route,
    tables,
)
from benchmarks.counted import MismatchError
from benchmarks.sieve import measure as sieve
from fleetopt.errors import FleetOptError
from fleetopt.pipeline.embedded import EmbeddedBroker, EmbeddedRedis
from scripts.apache_kafka import ApacheKafka, missing_tools

EXAMPLES: Final = """\
examples:
  python -m benchmarks                          everything into docs/, 30 to 40 minutes
  python -m benchmarks --quick                  everything, small, shown only, under 2 minutes
  python -m benchmarks ingest --kafka apache    ingest from Apache Kafka only (needs Java and Maven)
  python -m benchmarks peer                     the published simulator beside ours; installs it
  python -m benchmarks sketch --output json     the t-digests' figures as JSON on standard output
"""

Measure = Callable[[argparse.Namespace], tuple[Any, list[report.Table]]]
_WIDTH: Final = 110
_notes = Console(stderr=True, highlight=False, soft_wrap=True)


def measure_planner(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Time the planner's search."""
    figures = planner.measure(max_time_s=0.05 if options.quick else 1.0)
    return figures, tables.planner_tables(figures)


def measure_pools(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Find what each further pool gains."""
    figures = pools.measure(quick=options.quick)
    if not figures:
        _notes.print(f"{forecast.TRACES} is not there: pools are left out")
    return figures, tables.pools_tables(figures) if figures else []


def measure_regret(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Price the planner's fleets beside those of brute force."""
    if not regret.SHARED_DATA.is_dir():
        _notes.print(f"{regret.SHARED_DATA} is not there: generated traffic only")
    figures = regret.measure(quick=options.quick)
    return figures, tables.regret_tables(figures)


def measure_peer(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Measure the published fleet simulator and FleetOpt in turns."""
    sizes = peer.QUICK if options.quick else peer.FULL
    version, duels = peer.measure(sizes, _notes.print)
    return {"version": version, "duels": duels}, tables.peer_tables(version, duels)


def measure_forecast(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Hold the planned rates against what came."""
    figures = forecast.measure(forecast.QUICK_ORIGINS if options.quick else forecast.ORIGINS)
    return figures, tables.forecast_tables(figures)


def measure_sketch(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Time the two t-digests."""
    values = 4_000 if options.quick else 20_000
    figures = digests.measure(values)
    return figures, tables.sketch_tables(figures, values)


def measure_ingest(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Measure the worker and its baselines on each broker asked for."""
    sizes = ingest.QUICK if options.quick else ingest.FULL
    comparisons: list[ingest.Comparison] = []
    for broker in _brokers(options):
        if comparisons:  # what many fleets cost is the worker's affair, whatever the broker
            sizes = replace(sizes, many_fleets_records=0)
        with _services(broker) as (bootstrap_servers, redis_url):
            comparisons += ingest.compare(
                _BROKERS[broker], bootstrap_servers, redis_url, sizes, _notes.print
            )
    return comparisons, tables.ingest_tables(comparisons)


def measure_compression(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Find what compressed prompts still hold."""
    if not compression_corpus.SHARED_DATA.is_dir():
        _notes.print(f"{compression_corpus.SHARED_DATA} is not there: generated text only")
    figures = compression.measure(compression.QUICK if options.quick else compression.FULL)
    return figures, compression_tables.fidelity_tables(figures)


def measure_gate(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Hold what the content gate takes texts and lines for against what they are."""
    return None, gate.gate_tables(gate.measure_half(tuning=options.quick))


def measure_compression_speed(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Time compressions, beside sumy's."""
    if not compression_speed.is_possible():
        _notes.print(f"{compression_corpus.SHARED_DATA} is not there: nothing is timed")
        return None, []
    sizes = compression_speed.QUICK if options.quick else compression_speed.FULL
    figures = compression_speed.measure(sizes, _notes.print)
    return figures, compression_tables.speed_tables(figures)


def measure_compression_pool(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Time compressions through Kafka, and send more than can be done."""
    sizes = compression_pool.QUICK if options.quick else compression_pool.FULL
    with EmbeddedBroker() as broker:
        figures = compression_pool.measure(broker.bootstrap_servers, sizes, _notes.print)
    return figures, compression_tables.pool_tables(figures)


def measure_route(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Time a gateway's routing decision."""
    figures = route.measure(repeats=3 if options.quick else 9)
    return figures, route.route_tables(figures)


def measure_sieve(options: argparse.Namespace) -> tuple[Any, list[report.Table]]:
    """Compare policies of profiling on the reference grids."""
    figures = sieve.measure(sieve.QUICK_ORDERS if options.quick else sieve.ORDERS)
    return figures, sieve.sieve_tables(figures)


BENCHMARKS: Final[dict[str, Measure]] = {
    "sketch": measure_sketch,
    "ingest": measure_ingest,
    "planner": measure_planner,
    "route": measure_route,
    "pools": measure_pools,
    "forecast": measure_forecast,
    "regret": measure_regret,
    "peer": measure_peer,
    "gate": measure_gate,
    "compression": measure_compression,
    "compression-speed": measure_compression_speed,
    "compression-pool": measure_compression_pool,
    "sieve": measure_sieve,
}
_BROKERS: Final = {"embedded": "Embedded broker (Tansu)", "apache": "Apache Kafka"}


def _brokers(options: argparse.Namespace) -> list[str]:
    if options.kafka != "auto":
        return [options.kafka]
    missing = missing_tools()
    if missing or options.quick:
        _notes.print(f"Apache Kafka is left out: {missing + ' is missing' if missing else 'quick'}")
        return ["embedded"]
    return ["embedded", "apache"]


@contextmanager
def _services(broker: str) -> Iterator[tuple[str, str]]:
    """Start a broker and a Redis of our own: it is emptied again and again."""
    with ExitStack() as stack:
        node = ApacheKafka() if broker == "apache" else EmbeddedBroker()
        stack.enter_context(node)
        server = stack.enter_context(EmbeddedRedis())
        yield node.bootstrap_servers, server.url


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: choose {', '.join(BENCHMARKS)}")
    machine = report.Machine.this()
    results: dict[str, Any] = {}
    try:
        for name in options.names or BENCHMARKS:
            _notes.print(f"[bold]{name}[/bold]")
            figures, shown = BENCHMARKS[name](options)
            results[name] = figures
            if options.output == "table":
                for table in shown:
                    table.show(Console(width=_WIDTH))
            if shown and not options.quick:
                report.write(name, shown, machine, report.page_of(name))
    except (FleetOptError, RuntimeError, MismatchError, report.PageError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    if options.output == "json":
        print(msgspec.json.encode({"machine": machine, "results": results}).decode())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure FleetOpt on this machine and write the tables that docs/ shows.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)}; all if none is named"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to try it; docs stay as they are"
    )
    parser.add_argument(
        "--kafka",
        choices=["auto", *_BROKERS],
        default="auto",
        help="broker for ingest; auto: the embedded one and, with Java and Maven, Apache Kafka too",
    )
    parser.add_argument("--output", choices=["table", "json"], default="table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
