"""Ingest: request records a CPU-second, the whole worker beside two baselines in the same run.

The topic is filled first; then, round after round, each contender reads it in a fresh process
and a fresh consumer group. CPU time is the reader's alone (user and system, all threads), from
the moment its consumer is started: not the broker's and not Redis's.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import redis

from benchmarks.contenders import CONTENDERS, FINISHED, RUN_TIMEOUT_S, STARTED, Task
from benchmarks.counted import MismatchError, check_counts, wait_until_covered
from benchmarks.load import Load, lay
from benchmarks.meter import Measured
from fleetopt.connectors.producer import MessageShape

START_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured, in records by case; a case of 0 records is left out."""

    batch_records: int
    many_fleets_records: int
    """In batches, of 1,000 fleets."""
    single_records: int
    agent_single_records: int
    """The Faust agent takes a message at a time, so its share of single records is smaller."""
    rounds: int


FULL: Final = Sizes(4_000_000, 2_000_000, 300_000, 40_000, rounds=3)
QUICK: Final = Sizes(1_000_000, 500_000, 80_000, 10_000, rounds=1)
FLEETS: Final = 8
MANY_FLEETS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's reading of one topic."""

    records: int
    cpu_s: float
    wall_s: float
    start_up_cpu_s: float
    """Imports, connecting and joining the group; not in `cpu_s`."""

    @property
    def per_cpu_s(self) -> float:
        """Records a CPU-second, start-up left out."""
        return self.records / self.cpu_s

    @property
    def per_s(self) -> float:
        """Records a second of wall time, start-up left out."""
        return self.records / self.wall_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """One message shape on one broker: every contender's runs, in rounds."""

    broker: str
    shape: MessageShape
    fleets: int
    bytes_per_record: float
    runs: dict[str, list[Run]]

    def ratio(self, baseline: str) -> float:
        """Return the worker's records a CPU-second over the baseline's: median over rounds."""
        pairs = zip(self.runs["worker"], self.runs[baseline], strict=True)
        return median(ours.per_cpu_s / theirs.per_cpu_s for ours, theirs in pairs)


def compare(
    broker: str,
    bootstrap_servers: str,
    redis_url: str,
    sizes: Sizes,
    say: Callable[[str], None] = lambda _: None,
) -> list[Comparison]:
    """Measure every case; `redis_url` is emptied between rounds, so it must be ours."""
    cases = (
        (MessageShape.BATCH, FLEETS, sizes.batch_records),
        (MessageShape.BATCH, MANY_FLEETS, sizes.many_fleets_records),
        (MessageShape.RECORD, FLEETS, sizes.single_records),
    )
    comparisons = []
    for shape, fleets, records in cases:
        if not records:
            continue
        case = f"{broker}, {shape.value}, {fleets} fleets"
        topic = f"bench.{uuid.uuid4().hex[:8]}"
        say(f"{case}: filling a topic with {records:,} records")
        load = lay(bootstrap_servers, topic, shape, records, fleets)
        loads = dict.fromkeys(CONTENDERS, load)
        if shape is MessageShape.RECORD:
            share = sizes.agent_single_records
            loads["agent"] = lay(bootstrap_servers, f"{topic}.agent", shape, share, fleets)
        runs: dict[str, list[Run]] = {contender: [] for contender in CONTENDERS}
        for number in range(sizes.rounds):
            for contender in CONTENDERS:
                run = measure(contender, bootstrap_servers, redis_url, loads[contender])
                runs[contender].append(run)
                say(
                    f"{case}: round {number + 1} of {sizes.rounds}, {contender}: "
                    f"{run.per_cpu_s:,.0f} records a CPU-second"
                )
        comparisons.append(Comparison(broker, shape, fleets, load.value_bytes / load.records, runs))
    return comparisons


def measure(contender: str, bootstrap_servers: str, redis_url: str, load: Load) -> Run:
    """Let a contender read the whole topic in a process of its own; its counts must be exact."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    task = Task(
        bootstrap_servers,
        load.topic,
        f"{contender}-{uuid.uuid4().hex[:8]}",
        load.records,
        redis_url,
    )
    arguments = [contender, msgspec.json.encode(task).decode()]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / f"{contender}.log"
        with Measured("benchmarks.contenders", arguments, log) as process:
            started = process.wait_for(STARTED, START_TIMEOUT_S)
            if contender == "worker":
                wait_until_covered(redis_url, load, RUN_TIMEOUT_S, process.check)
                ended = process.ask()
                check_counts(redis_url, load)
            else:
                ended = process.wait_for(FINISHED, RUN_TIMEOUT_S)
                if ended.records != load.records:
                    raise MismatchError(
                        f"{contender} decoded {ended.records} records of {load.records}"
                    )
    return Run(
        records=load.records,
        cpu_s=ended.cpu_s - started.cpu_s,
        wall_s=ended.at_s - started.at_s,
        start_up_cpu_s=started.cpu_s,
    )
