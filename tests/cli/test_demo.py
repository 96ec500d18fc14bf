"""`fleetopt demo`, ended at any moment: nothing that it started stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetopt.pipeline.demo import _end
from tests.cli.conftest import clean_environment

DEADLINE_S = 30.0


def descendants(root: int) -> set[int]:
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = {root}
    for _ in range(4):
        found |= {pid for pid, parent in parents if parent in found}
    return found - {root}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_task_that_loses_a_cancellation_is_ended_nevertheless() -> None:
    async def deaf(lost: list[int]) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lost.append(1)
        await asyncio.sleep(60)

    async def run() -> list[int]:
        lost: list[int] = []
        task = asyncio.create_task(deaf(lost))
        await asyncio.sleep(0)
        await _end(task)
        assert task.cancelled()
        return lost

    assert asyncio.run(run()) == [1]


@pytest.mark.parametrize("after_s", [0.0, 2.0])
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_nothing_that_it_started_stays(
    tmp_path: Path, how: signal.Signals, code: int, after_s: float
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetopt", "demo", "--duration", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(TMPDIR=str(tmp_path)),
        text=True,
    )
    end_s = time.monotonic() + DEADLINE_S
    started: set[int] = set()
    while len(started) < 6 and time.monotonic() < end_s:  # three services, three supervisors
        started = descendants(process.pid)
        time.sleep(0.05)
    assert len(started) == 6
    time.sleep(after_s)
    process.send_signal(how)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code
    assert said == ""
    while any(map(is_running, started)) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert not any(map(is_running, started))
    if how is not signal.SIGKILL:
        assert not list(tmp_path.glob("fleetopt-*"))
