"""A grid whose every run has been made: what policies are compared on, and what is true there."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError
from fleetopt.planner.sieve.grid import Grid, Point, Run
from fleetopt.planner.sieve.usable import highest_within

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Results of all runs, shape (classes, configurations, loads, repeats).

    The truth of a cell is the mean of its runs: what whoever measures everything finds.

    Raises
    ------
    ConfigError
        If the shapes don't fit the grid.
    """

    grid: Grid
    throughput_per_s: Array
    completion_p99_s: Array
    usable_per_s: Array = field(init=False, repr=False)
    """The true rate of one replica within the target, shape (classes, configurations)."""

    def __post_init__(self) -> None:
        expected = (*self.grid.shape, self.grid.repeats)
        for name in ("throughput_per_s", "completion_p99_s"):
            if getattr(self, name).shape != expected:
                raise ConfigError(
                    f"{name} has shape {getattr(self, name).shape}; expected {expected}"
                )
        usable = highest_within(
            self.throughput_per_s.mean(axis=3),
            self.completion_p99_s.mean(axis=3),
            self.grid.slo_completion_p99_s,
        )
        object.__setattr__(self, "usable_per_s", usable)

    def run(self, point: Point, repeat: int) -> Run:
        """Return the result of one run."""
        return Run(
            point,
            float(self.throughput_per_s[point][repeat]),
            float(self.completion_p99_s[point][repeat]),
            float(self.grid.cost_gpu_s[point]),
        )
