"""From a trace or a CDF to the traffic that is planned for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import typer

from fleetopt.connectors.cdf import read_cdf
from fleetopt.connectors.rows import columns_of_records
from fleetopt.connectors.trace_formats import InputFormat
from fleetopt.connectors.traces import OpenInput, TraceReader, open_input
from fleetopt.errors import InputError
from fleetopt.planner.workload import ArrivalStatistics, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetopt.connectors.columns import RequestColumns
    from fleetopt.planner.forecast.outcome import ForecastConfig

ASSUMED_OUTPUT_SHARE: Final = 0.2
"""The paper's split; real traces have 0.013 to 0.15, so a plan that assumes it says so."""

MAX_RATE_PER_S: Final = 1e9
MAX_SPAN_S: Final = 100 * 86_400.0

FINE_CELLS_PER_S: Final = 10
MAX_FINE_SPAN_S: Final = 10 * 86_400.0
"""A longer trace is counted by the second, which bounds the memory."""


@dataclass(slots=True)
class Traffic:
    """A workload, and what must be said of where it came from."""

    source: str
    format: InputFormat
    workload: Workload
    requests: int = 0
    unmeasured: int = 0
    bad_rows: int = 0
    unsorted_rows: int = 0
    arrivals: ArrivalStatistics | None = None
    assumptions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_cache_assumed: bool = False


def read_traffic(
    path: str,
    *,
    fleet: str | None,
    arrival_rates_per_s: Sequence[float],
    output_share: float | None,
    slice_s: float,
    forecast: ForecastConfig,
) -> Traffic:
    """Read a trace or a CDF as what the planner takes, at the first of the rates or its own."""
    for rate_per_s in arrival_rates_per_s:
        if not 0 < rate_per_s <= MAX_RATE_PER_S:
            raise typer.BadParameter(
                f"--arrival-rate {rate_per_s}: expected a number above 0, up to {MAX_RATE_PER_S:g}"
            )
    with open_input(path) as opened:
        if opened.format is InputFormat.CDF:
            return _from_cdf(opened, arrival_rates_per_s, output_share)
        if output_share is not None:
            raise typer.BadParameter(
                "--output-share is for a CDF; a trace says how many tokens went out"
            )
        return _from_trace(opened, fleet, arrival_rates_per_s, slice_s, forecast)


def assume_cached(traffic: Traffic, share: float | None) -> None:
    """Take this share of every prompt as cached, whatever was logged; None: as logged."""
    if share is None:
        return
    traffic.workload = traffic.workload.with_cached_share(share)
    traffic.is_cache_assumed = True
    traffic.assumptions.append(
        f"{100 * share:.3g} % of every prompt comes from the prefix cache, wherever it is sent"
    )


def _from_cdf(
    opened: OpenInput, arrival_rates_per_s: Sequence[float], output_share: float | None
) -> Traffic:
    if not arrival_rates_per_s:
        raise typer.BadParameter(
            f"{opened.source} is a CDF, which has no rate: add --arrival-rate PER_SECOND"
        )
    share = ASSUMED_OUTPUT_SHARE if output_share is None else output_share
    points = read_cdf(opened.lines, opened.source)
    traffic = Traffic(
        opened.source, opened.format, Workload.from_cdf(points, share, arrival_rates_per_s[0])
    )
    if output_share is None:
        traffic.assumptions.append(
            f"output share {share:g}: a CDF of totals does not say it, and real traces have 0.01 "
            "to 0.15; a wrong one misstates the load severalfold: give --output-share"
        )
    traffic.assumptions.append("Poisson arrivals: a CDF does not say how bursty they are")
    return traffic


