"""kill -9 around a gateway that goes on asking: each prompt is answered, and none of them wrongly.

The short form (`FLEETOPT_CHAOS=short`, as in CI) sends fewer prompts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import redis

from fleetopt.connectors.compression_client import KafkaCompressor
from fleetopt.connectors.gateway import Answer, Gateway, Pool
from fleetopt.connectors.token_counter import counter_for
from fleetopt.pipeline.embedded import EmbeddedBroker, EmbeddedRedis
from tests.compressor_process import (
    LONG_S,
    MODEL,
    CompressorPlace,
    compressor,
    requests,
    wait_for_line,
    wait_until_reading,
)
from tests.connectors.gateway_plans import publish, recommendation, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

FULL = os.environ.get("FLEETOPT_CHAOS", "full") == "full"
PHASE_PROMPTS = 200 if FULL else 40
PER_S = 40.0
DEADLINE_S = 1.0
COMPLETION = 100
BOUNDARY = 26 * 60 + COMPLETION + 1

Meanwhile = Callable[[], Awaitable[object]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def place(broker: EmbeddedBroker, topic: str) -> CompressorPlace:
    return CompressorPlace(broker.bootstrap_servers, topic)


class Asker:
    """A gateway in use, and every answer that it gave."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.answers: list[tuple[str, Answer]] = []
        self._prompts = [request.prompt for request in requests(20)]
        self._asked = 0

    async def ask(self) -> Answer:
        prompt = self._prompts[self._asked % len(self._prompts)]
        self._asked += 1
        answer = await self.gateway.compress(
            prompt, COMPLETION, model=MODEL, deadline_s=DEADLINE_S, category="rag"
        )
        self.answers.append((prompt, answer))
        return answer

    async def phase(self, meanwhile: Meanwhile | None = None) -> Counter[str]:
        """Ask at a pace while something happens; what was answered, by reason."""
        begun = len(self.answers)
        happening = None if meanwhile is None else asyncio.ensure_future(meanwhile())
        asking: list[asyncio.Task[Answer]] = []
        while len(asking) < PHASE_PROMPTS or (happening is not None and not happening.done()):
            asking.append(asyncio.create_task(self.ask()))
            await asyncio.sleep(1 / PER_S)
        async with asyncio.timeout(LONG_S):
            await asyncio.gather(*asking)
        if happening is not None:
            await happening
        assert len(self.answers) - begun == len(asking)
        return Counter(answer.reason or "compressed" for _, answer in self.answers[begun:])

    async def until_compressed(self) -> None:
        """Ask until a prompt is compressed again."""
        async with asyncio.timeout(LONG_S):
            while not (await self.ask()).is_compressed:
                await asyncio.sleep(0.1)

    def check(self) -> None:
        """Hold every answer to what it promises."""
        counter = counter_for(MODEL)
        for prompt, answer in self.answers:
            if answer.is_compressed:
                assert isinstance(answer.prompt, str)
                assert answer.pool is Pool.SHORT
                assert counter.count(answer.prompt) == answer.tokens_after
                assert counter.count(answer.prompt) <= BOUNDARY - COMPLETION
            else:
                assert answer.prompt is prompt
                assert answer.pool is Pool.LONG


def test_every_prompt_is_answered_whatever_is_killed(
    place: CompressorPlace,
    broker: EmbeddedBroker,
    server: EmbeddedRedis,
    fleet: str,
    tmp_path: Path,
) -> None:
    log, second_log = tmp_path / "log", tmp_path / "second.log"

    async def talk(asker: Asker) -> None:
        await asker.until_compressed()
        assert set(await asker.phase()) == {"compressed"}

        async def kill_a_process() -> None:
            os.kill(pids[0], signal.SIGKILL)
            await asyncio.to_thread(wait_for_line, log, "a compression process took its place")

        found = await asker.phase(kill_a_process)
        assert found["compressed"] > 0
        assert found["worker_failed"] <= 1

        async def restart_redis() -> None:
            server.kill()
            await until(lambda: not asker.gateway.is_connected)
            await asyncio.to_thread(server.restart)

        assert (await asker.phase(restart_redis))["compressed"] > 0

        async def restart_broker() -> None:
            broker.kill()
            await asyncio.sleep(1.0)
            await asyncio.to_thread(broker.restart)

        found = await asker.phase(restart_broker)
        assert found.total() > found["compressed"]
        await asker.until_compressed()

        async def kill_all() -> None:
            first.kill()
            first.wait()
            await asyncio.sleep(3 * DEADLINE_S)  # nobody is there

        found = await asker.phase(kill_all)
        assert found.total() > found["compressed"]
        assert set(found) <= {"compressed", "deadline", "no_compressor"}
        with compressor(place, second_log):
            await asyncio.to_thread(wait_until_reading, second_log)
            await asker.until_compressed()
            assert (await asker.phase())["compressed"] > 0

    async def run() -> Asker:
        with redis.Redis.from_url(server.url) as client:
            publish(client, recommendation(fleet, 1, BOUNDARY, 2 * BOUNDARY))
        async with (
            KafkaCompressor(
                place.bootstrap_servers, request_topic=place.name, reply_topic=place.reply_topic
            ) as kafka,
            Gateway(fleet, server.url, compressor=kafka, poll_s=0.2) as gateway,
        ):
            asker = Asker(gateway)
            await until(lambda: gateway.is_connected and kafka.is_connected)
            await talk(asker)
        return asker

    with compressor(place, log) as first:
        pids = wait_until_reading(log)
        asker = asyncio.run(run())
    asker.check()
