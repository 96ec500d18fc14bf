"""How likely a run at each cell is to find the target held."""

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.evidence import Evidence
from fleetopt.planner.sieve.grid import Grid
from fleetopt.planner.sieve.interval import Interval
from fleetopt.planner.sieve.knowledge import Knowledge
from fleetopt.planner.sieve.prior import Prior

Array = NDArray[np.float64]


def chances(known: Knowledge, evidence: Evidence, grid: Grid, prior: Prior | None) -> Array:
    """Return the probability that each cell's P99 is within its class's target.

    Where a cell has runs, any P99 in its interval is equally likely, in logarithms. Where the
    prior speaks, any of its speeds that are still possible is. Else the highest load that holds
    the target is equally likely to be any that may be.

    Returns
    -------
    ndarray, shape (classes, configurations, loads)
    """
    p99, slo_s = known.completion_p99_s, grid.slo_completion_p99_s[:, None, None]
    chance = _by_rank(p99, slo_s)
    if prior is not None and known.speed is not None:
        predicted = prior.completion_p99_s
        at_speed = _below(
            slo_s[..., None], predicted / prior.shape_error, predicted * prior.shape_error
        )
        weights = known.speed.likelihood(prior.speeds.size)[:, :, None, :]
        told = (at_speed * weights).sum(axis=3)
        chance = np.where(known.speed.is_contradicted[:, :, None], chance, told)
    chance = np.where(evidence.is_measured, _below(slo_s, p99.low, p99.high), chance)
    return np.asarray(np.where(p99.high <= slo_s, 1.0, np.where(p99.low > slo_s, 0.0, chance)))


def _by_rank(p99: Interval, slo_s: Array) -> Array:
    is_open = (p99.low <= slo_s) & (p99.high > slo_s)
    rank = np.cumsum(is_open, axis=2)
    return np.asarray(1.0 - rank / (is_open.sum(axis=2, keepdims=True) + 1.0))


def _below(limit: Array, low: Array, high: Array) -> Array:
    """Return the share of [low, high] below `limit`, in logarithms; none of what is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (np.log(limit) - np.log(low)) / (np.log(high) - np.log(low))
    share = np.where(np.isfinite(share), share, low <= limit)
    return np.asarray(np.where(np.isfinite(low), np.clip(share, 0.0, 1.0), 0.0))
