"""What a figure may be: arrays of lowest, likely and highest values."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """Three arrays of one shape: no value is below `low` or above `high`."""

    low: Array
    point: Array
    high: Array

    @classmethod
    def around(cls, mean: Array, share: Array) -> "Interval":
        """Return what is up to `1 + share` times above or below `mean`."""
        return cls(mean / (1.0 + share), mean, mean * (1.0 + share))

    def where(self, condition: NDArray[np.bool_], other: "Interval") -> "Interval":
        """Return this interval where `condition` holds, else the other."""
        return Interval(*(np.where(condition, a, b) for a, b in zip(self, other, strict=True)))

    def rising(self) -> "Interval":
        """Let bounds along the last axis bind each other, where values can't fall.

        Bounds that contradict this leave the span between them.
        """
        low = np.maximum.accumulate(self.low, axis=-1)
        high = np.minimum.accumulate(self.high[..., ::-1], axis=-1)[..., ::-1]
        low, high = np.minimum(low, high), np.maximum(low, high)
        return Interval(low, np.clip(self.point, low, high), high)
