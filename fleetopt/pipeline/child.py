"""A service that we start ourselves: its supervised process, its port, its log, its end.

Knows nothing of Kafka or Redis: `ManagedService` asks its subclass for the command and for a
probe that really connects. Used by `embedded` and by `scripts/apache_kafka.py`.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self, cast

from fleetopt.errors import ServiceError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_LOG_TAIL_LINES = 12
# Below the range from which Linux (32768 up) and macOS (49152 up) take ports for outgoing
# connections: otherwise a client that retries while the service is down can connect to itself,
# and the service can't get its port back.
_PORTS = range(20_000, 30_000)


def free_port() -> int:
    """Return a loopback port on which nothing listens at the moment."""
    for port in random.SystemRandom().sample(_PORTS, 200):
        if is_free(port):
            return port
    raise ServiceError(
        f"no free port found on 127.0.0.1 between {_PORTS.start} and {_PORTS.stop}: "
        "stop some of the services that listen there"
    )


def is_free(port: int) -> bool:
    """Say whether a server could listen on the loopback port."""
    with socket.socket() as probe:
        # As servers do it: connections of an earlier one that are still winding down don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class ChildProcess:
    """One run of a service under its supervisor."""

    def __init__(
        self,
        command: list[str],
        log: Path,
        *,
        remove: Path | None = None,
        grace_s: float = 5.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        settings = {
            "command": command,
            "log": str(log),
            "remove": str(remove) if remove else None,
            "grace_s": grace_s,
        }
        self._grace_s = grace_s
        self._supervisor = subprocess.Popen(  # noqa: S603 - the command is our own
            [sys.executable, "-I", "-S", str(_SUPERVISOR), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
        line = cast("IO[bytes]", self._supervisor.stdout).readline()
        if not line:
            _, problem = self._supervisor.communicate()
            raise ServiceError(f"can't run {command[0]}: {problem.decode().strip()[-400:]}")
        self.pid = int(line)

    def exit_status(self) -> int | None:
        """Return how the service ended, or None while it runs."""
        return self._supervisor.poll()

    def stop(self) -> None:
        """End the service in good order; kill it if it takes longer than its grace."""
        self._order(b"T")

    def kill(self) -> None:
        """Kill the service at once, as kill -9 does."""
        self._order(b"K")

    def _order(self, order: bytes) -> None:
        try:
            # No error when the supervisor has already ended with its service.
            self._supervisor.communicate(order, timeout=self._grace_s + 10)
        except subprocess.TimeoutExpired:
            # A service that even SIGKILL does not end, in uninterruptible sleep.
            self._supervisor.kill()
            self._supervisor.communicate()


class ManagedService(ABC):
    """A service on a loopback port with a data folder of its own.

    Parameters
    ----------
    data_dir
        Where data and log go, kept afterwards. Without it a private folder is made, and
        deleted at the end.
    port
        Without it a free one is taken.
    start_timeout_s
        How long the service may take until it answers.
    """

    name: str
    grace_s: float = 5.0

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        port: int | None = None,
        start_timeout_s: float = 15.0,
    ) -> None:
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._given_port = port
        self._start_timeout_s = start_timeout_s
        self._dir: Path | None = None
        self._port: int | None = None
        self._child: ChildProcess | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that serves on `port` out of `data_dir`."""

    @abstractmethod
    def probe(self) -> None:
        """Ask the service something over its protocol; raise while it can't answer."""

    @abstractmethod
    def not_ready(self) -> tuple[type[Exception], ...]:
        """Return the errors by which `probe` says `not yet`."""

    @property
    def data_dir(self) -> Path:
        """The folder of data and log."""
        if self._dir is None:
            raise ServiceError(f"{self.name} has not been started: call start() first")
        return self._dir

    @property
    def log_path(self) -> Path:
        """The file with all that the service printed."""
        return self.data_dir / f"{self.name}.log"

    @property
    def port(self) -> int:
        """The loopback port of the service."""
        if self._port is None:
            raise ServiceError(f"{self.name} has not been started: call start() first")
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the service itself."""
        if self._child is None:
            raise ServiceError(f"{self.name} is not running: call start() or restart()")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the service's process is there."""
        return self._child is not None and self._child.exit_status() is None

    def start(self) -> Self:
        """Start the service and wait until it answers."""
        if self.running:
            return self
        self.kill()
        self._port = self._given_port or self._port or free_port()
        if not is_free(self._port):
            raise ServiceError(
                f"{self.name} can't start on 127.0.0.1:{self._port}: the port is in use. "
                "Stop what listens there, or leave the choice of the port to us"
            )
        try:
            self._make_dir()
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the service in good order and delete its private folder."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        if self._given_dir is None and self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = None

    def kill(self) -> None:
        """Kill the service as kill -9 does; its folder and port stay for `restart`."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def restart(self) -> Self:
        """Start again on the same port and folder, after `kill` or out of a running state."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_dir(self) -> None:
        if self._given_dir is not None:
            self._given_dir.mkdir(parents=True, exist_ok=True)
            self._dir = self._given_dir.resolve()
        elif self._dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix=f"fleetopt-{self.name}-"))

    def _launch(self) -> None:
        remove = self._dir if self._given_dir is None else None
        child = ChildProcess(self.command(), self.log_path, remove=remove, grace_s=self.grace_s)
        self._child = child
        if problem := self._wait(child):
            raise ServiceError(
                f"{self.name} did not start on 127.0.0.1:{self._port}: {problem}. "
                f"The end of its log ({self.log_path}):\n{self.log_tail()}"
            )

    def _wait(self, child: ChildProcess) -> str | None:
        """Wait until the service answers; return what is wrong if it does not."""
        deadline_s = time.monotonic() + self._start_timeout_s
        pause_s = 0.01
        while True:
            status = child.exit_status()
            if status is not None:
                return f"it ended by itself with status {status}"
            try:
                self.probe()
            except self.not_ready() as error:
                problem = f"no answer within {self._start_timeout_s:g} s ({error})"
            else:
                return None
            if time.monotonic() > deadline_s:
                return problem
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.25)

    def log_tail(self) -> str:
        """Return the last lines that the service printed."""
        if not self.log_path.exists():
            return "(no log)"
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LOG_TAIL_LINES:]) or "  (empty)"
