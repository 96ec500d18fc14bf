"""Figures as tables: what the page and the terminal show of each benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from benchmarks.digests import DigestFigures
from benchmarks.ingest import Comparison, Run
from benchmarks.planner import PlannerFigures
from benchmarks.regret import Regret
from benchmarks.report import Table
from fleetopt.connectors.producer import ROWS_PER_BATCH, MessageShape

_SHAPES: Final = {
    MessageShape.BATCH: f"columnar batches (MessagePack × {ROWS_PER_BATCH})",
    MessageShape.RECORD: "one JSON record a message",
}
_CONTENDERS: Final = {
    "worker": "FleetOpt worker",
    "getmany": "aiokafka getmany",
    "agent": "Faust agent",
}


def ingest_tables(comparisons: Iterable[Comparison]) -> list[Table]:
    """One table for each broker and message shape."""
    return [
        Table(
            f"{comparison.broker}, {comparison.fleets:,} fleets, {_SHAPES[comparison.shape]}, "
            f"{comparison.bytes_per_record:.0f} B a record",
            (
                "reader",
                "records/CPU-s",
                "lowest … highest",
                "worker is",
                "records/s wall",
                "start-up CPU",
                "measured",
            ),
            [
                (
                    _CONTENDERS[contender],
                    _rate(median(run.per_cpu_s for run in runs)),
                    _spread(runs),
                    "" if contender == "worker" else f"{comparison.ratio(contender):.2f}×",
                    _rate(median(run.per_s for run in runs)),
                    f"{median(run.start_up_cpu_s for run in runs):.2f} s",
                    f"{len(runs)} × {runs[0].records:,}",
                )
                for contender, runs in comparison.runs.items()
            ],
        )
        for comparison in comparisons
    ]


def _spread(runs: Sequence[Run]) -> str:
    rates = [run.per_cpu_s for run in runs]
    return f"{_rate(min(rates))} … {_rate(max(rates))}"


def _rate(per_s: float) -> str:
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if per_s >= factor:
            return f"{_three_digits(per_s / factor)}{unit}"
    return _three_digits(per_s)


def _three_digits(value: float) -> str:
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}"


def sketch_tables(figures: Sequence[DigestFigures], values: int) -> list[Table]:
    """One table, a column for each library."""
    rows: list[list[str]] = [
        [name, *(_duration(getattr(digest, key)) for digest in figures)]
        for name, key in (
            ("update, one value", "update_s"),
            (f"batch update of {ROWS_PER_BATCH}, a value", "batch_update_s"),
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
    """One table, a row for each case; time a cell shows how it grows with the grid."""
    facts = list(dict.fromkeys(fact for case in figures for fact in case.facts))
    return [
        Table(
            "Planner",
            ("case", "cells", "median", "P99", "slowest", "median a cell", "rounds", *facts),
            [
                (
                    case.name,
                    "" if case.cells is None else f"{case.cells:,}",
                    _duration(case.median_s),
                    _duration(case.p99_s),
                    _duration(case.max_s),
                    "" if case.cells is None else _duration(case.median_s / case.cells),
                    f"{case.rounds:,}",
                    *(str(case.facts.get(fact, "")) for fact in facts),
                )
                for case in figures
            ],
        )
    ]


def regret_tables(regrets: Sequence[Regret]) -> list[Table]:
    """What each workload costs more at the highest rate; then the worst of each rate."""
    highest = max(one.rate_per_s for one in regrets)
    kinds = list(dict.fromkeys((one.admission, one.gamma_max) for one in regrets))
    at_highest = {
        (one.profile, one.workload, one.admission, one.gamma_max): one
        for one in regrets
        if one.rate_per_s == highest
    }
    names = list(dict.fromkeys((one.profile, one.workload) for one in regrets))
    by_workload = Table(
        f"Cost above brute force at {highest:,.0f} requests/s, and of it the choice of B and γ",
        ("engine, traffic", *(f"{admission}, γ ≤ {gamma:g}" for admission, gamma in kinds)),
        [
            (", ".join(name), *(_regret(at_highest[(*name, *kind)]) for kind in kinds))
            for name in names
        ],
    )
    rates = sorted({one.rate_per_s for one in regrets})
    by_rate = Table(
        "Fleets that cost more than 1 % and one replica above brute force",
        ("requests/s", "fleets", "over 1 %", "and one replica", "worst of these", "in replicas"),
        [_over(rate, [one for one in regrets if one.rate_per_s == rate]) for rate in rates],
    )
    return [by_workload, by_rate]


def _regret(one: Regret) -> str:
    return f"{_percent(one.planned_ratio)} ({_percent(one.choice_ratio)})"


def _percent(ratio: float) -> str:
    return f"{ratio * 100.0:+z.2f} %"


def _over(rate_per_s: float, regrets: Sequence[Regret]) -> Sequence[str]:
    exceeding = [one for one in regrets if one.exceeds(0.01)]
    worst = max(exceeding, key=lambda one: one.planned_ratio, default=None)
    return (
        f"{rate_per_s:,.0f}",
        str(len(regrets)),
        str(sum(one.planned_ratio > 0.01 for one in regrets)),
        str(len(exceeding)),
        "" if worst is None else f"{_percent(worst.planned_ratio)}: {worst.workload}",
        "" if worst is None else f"{worst.replicas:.1f}",
    )


def _duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1.0:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds * 1e9)} ns"
