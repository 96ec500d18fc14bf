"""The whole worker against real services: what it counts, refuses, survives and says."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer
from redis import Redis

from fleetopt.connectors.dead_letter import dead_letter_topic
from fleetopt.connectors.wire import RequestBatch, RequestLog, encode_batch
from fleetopt.pipeline.embedded import EmbeddedBroker, EmbeddedRedis
from tests.integration.conftest import Kafka
from tests.worker_process import Place, place_on, send, stop, wait_for, worker


@pytest.fixture
def place(kafka: Kafka, redis_url: str, topic: str) -> Place:
    return place_on(kafka, redis_url, topic)


def record(number: int, **changes: object) -> RequestLog:
    now = time.time()
    fields = {
        "fleet": "chat",
        "request_id": f"r{number}",
        "arrival_s": now - 1,
        "prompt_tokens": 1_000 + number,
        "completion_tokens": 100,
        **changes,
    }
    return msgspec.convert(fields, RequestLog)


def batch(seq: int, rows: int = 250, **changes: object) -> bytes:
    now = time.time()
    fields: dict[str, object] = {
        "v": 1,
        "fleet": "chat",
        "ts": [now - 1 + row / 1_000 for row in range(rows)],
        "p": [1_000] * rows,
        "o": [100] * rows,
        "src": "gateway-1",
        "seq": seq,
        **changes,
    }
    return msgspec.msgpack.encode(fields)


def dead_letters(place: Place, expected: int) -> list[tuple[str, bytes]]:
    """Return (reason, value) of each letter."""

    async def read() -> list[tuple[str, bytes]]:
        consumer = AIOKafkaConsumer(
            dead_letter_topic(place.topic),
            bootstrap_servers=place.bootstrap_servers,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            letters: list[tuple[str, bytes]] = []
            deadline = time.monotonic() + 20
            while len(letters) < expected and time.monotonic() < deadline:
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    letters += [
                        (dict(message.headers)["reason"].decode(), message.value or b"")
                        for message in messages
                    ]
            return letters
        finally:
            await consumer.stop()

    return asyncio.run(read())


def test_every_shape_is_counted_and_nothing_bad_stops_it(place: Place, tmp_path: Path) -> None:
    single = [msgspec.json.encode(record(number)) for number in range(100)]
    good: list[bytes] = [
        *single,
        b"[" + b",".join(single[:10]) + b"]",
        b"\n".join(single[:10]),
        msgspec.msgpack.encode(record(1)),
        batch(1),
        msgspec.json.encode(msgspec.msgpack.decode(batch(2))),
    ]
    rows = 100 + 10 + 10 + 1 + 250 + 250
    repeated = batch(2)
    bad: list[bytes | None] = [
        b"{not json",
        None,
        b"",
        b"x" * 500_000,
        b"[" * 50_000,
        msgspec.json.encode({"fleet": "chat"}),
        msgspec.json.encode({**msgspec.to_builtins(record(1)), "prompt_tokens": -1}),
        msgspec.json.encode({**msgspec.to_builtins(record(1)), "prompt_tokens": 10**300}),
        msgspec.json.encode({**msgspec.to_builtins(record(1)), "prompt_tokens": "12"}),
        msgspec.msgpack.encode({**msgspec.to_builtins(record(1)), "arrival_s": math.nan}),
        msgspec.json.encode({**msgspec.to_builtins(record(1)), "arrival_s": time.time() * 1e3}),
        msgspec.json.encode({**msgspec.to_builtins(record(1)), "arrival_s": time.time() + 9_999}),
        batch(3, v=99),
        batch(4, o=[1]),
    ]
    half_bad = batch(5, rows=4, p=[5, -5, 7, 8], o=[1, 1, math.nan, 1])
    with worker(place, tmp_path / "log") as process:
        send(place, [("chat", value) for value in good])
        send(place, [("chat", value) for value in (*bad, repeated, half_bad, *single)])
        refused = len(bad) + 2  # a batch that can't be read is one
        total = rows + refused + 250 + 2 + 100
        seen = wait_for(place, lambda seen: seen.total >= total)
        assert stop(process) == 0
    assert seen.accepted == rows + 2 + 100
    assert seen.duplicated == 250
    assert seen.rejected == refused
    letters = dead_letters(place, len(bad) + 2)
    assert len(letters) == len(bad) + 2
    assert {reason for reason, _ in letters} == {
        "malformed",
        "empty",
        "invalid",
        "out_of_range",
        "future_arrival",
        "unknown_version",
    }
    assert b"{not json" in [value for _, value in letters]


def test_late_records_are_counted_apart(place: Place, tmp_path: Path) -> None:
    now = time.time()
    with worker(place, tmp_path / "log") as process:
        send(place, [("chat", msgspec.json.encode(record(1)))])
        old = record(2, arrival_s=now - 3_600)
        send(place, [("chat", msgspec.json.encode(old))])
        seen = wait_for(place, lambda seen: seen.total >= 2)
        assert stop(process) == 0
    assert (seen.accepted, seen.late) == (1, 1)


def test_unkeyed_records_of_a_fleet_on_many_partitions(place: Place, tmp_path: Path) -> None:
    with worker(place, tmp_path / "log") as process:
        send(
            place,
            [(f"key-{number}", msgspec.json.encode(record(number))) for number in range(400)],
        )
        seen = wait_for(place, lambda seen: seen.total >= 400)
        assert stop(process) == 0
    assert seen.accepted == seen.in_slices == 400


@pytest.mark.parametrize("asked", [2, 8])
def test_a_topic_of_other_partitions_than_asked_for_is_read_whole(
    place: Place, tmp_path: Path, asked: int
) -> None:
    values: list[tuple[str, bytes | None]] = [
        (f"key-{number}", msgspec.json.encode(record(number))) for number in range(400)
    ]
    send(place, values)
    with worker(replace(place, partitions=asked), tmp_path / "log") as process:
        seen = wait_for(replace(place, partitions=asked), lambda seen: seen.total >= 400)
        assert stop(process) == 0
    assert seen.accepted == seen.in_slices == 400
    assert f"has {place.partitions} partitions, not the {asked}" in (tmp_path / "log").read_text()


@pytest.fixture
def own_services(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedRedis]]:
    with EmbeddedBroker(tmp_path / "broker") as broker, EmbeddedRedis(tmp_path / "redis") as redis:
        yield broker, redis


def logged(log: Path, text: str) -> bool:
    """Say whether the worker's log comes to hold a text."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if text in log.read_text():
            return True
        time.sleep(0.1)
    return False


