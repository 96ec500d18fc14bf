"""What a fleet's traffic looks like now: its sketches from all partitions, as the planner's input.

Pure. Lengths and rates come from closed slices, since logs are written at completion and the
long requests of an open slice are still to come. A slice that nobody reported is unknown and
left out of the rates; it is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.pipeline.sketch import Sketch, cell_s, cells_in
from fleetopt.pipeline.window import FleetMeta, WindowConfig
from fleetopt.planner.arrivals import DEFAULT_FORECAST
from fleetopt.planner.bytes_per_token import moving_average
from fleetopt.planner.effects import Event, Idle, Observed, Trigger
from fleetopt.planner.forecast.outcome import ForecastConfig
from fleetopt.planner.recommendation import BytesPerToken, Evidence, Lengths
from fleetopt.planner.record import forecast_record
from fleetopt.planner.workload import ArrivalStatistics, Workload

HALF_LIFE_SHARE: Final = 0.25
"""Of the window: how much older a slice is that counts half as much in bytes per token."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """A fleet's window over all partitions."""

    workload: Workload | None
    """None where no slice is closed yet or no request's tokens are known."""
    evidence: Evidence | None
    """None where nothing is known; without a workload, it says that there was no request."""
    sketch: Sketch
    """The window's slices merged: for quantiles."""
    accepted: int
    late: int
    watermark_s: float
    bytes_per_token: Mapping[str, BytesPerToken] = field(default_factory=dict)
    """By category, of the closed slices."""


def event_of(seen: FleetView, trigger: Trigger) -> Event:
    """Return what the replanner is told of a window: requests, none, or nothing known."""
    if seen.workload is None and seen.evidence is not None:
        return Idle(seen.evidence)
    lengths = _lengths(seen.sketch)
    ttfts = seen.sketch.ttfts
    return Observed(seen.workload, seen.evidence, trigger, lengths, seen.bytes_per_token, ttfts)


def _lengths(sketch: Sketch) -> Lengths | None:
    """Return the window's lengths as the digest has them; None where nothing is measured."""
    if not sketch.measured_count:
        return None
    _, prompt_sum, completion_sum, *_ = sketch.moments.values.sum(axis=(0, 1))
    p50, p90, p99 = (round(sketch.quantile(share) or 0.0) for share in (0.5, 0.9, 0.99))
    return Lengths(
        mean_tokens=float(prompt_sum + completion_sum) / sketch.measured_count,
        p50_tokens=p50,
        p90_tokens=p90,
        p99_tokens=p99,
    )


def view(
    config: WindowConfig,
    parts: Iterable[tuple[FleetMeta, Mapping[int, Sketch]]],
    forecast: ForecastConfig = DEFAULT_FORECAST,
) -> FleetView:
    """Merge what each partition knows of a fleet, and forecast its rate."""
    parts = list(parts)
    watermark_s = max((meta.watermark_s(config) for meta, _ in parts), default=0.0)
    closed_below = int(watermark_s // config.slice_s)
    merged: dict[int, Sketch] = {}
    open_counts: dict[int, int] = {}
    for _, slices in parts:
        for index in sorted(slices):
            if index >= closed_below:
                count = open_counts.get(index, 0) + slices[index].arrival_count
                open_counts[index] = count
            elif index >= closed_below - config.slices:
                merged.setdefault(index, Sketch.for_slice(config.slice_s)).merge(slices[index])
    whole = Sketch.for_slice(config.slice_s)
    for index in sorted(merged):
        whole.merge(merged[index])
    seen = _cells(config, merged, closed_below)
    workload, evidence = _planned(config, forecast, seen, merged, open_counts, whole)
    return FleetView(
        workload=workload,
        evidence=evidence,
        sketch=whole,
        accepted=sum(meta.accepted for meta, _ in parts),
        late=sum(meta.late for meta, _ in parts),
        watermark_s=watermark_s,
        bytes_per_token=moving_average(
            (
                (closed_below - 1 - index, ratios)
                for index in sorted(merged)
                if (ratios := merged[index].ratios) is not None
            ),
            config.slices * HALF_LIFE_SHARE,
        ),
    )


def _planned(
    config: WindowConfig,
    forecast: ForecastConfig,
    cells: NDArray[np.float64],
    closed: Mapping[int, Sketch],
    open_counts: Mapping[int, int],
    whole: Sketch,
) -> tuple[Workload | None, Evidence | None]:
    arrived = whole.arrival_count + sum(open_counts.values())
    if not closed or (arrived and not whole.measured_count):
        return None, None
    indices = sorted(closed)
    arrivals = ArrivalStatistics.from_counts(
        cells.sum(axis=1), config.slice_s, cells.reshape(-1), cell_s(config.slice_s), forecast
    )
    # What an open slice has counted so far can only grow: a floor for the rate, at once.
    floor_per_s = max(open_counts.values(), default=0) / config.slice_s
    planned_per_s = max(arrivals.planned_per_s, floor_per_s)
    evidence = Evidence(
        window_from_s=float(indices[0] * config.slice_s),
        window_to_s=float((indices[-1] + 1) * config.slice_s),
        sample_count=whole.measured_count,
        measured_slices=len(indices),
        window_slices=config.slices,
        planned_arrival_rate_per_s=planned_per_s,
        mean_arrival_rate_per_s=arrivals.mean_per_s,
        peak_arrival_rate_per_s=max(arrivals.peak_per_s, floor_per_s),
        cached_prompt_share=whole.moments.cached_share,
        cache_known_share=whole.cache_known_count / max(whole.measured_count, 1),
        forecast=forecast_record(arrivals.forecast),
    )
    if not arrived:
        return None, evidence
    workload = Workload(
        moments=whole.moments,
        arrival_rate_per_s=planned_per_s,
        dispersion=arrivals.dispersion,
        sample_count=whole.measured_count,
        dispersion_by_scale=arrivals.dispersion_by_scale,
        cache_known_share=whole.cache_known_count / whole.measured_count,
        outcomes=whole.outcomes,
    )
    return workload, evidence


def _cells(
    config: WindowConfig, closed: Mapping[int, Sketch], closed_below: int
) -> NDArray[np.float64]:
    """Return arrival counts, a row for each slice from the first; NaN where nobody reported."""
    first = min(closed, default=closed_below)
    cells = np.full((closed_below - first, cells_in(config.slice_s)), np.nan)
    for index, sketch in closed.items():
        cells[index - first] = sketch.arrivals
    return cells
