"""The runs of a profiling session, one a line, each on disk before the next decision.

A line that was being written when the process died is left out, and its run made again.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from fleetopt.connectors.benchmark_result import BenchmarkResult
from fleetopt.errors import InputError, ServiceError

FILE: Final = "runs.jsonl"


class JournalRun(msgspec.Struct, frozen=True, kw_only=True):
    """One finished run: where it was made, what it cost and what it found."""

    request_class: str
    configuration: str
    offered_per_s: float
    cost_gpu_s: float
    result: BenchmarkResult
    finished_at: float  # epoch seconds
    failure: str | None = None
    """Why there is no measurement; the run counts as one whose requests never end."""


class Journal:
    """A session's folder. One process at a time: use it as a context manager.

    Raises
    ------
    ServiceError
        If another session is using the folder.
    InputError
        If the file holds what is no run, but for its last line.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.torn_bytes = 0
        """What was left of a line at the end, and is gone."""
        self.runs: list[JournalRun] = []

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.runs, whole = read_runs(self.path)
        except BlockingIOError as error:
            self._file.close()
            raise ServiceError(
                f"{self.path.parent} is in use by another session; wait for it, or give --state"
            ) from error
        except InputError:
            self._file.close()
            raise
        self.torn_bytes = self.path.stat().st_size - whole
        self._file.truncate(whole)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, run: JournalRun) -> None:
        """Keep a run; it is on disk when this returns."""
        self._file.write(_encode(run) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.runs.append(run)


def read_runs(path: Path) -> tuple[list[JournalRun], int]:
    """Return the runs of a file, and how many of its bytes they are; none if it isn't there."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from error
    whole = data.rfind(b"\n") + 1
    runs = []
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            runs.append(_decode(line))
        except (msgspec.DecodeError, ValueError) as error:
            raise InputError(f"{path}, line {number}, is no run of a session: {error}") from error
    return runs, whole


def _encode(run: JournalRun) -> bytes:
    built = msgspec.to_builtins(run)
    if run.result.completion_p99_s == float("inf"):  # JSON has no such number
        built["result"]["completion_p99_s"] = "inf"
    return msgspec.json.encode(built)


def _decode(line: bytes) -> JournalRun:
    built = msgspec.json.decode(line)
    result = built.get("result") if isinstance(built, dict) else None
    if isinstance(result, dict) and result.get("completion_p99_s") == "inf":
        result["completion_p99_s"] = float("inf")
    return msgspec.convert(built, JournalRun)
