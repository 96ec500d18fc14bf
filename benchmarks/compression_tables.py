"""What the page shows of compressed prompts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.compression import DUPLICATED_KEEP, KEEPS, METHODS, Figures
from benchmarks.compression_pool import Figures as PoolFigures
from benchmarks.compression_pool import Round
from benchmarks.compression_speed import RIVALS, Timing
from benchmarks.compression_speed import Figures as SpeedFigures
from benchmarks.report import Table
from fleetopt.compressor.outcome import Stage


def fidelity_tables(figures: Figures) -> list[Table]:
    """Survival by corpus, retention, and unique units."""
    tables = [_survival(figures)]
    if figures.retention:
        tables.append(_retention(figures))
    if figures.unique_units:
        tables.append(
            Table(
                f"Every passage twice, keep {DUPLICATED_KEEP}: unique units kept, %",
                ("", *figures.unique_units),
                [("XQuAD English", *map(_percent, figures.unique_units.values()))],
            )
        )
    return tables


def _survival(figures: Figures) -> Table:
    found = {(one.corpus, one.method, one.keep): one for one in figures.survival}
    corpora = dict.fromkeys(one.corpus for one in figures.survival)
    return Table(
        f"Answers that survive at keep {' / '.join(map(str, KEEPS))}, %",
        ("corpus", *METHODS, "contexts"),
        [
            (
                corpus,
                *(
                    " / ".join(_percent(found[corpus, method, keep].survived) for keep in KEEPS)
                    for method in METHODS
                ),
                str(found[corpus, "FleetOpt", KEEPS[0]].cases),
            )
            for corpus in corpora
        ],
    )


def _retention(figures: Figures) -> Table:
    def row(name: str, shares: Sequence[tuple[str, float, float]]) -> Sequence[str]:
        by = {(method, keep): share for method, keep, share in shares}
        return (
            name,
            *(" / ".join(_percent(by[method, keep]) for keep in KEEPS) for method in METHODS),
        )

    kept = figures.retention
    return Table(
        f"Kept of XQuAD English at keep {' / '.join(map(str, KEEPS))}, %",
        ("", *METHODS),
        [
            row("numbers", [(one.method, one.keep, one.numbers) for one in kept]),
            row("names", [(one.method, one.keep, one.names) for one in kept]),
            row("once-only words", [(one.method, one.keep, one.once_only_words) for one in kept]),
        ],
    )


def speed_tables(figures: SpeedFigures) -> list[Table]:
    """Times by size, ours and the rivals', and where ours goes."""
    growth = ", ".join(f"{name} n^{power:.2f}" for name, power in figures.growth.items())
    return [
        Table(
            f"Time of one compression to keep 0.67 (growth: {growth})",
            (
                "prompt",
                "tokens",
                "units",
                "p50",
                "p90",
                *(f"sumy {name}" for name in RIVALS),
                *(f"{name} takes" for name in RIVALS),
            ),
            [
                (
                    one.language,
                    f"{one.tokens:,}",
                    f"{one.units:,}",
                    _milliseconds(one.median_s),
                    _milliseconds(one.p90_s),
                    *(_rival(one, name) for name in RIVALS),
                    *(_ratio(one, name) for name in RIVALS),
                )
                for one in figures.timings
            ],
        ),
        Table(
            "Where the time goes (medians)",
            ("prompt", "tokens", *(stage.value for stage in Stage)),
            [
                (
                    one.language,
                    f"{one.tokens:,}",
                    *(_milliseconds(one.stage_s[stage]) for stage in Stage),
                )
                for one in figures.timings
            ],
        ),
    ]


def _rival(timing: Timing, name: str) -> str:
    times = timing.rivals_s.get(name)
    return _milliseconds(median(times)) if times else "–"


def _ratio(timing: Timing, name: str) -> str:
    times = timing.rivals_s.get(name)
    return f"{median(times) / timing.median_s:,.0f}×" if times else "–"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0")


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms"


def pool_tables(figures: PoolFigures) -> list[Table]:
    """Time through Kafka by round, and what became of prompts in an overload."""
    rounds, overload = figures.rounds, figures.overload
    best = min(rounds, key=lambda one: one.quantile(0.99))
    return [
        Table(
            f"Through Kafka, {rounds[0].per_s:g} prompts/s of {figures.tokens:,} tokens: ms from "
            "sending a prompt to its answer",
            ("round", "p50", "p99", "longest", "answered", "load before"),
            [
                (
                    f"{number}{' (best)' if one is best else ''}",
                    *(_ms(one.quantile(share)) for share in (0.5, 0.99, 1.0)),
                    f"{len(one.took_s):,} of {sum(one.outcomes.values()):,}",
                    f"{one.load:.1f}",
                )
                for number, one in enumerate(rounds, start=1)
            ],
        ),
        Table(
            f"{overload.per_s:g} prompts/s, {sum(overload.outcomes.values()):,} in all, each with "
            f"{1e3 * overload.within_s:.0f} ms",
            ("what became of them", "prompts"),
            [(what, f"{count:,}") for what, count in _fates(overload)],
        ),
        Table(
            "Memory and event loop",
            ("", "usual", "overload"),
            [
                (
                    "compressor with its processes (PSS), MB",
                    f"{max(one.memory_bytes for one in rounds) / 1e6:.0f}",
                    f"{overload.memory_bytes / 1e6:.0f}",
                ),
                (
                    "event loop late by at most, ms",
                    _ms(max(one.lag_s for one in rounds)),
                    _ms(overload.lag_s),
                ),
                (
                    "of it over work of its own, ms",
                    _ms(max(one.blocked_s for one in rounds)),
                    _ms(overload.blocked_s),
                ),
            ],
        ),
    ]


def _fates(overload: Round) -> list[tuple[str, int]]:
    outcomes = overload.outcomes
    answered = [(what, count) for what, count in outcomes.items() if what != "none"]
    return [
        *((f"answered `{what}`", count) for what, count in sorted(answered)),
        ("no answer: past the deadline when it was read", overload.expired),
        (
            "no answer: Kafka did not take it in time",
            outcomes.get("none", 0) - overload.expired - overload.lost,
        ),
        ("lost", overload.lost),
    ]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"
