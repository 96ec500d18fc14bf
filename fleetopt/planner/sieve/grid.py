"""What can be measured: request classes on configurations at loads, and what a run of each costs.

A grid knows no results.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError

Array = NDArray[np.float64]


class Point(NamedTuple):
    """A cell of the grid, by the positions of its class, its configuration and its load."""

    request_class: int
    configuration: int
    load: int


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests of one kind, such as chat: what is asked for, and how soon each has to be done."""

    name: str
    demand_per_s: float
    slo_completion_p99_s: float

    def __post_init__(self) -> None:
        _named(self.name, "classes")
        _positive(self.demand_per_s, f"classes.{self.name}.demand_per_s")
        _positive(self.slo_completion_p99_s, f"classes.{self.name}.slo_completion_p99_s")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A way to run one replica, such as a tensor parallel degree, and the GPUs it takes."""

    name: str
    gpus: int

    def __post_init__(self) -> None:
        _named(self.name, "configurations")
        if self.gpus < 1:
            raise ConfigError(
                f"configurations.{self.name}.gpus is {self.gpus}; expected a whole number ≥ 1"
            )


@dataclass(frozen=True)
class Grid:
    """All runs that may be made.

    Raises
    ------
    ConfigError
        If a name occurs twice, an array has another shape than the names ask for, loads don't
        rise, or a cost is not positive; the message starts with the field's path.
    """

    classes: tuple[RequestClass, ...]
    configurations: tuple[Configuration, ...]
    offered_per_s: Array
    """Requests offered to one replica, shape (classes, configurations, loads), rising by load."""

    cost_gpu_s: Array
    """GPU-seconds of one run, the same shape: GPUs of the replica times the run's seconds."""

    repeats: int = 1
    """Runs that may be made of each cell. Their mean counts as the cell's truth."""

    gpus: Array = field(init=False, repr=False)
    """GPUs of a replica, shape (configurations,)."""

    demand_per_s: Array = field(init=False, repr=False)
    """Shape (classes,)."""

    slo_completion_p99_s: Array = field(init=False, repr=False)
    """Shape (classes,)."""

    def __post_init__(self) -> None:
        _distinct([one.name for one in self.classes], "classes")
        _distinct([one.name for one in self.configurations], "configurations")
        if self.repeats < 1:
            raise ConfigError(f"repeats is {self.repeats}; expected a whole number ≥ 1")
        for name, values in (
            ("offered_per_s", self.offered_per_s),
            ("cost_gpu_s", self.cost_gpu_s),
        ):
            expected = (len(self.classes), len(self.configurations))
            if values.ndim != 3 or values.shape[:2] != expected or values.shape[2] < 1:
                raise ConfigError(
                    f"{name} has shape {values.shape}; expected {expected} and at least one load"
                )
            if not np.all(np.isfinite(values) & (values > 0.0)):
                raise ConfigError(f"{name} has values that are not finite numbers > 0")
        if self.offered_per_s.shape != self.cost_gpu_s.shape:
            raise ConfigError(
                f"cost_gpu_s has shape {self.cost_gpu_s.shape}; "
                f"expected that of offered_per_s, {self.offered_per_s.shape}"
            )
        if np.any(np.diff(self.offered_per_s, axis=2) <= 0.0):
            raise ConfigError("offered_per_s doesn't rise from load to load")
        set_ = object.__setattr__
        set_(self, "gpus", np.array([one.gpus for one in self.configurations], dtype=float))
        set_(self, "demand_per_s", np.array([one.demand_per_s for one in self.classes]))
        set_(
            self,
            "slo_completion_p99_s",
            np.array([one.slo_completion_p99_s for one in self.classes]),
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Classes, configurations, loads."""
        classes, configurations, loads = self.offered_per_s.shape
        return classes, configurations, loads

    def points(self) -> list[Point]:
        """Every cell, in the order of the grid."""
        return [Point(*map(int, index)) for index in np.ndindex(self.shape)]

    def label(self, point: Point) -> str:
        """Name a cell for people, such as `chat on tp4 at 2.5 req/s`."""
        offered = self.offered_per_s[point]
        return (
            f"{self.classes[point.request_class].name} on "
            f"{self.configurations[point.configuration].name} at {offered:.4g} req/s"
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What one finished run of a benchmark found.

    Raises
    ------
    ConfigError
        If a figure is negative, not a number, or P99 is not above 0.
    """

    point: Point
    throughput_per_s: float  # requests completed
    completion_p99_s: float  # from sending to the last token; infinite if requests failed
    cost_gpu_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.throughput_per_s) and self.throughput_per_s >= 0.0):
            raise ConfigError(
                f"throughput_per_s is {self.throughput_per_s}; expected a finite number ≥ 0"
            )
        if math.isnan(self.completion_p99_s) or self.completion_p99_s <= 0.0:
            raise ConfigError(f"completion_p99_s is {self.completion_p99_s}; expected > 0")
        if not (math.isfinite(self.cost_gpu_s) and self.cost_gpu_s >= 0.0):
            raise ConfigError(f"cost_gpu_s is {self.cost_gpu_s}; expected a finite number ≥ 0")


def _named(name: str, path: str) -> None:
    if not name.strip():
        raise ConfigError(f"{path} has an empty name; expected a name such as chat or tp4")


def _positive(value: float, path: str) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigError(f"{path} is {value}; expected a finite number > 0")


def _distinct(names: Sequence[str], path: str) -> None:
    if not names:
        raise ConfigError(f"{path} is empty; expected at least one")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path} has {twice[0]} twice; expected each name once")
