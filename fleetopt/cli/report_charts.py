"""The charts of a plan's page, each with a title and what it says in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.ticker import FuncFormatter, NullLocator

from fleetopt.cli.explain_text import curve_shape
from fleetopt.cli.output import cost, percent, seconds, tokens
from fleetopt.cli.plan_text import BASELINES
from fleetopt.cli.report_svg import (
    ACCENT,
    BAND,
    INK,
    LONG,
    MUTED,
    NONE,
    PAPER,
    SHORT,
    STEPS,
    Chart,
    charts,
)
from fleetopt.planner.bins import BINS_PER_OCTAVE, EDGES_TOKENS
from fleetopt.planner.explain import FLAT_WITHIN
from fleetopt.planner.moments import COMPLETION, COUNT, PROMPT
from fleetopt.planner.plan import BaselineName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fleetopt.cli.plan_file import PlannedPool
    from fleetopt.planner.cost_map import CostMap
    from fleetopt.planner.explain import BoundaryCost, Explanation
    from fleetopt.planner.plan import Plan, Workload
    from fleetopt.planner.simulate.outcome import Simulation

OFF_SCALE: Final = 3.0
"""Costs above so many times the lowest are shown at the edge of the curve's chart."""

STEP_LIMITS: Final = (FLAT_WITHIN, 0.10, 0.25, 0.50, 1.00, math.inf)
"""How much more than the lowest each step of the map's colours may cost; the last is open."""


