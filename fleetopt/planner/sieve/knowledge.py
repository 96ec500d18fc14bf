"""What runs and the prior say together: an interval for every figure of every cell.

An interval is narrowed by runs of the cell itself, by the loads above and below it (more load is
never faster), and by how fast the profile turned out to be for the same configuration. It is not
narrowed across configurations: more GPUs in a replica aren't always faster.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.evidence import Evidence, Noise
from fleetopt.planner.sieve.grid import Grid
from fleetopt.planner.sieve.interval import Interval
from fleetopt.planner.sieve.prior import Prior
from fleetopt.planner.sieve.speed import SpeedRange, speed_range

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Knowledge:
    """Intervals of shape (classes, configurations, loads)."""

    throughput_per_s: Interval
    completion_p99_s: Interval
    speed: SpeedRange | None
    """Which of the prior's speeds are still possible; None without a prior."""


def what_is_known(evidence: Evidence, grid: Grid, noise: Noise, prior: Prior | None) -> Knowledge:
    """Return what runs and the prior say together.

    Where a prior contradicts the runs of a class on a configuration, it is not used.
    """
    measured = evidence.is_measured
    throughput, p99 = evidence.throughput_per_s(noise), evidence.completion_p99_s(noise)
    nothing, everything = np.zeros(grid.shape), np.full(grid.shape, np.inf)
    # Whoever holds the target mostly keeps up with what is offered.
    unknown_throughput = Interval(nothing, grid.offered_per_s, grid.offered_per_s)
    unknown_p99 = Interval(nothing, everything, everything)
    if prior is None:
        return Knowledge(
            throughput.where(measured, unknown_throughput).rising(),
            p99.where(measured, unknown_p99).rising(),
            None,
        )
    speed = speed_range(prior, measured, throughput, p99)
    slow, mid, fast = speed.of(prior.throughput_per_s)
    says = ~speed.is_contradicted[:, :, None]
    predicted_throughput = Interval(slow, mid, fast).where(says, unknown_throughput)
    slow, mid, fast = speed.of(prior.completion_p99_s)
    predicted_p99 = Interval(fast / prior.shape_error, mid, slow * prior.shape_error).where(
        says, unknown_p99
    )
    return Knowledge(
        throughput.where(measured, predicted_throughput).rising(),
        p99.where(measured, predicted_p99).rising(),
        speed,
    )
