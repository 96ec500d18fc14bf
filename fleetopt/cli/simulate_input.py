"""The requests that `fleetopt simulate` runs: a trace's own, or drawn from a distribution."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

import numpy as np
import typer

from fleetopt.cli.traffic import ASSUMED_OUTPUT_SHARE
from fleetopt.connectors.cdf import read_cdf
from fleetopt.connectors.rows import columns_of_records
from fleetopt.connectors.trace_formats import InputFormat
from fleetopt.connectors.traces import OpenInput, TraceReader, open_input
from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError
from fleetopt.planner.simulate.draw import poisson_stream, resampled_stream
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.simulate.tenants import tenant_stream
from fleetopt.planner.workload import Workload


class Arrivals(StrEnum):
    """When requests come."""

    RECORDED = "recorded"
    POISSON = "poisson"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many requests, how fast, and how drawn."""

    rate_per_s: float
    requests: int
    arrivals: Arrivals | None
    fleet: str | None
    output_share: float | None
    cached_share: float | None
    seed: int


@dataclass(slots=True)
class Input:
    """The requests, and what must be said of them."""

    source: str
    arrivals: Arrivals
    stream: RequestStream
    notes: list[str] = field(default_factory=list)


def read_input(path: str, wanted: Wanted) -> Input:
    """Read a trace or a CDF as a stream of requests at the rate that is wanted."""
    with open_input(path) as opened:
        if opened.format is InputFormat.CDF:
            return _of_cdf(opened, wanted)
        if wanted.output_share is not None:
            raise typer.BadParameter(
                "--output-share is for a CDF; a trace says how many tokens went out"
            )
        return _of_trace(opened, wanted)


def _of_cdf(opened: OpenInput, wanted: Wanted) -> Input:
    if wanted.arrivals is Arrivals.RECORDED:
        raise typer.BadParameter(
            f"{opened.source} is a CDF, which has no recorded arrivals: leave --arrivals out"
        )
    share = ASSUMED_OUTPUT_SHARE if wanted.output_share is None else wanted.output_share
    workload = Workload.from_cdf(read_cdf(opened.lines, opened.source), share, wanted.rate_per_s)
    stream = poisson_stream(workload, wanted.requests, wanted.seed, wanted.cached_share or 0.0)
    notes = [f"output share {share:g} assumed"] if wanted.output_share is None else []
    return Input(opened.source, Arrivals.POISSON, stream, notes)


def _of_trace(opened: OpenInput, wanted: Wanted) -> Input:
    reader = TraceReader(opened)
    records = list(chain.from_iterable(reader))
    fleets = reader.report.fleets
    if wanted.fleet is not None and fleets != {"default"}:
        records = [record for record in records if record.fleet == wanted.fleet]
        if not records:
            raise InputError(f"{opened.source} has no requests of fleet {wanted.fleet}")
    elif len(fleets) > 1:
        raise typer.BadParameter(
            f"{opened.source} has requests of {len(fleets)} fleets "
            f"({', '.join(sorted(fleets)[:5])}): choose one with --fleet"
        )
    recorded = _recorded(records, wanted.cached_share)
    if not len(recorded):
        raise InputError(f"{opened.source}: no request says how many tokens it had")
    arrivals = wanted.arrivals or Arrivals.RECORDED
    made = resampled_stream if arrivals is Arrivals.POISSON else tenant_stream
    stream = made(recorded, wanted.rate_per_s, wanted.requests, wanted.seed)
    return Input(opened.source, arrivals, stream, reader.report.notes())


def _recorded(records: list[RequestLog], cached_share: float | None) -> RequestStream:
    """Requests of known length; what was cached is as logged, or a share of every prompt."""
    records = sorted(records, key=lambda record: record.arrival_s)
    columns = columns_of_records(records)
    if cached_share is None:
        logged = columns.cached_tokens
        unknown = np.zeros_like(columns.prompt_tokens)
        cached = unknown if logged is None else np.clip(logged, 0, columns.prompt_tokens)
    else:
        cached = np.floor(cached_share * columns.prompt_tokens).astype(np.int64)
    known = columns.measured
    return RequestStream(
        columns.arrival_s[known],
        columns.prompt_tokens[known],
        columns.completion_tokens[known],
        cached[known],
        columns.compressibility[known].astype(np.int64),
    )
