"""The published record: closed sets, finite numbers, and the same after a trip through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetopt.errors import InputError
from fleetopt.planner import recommendation as published
from fleetopt.planner.forecast.outcome import Method, MethodReason
from fleetopt.planner.outcome import BaselineName, Binding, InfeasibleReason
from fleetopt.planner.outcome import ReasonCode as PlanReason
from fleetopt.planner.plan import Workload
from fleetopt.planner.recommendation import (
    SCHEMA_VERSION,
    AlertKind,
    Confidence,
    DriftState,
    PublishReason,
    Recommendation,
    Status,
)
from fleetopt.planner.record import lengths_of
from fleetopt.planner.target import TtftTarget
from tests.planner.traffic import CONFIG, REQUEST, Fleet, long_traffic, short_traffic

DOCS = Path(__file__).parents[2] / "docs" / "recommendation.md"
RECORDS = [
    value
    for value in vars(published).values()
    if isinstance(value, type) and is_dataclass(value) and value.__module__ == published.__name__
]
ENUMS: list[type[StrEnum]] = [
    Status,
    Confidence,
    DriftState,
    AlertKind,
    PublishReason,
    PlanReason,
    Binding,
    BaselineName,
    InfeasibleReason,
    Method,
    MethodReason,
]


def _moved() -> Recommendation:
    """Right after the boundary moved: nearly every field is filled in."""
    fleet = Fleet()
    fleet.see(short_traffic(), 0)
    for index in (1, 2):
        fleet.see(long_traffic(), index)
    return fleet.last


def _infeasible() -> Recommendation:
    request = replace(REQUEST, slo_ttft_p99=TtftTarget(0.001))
    fleet = Fleet(replace(CONFIG, request=request))
    fleet.see(short_traffic(), 0)
    return fleet.last


@pytest.mark.parametrize("make", [_moved, _infeasible])
def test_json_and_back_is_the_same(make: Any) -> None:
    recommendation = make()
    text = msgspec.json.encode(recommendation)
    assert msgspec.json.decode(text, type=Recommendation) == recommendation
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION


def test_flat_fields_repeat_the_active_plan() -> None:
    now = _moved()
    assert now.active is not None
    assert (now.boundary_tokens, now.gamma) == (now.active.boundary_tokens, now.active.gamma)
    assert now.compress_up_to_tokens == now.active.compress_up_to_tokens
    assert now.short_replicas == now.active.short.replicas
    assert now.long_replicas == now.active.long_replicas
    assert now.cost_usd_per_h == now.active.cost_usd_per_h


def test_flat_keys_are_plain_numbers_or_null() -> None:
    flat = ("boundary_tokens", "gamma", "short_replicas", "long_replicas", "cost_usd_per_h")
    known, unknown = (json.loads(msgspec.json.encode(make())) for make in (_moved, _infeasible))
    assert all(isinstance(known[key], int | float) for key in flat)
    assert [unknown[key] for key in flat] == [None] * len(flat)


def test_baselines_state_what_the_active_plan_saves() -> None:
    now = _moved()
    assert {baseline.name for baseline in now.baselines} == {*BaselineName}
    assert now.active is not None
    for baseline in now.baselines:
        if not baseline.feasible:
            assert baseline.saving_ratio is None
            continue
        assert baseline.saving_usd_per_h is not None
        assert baseline.saving_ratio is not None
        paid = baseline.cost_usd_per_h - baseline.saving_usd_per_h
        assert paid == pytest.approx(now.active.cost_usd_per_h)
        assert baseline.saving_ratio * baseline.cost_usd_per_h == pytest.approx(
            baseline.saving_usd_per_h
        )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_may_be_other_than_finite(value: float) -> None:
    now = _moved()
    assert now.active is not None
    with pytest.raises(InputError, match=r"gamma is .*must be finite"):
        replace(now, gamma=value)
    pool = replace(now.active.short, utilization=value)
    with pytest.raises(InputError, match=r"active\.short\.utilization"):
        replace(now, active=replace(now.active, short=pool))
    baseline = replace(now.baselines[1], cost_usd_per_h=value)
    with pytest.raises(InputError, match=r"baselines\[0\]\.cost_usd_per_h"):
        replace(now, baselines=(baseline,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version 2"),
        ({"revision": 0}, "counted from 1"),
        ({"active": None}, "without an active plan"),
        ({"active": None, "status": Status.STALE}, "without an active plan"),
    ],
)
def test_what_no_reader_could_use_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(_moved(), **change)


def test_a_reason_outside_the_closed_set_does_not_decode() -> None:
    record = json.loads(msgspec.json.encode(_moved()))
    record["reasons"] = ["because"]
    with pytest.raises(msgspec.ValidationError, match="because"):
        msgspec.json.decode(json.dumps(record), type=Recommendation)


def test_a_record_from_before_forecasts_still_decodes() -> None:
    example = DOCS.read_text(encoding="utf-8").split("```json\n", 1)[1].split("```", 1)[0]
    record = json.loads(example)
    assert record["evidence"].pop("forecast")
    old = msgspec.json.decode(json.dumps(record), type=Recommendation)
    assert old.evidence is not None
    assert old.evidence.forecast is None


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_docs_name_every_field(record: type) -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = [field.name for field in fields(record) if f"`{field.name}`" not in text]
    assert missing == []


@pytest.mark.parametrize("closed", ENUMS, ids=lambda closed: closed.__name__)
def test_the_docs_name_every_code(closed: type[StrEnum]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [code.value for code in closed if f"`{code.value}`" not in text] == []


def test_the_example_in_the_docs_is_a_recommendation() -> None:
    example = DOCS.read_text(encoding="utf-8").split("```json\n", 1)[1].split("```", 1)[0]
    decoded = msgspec.json.decode(example, type=Recommendation)
    assert json.loads(example) == json.loads(msgspec.json.encode(decoded))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 500_000), min_size=1, max_size=200))
def test_percentiles_are_at_most_one_bin_above_the_true_ones(tokens: list[int]) -> None:
    lengths = lengths_of(Workload.from_requests(tokens, [0] * len(tokens), 1.0))
    assert lengths.mean_tokens == pytest.approx(sum(tokens) / len(tokens))
    true = np.quantile(tokens, [0.5, 0.9, 0.99], method="inverted_cdf")
    found = (lengths.p50_tokens, lengths.p90_tokens, lengths.p99_tokens)
    for exact, edge in zip(true, found, strict=True):
        assert exact <= edge <= max(64, exact * 2 ** (1 / 8) + 1)
