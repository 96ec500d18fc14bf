"""The summary of a run: how many pools hold each goal, the worst, and where the model fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.report import Table
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX
from validation.cheapest import WITHIN, Answer, Kind
from validation.failures import Case, causes, facts_of
from validation.measure import (
    FEWEST_REPLICAS,
    OCCUPANCY_WITHIN,
    P99_ABOVE,
    P99_BELOW,
    UTILIZATION_WITHIN,
    PoolResult,
    RowResult,
    Verdict,
)
from validation.rows import PAPER, Arrivals
from validation.simulated import P99_WITHIN

OFTEN_PREEMPTED: Final = 0.001
"""The preemption probability that plans are asked for."""

_WORST: Final = 5
Pair = tuple[RowResult, PoolResult]


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that is predicted, and how it is judged."""

    name: str
    text: str
    error: Callable[[PoolResult], float]
    verdict: Callable[[PoolResult], Verdict]


GOALS: Final = (
    Goal(
        "Utilisation",
        f"within {UTILIZATION_WITHIN:.0%} of slot level",
        lambda pool: pool.utilization_error,
        lambda pool: pool.utilization,
    ),
    Goal(
        "Slot occupancy",
        f"within {OCCUPANCY_WITHIN:.0%} of iteration level",
        lambda pool: pool.occupancy_error,
        lambda pool: pool.occupancy,
    ),
    Goal(
        "P99 TTFT",
        f"{-P99_BELOW:+.0%} to {P99_ABOVE:+.0%} of iteration level",
        lambda pool: pool.p99_error,
        lambda pool: pool.p99,
    ),
)


def counted(results: Iterable[RowResult]) -> list[Pair]:
    """The pools that are held to the goals."""
    return [(one, pool) for one in results for pool in one.pools if pool.is_counted]


def summary(results: Sequence[RowResult]) -> str:
    """The page's first section."""
    pairs = counted(results)
    everyone = [(one, pool) for one in results for pool in one.pools]
    plans = sum(not one.infeasible for one in results)
    requests = sum(pool.simulated.requests for _, pool in everyone)
    lines = [
        f"{plans} plans of {len(results)} rows, {len(everyone)} pools, {len(pairs)} of them with "
        f"{FEWEST_REPLICAS} replicas or more; {requests / 1e6:.0f} million requests measured.",
        _goals(pairs).markdown(),
        _by_kind(pairs).markdown(),
        "\n".join(f"- {line}" for line in _facts(results, everyone)),
        _worst(pairs).markdown(),
        "**Where the model fails**",
        _failures(pairs),
    ]
    return "\n\n".join(line for line in lines if line)


def fleets_summary(answers: Sequence[Answer]) -> str:
    """What the table of fleets comes to."""
    met = [one for one in answers if one.planned_over_best <= WITHIN and one.is_accepted]
    one_pool, compressed = Kind.ONE_POOL.value, Kind.COMPRESSED.value

    def saves(one: Answer, kind: str, over: Sequence[str]) -> float:
        dearest = min(one.cheapest[name].cost_usd_per_h for name in over)
        return 1.0 - one.cheapest[kind].cost_usd_per_h / dearest

    lines = []
    for word, chosen in (
        ("constant", [one for one in answers if "token" not in one.row.target]),
        ("length-aware", [one for one in answers if "token" in one.row.target]),
    ):
        if not chosen:
            continue
        two = [saves(one, Kind.TWO_POOLS.value, (one_pool,)) for one in chosen]
        more = [saves(one, compressed, (one_pool, Kind.TWO_POOLS.value)) for one in chosen]
        lines.append(
            f"- Under {word} targets two pools save {_span(two)} of one pool's cost, and "
            f"compression {_span(more)} of what is cheaper of both."
        )
    lines.append(
        f"- The planner's choice is accepted and within {WITHIN:.0%} of the cheapest fleet found "
        f"in {len(met)} of {len(answers)} cases, and accepted and within one replica in "
        f"{sum(one in met or (one.is_accepted and one.more_replicas <= 1) for one in answers)}."
    )
    for one in answers:
        if one not in met:
            name = f"{one.row.traffic} {one.row.rate_per_s:g}/s, {one.row.target}"
            verdict = "accepted" if one.is_accepted else "not accepted"
            lines.append(
                f"  - {name}: {verdict}, {one.planned_over_best:+.1%} "
                f"({one.more_replicas:+d} replicas)."
            )
    return "\n".join(lines)


def _span(shares: Sequence[float]) -> str:
    low, high = (round(share, 2) + 0.0 for share in (min(shares), max(shares)))
    return f"{low:.0%} to {high:.0%}"


