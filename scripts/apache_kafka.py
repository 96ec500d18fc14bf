"""One KRaft node of Apache Kafka on loopback, from Maven Central, without Docker.

As a command: `python scripts/apache_kafka.py run` until Ctrl-C, or `fetch` to get the jars only.
As a library: `with ApacheKafka() as node: node.bootstrap_servers`, in the shape of
`fleetopt.pipeline.embedded`. Java 17 or newer and Maven have to be there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Self

from fleetopt.errors import FleetOptError, ServiceError
from fleetopt.pipeline.child import ManagedService, free_port
from fleetopt.pipeline.embedded import ask_for_brokers

KAFKA_VERSION = "4.4.0"
MINIMUM_JAVA = 17
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "apache-kafka"
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0"
_MAVEN_TIMEOUT_S = 600
# Simple logging goes to standard error, and so into the log file of the service.
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fleetopt</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def missing_tools() -> str:
    """Say what of Java and Maven is missing; empty when both are there."""
    java_version = _java_version()
    missing = []
    if java_version < MINIMUM_JAVA:
        found = f" (found {java_version})" if java_version else ""
        missing.append(f"Java {MINIMUM_JAVA} or newer{found}")
    if shutil.which("mvn") is None:
        missing.append("Maven")
    return " and ".join(missing)


def _java_version() -> int:
    """Return Java's major version, 0 when there is none that runs."""
    java = shutil.which("java")
    if java is None:
        return 0
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    quoted = printed.stderr.partition('"')[2]
    major = quoted.partition(".")[0].partition('"')[0].partition("-")[0]
    return int(major) if major.isdigit() else 0


def fetch_jars() -> Path:
    """Have Maven put the broker and its dependencies into the cache; return their folder."""
    folder = CACHE / KAFKA_VERSION
    jars = folder / "jars"
    if jars.is_dir():
        return jars
    if missing := missing_tools():
        raise ServiceError(f"Apache Kafka needs {missing}: install it, then try again")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM.format(version=KAFKA_VERSION))
    # A name of our own until all is there: an interrupted or parallel download is never used.
    partial = folder / f"partial-{os.getpid()}"
    command = ["mvn", "-B", "-q", f"{_DEPENDENCY_PLUGIN}:copy-dependencies"]
    command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_MAVEN_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise ServiceError(
                f"Maven could not fetch Apache Kafka {KAFKA_VERSION} from Maven Central:\n"
                f"{(done.stdout + done.stderr).strip()[-2000:]}"
            )
        if not jars.is_dir():
            partial.rename(jars)
    except subprocess.TimeoutExpired as error:
        raise ServiceError(
            f"Maven did not fetch Apache Kafka {KAFKA_VERSION} within {_MAVEN_TIMEOUT_S} s: "
            "check the connection to repo.maven.apache.org"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return jars


class ApacheKafka(ManagedService):
    """Apache Kafka in KRaft mode, broker and controller in one; its data outlives `kill`."""

    name = "apache-kafka"
    grace_s = 20.0

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        port: int | None = None,
        start_timeout_s: float = 90.0,
    ) -> None:
        super().__init__(data_dir, port=port, start_timeout_s=start_timeout_s)
        self.controller_port = 0

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, as Kafka clients take it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Fetch the jars if need be, then start the node and wait until it answers."""
        fetch_jars()
        return super().start()

    def command(self) -> list[str]:
        """Write the node's properties, format its storage the first time, return the command."""
        properties = self.data_dir / "server.properties"
        self.controller_port = self.controller_port or free_port()
        lines = [f"{key}={value}\n" for key, value in self.settings().items()]
        properties.write_text("".join(lines))
        if not (self.data_dir / "kafka" / "meta.properties").exists():
            self._format(properties)
        return [*self._java(), "kafka.Kafka", str(properties)]

    def probe(self) -> None:
        """Ask for the brokers of the cluster."""
        ask_for_brokers(self.port)

    def not_ready(self) -> tuple[type[Exception], ...]:
        """Return what a closed port raises."""
        return (OSError,)

    def _java(self) -> list[str]:
        # fmt: off
        return [
            shutil.which("java") or "java",
            "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp", str(fetch_jars() / "*"),
        ]
        # fmt: on

    def _format(self, properties: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = [*self._java(), "kafka.tools.StorageTool", "format"]
        # One word: an id may begin with a dash, and would be taken for an option.
        command += [f"--cluster-id={cluster_id}", "--config", str(properties)]
        if "controller.quorum.voters" not in self.settings():
            command.append("--standalone")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise ServiceError(
                "Apache Kafka could not format its storage:\n"
                f"{(done.stdout + done.stderr).strip()[-2000:]}"
            )

    def settings(self) -> dict[str, object]:
        """Return what goes into server.properties."""
        controller = f"127.0.0.1:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": controller,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}",
            "advertised.listeners": (
                f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}"
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data_dir / "kafka",
            "num.network.threads": 2,
            "num.io.threads": 4,
            "num.partitions": 1,
            # Copies and delays that make sense on a cluster only.
            "default.replication.factor": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # After a kill the controller refuses the node until its old session has ended.
            "broker.session.timeout.ms": 2_000,
            "broker.heartbeat.interval.ms": 500,
            "log.segment.bytes": 64 * 1024 * 1024,
        }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("command", choices=["fetch", "run"])
    parser.add_argument("--port", type=int, help="default: a free one")
    parser.add_argument("--data-dir", type=Path, help="kept; default: a private one, deleted")
    arguments = parser.parse_args()
    try:
        if arguments.command == "fetch":
            print(fetch_jars())
            return 0
        _run(arguments.data_dir, arguments.port)
    except FleetOptError as error:
        print(f"apache_kafka: {error}", file=sys.stderr)
        return 1
    return 0


def _run(data_dir: Path | None, port: int | None) -> None:
    told = False

    def tell(*_: object) -> None:
        # Not an Event: a handler that sets one while it is being waited for can lock up.
        nonlocal told
        told = True

    for order in (signal.SIGINT, signal.SIGTERM):
        signal.signal(order, tell)
    with ApacheKafka(data_dir, port=port) as node:
        print(
            f"Apache Kafka {KAFKA_VERSION} at {node.bootstrap_servers}, pid {node.pid}", flush=True
        )
        print(f"log: {node.log_path}. Ctrl-C ends it.", flush=True)
        while node.running and not told:
            time.sleep(0.2)
        if not node.running:
            raise ServiceError(f"Apache Kafka ended by itself:\n{node.log_tail()}")


if __name__ == "__main__":
    sys.exit(main())
