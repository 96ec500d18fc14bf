"""kill -9 of the worker and of Redis in the middle of a log: every record counted exactly once.

The short form (`FLEETOPT_CHAOS=short`, as in CI) sends fewer records.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from fleetopt.connectors.wire import RequestBatch, RequestLog, encode_batch
from fleetopt.pipeline.counts import Counts
from fleetopt.pipeline.embedded import EmbeddedBroker, EmbeddedRedis
from tests.worker_process import Place, send, stop, wait_for, worker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

FULL = os.environ.get("FLEETOPT_CHAOS", "full") == "full"
BATCHES = 6_000 if FULL else 1_500
ROWS = 250
FLEETS = 5


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedRedis]]:
    with EmbeddedBroker(tmp_path / "broker") as broker, EmbeddedRedis(tmp_path / "redis") as server:
        yield broker, server


@pytest.fixture
def place(services: tuple[EmbeddedBroker, EmbeddedRedis], topic: str) -> Place:
    broker, server = services
    return Place(broker.bootstrap_servers, server.url, topic)


def batches(count: int, seed: int) -> list[tuple[str, bytes | None]]:
    """Columnar batches of several fleets, in the order of time, ending now."""
    draw = random.Random(seed)
    start_s = time.time() - count / FLEETS
    values: list[tuple[str, bytes | None]] = []
    for number in range(count):
        fleet = f"fleet-{number % FLEETS}"
        at_s = start_s + number // FLEETS
        batch = RequestBatch(
            v=1,
            fleet=fleet,
            ts=[at_s + row / ROWS for row in range(ROWS)],
            p=[draw.randint(1, 8_000) for _ in range(ROWS)],
            o=[draw.randint(1, 500) for _ in range(ROWS)],
            src="test",
            seq=number + 1,
        )
        values.append((fleet, encode_batch(batch)))
    return values


class Sender(threading.Thread):
    """Sends slices of a log at a steady pace while the test breaks things."""

    def __init__(self, place: Place, values: list[tuple[str, bytes | None]], pieces: int) -> None:
        super().__init__(daemon=True)
        self._place = place
        self._values = values
        self._pieces = pieces
        self.error: BaseException | None = None

    def run(self) -> None:
        size = -(-len(self._values) // self._pieces)
        try:
            for start in range(0, len(self._values), size):
                send(self._place, self._values[start : start + size])
                time.sleep(0.2)
        except BaseException as error:
            self.error = error
            raise


def exactly(sent: int) -> Callable[[Counts], bool]:
    return lambda counts: counts.total >= sent


def test_worker_killed_three_times_and_redis_once(
    place: Place, services: tuple[EmbeddedBroker, EmbeddedRedis], tmp_path: Path
) -> None:
    _, server = services
    values = batches(BATCHES, seed=1)
    sent = BATCHES * ROWS
    sender = Sender(place, values, pieces=40)
    sender.start()
    log = tmp_path / "worker.log"
    for share in (0.1, 0.3, 0.5):
        with worker(place, log) as process:
            reached = wait_for(place, lambda seen, least=sent * share: seen.total >= least)  # type: ignore[misc]
            assert reached.total >= sent * share, log.read_text()[-3000:]
            process.send_signal(signal.SIGKILL)
            process.wait()
    with worker(place, log) as process:
        wait_for(place, lambda seen: seen.total >= sent * 0.6)
        server.kill()
        time.sleep(1)
        server.restart()
        seen = wait_for(place, exactly(sent), deadline_s=120)
        sender.join()
        assert sender.error is None
        time.sleep(1)  # time to count too much
        seen = wait_for(place, exactly(sent))
        assert stop(process) == 0
    assert (seen.total, seen.accepted, seen.late, seen.duplicated, seen.rejected) == (
        sent,
        sent,
        0,
        0,
        0,
    ), log.read_text()[-3000:]
    assert seen.in_slices == sent


def test_redis_emptied_while_a_worker_runs(
    place: Place, services: tuple[EmbeddedBroker, EmbeddedRedis], tmp_path: Path
) -> None:
    values = batches(400, seed=2)
    sent = 400 * ROWS
    send(place, values)
    with worker(place, tmp_path / "worker.log") as process:
        assert wait_for(place, exactly(sent)).total == sent
        with redis.Redis.from_url(place.redis_url) as client:
            client.flushall()
        send(place, batches(5, seed=3))  # the next write finds the state gone
        seen = wait_for(place, exactly(sent))
        assert stop(process) == 0
    # The last five batches repeat sequence numbers of the first ones, so they are duplicates.
    assert (seen.accepted, seen.duplicated) == (sent, 5 * ROWS)


@pytest.mark.parametrize("field", ["fleet:fleet-0", "sources", "position", "slices"])
def test_damaged_state_is_rebuilt_from_the_log(place: Place, tmp_path: Path, field: str) -> None:
    sent = 100 * ROWS
    send(place, batches(100, seed=7))
    with worker(place, tmp_path / "worker.log") as process:
        assert wait_for(place, exactly(sent)).total == sent
        assert stop(process) == 0
    with redis.Redis.from_url(place.redis_url) as client:
        if field == "slices":
            (key,) = client.keys("*:slices:fleet-0")
            client.delete(key)
        else:
            (key,) = [key for key in client.keys("*:cover") if client.hexists(key, field)][:1]
            client.hset(key, field, b"\xc1damaged")
    with worker(place, tmp_path / "worker.log") as process:
        send(place, batches(1, seed=8))  # repeated, so not counted again
        seen = wait_for(place, lambda seen: seen.accepted == sent and seen.duplicated == ROWS)
        assert stop(process) == 0
    log = (tmp_path / "worker.log").read_text()
    assert (seen.accepted, seen.duplicated) == (sent, ROWS), log[-3000:]
    assert "stored sketches are of no use" in log


def test_a_paused_worker_that_comes_back_changes_nothing(place: Place, tmp_path: Path) -> None:
    half = BATCHES // 2
    values = batches(BATCHES, seed=4)
    send(place, values[:half])
    with worker(place, tmp_path / "first.log") as first:
        wait_for(place, lambda seen: seen.total > 0)
        first.send_signal(signal.SIGSTOP)
        with worker(place, tmp_path / "second.log") as second:
            seen = wait_for(place, exactly(half * ROWS))
            assert seen.total == half * ROWS, (tmp_path / "second.log").read_text()[-3000:]
            first.send_signal(signal.SIGCONT)
            send(place, values[half:])
            seen = wait_for(place, exactly(BATCHES * ROWS))
            time.sleep(1)
            seen = wait_for(place, exactly(BATCHES * ROWS))
            assert stop(second) == 0
    assert seen.accepted == seen.total == seen.in_slices == BATCHES * ROWS


@pytest.mark.parametrize("key", ["cover", "slices:fleet-0"])
def test_a_key_that_something_else_wrote_is_taken_back(
    place: Place, tmp_path: Path, key: str
) -> None:
    sent = 100 * ROWS
    send(place, batches(100, seed=9))
    with worker(place, tmp_path / "worker.log") as process:
        assert wait_for(place, exactly(sent)).total == sent
        with redis.Redis.from_url(place.redis_url) as client:
            (slices,) = client.keys("*:slices:fleet-0")
            name = slices.replace(b"slices:fleet-0", key.encode())
            client.delete(name)
            client.set(name, "not ours")
        send(place, batches(120, seed=9)[100:])
        seen = wait_for(place, lambda seen: seen.accepted == 120 * ROWS)
        assert process.poll() is None
        assert stop(process) == 0
    log = (tmp_path / "worker.log").read_text()
    assert seen.accepted == seen.total == 120 * ROWS, log[-3000:]
    assert "is not a hash: something else writes to it" in log


@pytest.mark.parametrize("away_s", [0.0, 1.5, 2.5])
def test_broker_made_anew(
    place: Place, services: tuple[EmbeddedBroker, EmbeddedRedis], tmp_path: Path, away_s: float
) -> None:
    broker, _ = services
    send(place, batches(100, seed=5))
    with worker(place, tmp_path / "worker.log") as process:
        assert wait_for(place, exactly(100 * ROWS)).total == 100 * ROWS
        broker.kill()
        time.sleep(away_s)
        broker.restart()  # in memory: offsets begin at 0 again, under a new topic id
        send(place, batches(120, seed=6))
        seen = wait_for(place, exactly(120 * ROWS))
        assert stop(process) == 0
    assert seen.accepted == seen.total == 120 * ROWS, (tmp_path / "worker.log").read_text()[-3000:]


def test_two_workers_share_the_partitions(place: Place, tmp_path: Path) -> None:
    records: list[Any] = [
        (
            f"fleet-{number % 40}",
            msgspec.json.encode(
                RequestLog(
                    fleet=f"fleet-{number % 40}",
                    request_id=str(number),
                    arrival_s=time.time(),
                    prompt_tokens=100 + number % 1000,
                    completion_tokens=50,
                )
            ),
        )
        for number in range(20_000)
    ]
    with (
        worker(place, tmp_path / "a.log") as first,
        worker(place, tmp_path / "b.log") as second,
    ):
        send(place, records[:10_000])
        wait_for(place, exactly(10_000))
        assert stop(first) == 0
        send(place, records[10_000:])
        seen = wait_for(place, exactly(20_000))
        assert stop(second) == 0
    assert seen.accepted == seen.total == seen.in_slices == 20_000