def _goals(pairs: Sequence[Pair]) -> Table:
    lines = []
    for goal in GOALS:
        errors = sorted(goal.error(pool) for _, pool in pairs)
        verdicts = [goal.verdict(pool) for _, pool in pairs]
        holds = verdicts.count(Verdict.HOLDS)
        lines.append(
            (
                goal.name,
                goal.text,
                f"{holds} of {len(pairs)}",
                f"{holds / max(len(pairs), 1):.0%}",
                str(verdicts.count(Verdict.LOW)),
                str(verdicts.count(Verdict.HIGH)),
                f"{errors[0]:+.1%}" if errors else "",
                f"{median(errors):+.1%}" if errors else "",
                f"{errors[-1]:+.1%}" if errors else "",
            )
        )
    return Table(
        "Goals",
        ("figure", "goal", "hold", "", "too low", "too high", "lowest", "median", "highest"),
        lines,
    )


def _by_kind(pairs: Sequence[Pair]) -> Table:
    lines = []
    for engine in ("paper's engine", "silicon"):
        for arrivals in Arrivals:
            chosen = [
                pool
                for one, pool in pairs
                if (one.row.engine == PAPER) == (engine == "paper's engine")
                and one.row.arrivals is arrivals
            ]
            if chosen:
                ratios = sorted(1.0 + pool.p99_error for pool in chosen)
                held = [
                    f"{sum(goal.verdict(pool) is Verdict.HOLDS for pool in chosen)}"
                    for goal in GOALS
                ]
                spread = f"{ratios[0]:.2f} … {median(ratios):.2f} … {ratios[-1]:.2f}"
                lines.append((f"{engine}, {arrivals}", str(len(chosen)), *held, spread))
    names = (goal.name for goal in GOALS)
    return Table(
        "Pools that hold each goal, by engine and arrivals",
        ("", "pools", *names, "P99 ratio: lowest … median … highest"),
        lines,
    )


def _facts(results: Sequence[RowResult], pairs: Sequence[Pair]) -> Iterable[str]:
    diverging = [(one, pool) for one, pool in pairs if pool.simulated.is_diverging]
    names = "".join(f"; {one.name} ({pool.name})" for one, pool in diverging)
    yield f"Diverging queues: {len(diverging)} of {len(pairs)} pools{names}."
    missed = [(one, pool) for one, pool in pairs if not pool.meets_target]
    yield (
        f"Target missed in simulation (by more than {TTFT_VIOLATIONS_MAX:.0%} of the requests): "
        f"{len(missed)} of {len(pairs)} pools"
        + "".join(
            f"; {one.name} ({pool.name}, {pool.simulated.violation_share:.2%})"
            for one, pool in missed
        )
        + "."
    )
    preempted = [pool.simulated.preempted_share for _, pool in pairs]
    often = sum(share > OFTEN_PREEMPTED for share in preempted)
    yield (
        f"Preempted requests: {max(preempted, default=0.0):.2%} at most; more than "
        f"{OFTEN_PREEMPTED:.1%} in {often} of {len(pairs)} pools."
    )
    wide = sum(pool.simulated.p99_error > P99_WITHIN for _, pool in pairs)
    yield (
        f"Simulated P99s with an interval wider than ± {P99_WITHIN:.0%}: {wide} pools. There the "
        "model has the benefit of the doubt."
    )
    none = [one for one in results if one.infeasible]
    if none:
        yield "No plan: " + "; ".join(f"{one.name} ({one.infeasible})" for one in none) + "."


def _worst(pairs: Sequence[Pair]) -> Table:
    lines = []
    for goal in GOALS:
        ranked = sorted(pairs, key=lambda pair, goal=goal: -abs(goal.error(pair[1])))  # type: ignore[misc]
        for number, (one, pool) in enumerate(ranked[:_WORST]):
            name = goal.name if number == 0 else ""
            lines.append((name, f"{goal.error(pool):+.1%}", one.name, pool.name))
    return Table("The worst of each", ("figure", "error", "row", "pool"), lines)


def _failures(pairs: Sequence[Pair]) -> str:
    lines = []
    for goal in GOALS:
        for verdict, word in ((Verdict.LOW, "too low"), (Verdict.HIGH, "too high")):
            cases = [
                Case(facts_of(one, pool), goal.error(pool), goal.verdict(pool) is verdict)
                for one, pool in pairs
            ]
            failing = sum(case.fails for case in cases)
            if not failing:
                lines.append(f"- {goal.name} is never {word}.")
                continue
            lines.append(f"- {goal.name} is {word} in {failing} of {len(pairs)} pools:")
            lines += [f"  - {cause.sentence()}." for cause in causes(cases)]
    return "\n".join(lines)
