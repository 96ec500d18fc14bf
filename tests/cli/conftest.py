"""Two ways to run a command line: within this process, and as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fleetopt.cli import main


@dataclass(frozen=True)
class Done:
    """What a command line came to."""

    code: int
    out: str
    err: str


Cli = Callable[..., Done]


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without FleetOpt's variables, but for those given."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("FLEETOPT_") and key not in ("NO_COLOR", "FORCE_COLOR")
    }
    return {**kept, **variables}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in list(os.environ):
        if key.startswith("FLEETOPT_"):
            monkeypatch.delenv(key)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `main` in this process."""

    def run(*args: object) -> Done:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def shell() -> Cli:
    """Run `python -m fleetopt` as a process of its own."""

    def run(*args: object, stdin: str | bytes = b"", **variables: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "fleetopt", *map(str, args)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=clean_environment(**variables),
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
