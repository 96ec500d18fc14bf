"""Figures as tables: what the page and the terminal show of each benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from benchmarks.digests import DigestFigures
from benchmarks.ingest import Comparison, Run
from benchmarks.planner import PlannerFigures
from benchmarks.report import Table
from fleetopt.connectors.producer import ROWS_PER_BATCH, MessageShape

_SHAPES: Final = {
    MessageShape.BATCH: f"columnar batches (MessagePack × {ROWS_PER_BATCH}, lz4)",
    MessageShape.RECORD: "one JSON record a message (lz4)",
}
_CONTENDERS: Final = {
    "worker": "FleetOpt worker: decode, sketch, durable state",
    "getmany": "bare aiokafka `getmany` loop: decode",
    "agent": "plain Faust agent: decode",
}


def ingest_tables(comparisons: Iterable[Comparison]) -> list[Table]:
    """One table for each broker and message shape."""
    return [
        Table(
            f"{comparison.broker}, {_SHAPES[comparison.shape]}, "
            f"{comparison.bytes_per_record:.0f} B a record before lz4",
            (
                "reader",
                "records/CPU-s, median",
                "lowest … highest",
                "worker is",
                "records/s of wall time",
                "start-up, CPU-s",
                "records × rounds",
            ),
            [
                (
                    _CONTENDERS[contender],
                    f"{median(run.per_cpu_s for run in runs):,.0f}",
                    _spread(runs),
                    "" if contender == "worker" else f"{comparison.ratio(contender):.2f}×",
                    f"{median(run.per_s for run in runs):,.0f}",
                    f"{median(run.start_up_cpu_s for run in runs):.2f}",
                    f"{runs[0].records:,} × {len(runs)}",
                )
                for contender, runs in comparison.runs.items()
            ],
        )
        for comparison in comparisons
    ]


def _spread(runs: Sequence[Run]) -> str:
    rates = [run.per_cpu_s for run in runs]
    return f"{min(rates):,.0f} … {max(rates):,.0f}"


def sketch_tables(figures: Sequence[DigestFigures], values: int) -> list[Table]:
    """One table, a column for each library."""
    rows: list[list[str]] = [
        [name, *(_duration(getattr(digest, key)) for digest in figures)]
        for name, key in (
            ("`update`, one value", "update_s"),
            (f"`batch_update` of {ROWS_PER_BATCH}, a value", "batch_update_s"),
            ("quantile", "quantile_s"),
            ("CDF", "cdf_s"),
            ("merge of two halves", "merge_s"),
        )
    ]
    rows.append(["centroids", *(str(digest.centroids) for digest in figures)])
    rows += [
        [f"rank error at {q:g}", *(f"{digest.rank_errors[q]:.5f}" for digest in figures)]
        for q in figures[0].rank_errors
    ]
    return [
        Table(
            f"t-digest of {values:,} request lengths, CPU time",
            ("operation", *(digest.library for digest in figures)),
            rows,
        )
    ]


def planner_tables(figures: Sequence[PlannerFigures]) -> list[Table]:
    """One table, a row for each case."""
    return [
        Table(
            "Planner",
            ("case", "cells", "median", "P99", "slowest", "rounds"),
            [
                (
                    case.name,
                    "" if case.cells is None else f"{case.cells:,}",
                    _duration(case.median_s),
                    _duration(case.p99_s),
                    _duration(case.max_s),
                    f"{case.rounds:,}",
                )
                for case in figures
            ],
        )
    ]


def _duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
