"""What runs have found, added up cell by cell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError
from fleetopt.planner.sieve.grid import Grid, Run
from fleetopt.planner.sieve.interval import Interval

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Noise:
    """How far a single run's figures may be from the truth, as a share of it.

    The truth of a cell is the mean of all runs that its grid allows. So n of N runs leave
    √(1/n - 1/N) of a single run's noise: nothing once all are made.

    Raises
    ------
    ConfigError
        If a share is negative or not finite.
    """

    throughput: float = 0.05
    completion_p99: float = 0.3

    def __post_init__(self) -> None:
        for name in ("throughput", "completion_p99"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"noise.{name} is {value}; expected a share ≥ 0")


@dataclass(frozen=True)
class Evidence:
    """Sums over the runs of each cell, shape (classes, configurations, loads)."""

    runs: NDArray[np.int64]
    throughput_sum_per_s: Array
    completion_p99_sum_s: Array
    repeats: int
    """Runs of a cell that the grid allows."""

    cost_gpu_s: float = 0.0

    @classmethod
    def none(cls, grid: Grid) -> "Evidence":
        """Nothing has been measured."""
        runs = np.zeros(grid.shape, dtype=np.int64)
        return cls(runs, np.zeros(grid.shape), np.zeros(grid.shape), grid.repeats)

    @classmethod
    def of(cls, grid: Grid, runs: Iterable[Run]) -> "Evidence":
        """Add up runs."""
        evidence = cls.none(grid)
        for run in runs:
            evidence = evidence.plus(run)
        return evidence

    def plus(self, run: Run) -> "Evidence":
        """Return the evidence with one run more."""
        runs = self.runs.copy()
        throughput = self.throughput_sum_per_s.copy()
        p99 = self.completion_p99_sum_s.copy()
        runs[run.point] += 1
        throughput[run.point] += run.throughput_per_s
        p99[run.point] += run.completion_p99_s
        return Evidence(runs, throughput, p99, self.repeats, self.cost_gpu_s + run.cost_gpu_s)

    @property
    def is_measured(self) -> NDArray[np.bool_]:
        """Which cells have a run."""
        return self.runs > 0

    def throughput_per_s(self, noise: Noise) -> Interval:
        """Return what the runs say; zero where there are none."""
        return self._interval(self.throughput_sum_per_s, noise.throughput)

    def completion_p99_s(self, noise: Noise) -> Interval:
        """Return what the runs say; zero where there are none."""
        return self._interval(self.completion_p99_sum_s, noise.completion_p99)

    def _interval(self, total: Array, share: float) -> Interval:
        return Interval.around(
            total / np.maximum(self.runs, 1), share * left_over(self.runs, self.repeats)
        )


def left_over(runs: NDArray[np.int64], repeats: int) -> Array:
    """Return the part of a single run's noise that the mean of `runs` of `repeats` has left."""
    return np.asarray(np.sqrt(np.maximum(1.0 / np.maximum(runs, 1) - 1.0 / repeats, 0.0)))
