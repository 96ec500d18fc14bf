"""Gateways write with clients that are not ours: what kafka-python sends is counted, once.

It runs in a process of its own, as a gateway's would, and shares no code with aiokafka.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fleetopt.connectors.wire import RequestLog
from tests.integration.conftest import Kafka
from tests.worker_process import place_on, send, stop, wait_for, worker

RECORDS = 300

GATEWAY = """
import sys
from kafka import KafkaProducer

servers, topic, compression = sys.argv[1:]
producer = KafkaProducer(
    bootstrap_servers=servers,
    acks="all",
    compression_type=None if compression == "none" else compression,
    enable_idempotence=False,
)
sent = [producer.send(topic, key=b"chat", value=line) for line in sys.stdin.buffer.readlines()]
producer.close()
print(sum(future.succeeded() for future in sent))
"""


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_of_another_client_are_counted(
    kafka: Kafka, redis_url: str, topic: str, tmp_path: Path, compression: str
) -> None:
    place = place_on(kafka, redis_url, topic)
    send(place, [])  # makes the topic
    now_s = time.time()
    records = [RequestLog("chat", f"r{at}", now_s - 1, 1_000 + at, 100) for at in range(RECORDS)]
    sent = subprocess.run(
        [sys.executable, "-c", GATEWAY, place.bootstrap_servers, topic, compression],
        input=b"".join(msgspec.json.encode(record) + b"\n" for record in records),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert sent.stdout.strip() == str(RECORDS).encode(), sent.stderr.decode()
    with worker(place, tmp_path / "log") as process:
        seen = wait_for(place, lambda seen: seen.total >= RECORDS)
        assert stop(process) == 0
    assert (seen.accepted, seen.total) == (RECORDS, RECORDS)
