"""Rivals in environments of their own: what only a benchmark needs is not installed beside us."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


class RivalError(RuntimeError):
    """A rival can't be installed."""


def python_with(module: str, *requirements: str) -> Path:
    """Return the Python of an environment that can import `module`; make it where there is none.

    `requirements` are arguments of pip; the last one names the rival. Environments are kept between
    runs, in the user's cache folder.

    Raises
    ------
    RivalError
        If it can't be installed, with what pip said last.
    """
    folder = _cache_folder() / requirements[-1]
    python = folder / "bin" / "python"
    if _runs([str(python), "-c", f"import {module}"]):
        return python
    venv.create(folder, with_pip=True, clear=True)
    order = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*order, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
        raise RivalError(
            f"{requirements[-1]} can't be installed into {folder}; pip says: {said[-1].strip()}; "
            "the other benchmarks do without it"
        )
    return python


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "fleetopt-benchmarks"


def _runs(order: Sequence[str]) -> bool:
    try:
        return subprocess.run(order, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
