"""Compression through Kafka: how long an answer takes, and what becomes of prompts in an overload.

A compressor in its own process on the embedded broker; this process is the gateway. All of them
share the machine, the gateway's work too.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.compression_client import CompressionClient, Sent, new_id
from benchmarks.compression_corpus import needle_cases
from fleetopt.connectors.compression_wire import CompressionRequest
from fleetopt.connectors.token_counter import counter_for

MODEL: Final = "qwen3-32b"
TOKENS: Final = 8_700
"""Counted sentence by sentence; prompts of them have a good 8,000."""
KEEP: Final = 0.75
DIFFERENT: Final = 20
REQUEST_TOPIC: Final = "bench.requests"
REPLY_TOPIC: Final = "bench.replies"
START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is sent."""

    rounds: int
    seconds: float
    """Of each round."""
    per_s: float = 50.0
    within_s: float = 1.0
    """Deadline in the latency rounds."""
    overload: float = 10.0
    """Times `per_s`."""
    overload_within_s: float = 0.3


FULL: Final = Sizes(rounds=4, seconds=10.0)
QUICK: Final = Sizes(rounds=1, seconds=3.0)


@dataclass(frozen=True, slots=True)
class Round:
    """One compressor's life at one pace."""

    per_s: float
    within_s: float
    outcomes: dict[str, int]
    """By outcome or reason; `none` where no answer came."""
    took_s: list[float]
    """Of the answers, sorted."""
    late: int
    """Answers after the deadline."""
    expired: int
    """Past their deadline when the compressor read them."""
    unsent: int
    """Answers that Kafka did not take in time."""
    lost: int
    """Prompts of which the compressor knows nothing."""
    lag_s: float
    """The compressor's event loop was late by this at most."""
    blocked_s: float
    """Of this over work of its own; the rest is for want of a CPU."""
    memory_bytes: int
    """Proportional set size of the compressor and its processes, after the round."""
    load: float
    """Average of runnable processes in the minute before."""

    def quantile(self, share: float) -> float:
        """Return the time within which this share of the answers came."""
        return self.took_s[min(int(share * len(self.took_s)), len(self.took_s) - 1)]


@dataclass(frozen=True, slots=True)
class Figures:
    """Rounds at the usual pace, and one in overload."""

    tokens: int
    rounds: list[Round]
    overload: Round


def measure(
    bootstrap_servers: str, sizes: Sizes, tell: Callable[[str], None] = lambda _: None
) -> Figures:
    """Measure on a broker that is ours alone."""
    counter = counter_for(MODEL)
    prompts = [case.messages for case in needle_cases(DIFFERENT, TOKENS, counter, overlap=True)]
    tokens = [counter.count_prompt(prompt) for prompt in prompts]

    def requests(count: int) -> list[CompressionRequest]:
        return [
            CompressionRequest(
                v=1,
                request_id=new_id(),
                fleet="bench",
                model=MODEL,
                prompt=list(map(dict, prompts[number % DIFFERENT])),
                budget_tokens=round(KEEP * tokens[number % DIFFERENT]),
            )
            for number in range(count)
        ]

    rounds = []
    for number in range(sizes.rounds):
        tell(f"round {number + 1} of {sizes.rounds}: {sizes.per_s:g} prompts/s")
        count = round(sizes.per_s * sizes.seconds)
        rounds.append(_round(bootstrap_servers, requests(count), sizes.per_s, sizes.within_s))
    per_s = sizes.overload * sizes.per_s
    tell(f"overload: {per_s:g} prompts/s")
    flood = requests(round(per_s * sizes.seconds))
    overload = _round(bootstrap_servers, flood, per_s, sizes.overload_within_s)
    return Figures(sum(tokens) // len(tokens), rounds, overload)


def _round(
    bootstrap_servers: str, requests: Sequence[CompressionRequest], per_s: float, within_s: float
) -> Round:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, _compressor(bootstrap_servers, folder) as running:
        process, port, log = running
        sent = asyncio.run(_converse(bootstrap_servers, requests, per_s, within_s))
        lag_s = _metric(port, "event_loop_lag_seconds")
        blocked_s = _metric(port, "event_loop_blocked_seconds")
        expired = _metric(port, "expired_total")
        unsent = _metric(port, "unsent_total")
        known = _metric(port, "seconds_count") + expired + unsent
        memory_bytes = sum(map(_pss_bytes, [process.pid, *_pids(log)]))
        process.send_signal(signal.SIGTERM)
        if process.wait(STOP_LIMIT_S):
            raise RuntimeError(f"the compressor failed:\n{log.read_text()[-3000:]}")
    answers = (one.reply for one in sent)
    return Round(
        per_s=per_s,
        within_s=within_s,
        outcomes=dict(
            Counter((reply.reason or reply.outcome) if reply else "none" for reply in answers)
        ),
        took_s=sorted(one.took_s for one in sent if one.took_s is not None),
        late=sum(one.took_s is not None and one.took_s > within_s for one in sent),
        expired=int(expired),
        unsent=int(unsent),
        lost=DIFFERENT + len(requests) - int(known),
        lag_s=lag_s,
        blocked_s=blocked_s,
        memory_bytes=memory_bytes,
        load=load,
    )


async def _converse(
    bootstrap_servers: str, requests: Sequence[CompressionRequest], per_s: float, within_s: float
) -> list[Sent]:
    async with CompressionClient(bootstrap_servers, REQUEST_TOPIC, REPLY_TOPIC) as client:
        first = [
            msgspec.structs.replace(requests[number % len(requests)], request_id=new_id())
            for number in range(DIFFERENT)
        ]
        await client.settled(await client.pace(first, 20.0, START_LIMIT_S))
        sent = await client.pace(requests, per_s, within_s)
        await client.settled(sent, grace_s=5.0)
        return sent


@contextmanager
def _compressor(
    bootstrap_servers: str, folder: str
) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """Run a compressor until it reads; yields its process, its port and its log."""
    log = Path(folder) / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "FLEETOPT_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
        "FLEETOPT_COMPRESSOR__REQUEST_TOPIC": REQUEST_TOPIC,
        "FLEETOPT_COMPRESSOR__REPLY_TOPIC": REPLY_TOPIC,
        "FLEETOPT_COMPRESSOR__PARTITIONS": "4",
        "FLEETOPT_COMPRESSOR__WEB_PORT": str(port),
        "FLEETOPT_COMPRESSOR__MODELS": f'{{"{MODEL}": {{}}}}',
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetopt", "compressor"],
            env=environment,
            stdout=out,
            stderr=out,
        )
    try:
        end_s = time.monotonic() + START_LIMIT_S
        while "reading prompts to compress" not in log.read_text():
            if process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"the compressor does not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.05)
        yield process, port, log
    finally:
        process.kill()
        process.wait()


def _metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    found = re.search(rf"^fleetopt_compressor_{name} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the compressor has no metric {name}")
    return float(found[1])


def _pids(log: Path) -> list[int]:
    for line in log.read_text().splitlines():
        if "compression processes are up" in line:
            pids: list[int] = msgspec.json.decode(line)["pids"]
            return pids
    return []


def _pss_bytes(pid: int) -> int:
    if not sys.platform.startswith("linux"):
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    return 1024 * int(found[1]) if found else 0
