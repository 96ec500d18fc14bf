"""`fleetopt watch` and `fleetopt up`, with real services."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from fleetopt.config.settings import RedisSettings, load_settings
from fleetopt.connectors.recommendation_store import RecommendationStore, recommendation_key
from fleetopt.connectors.redis import connect
from fleetopt.connectors.wire import RequestLog
from fleetopt.pipeline.embedded import EmbeddedRedis
from fleetopt.planner.recommendation import Recommendation
from tests.cli.conftest import Cli, clean_environment
from tests.pipeline.test_offline import run_offline


@pytest.fixture(scope="module")
def recommendation() -> Recommendation:
    """A recommendation such as the core makes."""
    records = [RequestLog("f", str(at), 1e9 + at / 10, 500, 50) for at in range(3_000)]
    made: list[Recommendation] = run_offline(load_settings(), records)
    return made[-1]


def publish(url: str, recommendation: Recommendation) -> None:
    async def write() -> None:
        client = connect(RedisSettings(url=url))
        try:
            assert await RecommendationStore(client).publish(recommendation)
        finally:
            await client.aclose()

    asyncio.run(write())


@contextmanager
def running(*args: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetopt", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(**variables),
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_once_prints_the_newest(
    shell: Cli, redis_url: str, recommendation: Recommendation, fleet: str
) -> None:
    publish(redis_url, replace(recommendation, fleet=fleet, revision=3))
    order = ["watch", "--once", "--fleet", fleet, "--redis-url", redis_url]
    found = json.loads(shell(*order, "--output", "json").out)
    assert found["revision"] == 3
    assert found["boundary_tokens"] == recommendation.boundary_tokens
    table = shell(*order).out
    assert f"{fleet}  revision 3  ok: " in table
    assert "because: " in table


def test_once_without_a_recommendation_fails(shell: Cli, redis_url: str, fleet: str) -> None:
    done = shell("watch", "--once", "--fleet", fleet, "--redis-url", redis_url)
    assert (done.code, done.out) == (1, "")
    assert f"error: fleet {fleet} has no recommendation" in done.err


@pytest.mark.parametrize("options", [["--once"], []])
def test_a_key_of_another_type_is_one_line(
    shell: Cli, redis_url: str, redis_client: redis.Redis, fleet: str, options: list[str]
) -> None:
    redis_client.lpush(recommendation_key(fleet), "not ours")
    done = shell("watch", *options, "--fleet", fleet, "--redis-url", redis_url)
    redis_client.delete(recommendation_key(fleet))
    assert done.code == 1
    assert done.err.startswith(f"error: Redis refuses to tell of fleet {fleet}: WRONGTYPE")
    assert done.err.count("\n") == 1


def test_what_listens_and_never_answers_is_given_up(shell: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        done = shell("watch", "--once", "--redis-url", url, FLEETOPT_REDIS__TIMEOUT_S="0.2")
    assert done.code == 1
    assert done.err.startswith("error: Redis does not answer")


def test_a_name_that_no_fleet_can_have_is_refused(shell: Cli) -> None:
    assert shell("watch", "--once", "--fleet", "{x}").code == 2


def test_once_without_redis_fails(shell: Cli) -> None:
    done = shell("watch", "--once", "--redis-url", "redis://127.0.0.1:1/0")
    assert done.code == 1
    assert "error: Redis does not answer" in done.err
    assert done.err.count("\n") == 1


def test_each_new_one_is_printed_and_count_ends_it(
    redis_url: str, recommendation: Recommendation, fleet: str
) -> None:
    publish(redis_url, replace(recommendation, fleet=fleet, revision=1))
    with running(
        "watch", "--fleet", fleet, "--count", "3", "--output", "json", FLEETOPT_REDIS__URL=redis_url
    ) as process:
        revisions = [json.loads(line_of(process))["revision"]]
        for revision in (2, 3):
            publish(redis_url, replace(recommendation, fleet=fleet, revision=revision))
            revisions.append(json.loads(line_of(process))["revision"])
        assert process.wait(20) == 0
    assert revisions == [1, 2, 3]


def test_a_restart_of_redis_is_survived(recommendation: Recommendation, fleet: str) -> None:
    with EmbeddedRedis() as server:
        publish(server.url, replace(recommendation, fleet=fleet, revision=1))
        with running(
            "watch", "--fleet", fleet, "--output", "json", FLEETOPT_REDIS__URL=server.url
        ) as process:
            assert json.loads(line_of(process))["revision"] == 1
            server.kill()
            server.restart()
            publish(server.url, replace(recommendation, fleet=fleet, revision=2))
            assert json.loads(line_of(process))["revision"] == 2
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_up_starts_both_and_ends_both(tmp_path: Path, how: signal.Signals, code: int) -> None:
    with running("up", "--data-dir", str(tmp_path)) as process:
        variables = dict(
            line_of(process).removeprefix("export ").strip().split("=", 1) for _ in range(2)
        )
        broker_port = int(variables["FLEETOPT_KAFKA__BOOTSTRAP_SERVERS"].split(":")[1])
        assert is_listening(broker_port)
        children = _children(process.pid)
        assert children
        process.send_signal(how)
        assert process.wait(20) == code
    _wait_until(lambda: not any(map(_is_alive, children)))
    assert not is_listening(broker_port)


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_until(holds: Callable[[], bool], limit_s: float = 10.0) -> None:
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)
