"""Figures as tables: what the page and the terminal show of each benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

import numpy as np

from benchmarks.digests import DigestFigures
from benchmarks.forecast import WAYS, TrafficFigures
from benchmarks.ingest import Comparison, Run
from benchmarks.peer import PACKAGE, Duel
from benchmarks.planner import PlannerFigures
from benchmarks.pools import MOST_POOLS, Gain, Gains
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
    """Searches by traffic, target and rate; then a row for each other case.

    Time a cell shows how it grows with the grid.
    """
    searches = [case for case in figures if "rate_per_s" in case.facts]
    clocks = dict.fromkeys(case.facts.get("clock", "wall") for case in searches)
    others = [case for case in figures if "rate_per_s" not in case.facts]
    facts = list(dict.fromkeys(fact for case in others for fact in case.facts))
    return [
        *(
            _searches(clock, [one for one in searches if one.facts.get("clock", "wall") == clock])
            for clock in clocks
        ),
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
                for case in others
            ],
        ),
    ]


def _searches(clock: str, figures: Sequence[PlannerFigures]) -> Table:
    """P50 and P99 at every rate."""
    rates = sorted({case.facts["rate_per_s"] for case in figures})
    cells = " and ".join(sorted({f"{case.cells:,}" for case in figures}))
    at = {
        (case.facts["traffic"], case.facts["target"], case.facts["rate_per_s"]): case
        for case in figures
    }
    return Table(
        f"Search of {cells} cells: P50 and P99 of {clock} time by requests/s",
        ("traffic, target", *(f"{rate:,.0f}" for rate in rates)),
        [
            (
                f"{traffic}, {target}",
                *(
                    f"{_duration(at[traffic, target, rate].median_s)}, "
                    f"{_duration(at[traffic, target, rate].p99_s)}"
                    for rate in rates
                ),
            )
            for traffic, target in dict.fromkeys(key[:2] for key in at)
        ],
    )


def peer_tables(version: str, duels: Sequence[Duel]) -> list[Table]:
    """Search, slot by slot, and replica by replica."""
    by_task = {
        task: [duel for duel in duels if duel.task == task] for task in ("sweep", "slots", "fleet")
    }
    search = Table(
        f"{PACKAGE} {version}: its sweep of 11 γ at one boundary, and our search of all cells",
        (
            "traffic, requests/s",
            "its P50",
            "its P99",
            "our cells",
            "our P50",
            "our P99",
            "faster",
            "per cell",
        ),
        [
            (
                _contest(duel),
                *map(_duration, _p50_p99(duel.theirs_s)),
                f"{duel.ours_units:,}",
                *map(_duration, _p50_p99(duel.ours_s)),
                f"{median(duel.theirs_s) / median(duel.ours_s):,.0f}×",
                f"{duel.ratio:,.0f}×",
            )
            for duel in by_task["sweep"]
        ],
    )
    return [
        search,
        _throughputs("Slots as servers, requests drawn and served a second", by_task["slots"]),
        _throughputs("Every replica's iterations, requests a second", by_task["fleet"]),
    ]


def _throughputs(title: str, duels: Sequence[Duel]) -> Table:
    return Table(
        title,
        ("traffic, requests/s", PACKAGE, "FleetOpt", "ratio", "measured"),
        [
            (
                _contest(duel),
                _rate(duel.theirs_units / median(duel.theirs_s)),
                _rate(duel.ours_units / median(duel.ours_s)),
                f"{duel.ratio:,.0f}×",
                f"{len(duel.theirs_s)} × {duel.theirs_units:,} and "
                f"{len(duel.ours_s)} × {duel.ours_units:,}",
            )
            for duel in duels
        ],
    )


def _contest(duel: Duel) -> str:
    return f"{duel.distribution}, {duel.rate_per_s:,.0f}"


def _p50_p99(times_s: Sequence[float]) -> tuple[float, float]:
    return float(np.quantile(times_s, 0.5)), float(np.quantile(times_s, 0.99))


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


def forecast_tables(figures: Sequence[TrafficFigures]) -> list[Table]:
    """What each method holds and costs, how its loss compares, and how long it takes."""
    ways = [way for way in WAYS if any(way in traffic.scores for traffic in figures)]
    held, losses, times = [], [], []
    for traffic in figures:
        scores = [traffic.scores.get(way) for way in ways]
        today = traffic.scores["recent_peak"]
        held.append(
            [
                traffic.name,
                f"{traffic.window:,} × {traffic.slice_s:g} s",
                *("–" if one is None else f"{one.covered:.0%} / {one.over:+.0%}" for one in scores),
            ]
        )
        losses.append(
            [
                traffic.name,
                str(traffic.origins),
                *("–" if one is None else f"{one.loss / today.loss:.2f}" for one in scores),
                ", ".join(
                    f"{name} {count}" for name, count in traffic.scores["chosen"].methods.items()
                ),
            ]
        )
        times.append(
            [traffic.name, *("–" if one is None else _duration(one.mean_s) for one in scores)]
        )
    return [
        Table(
            "Slices of the next 10 minutes that the planned rate holds (95 % asked for) / mean "
            "planned rate over what came",
            ("traffic", "window", *ways),
            held,
        ),
        Table(
            "Pinball loss against the recent peak's; which methods were chosen how often",
            ("traffic", "origins", *ways, "by backtest"),
            losses,
        ),
        Table("Wall time of a forecast", ("traffic", *ways), times),
    ]


def _duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1.0:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds * 1e9)} ns"


def pools_tables(figures: Sequence[Gains]) -> list[Table]:
    """The cheapest fleet of each number of pools, and what it gains over fewer."""
    pools = range(1, MOST_POOLS + 1)
    return [
        Table(
            "USD/h of the cheapest fleet of so many pools, its gain over fewer pools, and the "
            "share of requests that it compresses",
            ("traffic, target", *(str(count) for count in pools), "worth it", "wall time"),
            [
                (
                    one.name,
                    *(_gain(gain) for gain in one.gains),
                    str(one.worth_pools),
                    _duration(one.wall_s),
                )
                for one in figures
            ],
        )
    ]


def _gain(one: Gain) -> str:
    if one.cost_usd_per_h is None:
        return "–"
    said = f"{one.cost_usd_per_h:,.2f}"
    if one.gain_ratio is not None:
        said += f" ({round(100 * one.gain_ratio, 1) + 0.0:.1f} %)"  # no minus before a zero
    if one.compressed_share:
        said += f", {one.compressed_share:.0%} compressed"
    return said
