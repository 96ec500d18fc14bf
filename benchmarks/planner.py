"""The planner's figures: bench_planner.py run by pytest-benchmark, and what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class PlannerFigures:
    """Wall time of one case."""

    name: str
    cells: int | None
    """(boundary, gamma) pairs that the case looks at."""
    median_s: float
    p99_s: float
    max_s: float
    rounds: int
    facts: dict[str, Any]
    """Whatever else the case says of itself."""


def measure(max_time_s: float) -> list[PlannerFigures]:
    """Run every case for about so long each, and searches again in CPU time.

    On a machine that others use, a slice of theirs is longer than a search: the slowest ones in
    wall time say how busy it was, those in CPU time how long the work takes.
    """
    in_cpu_time = _run(max_time_s, "--benchmark-timer=time.process_time", "-k", "test_search[")
    for case in in_cpu_time:
        case.facts["clock"] = "CPU"
    return _run(max_time_s) + in_cpu_time


def _run(max_time_s: float, *options: str) -> list[PlannerFigures]:
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "planner.json"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", str(_FOLDER / "bench_planner.py"), "-q"),
                *("--benchmark-only", "--benchmark-disable-gc", "-p", "no:cacheprovider"),
                *options,
                *("--benchmark-max-time", str(max_time_s), "--benchmark-json", str(written)),
            ],
            cwd=_FOLDER.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the planner's benchmark failed:\n{done.stdout[-3000:]}")
        return [figures(case) for case in json.loads(written.read_text())["benchmarks"]]


def figures(case: dict[str, Any]) -> PlannerFigures:
    """Read one case of pytest-benchmark's JSON."""
    facts = dict(case["extra_info"])
    return PlannerFigures(
        name=case["name"].removeprefix("test_"),
        cells=facts.pop("cells", None),
        median_s=case["stats"]["median"],
        p99_s=float(np.quantile(case["stats"]["data"], 0.99)),
        max_s=case["stats"]["max"],
        rounds=case["stats"]["rounds"],
        facts=facts,
    )
