"""What the planner is told: closed slices make lengths and rates, and unknown is not zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.connectors.columns import RequestColumns
from fleetopt.pipeline.sketch import Sketch
from fleetopt.pipeline.view import FleetView, event_of, view
from fleetopt.pipeline.window import FleetMeta, FleetWindow, WindowConfig
from fleetopt.planner.compression_outcomes import CompressionOutcome
from fleetopt.planner.effects import Observed, Trigger
from fleetopt.planner.forecast.outcome import ForecastConfig, MethodReason
from fleetopt.planner.record import compression_record

CONFIG = WindowConfig(slice_s=10, slices=6, allowed_lateness_s=25.0)
START_S = 1_000.0
Part = tuple[FleetMeta, Mapping[int, Sketch]]


def columns(arrivals_s: list[float], tokens: int = 100, measured: bool = True) -> RequestColumns:
    rows = len(arrivals_s)
    return RequestColumns(
        START_S + np.array(arrivals_s, dtype=np.float64),
        np.full(rows, tokens, dtype=np.int64),
        np.full(rows, 10, dtype=np.int64),
        np.zeros(rows, dtype=np.int8),
        np.full(rows, measured),
    )


def part(*batches: RequestColumns, until_s: float | None = None) -> Part:
    window = FleetWindow(CONFIG)
    for batch in batches:
        window.update(batch)
    if until_s is not None:
        window.promise(START_S + until_s)
    return window.meta, window.slices


def seen(*parts: Part) -> FleetView:
    return view(CONFIG, parts)


def test_nothing_known_is_no_workload() -> None:
    for empty in (seen(), seen((FleetMeta(), {})), seen(part(columns([])))):
        assert (empty.workload, empty.evidence) == (None, None)
        assert empty.sketch.quantile(0.5) is None
        assert empty.accepted == 0


def test_nothing_closed_is_no_workload() -> None:
    found = seen(part(columns([1.0, 2.0])))
    assert (found.workload, found.accepted) == (None, 2)


def test_nothing_measured_is_no_workload() -> None:
    found = seen(part(columns([1.0, 99.0], measured=False)))
    assert (found.workload, found.evidence, found.accepted) == (None, None, 2)


def test_rates_and_lengths_of_closed_slices() -> None:
    found = seen(part(columns([0.0, 1.0, 2.0, 13.0]), until_s=20.0))
    assert found.workload is not None
    assert found.evidence is not None
    assert found.workload.sample_count == 4
    assert found.workload.moments.count == 4
    assert found.evidence.mean_arrival_rate_per_s == pytest.approx(0.2)
    assert found.evidence.peak_arrival_rate_per_s == pytest.approx(0.3)
    assert found.workload.arrival_rate_per_s == found.evidence.planned_arrival_rate_per_s
    assert (found.evidence.window_from_s, found.evidence.window_to_s) == (1_000.0, 1_020.0)
    assert (found.evidence.measured_slices, found.evidence.window_slices) == (2, 6)
    assert found.watermark_s == 1_020.0


def test_requests_of_unknown_length_count_for_the_rate_but_not_for_the_lengths() -> None:
    found = seen(part(columns([0.0, 1.0]), columns([2.0, 3.0], measured=False), until_s=10.0))
    assert found.workload is not None
    assert found.workload.arrival_rate_per_s == pytest.approx(0.4)
    assert found.workload.sample_count == 2


def test_a_slice_nobody_reported_is_unknown_and_a_promised_one_is_idle() -> None:
    busy = columns([0.0, 1.0, 2.0, 3.0])
    later = columns([30.0, 31.0, 32.0, 33.0])
    end = columns([40.0, 76.0])
    unknown = seen(part(busy, later, end))
    assert unknown.evidence is not None
    assert unknown.evidence.measured_slices == 3
    assert unknown.evidence.mean_arrival_rate_per_s == pytest.approx(9 / 30)

    window = FleetWindow(CONFIG)
    window.update(busy)
    window.promise(START_S + 30.0)
    window.update(later)
    window.update(end)
    idle = seen((window.meta, window.slices))
    assert idle.evidence is not None
    assert idle.evidence.measured_slices == 5
    assert idle.evidence.mean_arrival_rate_per_s == pytest.approx(9 / 50)


def test_the_step_over_an_unknown_slice_is_no_burst() -> None:
    low, high = np.arange(0.0, 30.0), np.arange(40.0, 70.0, 0.1)
    config = WindowConfig(slice_s=10, slices=20, allowed_lateness_s=25.0)
    window = FleetWindow(config)
    window.update(columns([*low, *high, 100.0]))
    found = view(config, [(window.meta, window.slices)])
    assert found.workload is not None
    assert found.workload.dispersion == 1.0
    assert [one.window_s for one in found.workload.dispersion_by_scale] == [1.0, 10.0]


def test_the_rate_is_forecast_to_where_the_watermark_is() -> None:
    config = WindowConfig(slice_s=10, slices=60, allowed_lateness_s=25.0)
    rising = [at * 10.0 + step / (20 + at) for at in range(50) for step in range(200 + 10 * at)]
    window = FleetWindow(config)
    window.update(columns(sorted(min(at, 499.9) for at in rising)))
    window.promise(START_S + 500.0)
    asked = ForecastConfig(horizon_s=60.0)
    found = view(config, [(window.meta, window.slices)], asked)
    assert found.evidence is not None
    assert found.evidence.forecast is not None
    assert found.evidence.forecast.reason is MethodReason.BACKTEST
    assert (found.evidence.forecast.horizon_s, found.evidence.forecast.quantile) == (60.0, 0.95)
    newest = window.slices[max(window.slices)].arrival_count / 10.0
    assert found.evidence.planned_arrival_rate_per_s > newest
    window.update(columns([900.0]))  # what came between is unknown
    gap = view(config, [(window.meta, window.slices)], asked)
    assert gap.evidence is not None
    assert gap.evidence.forecast is not None
    assert gap.evidence.forecast.reason is MethodReason.NO_FORECAST
    assert gap.evidence.mean_arrival_rate_per_s > 30.0


def test_open_slices_only_raise_the_planned_rate() -> None:
    calm = [columns([0.0, 1.0])]
    without = seen(part(*calm, until_s=10.0))
    quiet = seen(part(*calm, columns([11.0]), until_s=10.0))
    burst = seen(part(*calm, columns([11.0] * 50, tokens=9_000), until_s=10.0))
    assert without.workload is not None
    assert quiet.workload is not None
    assert burst.workload is not None
    assert quiet.workload.arrival_rate_per_s == without.workload.arrival_rate_per_s
    assert burst.workload.arrival_rate_per_s == pytest.approx(5.0)
    assert burst.workload.moments == without.workload.moments
    assert burst.evidence is not None
    assert burst.evidence.peak_arrival_rate_per_s == pytest.approx(5.0)
    assert burst.evidence.mean_arrival_rate_per_s == pytest.approx(0.2)


def test_slices_older_than_the_window_are_left_out() -> None:
    old, _ = part(columns([0.0]))
    window = FleetWindow(CONFIG)
    window.update(columns([0.0, 1.0, 2.0]))
    slices = dict(window.slices)
    window.update(columns([200.0]))
    window.promise(START_S + 210.0)
    found = view(CONFIG, [(window.meta, slices | window.slices), (old, slices)])
    assert found.evidence is not None
    assert found.evidence.sample_count == 1
    assert found.evidence.window_from_s == 1_200.0


def test_partitions_are_summed_slice_by_slice() -> None:
    one = part(columns([0.0, 1.0]), until_s=20.0)
    other = part(columns([2.0, 12.0]), until_s=20.0)
    found = seen(one, other)
    assert found.evidence is not None
    assert found.evidence.mean_arrival_rate_per_s == pytest.approx(0.2)
    assert found.evidence.peak_arrival_rate_per_s == pytest.approx(0.3)
    assert (found.accepted, found.late) == (4, 0)


arrivals = st.lists(st.floats(0.0, 120.0), max_size=30)


@given(streams=st.lists(st.tuples(arrivals, st.integers(1, 100_000)), min_size=1, max_size=3))
def test_the_order_of_partitions_changes_no_workload(
    streams: list[tuple[list[float], int]],
) -> None:
    parts = [part(columns(stream, tokens), until_s=60.0) for stream, tokens in streams]
    views = [seen(*order) for order in permutations(parts)]
    for other in views[1:]:
        assert other.workload == views[0].workload
        assert other.evidence == views[0].evidence
        assert other.sketch.arrivals.tolist() == views[0].sketch.arrivals.tolist()


@given(stream=arrivals, until_s=st.floats(0.0, 200.0))
def test_looking_changes_nothing_and_no_number_is_made_up(
    stream: list[float], until_s: float
) -> None:
    meta, slices = part(columns(stream), until_s=until_s)
    before = {index: sketch.to_bytes() for index, sketch in slices.items()}
    found = seen((meta, slices))
    assert {index: sketch.to_bytes() for index, sketch in slices.items()} == before
    if found.workload is None:
        # Without requests it is either known that there were none, or nothing is known.
        assert found.evidence is None or found.evidence.peak_arrival_rate_per_s == 0
    else:
        assert found.workload.arrival_rate_per_s > 0
        assert found.workload.sample_count <= found.accepted


def test_lengths_come_from_the_digest() -> None:
    found = seen(part(columns([float(second) for second in range(10)], 1_000), until_s=20.0))
    event = event_of(found, Trigger.INTERVAL)
    assert isinstance(event, Observed)
    assert event.lengths is not None
    assert event.lengths.mean_tokens == found.sketch.moments.values[..., 1:3].sum() / 10
    assert event.lengths.p50_tokens == pytest.approx(event.lengths.mean_tokens, rel=0.01)
    assert event.lengths.p50_tokens <= event.lengths.p90_tokens <= event.lengths.p99_tokens


def test_bytes_per_token_follow_the_newer_slices_and_leave_the_open_one_out() -> None:
    def told(arrivals_s: list[float], size: int, code: int = 0) -> RequestColumns:
        rows = len(arrivals_s)
        sizes, codes = np.full(rows, size), np.full(rows, code, dtype=np.int8)
        return replace(columns(arrivals_s), prompt_bytes=sizes, category=codes)

    old, new = told([1.0, 2.0], 200), told([41.0, 42.0], 400, 0)
    open_one = told([61.0], 9_000)
    found = seen(part(old, new, open_one, until_s=60.0)).bytes_per_token
    assert set(found) == {"prose"}
    assert found["prose"].requests == 4
    assert 2.0 < 2.0 * math.sqrt(2.0) < found["prose"].mean < 4.0
    assert found["prose"].low < 2.0 < 4.0 < found["prose"].high
    apart = seen(part(old, until_s=60.0), part(new, open_one, until_s=60.0))
    assert apart.bytes_per_token == found, "from however many partitions"
    event = event_of(seen(part(old, new, open_one, until_s=60.0)), Trigger.INTERVAL)
    assert isinstance(event, Observed)
    assert event.bytes_per_token == found
    assert seen(part(columns([1.0]), until_s=60.0)).bytes_per_token == {}


def test_what_compressions_came_to_leaves_with_the_window() -> None:
    """So a fleet that nothing could be compressed for tries again, once a window."""
    tried = replace(
        columns([0.0, 1.0], 5_000),
        compression=np.full(2, CompressionOutcome.NOT_ELIGIBLE, dtype=np.int8),
        sent_prompt_tokens=np.full(2, 5_000, dtype=np.int64),
    )
    early = seen(part(tried, columns([11.0], 5_000), until_s=20.0)).workload
    assert early is not None
    record = compression_record(early.outcomes)
    assert record is not None
    assert (record.attempted, record.not_eligible_share) == (2, 1.0)
    late = seen(part(tried, columns([11.0], 5_000), columns([61.0], 5_000), until_s=70.0)).workload
    assert late is not None
    assert compression_record(late.outcomes) is None
