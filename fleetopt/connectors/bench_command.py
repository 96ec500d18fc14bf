"""A user's own benchmark command: filled in, run with a limit, and what it printed."""

from __future__ import annotations

import os
import shlex
import signal
import string
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fleetopt.connectors.benchmark_result import BenchmarkResult, parse_result
from fleetopt.errors import ConfigError, InputError

OUTPUT: Final = "output"
"""The placeholder of a file that the command writes its result to; else it is standard output."""

_SHOWN_CHARACTERS: Final = 400
_GRACE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that came to its end."""

    result: BenchmarkResult
    seconds: float


def check_template(template: str, names: Mapping[str, str]) -> None:
    """Raise ConfigError where a template is empty, badly quoted or has unknown placeholders."""
    filled(template, {**names, OUTPUT: "result.json"})


def filled(template: str, values: Mapping[str, str]) -> list[str]:
    """Return the command's words, each placeholder replaced within its word.

    There is no shell: what a placeholder holds is never looked at as a command.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ConfigError(f"command {template!r}: {error}") from error
    if not words:
        raise ConfigError("command is empty; expected a benchmark such as 'bench --rate {rate}'")
    try:
        return [_Plain().vformat(word, (), values) for word in words]
    except (KeyError, IndexError, ValueError) as error:
        known = ", ".join(f"{{{name}}}" for name in sorted({*values, OUTPUT}))
        raise ConfigError(
            f"command {template!r}: placeholder {error} is unknown; expected {known}, "
            "or {{ and }} for braces"
        ) from error


class _Plain(string.Formatter):
    """Names only: no attributes, no indices, no formats."""

    def get_field(
        self, name: str, args: object, kwargs: Mapping[str, object]
    ) -> tuple[object, str]:
        return kwargs[name], name


def run_command(template: str, values: Mapping[str, str], limit_s: float) -> Finished:
    """Run a benchmark to its end and return what it found.

    The command and its children are ended when it takes too long, or when this is interrupted.

    Raises
    ------
    InputError
        If it can't be started, fails, takes longer than the limit or prints no result.
    """
    with tempfile.TemporaryDirectory(prefix="fleetopt-bench-") as folder:
        path = Path(folder) / "result.json"
        words = filled(template, {**values, OUTPUT: str(path)})
        began_s = time.monotonic()
        printed = _printed(words, limit_s)
        seconds = time.monotonic() - began_s
        if f"{{{OUTPUT}}}" not in template:
            return Finished(parse_result(_json_in(printed), f"what {words[0]} printed"), seconds)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise InputError(f"{words[0]} wrote no {path.name} ({error.strerror})") from error
        return Finished(parse_result(text, f"what {words[0]} wrote"), seconds)


def _json_in(printed: bytes) -> bytes:
    """Return all of it, or the last line where a tool says something before."""
    stripped = printed.strip()
    return stripped if stripped.startswith(b"{") else stripped.rpartition(b"\n")[2]


def _printed(words: list[str], limit_s: float) -> bytes:
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(f"can't start {words[0]}: {error.strerror}") from error
    try:
        printed, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{words[0]} took longer than {limit_s:,.0f} s") from error
    finally:
        _end(process)
    if process.returncode:
        last = said.decode(errors="replace").strip().rpartition("\n")[2][-_SHOWN_CHARACTERS:]
        raise InputError(
            f"{words[0]} ended with exit code {process.returncode}: {last or 'it says nothing'}"
        )
    return printed


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all that it started, whether it is done or not."""
    for number, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
        if process.poll() is not None and number == signal.SIGTERM:
            continue  # the leader is gone; whoever is left of its group is killed
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
