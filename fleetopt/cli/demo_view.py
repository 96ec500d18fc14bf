"""What the demo shows: the screen while it runs, lines where there is no terminal, the summary."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fleetopt.cli.output import percent, seconds, table, tokens, usd
from fleetopt.cli.plan_text import BASELINES
from fleetopt.cli.recommendation_text import headline
from fleetopt.planner.outcome import BaselineName

if TYPE_CHECKING:
    from fleetopt.connectors.alert import Alert
    from fleetopt.pipeline.demo import DemoResult, DemoState
    from fleetopt.planner.recommendation import BaselineRecord, PlanRecord, Recommendation

SHOWN: Final = 8
"""Recommendations and alerts on the screen, newest last."""

COMPARED: Final = BASELINES | {BaselineName.CO_DESIGNED: "best plan now, no replica held back"}
"""A published fleet need not be the best of the moment, which is one more to compare it with."""


def screen(state: DemoState) -> RenderableType:
    """Return the live screen."""
    newest = state.newest
    parts: list[RenderableType] = [_traffic(state)]
    if newest is None:
        parts.append(Text("waiting for the first closed slice …", style="dim"))
    else:
        parts += [_fleet(newest), _history(state)]
    parts += [_alert(alert, state) for alert in state.alerts[-3:]]
    return Panel(Group(*parts), title="FleetOpt: live traffic, replanned", padding=(0, 1))


def _traffic(state: DemoState) -> RenderableType:
    schedule = state.schedule
    elapsed_s = min(state.elapsed_s(time.time()), schedule.duration_s)
    share = schedule.share_after_shift(elapsed_s)
    phase = schedule.archetype.value
    if schedule.shift_to is not None and share > 0:
        phase = (
            schedule.shift_to.value
            if share >= 1
            else f"{phase} → {schedule.shift_to.value} ({percent(share, 0)})"
        )
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        ProgressBar(total=schedule.duration_s, completed=elapsed_s, width=20),
        f"{elapsed_s:.0f} of {schedule.duration_s:.0f} s",
        f"{state.sent:,} requests sent at {schedule.rate_per_s:,.0f}/s",
        Text(phase, style="bold"),
    )
    return grid


def _fleet(it: Recommendation) -> RenderableType:
    plan = it.active
    if plan is None:
        return Text(f"no plan: {it.infeasible.text if it.infeasible else it.status.value}")
    figures = ("replicas", "GPUs", "context", "requests/s", "utilisation", "P99 TTFT", "USD/h")
    made = table("pool", *figures)
    for name, pool in (("short", plan.short), ("long", plan.long)):
        if pool is not None:
            made.add_row(
                name,
                str(pool.replicas),
                str(pool.gpus),
                tokens(pool.context_tokens),
                f"{pool.arrival_rate_per_s:,.0f}",
                percent(pool.utilization, 0),
                seconds(pool.ttft_p99_s),
                usd(pool.cost_usd_per_h),
            )
    return Group(Text(f"revision {it.revision}: {headline(it)}", style="bold"), made)


def _history(state: DemoState) -> RenderableType:
    started_s = state.started_s
    rows = [
        Text(_line(it, started_s), no_wrap=True, overflow="ellipsis", style="dim")
        for it in state.recommendations[-SHOWN:]
    ]
    return Group(*rows)


def _line(it: Recommendation, started_s: float) -> str:
    reasons = ", ".join(reason.value for reason in it.reasons)
    at_s = max(0.0, it.computed_at_s - started_s)
    return f"{at_s:5.1f} s  #{it.revision:<3} {headline(it)}  ({reasons})"


def _alert(alert: Alert, state: DemoState) -> Text:
    mark = "ALERT" if alert.firing else "resolved"
    said = f": {alert.text}" if alert.text else ""
    text = f"{max(0.0, alert.at_s - state.started_s):5.1f} s  {mark} {alert.kind}{said}"
    return Text(text, style="bold red" if alert.firing else "green")


def lines(state: DemoState, printed: int, alerts_printed: int) -> list[str]:
    """Return what has come since so many recommendations and alerts were printed."""
    made = [_line(it, state.started_s) for it in state.recommendations[printed:]]
    made += [_alert(alert, state).plain for alert in state.alerts[alerts_printed:]]
    return made


def summary(result: DemoResult) -> RenderableType:
    """Return the account at the end."""
    state, counts = result.state, result.counts
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(result).items():
        facts.add_row(name, str(value))
    parts: list[RenderableType] = [Text("Summary", style="bold"), facts]
    newest = state.newest
    if newest is not None and newest.active is not None:
        made = table(
            "instead of what is published", "GPUs", "USD/h", "GPUs saved", "USD/h saved", "saved"
        )
        for baseline in newest.baselines:
            made.add_row(*_baseline_cells(baseline, newest.active.gpus))
        parts += [Text(), made]
    verdict = (
        "events in = events counted"
        if counts.total == state.sent
        else "events in and events counted DIFFER"
    )
    parts.append(Text(verdict, style="bold green" if counts.total == state.sent else "bold red"))
    return Group(*parts)


def _baseline_cells(baseline: BaselineRecord, gpus: int) -> list[str]:
    name = COMPARED[baseline.name]
    if not baseline.feasible:
        return [name, "can't meet the target", "–", "–", "–", "–"]
    return [
        name,
        str(baseline.gpus),
        usd(baseline.cost_usd_per_h),
        str(baseline.gpus - gpus),
        "–" if baseline.saving_usd_per_h is None else usd(baseline.saving_usd_per_h),
        percent(baseline.saving_ratio),
    ]


def _plans(state: DemoState) -> list[PlanRecord]:
    return [it.active for it in state.recommendations if it.active is not None]


def _facts(result: DemoResult) -> dict[str, Any]:
    state, counts = result.state, result.counts
    plans = _plans(state)
    drifts = [alert for alert in state.alerts if alert.kind == "boundary_drift" and alert.firing]
    return {
        "recommendations published": state.newest.revision if state.newest else 0,
        "boundary before": tokens(plans[0].boundary_tokens) if plans else "–",
        "boundary after": tokens(plans[-1].boundary_tokens) if plans else "–",
        "drift alert": drifts[-1].text if drifts else "none",
        "events in": f"{state.sent:,}",
        "events counted": f"{counts.accepted:,} in sketches, {counts.late:,} late, "
        f"{counts.duplicated:,} repeated, {counts.rejected:,} refused",
    }


def summary_json(result: DemoResult) -> dict[str, Any]:
    """Return the account at the end, for programs."""
    state, counts = result.state, result.counts
    plans = _plans(state)
    newest = state.newest
    return {
        "recommendations_published": newest.revision if newest else 0,
        "boundary_tokens_before": plans[0].boundary_tokens if plans else None,
        "boundary_tokens_after": plans[-1].boundary_tokens if plans else None,
        "alerts": state.alerts,
        "events_in": state.sent,
        "events_counted": counts,
        "baselines": newest.baselines if newest else (),
        "recommendation": newest,
    }
