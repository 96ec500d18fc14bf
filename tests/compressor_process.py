"""A compressor in a process of its own, prompts for it, and what it says it did."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.compression_client import CompressionClient, new_id
from fleetopt.connectors.compression_wire import CompressionRequest
from fleetopt.pipeline.embedded import EmbeddedBroker
from tests.integration.conftest import Kafka

MODEL = "qwen3-32b"
LONG_S = 60.0
"""A deadline that is not reached, and the limit of everything that is waited for."""


@dataclass(frozen=True)
class CompressorPlace:
    """Where a test's compressor reads and writes."""

    bootstrap_servers: str
    name: str
    session_timeout_s: int = 3

    @property
    def reply_topic(self) -> str:
        """Topic of the answers."""
        return f"{self.name}.replies"

    @property
    def client(self) -> CompressionClient:
        """A gateway's part; not connected yet."""
        return CompressionClient(self.bootstrap_servers, self.name, self.reply_topic)

    def environment(self, **extra: str) -> dict[str, str]:
        """Return the variables that send a compressor there."""
        return {
            **os.environ,
            "FLEETOPT_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "FLEETOPT_KAFKA__SESSION_TIMEOUT_S": str(self.session_timeout_s),
            "FLEETOPT_COMPRESSOR__REQUEST_TOPIC": self.name,
            "FLEETOPT_COMPRESSOR__REPLY_TOPIC": self.reply_topic,
            "FLEETOPT_COMPRESSOR__PARTITIONS": "4",
            "FLEETOPT_COMPRESSOR__GROUP": self.name,
            "FLEETOPT_COMPRESSOR__MAX_WAIT_S": str(LONG_S),
            "FLEETOPT_COMPRESSOR__MODELS": f'{{"{MODEL}": {{}}}}',
            **extra,
        }


def place_on(kafka: Kafka, name: str) -> CompressorPlace:
    """Return a place on either Kafka."""
    return CompressorPlace(
        kafka.bootstrap_servers, name, 3 if isinstance(kafka, EmbeddedBroker) else 6
    )


@contextmanager
def compressor(
    place: CompressorPlace, log: Path, **extra: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a compressor; it is killed at the end if it still runs."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetopt", "compressor"],
            env=place.environment(**extra),
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ask a compressor to stop and return its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=LONG_S)


def lines(log: Path, event: str) -> list[dict[str, Any]]:
    """Return what the compressor has logged of one event so far."""
    mark = f'"event": "{event}"'
    return [msgspec.json.decode(line) for line in log.read_text().splitlines() if mark in line]


def wait_for_line(log: Path, event: str, count: int = 1) -> dict[str, Any]:
    """Wait until an event has been logged so often, and return the last of it."""
    end_s = time.monotonic() + LONG_S
    while len(found := lines(log, event)) < count:
        assert time.monotonic() < end_s, log.read_text()[-3000:]
        time.sleep(0.05)
    return found[-1]


def wait_until_reading(log: Path, count: int = 1) -> list[int]:
    """Wait until it reads requests for the so-and-so-manieth time; return its processes' ids."""
    wait_for_line(log, "reading prompts to compress", count)
    pids: list[int] = wait_for_line(log, "compression processes are up")["pids"]
    return pids


def requests(count: int, paragraphs: int = 60, seed: int = 1, **fields: Any) -> Any:
    """Return so many prompts of prose, a quarter over their budget."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        text = "\n\n".join(
            f"Report {draw.randrange(10**6)} is about station {draw.randrange(100)}. Its sensor "
            f"saw {draw.randrange(40)} degrees on day {number}, and nobody asked why."
            for number in range(paragraphs)
        )
        known = {
            "v": 1,
            "request_id": new_id(),
            "fleet": "chat",
            "model": MODEL,
            "prompt": text,
            "budget_tokens": 26 * paragraphs,
        }
        made.append(CompressionRequest(**{**known, **fields}))
    return made