def _from_trace(
    opened: OpenInput,
    fleet: str | None,
    arrival_rates_per_s: Sequence[float],
    slice_s: float,
    forecast: ForecastConfig,
) -> Traffic:
    reader = TraceReader(opened)
    records = reader.records()
    fleets = reader.report.fleets
    if fleet is not None and fleets != {"default"}:
        records = [record for record in records if record.fleet == fleet]
        if not records:
            raise InputError(
                f"{opened.source} has no requests of fleet {fleet}, only of "
                f"{', '.join(sorted(fleets)[:5])}"
            )
    elif len(fleets) > 1:
        raise typer.BadParameter(
            f"{opened.source} has requests of {len(fleets)} fleets "
            f"({', '.join(sorted(fleets)[:5])}): choose one with --fleet"
        )
    columns = columns_of_records(records)
    arrivals = arrival_statistics(
        columns.arrival_s, slice_s, replace(forecast, covers_history=True)
    )
    measured = columns.take(columns.measured)
    if not len(measured):
        raise InputError(f"{opened.source}: no request says how many tokens it had")
    report = reader.report
    traffic = Traffic(
        source=opened.source,
        format=opened.format,
        workload=_workload(measured, arrivals, next(iter(arrival_rates_per_s), None)),
        requests=len(columns),
        unmeasured=len(columns) - len(measured),
        bad_rows=report.bad_rows,
        unsorted_rows=report.unsorted_rows,
        arrivals=arrivals,
        notes=report.notes(),
    )
    if traffic.unmeasured:
        traffic.notes.append(
            f"{traffic.unmeasured} requests have no token counts: they count as arrivals only"
        )
    if arrival_rates_per_s:
        rates = " to ".join(
            f"{rate:g}" for rate in sorted({min(arrival_rates_per_s), max(arrival_rates_per_s)})
        )
        traffic.assumptions.append(
            f"{rates} requests/s as bursty as the {arrivals.mean_per_s:.3g} recorded"
        )
    return traffic


def _workload(
    measured: RequestColumns, arrivals: ArrivalStatistics, arrival_rate_per_s: float | None
) -> Workload:
    rate_per_s = arrivals.planned_per_s if arrival_rate_per_s is None else arrival_rate_per_s
    return Workload.from_requests(
        measured.prompt_tokens,
        measured.completion_tokens,
        rate_per_s,
        measured.compressibility,
        arrivals.dispersion,
        arrivals.dispersion_by_scale,
        measured.cached_tokens,
    )


def arrival_statistics(
    arrival_s: np.ndarray, slice_s: float, forecast: ForecastConfig
) -> ArrivalStatistics:
    """Return the rates of a trace's whole slices, counted from its first arrival.

    A trace shorter than a slice is one slice of its own length. Raises InputError where it spans
    so much that a time stamp must be wrong: it would thin the rates, and its seconds fill memory.
    """
    offset_s = arrival_s - arrival_s.min()
    span_s = float(offset_s.max())
    if span_s > MAX_SPAN_S:
        raise InputError(
            f"the requests span {span_s / 86_400:,.0f} days, more than "
            f"{MAX_SPAN_S / 86_400:.0f}: from {_time(arrival_s.min())} to {_time(arrival_s.max())};"
            " is a time stamp wrong? Else plan for a part of the trace"
        )
    slices = int(span_s // slice_s)
    if not slices:
        # n arrivals span n − 1 gaps; a single arrival tells no rate, a second is the least.
        length_s = max(span_s * len(offset_s) / max(len(offset_s) - 1, 1), 1.0)
        return ArrivalStatistics.from_counts([len(offset_s)], length_s, *_cells(offset_s), forecast)
    whole = offset_s[offset_s < slices * slice_s]
    counts = np.bincount((whole // slice_s).astype(np.int64), minlength=slices)
    return ArrivalStatistics.from_counts(counts, slice_s, *_cells(whole), forecast)


def _time(epoch_s: float) -> str:
    # Epoch seconds are accepted beyond the year 9999, where datetime ends.
    return f"{np.datetime64(int(epoch_s), 's')}Z"


def _cells(offset_s: np.ndarray) -> tuple[np.ndarray, float]:
    """Return counts per cell, and the length of a cell."""
    per_s = FINE_CELLS_PER_S if offset_s.max() <= MAX_FINE_SPAN_S else 1
    return np.bincount((offset_s * per_s).astype(np.int64)), 1.0 / per_s
