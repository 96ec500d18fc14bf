"""Recommendations through Kafka, Faust and Redis: the same as without them, once, and at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from redis.asyncio import Redis

from fleetopt.connectors.recommendation_store import (
    RecommendationStore,
    history_key,
    recommendation_key,
)
from fleetopt.connectors.wire import RequestBatch, encode_batch
from fleetopt.pipeline.embedded import EmbeddedBroker
from fleetopt.planner.forecast.outcome import MethodReason
from fleetopt.planner.recommendation import AlertKind, CheckState, Recommendation, Status
from tests.integration.conftest import Kafka
from tests.worker_process import DEADLINE_S, Place, place_on, send, stop, wait_for, worker

FLEET_SETTINGS = {
    "FLEETOPT_FLEET__PROFILE": "h100/qwen3-32b/tp2",
    "FLEETOPT_FLEET__SLO_TTFT_P99": "300ms+0.2ms/token",
}
LIVE = {
    **FLEET_SETTINGS,
    "FLEETOPT_WINDOW__SLICE_S": "1",
    "FLEETOPT_WINDOW__SLICES": "20",
    "FLEETOPT_WINDOW__ALLOWED_LATENESS_S": "1",
    "FLEETOPT_REPLAN__INTERVAL_S": "1",
    "FLEETOPT_REPLAN__LOAD_CHECK_S": "0.3",
    "FLEETOPT_REPLAN__STALE_AFTER_S": "3",
}


@pytest.fixture
def place(kafka: Kafka, redis_url: str, topic: str) -> Place:
    return place_on(kafka, redis_url, topic)


async def _read(place: Place, fleet: str) -> Recommendation | None:
    client = Redis.from_url(place.redis_url)
    try:
        return await RecommendationStore(client).read(fleet)
    finally:
        await client.aclose()


def published(
    place: Place, fleet: str, reached: Callable[[Recommendation], bool] = lambda _: True
) -> Recommendation:
    """Return the newest recommendation once it satisfies `reached`."""
    deadline = time.monotonic() + DEADLINE_S
    newest: Recommendation | None = None
    while time.monotonic() < deadline:
        newest = asyncio.run(_read(place, fleet))
        if newest is not None and reached(newest):
            return newest
        time.sleep(0.1)
    raise AssertionError(f"not reached in {DEADLINE_S:g} s; the newest recommendation is {newest}")


def fleetopt(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fleetopt", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_trace_gives_the_same_plan_with_services_and_without(
    place: Place, fleet: str, shared_data: Path, tmp_path: Path
) -> None:
    trace = shared_data / "traces" / "azure_llm_2023_conv.csv"
    requests = len(trace.read_text().splitlines()) - 1
    environment = place.environment(**FLEET_SETTINGS, FLEETOPT_REPLAN__INTERVAL_S="2")
    replay = ("replay", str(trace), "--fleet", fleet, "--speed", "max", "--output", "json")
    lines = fleetopt(*replay, "--offline", **environment).splitlines()
    offline = msgspec.json.decode(lines[-1], type=Recommendation)

    sent = msgspec.json.decode(fleetopt(*replay, **environment), type=dict[str, Any])
    assert sent["records_sent"] == requests
    with worker(place, tmp_path / "log", **FLEET_SETTINGS) as process:
        seen = wait_for(place, lambda seen: seen.total >= requests)
        online = published(place, fleet, lambda it: it.evidence == offline.evidence)
        assert stop(process) == 0

    assert (seen.accepted, seen.total) == (requests, requests)
    assert online.evidence == offline.evidence
    assert offline.evidence is not None
    assert offline.evidence.forecast is not None
    assert offline.evidence.forecast.reason is MethodReason.BACKTEST
    assert online.lengths is not None
    assert offline.lengths is not None
    assert online.lengths.mean_tokens == offline.lengths.mean_tokens
    # Digests depend on how the log was cut into fetches, within their error.
    assert online.lengths.p50_tokens == pytest.approx(offline.lengths.p50_tokens, rel=0.02)
    assert online.lengths.p99_tokens == pytest.approx(offline.lengths.p99_tokens, rel=0.02)
    assert online.optimal == offline.optimal
    assert online.optimal is not None
    assert online.status is Status.OK


def traffic(
    fleet: str, seconds: int, rate: int, prompt_tokens: int, ttft_s: float | None = None
) -> list[tuple[str, bytes]]:
    now = time.time()
    return [
        (
            fleet,
            encode_batch(
                RequestBatch(
                    v=1,
                    fleet=fleet,
                    ts=[now - seconds + second + row / rate for row in range(rate)],
                    p=[prompt_tokens + row for row in range(rate)],
                    o=[100] * rate,
                    t=None if ttft_s is None else [ttft_s] * rate,
                    w=None if ttft_s is None else [0] * rate,
                )
            ),
        )
        for second in range(seconds)
    ]


def test_load_over_its_limit_is_answered_before_the_interval(
    place: Place, fleet: str, tmp_path: Path
) -> None:
    environment = {**LIVE, "FLEETOPT_REPLAN__INTERVAL_S": "1"}
    with worker(place, tmp_path / "log", **environment) as process:
        send(place, [*traffic(fleet, 10, 50, 500)])
        first = published(place, fleet)
        assert stop(process) == 0
    with worker(
        place, tmp_path / "log", **{**environment, "FLEETOPT_REPLAN__INTERVAL_S": "3600"}
    ) as process:
        resumed = published(place, fleet, lambda it: it.revision > first.revision)
        send(place, [*traffic(fleet, 1, 2_000, 3_000)])
        grown = published(place, fleet, lambda it: it.revision > resumed.revision)
        assert stop(process) == 0
    assert "load_crossed_limit" in grown.reasons
    assert (grown.short_replicas or 0) > (resumed.short_replicas or 0)


def test_first_tokens_that_belie_the_profile_are_told(
    place: Place, fleet: str, tmp_path: Path
) -> None:
    """Requests wait a minute where the profile says that they wait a fraction of a second."""
    with worker(place, tmp_path / "log", **LIVE) as process:
        send(place, [*traffic(fleet, 10, 100, 500)])
        first = published(place, fleet)
        deadline = time.monotonic() + DEADLINE_S
        told = first
        while not any(one.kind is AlertKind.PROFILE_MISMATCH for one in told.alerts):
            assert time.monotonic() < deadline, told
            send(place, [*traffic(fleet, 1, 100, 500, ttft_s=60.0)])
            time.sleep(1.0)
            told = published(place, fleet, lambda it: it.revision >= first.revision)
        assert stop(process) == 0
    assert first.depends_on
    assert first.profile_checks == ()
    (check,) = told.profile_checks
    assert (check.pool, check.state) == ("short", CheckState.OUTSIDE)
    assert check.observed_ttft_p99_s == pytest.approx(60.0, rel=0.1)
    assert check.predicted_high_s < 10.0
    assert check.measurement is not None
    assert "h100/qwen3-32b/tp2" in check.measurement
    (alert,) = [one for one in told.alerts if one.kind is AlertKind.PROFILE_MISMATCH]
    assert check.measurement in alert.text


def test_silence_is_unknown_and_holds_the_plan(place: Place, fleet: str, tmp_path: Path) -> None:
    with worker(place, tmp_path / "log", **LIVE) as process:
        send(place, [*traffic(fleet, 10, 50, 500)])
        planned = published(place, fleet, lambda it: it.status is Status.OK)
        stale = published(place, fleet, lambda it: it.status is Status.STALE)
        assert stop(process) == 0
    assert stale.status is Status.STALE
    assert stale.revision > planned.revision
    assert (stale.short_replicas, stale.long_replicas) == (
        planned.short_replicas,
        planned.long_replicas,
    )
    assert [alert.kind.value for alert in stale.alerts] == ["traffic_unknown"]


def test_traffic_is_unknown_while_kafka_is_away(
    redis_url: str, topic: str, fleet: str, tmp_path: Path
) -> None:
    # Longer than it takes the worker to notice that reading is interrupted.
    environment = {**LIVE, "FLEETOPT_REPLAN__STALE_AFTER_S": "15"}
    with EmbeddedBroker(tmp_path / "broker") as broker:
        place = Place(broker.bootstrap_servers, redis_url, topic)
        with worker(place, tmp_path / "log", **environment) as process:
            send(place, [*traffic(fleet, 10, 50, 500)])
            planned = published(place, fleet, lambda it: it.status is Status.OK)
            broker.kill()
            stale = published(place, fleet, lambda it: it.status is Status.STALE)
            assert stop(process) == 0
    assert "reading is interrupted" in (tmp_path / "log").read_text()
    assert stale.short_replicas == planned.short_replicas
    assert [alert.kind.value for alert in stale.alerts] == ["traffic_unknown"]


def test_reported_idleness_is_not_silence(place: Place, fleet: str, tmp_path: Path) -> None:
    with worker(place, tmp_path / "log", **LIVE) as process:
        send(place, [*traffic(fleet, 10, 50, 500)])
        planned = published(place, fleet)
        deadline = time.monotonic() + 40
        newest = planned
        while time.monotonic() < deadline and "idle_confirmed" not in newest.reasons:
            heartbeat = RequestBatch(v=1, fleet=fleet, until_s=time.time())
            send(place, [(fleet, encode_batch(heartbeat))])
            time.sleep(0.5)
            newest = published(place, fleet)
            assert newest.status is Status.OK
            assert not newest.alerts
        assert stop(process) == 0
    assert "idle_confirmed" in newest.reasons
    assert newest.short_replicas is not None
    assert newest.short_replicas >= 1


def test_two_workers_publish_one_chain_of_revisions(
    place: Place, fleet: str, tmp_path: Path, redis_client: Any
) -> None:
    with (
        worker(place, tmp_path / "a", **LIVE) as first,
        worker(place, tmp_path / "b", **LIVE) as second,
    ):
        send(place, [*traffic(fleet, 10, 50, 500)])
        reached = published(place, fleet, lambda it: it.revision >= 3)
        assert stop(first) == 0
        send(place, [*traffic(fleet, 5, 50, 500)])
        published(place, fleet, lambda it: it.revision >= reached.revision + 2)
        assert stop(second) == 0
    entries = redis_client.xrange(f"fleetopt:{{{fleet}}}:history")
    revisions = [
        msgspec.json.decode(fields[b"recommendation"], type=Recommendation).revision
        for _, fields in entries
    ]
    assert revisions == list(range(1, len(revisions) + 1))


@pytest.mark.parametrize("key", [recommendation_key, history_key])
def test_a_key_that_something_else_wrote_does_not_stop_the_others(
    place: Place,
    fleet: str,
    unique: Callable[[str], str],
    tmp_path: Path,
    redis_client: redis.Redis,
    key: Callable[[str], str],
) -> None:
    wrong = unique("wrong")
    redis_client.hset(key(wrong), "not", "ours")
    log = tmp_path / "log"
    with worker(place, log, **LIVE) as process:
        send(place, [*traffic(wrong, 5, 50, 500), *traffic(fleet, 5, 50, 500)])
        assert published(place, fleet).status is Status.OK
        deadline = time.monotonic() + DEADLINE_S
        while "WRONGTYPE" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        redis_client.delete(key(wrong))
        assert published(place, wrong).status is Status.OK
        assert stop(process) == 0
    assert "WRONGTYPE" in log.read_text()


def test_a_fleet_whose_settings_are_wrong_does_not_stop_the_others(
    place: Place, fleet: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    wrong = unique("wrong")
    configuration = tmp_path / "fleetopt.yaml"
    configuration.write_text(f"fleets: {{{wrong}: {{profile: no/such/profile}}}}\n")
    log = tmp_path / "log"
    with worker(place, log, "--config", str(configuration), **LIVE) as process:
        send(place, [*traffic(wrong, 5, 50, 500), *traffic(fleet, 5, 50, 500)])
        assert published(place, fleet).status is Status.OK
        deadline = time.monotonic() + DEADLINE_S
        while "no/such/profile" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert stop(process) == 0
    assert "no/such/profile" in log.read_text()
