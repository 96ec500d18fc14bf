"""Rates that one replica serves within a class's target: capacity and tail looked at together.

A replica that could do more requests per second, but answers them too late, is not used beyond
the highest load at which it holds the target.
"""

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.grid import Grid
from fleetopt.planner.sieve.interval import Interval
from fleetopt.planner.sieve.knowledge import Knowledge

Array = NDArray[np.float64]


def usable_rates(known: Knowledge, grid: Grid) -> Interval:
    """Return the highest rate within the target, shape (classes, configurations).

    0 where no load holds it. `low` is certain if the intervals are right, `high` just possible.
    """
    slo_s = grid.slo_completion_p99_s
    throughput, p99 = known.throughput_per_s, known.completion_p99_s
    return Interval(
        highest_within(throughput.low, p99.high, slo_s),
        highest_within(throughput.point, p99.point, slo_s),
        highest_within(throughput.high, p99.low, slo_s),
    )


def highest_within(throughput_per_s: Array, completion_p99_s: Array, slo_s: Array) -> Array:
    """Return the highest throughput among loads that hold the target, as all lighter ones do.

    Parameters
    ----------
    throughput_per_s : ndarray, shape (classes, configurations, loads)
        What a replica completes.
    completion_p99_s : ndarray, shape (classes, configurations, loads)
        How long its slowest requests take.
    slo_s : ndarray, shape (classes,)
        How long they may.

    Returns
    -------
    ndarray, shape (classes, configurations)
        0 where the lightest load misses it.
    """
    holds = np.logical_and.accumulate(completion_p99_s <= slo_s[:, None, None], axis=2)
    return np.asarray(np.where(holds, throughput_per_s, 0.0).max(axis=2))
