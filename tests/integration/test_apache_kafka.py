"""Apache Kafka itself, started by our script, keeps what it was given over a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiokafka
import pytest
import yaml

from fleetopt.connectors.topics import ensure_topic
from fleetopt.pipeline.child import free_port
from fleetopt.pipeline.embedded import ask_for_brokers
from scripts import apache_kafka
from scripts.apache_kafka import ApacheKafka
from tests.integration.conftest import Kafka

RECORDS = [b"%d" % number for number in range(200)]


async def produce(servers: str, topic: str) -> None:
    """Write the records, acknowledged by all replicas."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    await producer.start()
    try:
        for record in RECORDS:
            await producer.send(topic, record)
    finally:
        await producer.stop()


async def consume(servers: str, topic: str) -> list[bytes]:
    """Read as many records as were written, from the beginning."""
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in RECORDS]
    finally:
        await consumer.stop()


def test_records_come_back_in_order(kafka: Kafka, topic: str) -> None:
    async def round_trip() -> list[bytes]:
        await ensure_topic(kafka.bootstrap_servers, topic, 1, 3600)
        await produce(kafka.bootstrap_servers, topic)
        return await consume(kafka.bootstrap_servers, topic)

    assert asyncio.run(round_trip()) == RECORDS


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka")  # the jars are there, or the test is skipped
def test_topic_and_records_outlive_kill_9(topic: str) -> None:
    with ApacheKafka() as node:
        servers = node.bootstrap_servers
        before = asyncio.run(ensure_topic(servers, topic, 1, 3600))
        asyncio.run(produce(servers, topic))
        node.kill()
        node.restart()
        assert node.bootstrap_servers == servers
        after = asyncio.run(ensure_topic(servers, topic, 1, 3600))
        assert not after.created
        assert after.topic_id == before.topic_id
        assert asyncio.run(consume(servers, topic)) == RECORDS


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka")
def test_the_settings_of_docker_compose_start_a_node_at_both_addresses(project: Path) -> None:
    compose = yaml.safe_load((project / "docker-compose.yml").read_text())
    external_port = free_port()

    class AsInCompose(ApacheKafka):
        def settings(self) -> dict[str, object]:
            """The image turns KAFKA_A_B into a.b; hosts, ports and folder are this machine's."""
            here = {"kafka:": "127.0.0.1:", ":19092": f":{self.port}"}
            here |= {":9092": f":{external_port}", ":9093": f":{self.controller_port}"}
            settings: dict[str, object] = {}
            for variable, value in compose["services"]["kafka"]["environment"].items():
                text = str(value)
                for there, replacement in here.items():
                    text = text.replace(there, replacement)
                settings[variable.removeprefix("KAFKA_").lower().replace("_", ".")] = text
            return settings | {"log.dirs": self.data_dir / "kafka"}

    with AsInCompose() as node:
        ask_for_brokers(node.port)
        ask_for_brokers(external_port)


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka")
def test_the_command_runs_a_node_until_it_is_told_to_end() -> None:
    script = Path(apache_kafka.__file__)
    with subprocess.Popen(
        [sys.executable, str(script), "run"], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        line = command.stdout.readline()
        pid = int(line.rpartition(" ")[2])
        os.kill(pid, 0)
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert apache_kafka.missing_tools() == "Java 17 or newer and Maven"


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        ('openjdk version "17.0.15" 2025-04-15', ""),
        ('openjdk version "21" 2023-09-19', ""),
        ('openjdk version "25-ea" 2025-09-16', ""),
        ('openjdk version "11.0.2" 2019-01-15', "Java 17 or newer (found 11)"),
        ('java version "1.8.0_401"', "Java 17 or newer (found 1)"),
        ("no version here", "Java 17 or newer"),
    ],
)
def test_java_is_asked_for_its_version(
    printed: str, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, body in {"java": f"echo '{printed}' >&2", "mvn": ":"}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    assert apache_kafka.missing_tools() == missing
