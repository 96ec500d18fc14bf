"""The three processes that are compared: the worker, a bare `getmany` loop, a plain Faust agent.

Run as `python -m benchmarks.contenders NAME JSON` by `benchmarks.ingest`. Each tells a reading
"started" once it may fetch (its consumer is started and has fetched nothing), so that what comes
before is start-up; the two baselines tell "finished" once they have decoded every record.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Final

import faust
import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from benchmarks.load import PARTITIONS
from benchmarks.meter import open_channel, tell
from fleetopt.config.settings import IngestSettings, KafkaSettings, Settings, load_settings
from fleetopt.connectors.decode import decode_message
from fleetopt.connectors.kafka import make_consumer

STARTED, FINISHED = "started", "finished"
SESSION_TIMEOUT_S: Final = 6.0
"""The least that Apache Kafka takes; joining a group takes the embedded broker half of it."""
RUN_TIMEOUT_S: Final = 300.0
_WORKER_READS: Final = "reading request logs"
"""What the worker logs when its consumer is started."""


class Task(msgspec.Struct):
    """What a contender works on."""

    bootstrap_servers: str
    topic: str
    group: str
    records: int
    redis_url: str


def count(value: bytes | None) -> int:
    """Decode a message as the worker does and return how many records it held."""
    decoded = decode_message(value)
    if decoded.rejected:
        raise ValueError(f"a record of the benchmark was refused: {decoded.rejected[0].detail}")
    return len(decoded.records) + sum(len(batch.columns) for batch in decoded.batches)


def worker(task: Task) -> int:
    """Run FleetOpt's own worker: decode, sketch, durable state."""
    from fleetopt.pipeline.worker import run  # the baselines don't pay for importing it

    logging.getLogger("fleetopt.pipeline.ingest").addHandler(_TellWhenReading())
    return run(_settings(task))


class _TellWhenReading(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # structlog hands its event over as a dict.
        if isinstance(record.msg, dict) and record.msg.get("event") == _WORKER_READS:
            tell(STARTED)


def getmany(task: Task) -> int:
    """Read with the worker's own consumer settings, decode, and do nothing else."""
    asyncio.run(_getmany(task))
    return 0


async def _getmany(task: Task) -> None:
    settings = _settings(task)
    consumer: AIOKafkaConsumer = make_consumer(settings.kafka, settings.ingest)
    # No group: it would be joined for seconds and read no faster.
    consumer.assign([TopicPartition(task.topic, number) for number in range(PARTITIONS)])
    await consumer.start()
    try:
        tell(STARTED)
        records = 0
        while records < task.records:
            fetched = await consumer.getmany(timeout_ms=250, max_records=1_000)
            for messages in fetched.values():
                for message in messages:
                    records += count(message.value)
        tell(FINISHED, records)
    finally:
        await consumer.stop()


def agent(task: Task) -> int:
    """Decode in a Faust agent over the raw topic, with Faust's defaults and no state."""
    with tempfile.TemporaryDirectory() as folder:  # Faust makes one where it is started
        return _run_agent(task, folder)


def _run_agent(task: Task, folder: str) -> int:
    app = faust.App(
        task.group,
        broker=f"kafka://{task.bootstrap_servers}",
        store="memory://",
        web_enabled=False,
        topic_disable_leader=True,
        topic_partitions=PARTITIONS,
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=1,
        datadir=folder,
    )
    topic = app.topic(task.topic, key_serializer="raw", value_serializer="raw")

    @app.agent(topic)
    async def counting(stream: Any) -> None:
        records = 0
        async for value in stream:
            records += count(value)
            if records >= task.records:
                tell(FINISHED, records)

    async def started(_: Any, assigned: Any, **__: Any) -> None:
        if assigned:
            tell(STARTED)

    app.on_partitions_assigned.connect(started)  # type: ignore[arg-type]

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        faust.Worker(
            app, loop=loop, loglevel="warning", redirect_stdouts=False, quiet=True
        ).execute_from_commandline()
    except SystemExit as stop:
        return int(stop.code or 0)


def _settings(task: Task) -> Settings:
    kafka = KafkaSettings(
        bootstrap_servers=task.bootstrap_servers,
        topic=task.topic,
        partitions=PARTITIONS,
        group=task.group,
        session_timeout_s=SESSION_TIMEOUT_S,
    )
    return load_settings(
        kafka=kafka.model_dump(),
        redis={"url": task.redis_url},
        ingest=IngestSettings().model_dump(),
        # Planning costs by fleet and by time, not by record: the first plans come too late.
        replan={"load_check_s": 2 * RUN_TIMEOUT_S},
    )


CONTENDERS: Final[dict[str, Callable[[Task], int]]] = {
    "worker": worker,
    "getmany": getmany,
    "agent": agent,
}

if __name__ == "__main__":
    open_channel()
    sys.exit(CONTENDERS[sys.argv[1]](msgspec.json.decode(sys.argv[2], type=Task)))
