"""Many plans in one table and as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.measure import Measurement

from fleetopt.cli.output import console, cost, percent, seconds, table, tokens
from fleetopt.cli.plan_text import bullets, request_json, traffic_json
from fleetopt.planner.plan import Infeasible
from fleetopt.planner.target import gap_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from fleetopt.cli.traffic import Traffic
    from fleetopt.cli.whatif import Row
    from fleetopt.planner.plan import Plan

_UNBOUNDED: Final = 10_000

SWEPT: Final = ("slo_ttft_p99", "short_profile", "long_profile", "gamma_max")


@dataclass(frozen=True, slots=True)
class Line:
    """A row beside the others of the same rate."""

    row: Row
    saving_ratio: float | None  # against the first that has a fleet; None for that one
    is_cheapest: bool


def lines(rows: Sequence[Row], *, is_sorted: bool) -> list[Line]:
    """Return the rows as given, or the cheapest first and those without a fleet last."""
    first: dict[float, Row] = {}
    cheapest: dict[float, Row] = {}
    for row in rows:
        if math.isfinite(row.minimised_per_h):
            rate = row.arrival_rate_per_s
            first.setdefault(rate, row)
            if row.minimised_per_h < cheapest.setdefault(rate, row).minimised_per_h:
                cheapest[rate] = row
    made = [
        Line(
            row,
            _saving(row, first.get(row.arrival_rate_per_s)),
            cheapest.get(row.arrival_rate_per_s) is row,
        )
        for row in rows
    ]
    return sorted(made, key=lambda line: line.row.minimised_per_h) if is_sorted else made


def _saving(row: Row, first: Row | None) -> float | None:
    if first is None or row is first or not math.isfinite(row.minimised_per_h):
        return None
    return 1.0 - row.minimised_per_h / first.minimised_per_h


def as_json(rows: Sequence[Row], traffic: Traffic, *, is_sorted: bool) -> dict[str, Any]:
    """Return what `--output json` prints: a row a combination, unknown figures as null."""
    given = request_json(rows[0].request)
    return {
        "traffic": traffic_json(traffic),
        "request": {name: given[name] for name in given if name not in SWEPT},
        "rows": [
            {
                "arrival_rate_per_s": line.row.arrival_rate_per_s,
                **{name: request_json(line.row.request)[name] for name in SWEPT},
                **_figures(line.row.found),
                "saving_ratio": line.saving_ratio,
                "is_cheapest": line.is_cheapest,
            }
            for line in lines(rows, is_sorted=is_sorted)
        ],
    }


def _figures(found: Plan | Infeasible) -> dict[str, Any]:
    if isinstance(found, Infeasible):
        tightest = None if found.tightest_slo is None else str(found.tightest_slo)
        return {
            "status": "infeasible",
            "reason": found.reason,
            "message": found.message,
            "tightest_slo_ttft_p99": tightest,
        } | dict.fromkeys(_FLEET)
    short, long = found.short, found.long
    fleet = (
        found.boundary_tokens,
        found.gamma,
        found.short_replicas,
        found.long_replicas,
        found.gpus,
        found.cost_usd_per_h,
        short.ttft_p99_s,
        None if long is None else long.ttft_p99_s,
        found.minimised_per_h,
        found.power_w,
        found.carbon_kg_per_h,
        found.tokens_per_joule,
    )
    reasons = dict.fromkeys(("reason", "message", "tightest_slo_ttft_p99"))
    return {"status": "ok", **reasons, **dict(zip(_FLEET, fleet, strict=True))}


_FLEET: Final = (
    "boundary_tokens",
    "gamma",
    "short_replicas",
    "long_replicas",
    "gpus",
    "cost_usd_per_h",
    "short_ttft_p99_s",
    "long_ttft_p99_s",
    "minimised_per_h",
    "power_w",
    "carbon_kg_per_h",
    "tokens_per_joule",
)


def describe(rows: Sequence[Row], traffic: Traffic, *, is_sorted: bool) -> None:
    """Print the table for a reader; what is the same in all rows stands above it."""
    out = console()
    axes = {name: {show(row) for row in rows} for name, show in AXES.items()}
    varied = [name for name, values in axes.items() if len(values) > 1]
    what = f"{tokens(traffic.requests)} requests" if traffic.requests else "CDF"
    same = [f"{name} {values.pop()}" for name, values in axes.items() if name not in varied]
    out.print(
        f"Fleets for {traffic.source} ({what}): " + ", ".join(same).replace("\n", " "),
        soft_wrap=True,
    )
    shown = lines(rows, is_sorted=is_sorted)
    made = _table(shown, varied)
    if Measurement.get(out, out.options.update(max_width=_UNBOUNDED), made).maximum > out.width:
        made = _narrow_table(shown, varied)
    out.print(made)
    rates = len(axes["requests/s"]) > 1
    bullets(
        out,
        "Read",
        [
            "replicas and P99 TTFT: short + long pool; one figure is one pool on the long engine",
            "saved: against the first combination"
            + (" at the same rate; *: the cheapest of its rate" if rates else "; *: the cheapest"),
        ],
    )
    bullets(out, "Assumed", traffic.assumptions)
    bullets(out, "Left out", traffic.notes)


def _table(shown: Sequence[Line], varied: Sequence[str]) -> Table:
    made = table(*(varied or [""]), *_columns(shown))
    for line in shown:
        made.add_row(*([AXES[name](line.row) for name in varied] or [""]), *_cells(line))
    return made


def _narrow_table(shown: Sequence[Line], varied: Sequence[str]) -> Table:
    """Return the table with what varies in one column, below each other."""
    made = table("if", *_columns(shown))
    made.padding = (0, 0, 0, 0)
    for line in shown:
        what = [
            AXES[name](line.row) if name == "engine" else f"{name} {AXES[name](line.row)}"
            for name in varied
        ]
        made.add_row("\n".join(what), *_cells(line))
    return made


def _cells(line: Line) -> list[str]:
    found = line.row.found
    if isinstance(found, Infeasible):
        tightest = found.tightest_slo
        why = f"needs {tightest}" if tightest else found.reason.value.replace("_", " ")
        if tightest is None and found.tightest_e2e is not None:
            why = f"needs {found.tightest_e2e} to the end"
        elif tightest is None and found.tightest_itl_s is not None:
            why = f"needs {gap_text(found.tightest_itl_s)} a token"
        return ["–", "–", "–", "–", "–", why, ""]
    pools = [found.short] if found.long is None else [found.short, found.long]
    return [
        "–" if found.long is None else tokens(found.boundary_tokens),
        f"{found.gamma:.2f}",
        " + ".join(tokens(pool.replicas) for pool in pools),
        tokens(found.gpus),
        cost(found.minimised_per_h, found.minimised) + (" *" if line.is_cheapest else ""),
        " / ".join(seconds(pool.ttft_p99_s) for pool in pools),
        "" if line.saving_ratio is None else percent(line.saving_ratio),
    ]


def _target(row: Row) -> str:
    """Return the target to the first token, and the others where there are any."""
    first, *others = row.request.targets_text.split(", ")
    return "\n".join([first.removeprefix("P99 TTFT at most "), *others])


def _engines(row: Row) -> str:
    short, long = row.request.short_profile.name, row.request.long_profile.name
    return short if short == long else f"{short}\n+ {long}"


AXES: Final[dict[str, Callable[[Row], str]]] = {
    "engine": _engines,
    "requests/s": lambda row: f"{row.arrival_rate_per_s:,.4g}",
    "target": _target,
    "gamma max": lambda row: f"{row.request.gamma_max:g}",
}


def _columns(shown: Sequence[Line]) -> tuple[str, ...]:
    unit = shown[0].row.request.minimise.per_h
    return ("split at", "gamma", "replicas", "GPUs", unit, "P99 TTFT", "saved")