_HALF_STEP: Final = 2.0 ** (0.5 / BINS_PER_OCTAVE)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One chart as SVG, and what stands below it."""

    svg: str
    title: str
    caption: str


def draw_lengths(workload: Workload, plan: Plan | None) -> Drawn:
    """Draw how long requests are, and where a plan cuts them."""
    moments = workload.moments.values.sum(axis=0)[:-1]  # without what is over the last edge
    every = workload.moments.values.sum(axis=(0, 1))
    requests = 100.0 * np.cumsum(moments[:, COUNT]) / every[COUNT]
    length = moments[:, PROMPT] + moments[:, COMPLETION]
    amount = 100.0 * np.cumsum(length) / (every[PROMPT] + every[COMPLETION])
    last = int(np.flatnonzero(moments[:, COUNT])[-1]) if moments[:, COUNT].any() else 0
    shown = slice(0, min(last + 3, EDGES_TOKENS.size))
    x = EDGES_TOKENS[shown].astype(np.float64)
    title = "How long requests are"
    described = (
        f"Half of the requests have at most {_quantile(requests, 50)} tokens, "
        f"90 % at most {_quantile(requests, 90)}, 99 % at most {_quantile(requests, 99)}."
    )
    with charts():
        chart = Chart(280)
        axes = chart.axes
        axes.plot(x, requests[shown], color=SHORT, label="of the requests")
        axes.plot(x, amount[shown], color=LONG, linestyle=(0, (4, 2)), label="of their tokens")
        if plan is not None and plan.long is not None:
            described += _cut(axes, plan, requests)
        _token_axis(axes, "prompt and completion tokens (log scale)")
        axes.set(ylabel="share at most so long, %", ylim=(0, 102), xlim=(x[0], x[-1]))
        is_cut_early = plan is not None and plan.boundary_tokens < math.sqrt(x[0] * x[-1])
        axes.legend(loc="lower right" if is_cut_early else "upper left")
        return Drawn(chart.svg("lengths", title, described), title, described)


def _quantile(shares: np.ndarray, share: float) -> str:
    reached = np.flatnonzero(shares >= share)
    return tokens(int(EDGES_TOKENS[reached[0]])) if reached.size else "more than a million"


def _cut(axes: Axes, plan: Plan, shares: np.ndarray) -> str:
    """Mark B and γB, and say how many requests are on either side."""
    boundary, band = plan.boundary_tokens, plan.compress_up_to_tokens
    axes.axvline(boundary, color=ACCENT, linewidth=2)
    above: dict[str, Any] = {"y": 1.02, "transform": axes.get_xaxis_transform(), "color": ACCENT}
    row = int(np.searchsorted(EDGES_TOKENS, boundary))
    said = f" {shares[row]:.1f} % are at most B = {tokens(boundary)} and go to the short pool."
    if band > boundary:
        axes.axvspan(boundary, band, color=BAND, linewidth=0)
        axes.axvline(band, color=ACCENT, linewidth=1, linestyle=":")
        axes.text(boundary, s=f"B {tokens(boundary)} ", ha="right", **above)
        axes.text(band, s=f" γB {tokens(band)}", ha="left", **above)
        above_row = int(np.searchsorted(EDGES_TOKENS, band))
        said += (
            f" {shares[above_row] - shares[row]:.1f} % lie in the band up to "
            f"γB = {tokens(band)}, where requests may be compressed."
        )
    else:
        axes.text(boundary, s=f"B {tokens(boundary)}", ha="center", **above)
    return said


def draw_curve(plan: Plan, why: Explanation) -> Drawn:
    """Draw the lowest cost at every boundary."""
    two = [point for point in why.curve if point.long_replicas]
    one = [point for point in why.curve if not point.long_replicas]
    lowest = why.cheapest.cost_per_h
    highest = max(point.cost_per_h for point in why.curve)
    top = max(min(highest, OFF_SCALE * lowest), 1.2 * lowest)
    span = top - lowest
    title = "What other boundaries cost"
    described = _curve_words(plan, why, clipped=highest > top)
    with charts():
        chart = Chart(280)
        axes = chart.axes
        axes.axhspan(lowest, lowest * (1 + FLAT_WITHIN), color=BAND, linewidth=0)
        x, y = _line(two, why.infeasible_boundaries_tokens)
        over = y > top
        axes.plot(x, np.where(over, np.nan, y), color=SHORT, marker="o", markersize=3.5)
        axes.plot(x[over], np.full(over.sum(), top), "^", color=SHORT, markersize=5)
        for point in one:
            axes.plot(point.boundary_tokens, min(point.cost_per_h, top), "s",
                      color=LONG, markersize=7, label="one pool")  # fmt: skip
        none = why.infeasible_boundaries_tokens
        axes.plot(none, np.full(len(none), lowest - 0.10 * span), "x", color=NONE,
                  markersize=5, label="no fleet" if none else None)  # fmt: skip
        axes.plot(plan.boundary_tokens, plan.minimised_per_h, "o", markersize=12, mew=2,
                  markerfacecolor="none", markeredgecolor=ACCENT, label="this plan")  # fmt: skip
        _token_axis(axes, "boundary B, tokens (log scale)")
        axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
        every = [*none, *(point.boundary_tokens for point in why.curve)]
        axes.set(
            ylabel=why.unit.per_h,
            xlim=(min(every) / 1.15, max(every) * 1.15),
            ylim=(lowest - 0.18 * span, top + 0.08 * span),
        )
        _legend(axes)
        return Drawn(chart.svg("curve", title, described), title, described)


def _line(
    points: Sequence[BoundaryCost], infeasible_tokens: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Boundaries and costs for a line that breaks where no fleet meets the target."""
    costs = dict.fromkeys(infeasible_tokens, math.nan)
    costs |= {point.boundary_tokens: point.cost_per_h for point in points}
    return np.array(sorted(costs), dtype=np.float64), np.array([costs[at] for at in sorted(costs)])


def _curve_words(plan: Plan, why: Explanation, *, clipped: bool) -> str:
    shape = curve_shape(why, plan)
    words = f"{shape[:1].upper()}{shape[1:]}, which is the height of the strip."
    words += (
        " Each point is the cheapest gamma and the fewest replicas there; the last is one pool."
    )
    none = why.infeasible_boundaries_tokens
    if none:
        words += f" {len(none)} boundaries have no fleet that meets the target (crosses)."
    if clipped:
        words += f" Triangles cost more than {OFF_SCALE:g} times the lowest."
    return words