def test_a_full_redis_is_waited_for(
    own_services: tuple[EmbeddedBroker, EmbeddedRedis], topic: str, tmp_path: Path
) -> None:
    broker, server = own_services
    place = Place(broker.bootstrap_servers, server.url, topic, slice_s=1)
    log = tmp_path / "log"
    often = {"FLEETOPT_REPLAN__INTERVAL_S": "0.5", "FLEETOPT_WINDOW__ALLOWED_LATENESS_S": "0"}
    with worker(place, log, **often) as process, Redis.from_url(server.url) as client:
        now_s = time.time()
        send(place, [("chat", batch(1, ts=[now_s - 5 + row / 100 for row in range(250)]))])
        assert logged(log, '"event": "recommendation"'), log.read_text()
        client.config_set("maxmemory", "1kb")
        send(place, [("chat", batch(2, ts=[now_s + row / 100 for row in range(250)]))])
        assert logged(log, "Redis does not take state"), log.read_text()
        assert logged(log, "Redis does not take plans"), log.read_text()
        client.config_set("maxmemory", "0")
        seen = wait_for(place, lambda seen: seen.total >= 500)
        assert process.poll() is None
        assert stop(process) == 0
    assert seen.accepted == 500


def test_services_absent_at_start_are_waited_for(
    own_services: tuple[EmbeddedBroker, EmbeddedRedis], topic: str, tmp_path: Path
) -> None:
    broker, redis = own_services
    place = Place(broker.bootstrap_servers, redis.url, topic)
    broker.kill()
    redis.kill()
    log = tmp_path / "log"
    with worker(place, log) as process:
        assert logged(log, "Redis does not answer"), log.read_text()
        redis.restart()
        assert logged(log, "Kafka at"), log.read_text()
        broker.restart()
        send(
            place,
            [
                (
                    "chat",
                    encode_batch(RequestBatch(v=1, fleet="chat", ts=[time.time()], p=[5], o=[6])),
                )
            ],
        )
        seen = wait_for(place, lambda seen: seen.total >= 1)
        assert stop(process) == 0
    assert seen.accepted == 1
    assert "retry_in_s" in log.read_text()
