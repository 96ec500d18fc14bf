"""A trace straight through the core: every request counted, and planned as the stream would."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fleetopt.cli.recommendation_text import describe
from fleetopt.config.profiles import load_catalogue
from fleetopt.config.settings import Settings, load_settings
from fleetopt.connectors.rows import columns_of_records
from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import ConfigError
from fleetopt.pipeline.generator import Archetype, Schedule, generate
from fleetopt.pipeline.offline import Offline
from fleetopt.pipeline.replay import Replay, Timestamps, WallClock
from fleetopt.planner.effects import Effect, Publish, RaiseAlert
from fleetopt.planner.moments import TokenMoments
from fleetopt.planner.recommendation import AlertKind, Recommendation

START_S = 1_700_000_040.0
"""The begin of a minute."""


def feed(
    settings: Settings, records: list[RequestLog], speed: float
) -> tuple[Offline, list[Effect]]:
    effects: list[Effect] = []
    sink = Offline(settings, load_catalogue(), speed, lambda _, __, effect: effects.append(effect))
    run = Replay(
        sink,
        speed=math.inf,
        timestamps=Timestamps.RECORDED,
        slice_s=settings.window.slice_s,
        clock=WallClock(),
    )
    asyncio.run(run.run([records]))
    return sink, effects


def published(effects: list[Effect]) -> list[Recommendation]:
    return [effect.recommendation for effect in effects if isinstance(effect, Publish)]


def run_offline(
    settings: Settings, records: list[RequestLog], speed: float = math.inf
) -> list[Recommendation]:
    """Return the recommendations that records lead to."""
    return published(feed(settings, records, speed)[1])


def steady(count: int, per_s: float, fleet: str = "f") -> list[RequestLog]:
    rng = np.random.default_rng(4)
    return [
        RequestLog(fleet, str(at), START_S + at / per_s, prompt, 100)
        for at, prompt in enumerate(rng.integers(50, 2_000, count).tolist())
    ]


SETTINGS = load_settings(fleet={"slo_ttft_p99": "2s"})


def test_as_fast_as_possible_is_one_plan_on_everything() -> None:
    records = steady(6_000, 20)
    (only,) = run_offline(SETTINGS, records)
    assert only.revision == 1
    assert only.evidence is not None
    assert only.evidence.sample_count == 6_000
    assert only.evidence.mean_arrival_rate_per_s == pytest.approx(20)
    assert only.lengths is not None
    assert only.lengths.mean_tokens == pytest.approx(
        np.mean([record.prompt_tokens + 100 for record in records])
    )


def test_plans_come_every_interval_of_the_replays_time() -> None:
    records = steady(12_000, 20)  # ten minutes
    times = [one.computed_at_s - START_S for one in run_offline(SETTINGS, records, 1.0)]
    regular = [at for at in times[:-1] if at % 30 == 0]
    assert regular == [60.0 + 30 * at for at in range(len(regular))]
    assert regular[-1] == 570
    assert times[-1] == 600
    fast = [one.computed_at_s - START_S for one in run_offline(SETTINGS, records, 4.0)]
    assert [at for at in fast if at % 120 == 0] == [120.0, 240.0, 360.0, 480.0, 600.0]


def test_the_last_plan_does_not_depend_on_the_speed_where_nothing_changes() -> None:
    records = steady(12_000, 20)
    fast, slow = (run_offline(SETTINGS, records, speed)[-1] for speed in (math.inf, 1.0))
    assert fast.optimal == slow.optimal
    assert fast.evidence == slow.evidence


def test_every_request_is_counted_in_its_fleet() -> None:
    records = sorted(
        [*steady(900, 5, "a"), *steady(600, 3, "b")], key=lambda record: record.arrival_s
    )
    sink, effects = feed(SETTINGS, records, 1.0)
    assert (sink.accepted, sink.late) == (1_500, 0)
    newest = {one.fleet: one for one in published(effects)}
    assert {name: one.evidence.sample_count for name, one in newest.items() if one.evidence} == {
        "a": 900,
        "b": 600,
    }


def test_the_sketch_is_the_moments_of_the_records() -> None:
    records = steady(2_000, 20)
    sink, _ = feed(SETTINGS, records, math.inf)
    columns = columns_of_records(records)
    expected = TokenMoments.from_requests(
        columns.prompt_tokens, columns.completion_tokens, columns.compressibility
    )
    window = sink._windows.fleets["f"]
    counted = (one.moments for one in window.slices.values())
    assert sum(counted, TokenMoments.zero()) == expected


def test_a_shift_moves_the_boundary_and_says_why() -> None:
    settings = load_settings(
        window={"slice_s": 1, "slices": 12, "allowed_lateness_s": 1},
        replan={"interval_s": 2, "load_check_s": 0.5},
        fleet={"slo_ttft_p99": "300ms+0.2ms/token"},
    )
    schedule = Schedule(
        Archetype.CONCENTRATED_BELOW,
        rate_per_s=300.0,
        duration_s=36.0,
        shift_to=Archetype.DISPERSED,
        shift_at_s=18.0,
        transition_s=3.0,
    )
    records = [
        record
        for chunk in generate(schedule, "f", START_S, np.random.default_rng(1))
        for record in chunk
    ]
    _, effects = feed(settings, records, 1.0)
    before = [one for one in published(effects) if one.computed_at_s <= START_S + 18]
    after = published(effects)[-1]
    assert before[-1].boundary_tokens is not None
    assert after.boundary_tokens is not None
    assert after.boundary_tokens > 1.4 * before[-1].boundary_tokens
    assert after.active is not None
    assert after.active.long is not None
    alerts = [effect for effect in effects if isinstance(effect, RaiseAlert)]
    assert AlertKind.BOUNDARY_DRIFT in {alert.kind for alert in alerts}


def test_an_infeasible_target_is_a_recommendation_too() -> None:
    tight = load_settings(fleet={"slo_ttft_p99": "1ms"})
    newest = run_offline(tight, steady(3_000, 20))[-1]
    assert newest.infeasible is not None
    assert newest.short_replicas is None


def test_settings_that_cant_be_planned_with_are_refused() -> None:
    wrong = load_settings(fleets={"f": {"profile": "nope"}})
    with pytest.raises(ConfigError, match="no engine profile 'nope'"):
        feed(wrong, steady(10, 1), math.inf)


def test_what_is_cached_goes_from_the_log_into_the_plan() -> None:
    schedule = Schedule(Archetype.CONCENTRATED_ABOVE, rate_per_s=40.0, duration_s=120.0)
    found = []
    for share in (None, 0.6):
        made = generate(
            replace(schedule, cached_share=share), "f", START_S, np.random.default_rng(5)
        )
        records = [record for chunk in made for record in chunk]
        found.append(run_offline(load_settings(fleet={"slo_ttft_p99": "60s"}), records)[-1])
    cold, warm = found
    assert cold.evidence is not None
    assert warm.evidence is not None
    assert (cold.evidence.cached_prompt_share, cold.evidence.cache_known_share) == (0.0, 0.0)
    assert warm.evidence.cached_prompt_share == pytest.approx(0.6, abs=0.01)
    assert warm.evidence.cache_known_share == 1.0
    assert cold.active is not None
    assert warm.active is not None
    assert warm.active.cost_usd_per_h < cold.active.cost_usd_per_h
    assert "60 % of prompt tokens cached" in " ".join(describe(warm))
    assert "cached" not in " ".join(describe(cold))


def test_bytes_per_token_go_from_the_log_into_the_recommendation() -> None:
    kinds = (("code", 3), ("prose", 4), (None, 5))
    records = []
    for at, record in enumerate(steady(6_000, 20)):
        category, each = kinds[at % 3]
        size = record.prompt_tokens * each
        records.append(msgspec.structs.replace(record, category=category, prompt_bytes=size))
    (only,) = run_offline(SETTINGS, records)
    assert set(only.bytes_per_token) == {"code", "prose", "unknown"}
    for category, each in kinds:
        found = only.bytes_per_token[category or "unknown"]
        assert found.requests == 2_000
        assert found.mean == pytest.approx(each, rel=0.023)
        assert found.low <= each <= found.high
    (silent,) = run_offline(SETTINGS, steady(6_000, 20))
    assert silent.bytes_per_token == {}