def draw_map(plan: Plan, costs: CostMap) -> Drawn:
    """Draw what every boundary and gamma cost, against the cheapest fleet there is."""
    lowest = min(float(costs.cost_per_h.min()), plan.minimised_per_h)
    more = costs.cost_per_h / lowest - 1.0
    step = np.searchsorted(np.array(STEP_LIMITS), more - 1e-9)
    step = np.where(np.isfinite(more), step, np.where(costs.is_choice, len(STEPS), -1))
    title = "What every boundary and gamma cost"
    described = _map_words(plan, costs, more)
    with charts():
        chart = Chart(330)
        axes = chart.axes
        for at, color in enumerate((*STEPS, NONE)):
            boxes = _boxes(costs, step == at)
            if boxes:
                label = _step_label(at)
                cells = PolyCollection(boxes, color=color, linewidth=0.4, label=label)
                cells.set_gid("class-cells")
                axes.add_collection(cells)
        if plan.long is not None:
            axes.plot(plan.boundary_tokens, plan.gamma, "o", markersize=13, mew=4,
                      markerfacecolor="none", markeredgecolor=PAPER)  # fmt: skip
            axes.plot(plan.boundary_tokens, plan.gamma, "o", markersize=13, mew=2,
                      markerfacecolor="none", markeredgecolor=INK, label="this plan")  # fmt: skip
        _token_axis(axes, "boundary B, tokens (log scale)")
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        every = max(len(costs.gammas) // 8, 1)
        axes.set_yticks(costs.gammas[::every], [f"{gamma:.2f}" for gamma in costs.gammas[::every]])
        axes.set(
            ylabel="gamma (log scale)",
            xlim=(
                costs.boundaries_tokens[0] / _HALF_STEP,
                costs.boundaries_tokens[-1] * _HALF_STEP,
            ),
            ylim=(costs.gammas[0] / _HALF_STEP, costs.gammas[-1] * _HALF_STEP),
        )
        axes.grid(visible=False)
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, columnspacing=1.0,
                    handlelength=1.0, handletextpad=0.5, borderaxespad=0.2)  # fmt: skip
        return Drawn(chart.svg("map", title, described), title, described)


def _boxes(costs: CostMap, chosen: np.ndarray) -> list[list[tuple[float, float]]]:
    """Rectangles of neighbouring cells of a row."""
    boxes = []
    for gamma, row in zip(costs.gammas, chosen, strict=True):
        ends = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0, append=0))
        for first, stop in ends.reshape(-1, 2):
            left = costs.boundaries_tokens[first] / _HALF_STEP
            right = costs.boundaries_tokens[stop - 1] * _HALF_STEP
            low, high = gamma / _HALF_STEP, gamma * _HALF_STEP
            boxes.append([(left, low), (right, low), (right, high), (left, high)])
    return boxes


def _step_label(at: int) -> str:
    if at == len(STEPS):
        return "no fleet"
    limit = STEP_LIMITS[at]
    return f"up to +{100 * limit:.0f} %" if math.isfinite(limit) else "more"


def _map_words(plan: Plan, costs: CostMap, more: np.ndarray) -> str:
    near = int((more <= FLAT_WITHIN).sum())
    choices = int(costs.is_choice.sum())
    none = choices - int(np.isfinite(more).sum())
    words = (
        f"Two pools at {tokens(choices)} choices of boundary and gamma, each sized exactly, as the "
        f"cost above the cheapest fleet; within {percent(FLAT_WITHIN, 0)} of it: {tokens(near)}."
    )
    if none:
        words += f" Without a fleet that meets the target: {tokens(none)}."
    if plan.long is None:
        words += " The plan is one pool, which is not on the map."
    if not costs.is_choice.all():
        words += " Empty at the upper right: the band would pass the long context."
    return words


