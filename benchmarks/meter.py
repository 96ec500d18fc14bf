"""CPU time of a measured process: taken inside it, told to the process that measures.

The measured process prints one JSON line for each reading; a thread that sleeps in `readline`
answers each line on standard input with a reading. Knows nothing of what is measured.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

GRACE_S = 10.0
_PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Reading:
    """How far a process has come."""

    label: str
    cpu_s: float
    """User and system time of all threads since the process began, imports included."""
    at_s: float
    """Monotonic clock, the same for all processes of the machine."""
    records: int = 0


_channel: int | None = None


def open_channel() -> None:
    """Keep standard output for readings (what else is printed goes to the log), answer questions.

    Every line on standard input is answered with a reading, from a thread of its own.
    """
    global _channel  # noqa: PLW0603 - a process has one standard output
    _channel = os.dup(1)
    os.dup2(2, 1)

    def answer() -> None:
        for line in sys.stdin:
            tell(line.strip())

    threading.Thread(target=answer, name="meter", daemon=True).start()


def tell(label: str, records: int = 0) -> None:
    """Send a reading of this process to the one that measures it."""
    if _channel is None:
        raise RuntimeError("call open_channel first")
    used = resource.getrusage(resource.RUSAGE_SELF)
    reading = {
        "label": label,
        "cpu_s": used.ru_utime + used.ru_stime,
        "at_s": time.monotonic(),
        "records": records,
    }
    os.write(_channel, json.dumps(reading).encode() + b"\n")


class Measured:
    """A module of ours run as a process that tells its CPU time; ended on leaving the context."""

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self._log_path = log
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=_PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def ask(self) -> Reading:
        """Return a reading of this moment."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"asked\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        return self.wait_for("asked", 10.0)

    def check(self) -> None:
        """Raise RuntimeError, with the end of its log, if the process has ended."""
        if self._process.poll() is not None:
            raise self._ended()

    def wait_for(self, label: str, timeout_s: float) -> Reading:
        """Return the next reading with this label."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            reading = json.loads(self._line(label, deadline_s))
            if reading["label"] == label:
                return Reading(**reading)

    def _line(self, label: str, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise RuntimeError(f"no reading {label!r} in time; {self._tail()}")
                if not selector.select(left_s):
                    continue
                read = os.read(self._process.stdout.fileno(), 65_536)
                if not read:
                    raise self._ended()
                self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _ended(self) -> RuntimeError:
        status = self._process.wait(GRACE_S)
        return RuntimeError(f"the measured process ended with status {status}; {self._tail()}")

    def _tail(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()[-15:]
        return "its log ends:\n" + "\n".join(f"  {line}" for line in lines)
