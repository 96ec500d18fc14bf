"""kill -9 of a compression process, of the whole compressor and of the broker: nothing is lost.

The short form (`FLEETOPT_CHAOS=short`, as in CI) sends fewer prompts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.compression_client import Sent
from fleetopt.pipeline.embedded import EmbeddedBroker
from tests.compressor_process import (
    LONG_S,
    CompressorPlace,
    compressor,
    lines,
    requests,
    stop,
    wait_for_line,
    wait_until_reading,
)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

FULL = os.environ.get("FLEETOPT_CHAOS", "full") == "full"
PROMPTS = 1_200 if FULL else 100
PER_S = 40.0
ROOM = {"FLEETOPT_COMPRESSOR__QUEUE_LIMIT": "10000"}
"""For all prompts of a test, so that none is refused on a slow machine."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def place(broker: EmbeddedBroker, topic: str) -> CompressorPlace:
    return CompressorPlace(broker.bootstrap_servers, topic)


def outcomes(sent: list[Sent]) -> Counter[str]:
    return Counter((one.reply.reason or one.reply.outcome) if one.reply else "none" for one in sent)


async def answered(sent: list[Sent], least: int) -> None:
    async with asyncio.timeout(LONG_S):
        while sum(one.reply is not None for one in sent) < least:
            await asyncio.sleep(0.01)


def test_processes_killed_again_and_again(place: CompressorPlace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    kills = 6 if FULL else 2

    def kill(number: int) -> None:
        """Kill one process; the last time all, and the server that they were forked from."""
        pids = pids_now(log)
        victims = [parent_of(pids[0]), *pids] if number == kills else pids[:1]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    async def talk() -> list[Sent]:
        async with place.client as client:
            pacing = asyncio.create_task(client.pace(requests(PROMPTS), PER_S, LONG_S))
            for number in range(1, kills + 1):
                while len(client.sent) < PROMPTS * number / (kills + 1):
                    await asyncio.sleep(0.01)
                kill(number)
                await asyncio.to_thread(
                    wait_for_line, log, "a compression process took its place", number
                )
            sent = await pacing
            await client.settled(sent)
            return sent

    with compressor(place, log, **ROOM) as process:
        wait_until_reading(log)
        sent = asyncio.run(talk())
        assert stop(process) == 0
    found = outcomes(sent)
    replaced = wait_for_line(log, "compressor stopped")["replaced_processes"]
    assert sum(found.values()) == PROMPTS
    assert replaced == kills + 1
    assert set(found) <= {"compressed", "worker_failed"}, log.read_text()[-3000:]
    assert found["worker_failed"] <= replaced
    assert all(one.replies == 1 for one in sent)


def pids_now(log: Path) -> list[int]:
    """Return the processes that run, as the log tells of them."""
    first: list[int] = wait_for_line(log, "compression processes are up")["pids"]
    later = [line["pid"] for line in lines(log, "a compression process took its place")]
    return [pid for pid in (*first, *later) if Path(f"/proc/{pid}").exists()]


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_the_whole_compressor_killed_while_another_one_runs(
    place: CompressorPlace, tmp_path: Path
) -> None:
    first_log, second_log = tmp_path / "first.log", tmp_path / "second.log"

    async def talk() -> list[Sent]:
        async with place.client as client:
            pacing = asyncio.create_task(client.pace(requests(PROMPTS), PER_S, LONG_S))
            while len(client.sent) < PROMPTS / 2:
                await asyncio.sleep(0.01)
            first.send_signal(signal.SIGKILL)
            sent = await pacing
            await client.settled(sent)
            return sent

    with (
        compressor(place, first_log, **ROOM) as first,
        compressor(place, second_log, **ROOM) as second,
    ):
        wait_until_reading(first_log)
        wait_until_reading(second_log)
        found = outcomes(asyncio.run(talk()))
        assert stop(second) == 0
    assert found == {"compressed": PROMPTS}, second_log.read_text()[-3000:]


def test_the_only_compressor_killed_and_started_again(
    place: CompressorPlace, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    soon_s = 1.0
    half = requests(PROMPTS // 2)
    hasty = requests(50, seed=2)
    rest = requests(PROMPTS // 2, seed=3)

    async def before() -> list[Sent]:
        async with place.client as client:
            sent = await client.pace(half, 500, LONG_S)
            await answered(sent, len(half) // 4)
            process.send_signal(signal.SIGKILL)
            process.wait()
            # Nobody is there: these are past their deadline when somebody is.
            late = await client.pace(hasty, 500, soon_s)
            await client.settled(late, grace_s=0.5)
            return sent

    async def after(sent: list[Sent]) -> list[Sent]:
        async with place.client as client:  # reads the answers from the beginning
            client.sent |= {one.request.request_id: one for one in sent}
            more = await client.pace(rest, 100, LONG_S)
            await client.settled([*sent, *more])
            return more

    with compressor(place, log, **ROOM) as process:
        wait_until_reading(log)
        sent = asyncio.run(before())
    with compressor(place, log, **ROOM) as process:
        wait_until_reading(log, 2)
        more = asyncio.run(after(sent))
        assert stop(process) == 0
    assert outcomes([*sent, *more]) == {"compressed": len(half) + len(rest)}
    said = wait_for_line(log, "compressor stopped")
    assert said["expired"] == len(hasty)


@pytest.mark.parametrize("away_s", [0.0, 2.0] if FULL else [0.5])
def test_broker_made_anew(
    place: CompressorPlace, broker: EmbeddedBroker, tmp_path: Path, away_s: float
) -> None:
    log = tmp_path / "log"

    async def talk(seed: int) -> list[Sent]:
        async with place.client as client:
            sent = await client.pace(requests(40, seed=seed), PER_S, LONG_S)
            await client.settled(sent)
            return sent

    async def interrupted() -> None:
        async with place.client as client:
            sent = await client.pace(requests(100, seed=2), 1_000, LONG_S)
            await answered(sent, 1)
            broker.kill()  # in memory: topics, offsets and what was under way are gone

    with compressor(place, log, **ROOM) as process:
        wait_until_reading(log)
        assert outcomes(asyncio.run(talk(1))) == {"compressed": 40}
        asyncio.run(interrupted())
        asyncio.run(asyncio.sleep(away_s))
        broker.restart()
        assert outcomes(asyncio.run(talk(3))) == {"compressed": 40}, log.read_text()[-3000:]
        assert process.poll() is None
        assert stop(process) == 0
    assert len(lines(log, "compression processes are up")) == 1
