"""What a profile says of a grid before anything is measured, and how far it may be off."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """Predictions at several speeds of the engine; 1 is the profile's own.

    The truth is taken to lie where the engine is between the lowest and the highest of `speeds`
    as fast as its profile says, with P99s within `shape_error` of the prediction at that speed.

    Raises
    ------
    ConfigError
        If a factor is below 1 or an array's shape doesn't fit; the message names the field.
    """

    speeds: Array
    """Shape (speeds,), rising."""

    throughput_per_s: Array
    """Shape (classes, configurations, loads, speeds)."""

    completion_p99_s: Array
    """The same shape; infinite where the engine can't keep up."""

    shape_error: float = 1.3
    """Factor by which a P99 may be off although the speed is right."""

    neighbour_error: float = 1.2
    """Factor by which the speeds of one configuration may differ from class to class."""

    def __post_init__(self) -> None:
        for name in ("shape_error", "neighbour_error"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 1.0):
                raise ConfigError(f"prior.{name} is {value}; expected a finite factor ≥ 1")
        if self.speeds.ndim != 1 or self.speeds.size < 2 or np.any(np.diff(self.speeds) <= 0.0):
            raise ConfigError("prior.speeds must be at least two rising numbers")
        if self.speeds[0] <= 0.0:
            raise ConfigError(f"prior.speeds starts at {self.speeds[0]}; expected > 0")
        for name in ("throughput_per_s", "completion_p99_s"):
            values = getattr(self, name)
            if values.ndim != 4 or values.shape[3] != self.speeds.size:
                raise ConfigError(
                    f"prior.{name} has shape {values.shape}; expected four axes, "
                    f"the last of {self.speeds.size} speeds"
                )
