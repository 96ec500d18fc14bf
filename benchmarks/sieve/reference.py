"""`python -m benchmarks.sieve.reference`: make the reference grids and their priors anew.

What is made here is committed beside this file. It was fixed before any policy was tried on it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.roofline_error import entries
from benchmarks.sieve.bench_run import capacity_per_s, run
from benchmarks.sieve.classes import CLASSES, CONTEXT_TOKENS, requests
from fleetopt.config.profiles import load_catalogue
from fleetopt.connectors.sieve_grid import PRIOR_COLUMNS, RUN_COLUMNS
from fleetopt.planner.hardware import DEFAULT_EFFICIENCY
from fleetopt.planner.sieve.grid import Configuration, Grid, RequestClass
from fleetopt.planner.sieve.predict import predict
from fleetopt.planner.sieve.usable import highest_within
from fleetopt.planner.workload import Workload

Array = NDArray[np.float64]

FOLDER: Final = Path(__file__).resolve().parent / "grids"
LOADS: Final = (0.30, 0.45, 0.60, 0.75, 0.90, 1.05)
"""Of a configuration's capacity for a class."""

REPEATS: Final = 2
SLO_S: Final = 30.0
OVERLOAD: Final = 1.1
"""All classes together ask for so much more than the best configurations could serve."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A grid: its name, and the engine of the catalogue behind each configuration."""

    name: str
    engines: dict[str, str]


REFERENCES: Final = (
    Reference("h100-qwen3-32b", {f"tp{tp}": f"h100/qwen3-32b/tp{tp}" for tp in (1, 2, 4, 8)}),
    Reference("h200-llama-3.1-70b", {f"tp{tp}": f"h200/llama-3.1-70b/tp{tp}" for tp in (2, 4, 8)}),
)


def make(reference: Reference) -> None:
    """Simulate all runs of a grid, predict them from roofline profiles, and write both."""
    engines = [load_catalogue()[name] for name in reference.engines.values()]
    sizes = [engine.gpus_per_replica for engine in engines]
    names = list(reference.engines)
    capacity = np.array(
        [[capacity_per_s(one, requests(name)) for one in engines] for name in CLASSES]
    )
    offered = np.round(capacity[:, :, None] * LOADS, 4)
    throughput, p99, cost = np.zeros((3, *offered.shape, REPEATS))
    for cell in np.ndindex(throughput.shape):
        one, other, load, _ = cell
        seed = int(np.ravel_multi_index(cell, throughput.shape))
        found = run(engines[other], requests(CLASSES[one]), float(offered[one, other, load]), seed)
        throughput[cell], p99[cell] = found.throughput_per_s, found.completion_p99_s
        cost[cell] = sizes[other] * found.duration_s
    usable = highest_within(throughput.mean(axis=3), p99.mean(axis=3), np.full(len(CLASSES), SLO_S))
    demand = (usable / sizes).max(axis=1) * OVERLOAD / len(CLASSES)
    FOLDER.mkdir(exist_ok=True)
    _write(
        f"{reference.name}.csv",
        RUN_COLUMNS,
        (
            (CLASSES[one], names[other], sizes[other], load + 1, f"{offered[one, other, load]:.4f}",
             repeat + 1, f"{throughput[one, other, load, repeat]:.4f}",
             f"{p99[one, other, load, repeat]:.4f}",
             f"{cost[one, other, load, repeat]:.1f}")
            for one, other, load, repeat in np.ndindex(throughput.shape)
        ),
    )  # fmt: skip
    grid = Grid(
        tuple(
            RequestClass(name, float(rate), SLO_S)
            for name, rate in zip(CLASSES, demand, strict=True)
        ),
        tuple(Configuration(name, size) for name, size in zip(names, sizes, strict=True)),
        offered,
        cost.mean(axis=3),
        REPEATS,
    )
    _write_classes(reference, demand)
    _write_prior(reference, grid)


def _write_classes(reference: Reference, demand_per_gpu_s: Array) -> None:
    lines = [
        f"# Demands and targets for {reference.name}.csv: of what the best configuration serves",
        f"# of a class per GPU, {OVERLOAD} / {len(CLASSES)}, times the GPUs of the fleet.",
    ]
    for name, rate in zip(CLASSES, demand_per_gpu_s, strict=True):
        lines += ["", f"[classes.{name}]", f"demand_per_gpu_s = {rate:.4f}"]
        lines += [f"slo_completion_p99_s = {SLO_S}"]
    (FOLDER / f"{reference.name}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_prior(reference: Reference, grid: Grid) -> None:
    """Predict from data sheets alone: who has measured nothing has no more."""
    roofline = {one.measured.name: one.estimate(DEFAULT_EFFICIENCY) for one in entries()}
    workloads = [
        Workload.from_requests(one.prompt_tokens, one.completion_tokens, 1.0)
        for one in map(requests, CLASSES)
    ]
    engines = [roofline[name] for name in reference.engines.values()]
    prior = predict(grid, engines, workloads, CONTEXT_TOKENS)
    _write(
        f"{reference.name}.prior.csv",
        PRIOR_COLUMNS,
        (
            (grid.classes[one].name, grid.configurations[other].name, load + 1,
             f"{prior.speeds[speed]:.6f}",
             *(f"{values[one, other, load, speed]:.4f}"
               for values in (prior.throughput_per_s, prior.completion_p99_s)))
            for one, other, load, speed in np.ndindex(prior.throughput_per_s.shape)
        ),
    )  # fmt: skip


def _write(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with (FOLDER / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


if __name__ == "__main__":
    for one in REFERENCES:
        make(one)