def draw_baselines(plan: Plan) -> Drawn:
    """Draw the cost of the fleets that one could run instead."""
    title, unit = "What it saves", plan.minimised
    rows = list(enumerate(reversed(plan.baselines)))
    saved = [
        f"{percent(one.saving_ratio)} against {BASELINES[one.name]}"
        for one in plan.baselines
        if one.feasible and one.name is not BaselineName.CO_DESIGNED
    ]
    described = (
        f"The plan costs {cost(plan.minimised_per_h, unit)} {unit.per_h} and saves "
        f"{', '.join(saved)}."
    )
    with charts():
        chart = Chart(56 * len(rows) + 10)
        axes = chart.axes
        for at, one in rows:
            is_plan = one.name is BaselineName.CO_DESIGNED
            axes.barh(at - 0.12, one.minimised_per_h, 0.36, color=ACCENT if is_plan else SHORT)
            paid = f"{cost(one.minimised_per_h, unit)} {unit.per_h}"
            label = f"{BASELINES[one.name]}: {paid if one.feasible else one.reason}"
            axes.annotate(label, (0, at + 0.1), (4, 2), textcoords="offset points", color=INK,
                          fontweight="bold" if is_plan else "normal")  # fmt: skip
        axes.set(ylim=(-0.45, len(rows) - 0.4), xlim=(0, None))
        axes.set_xlabel(unit.per_h)
        axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
        axes.set_yticks([])
        axes.spines["left"].set_color(MUTED)
        axes.grid(visible=False, axis="y")
        return Drawn(chart.svg("baselines", title, described), title, described)


def draw_validation(simulation: Simulation, predicted: Sequence[PlannedPool]) -> Drawn | None:
    """Draw each pool's P99 TTFT as predicted and as simulated; None without requests."""
    rows = [
        (pool.name if len(predicted) > 1 else "all requests", told.ttft_p99_s, pool.ttft)
        for pool, told in zip(simulation.pools, predicted, strict=True)
        if pool.ttft is not None
    ]
    if not rows:
        return None
    title = "P99 TTFT, predicted and simulated"
    described = "".join(
        f"{name}: {seconds(told_s)} predicted, {seconds(seen.p99_s)} simulated. "
        for name, told_s, seen in rows
    )
    described += "The bar holds the simulated P99 with 95 % confidence."
    with charts():
        chart = Chart(70 + 60 * len(rows))
        axes = chart.axes
        for at, (name, told_s, seen) in enumerate(reversed(rows)):
            is_first = at == 0
            if seen.p99_low_s is not None and seen.p99_high_s is not None:
                axes.plot([seen.p99_low_s, seen.p99_high_s], [at, at], color=SHORT, linewidth=5,
                          solid_capstyle="butt")  # fmt: skip
            axes.plot(seen.p99_s, at, "o", color=SHORT, markersize=9,
                      label="simulated" if is_first else None)  # fmt: skip
            axes.plot(told_s, at, "D", markersize=9, mew=2, clip_on=False, markerfacecolor="none",
                      markeredgecolor=ACCENT, label="predicted" if is_first else None)  # fmt: skip
            axes.annotate(name, (0, at), (4, 9), textcoords="offset points", color=INK)
        axes.margins(x=0.1)
        axes.set(ylim=(-0.5, len(rows) - 0.4), xlim=(0, None), xlabel="P99 TTFT, s")
        axes.set_yticks(range(len(rows)), [""] * len(rows))
        axes.tick_params(axis="y", length=0)
        _legend(axes)
        return Drawn(chart.svg("validation", title, described), title, described)


def _token_axis(axes: Axes, label: str) -> None:
    """Set a logarithmic axis of tokens, with a tick at every fourth power of two."""
    axes.set_xscale("log", base=2)
    axes.set_xticks([float(2**power) for power in range(6, 21, 2)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def _short(value: float) -> str:
    if value >= 2**20:
        return f"{value / 2**20:g}M"
    return f"{value / 1024:g}k" if value >= 1024 else f"{value:g}"


def _legend(axes: Axes) -> None:
    """Put the names above the drawing, where they hide no point."""
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, columnspacing=1.2,
                handletextpad=0.3, borderaxespad=0.2)  # fmt: skip


def _thousands(value: float, _: int | None) -> str:
    return f"{value:,.10g}"
