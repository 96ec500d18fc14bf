"""Policies on a table of all runs: what each measures until its decision is the oracle's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from fleetopt.planner.sieve.policies import Policy
from fleetopt.planner.sieve.sieve import Sieve
from fleetopt.planner.sieve.table import Table
from fleetopt.planner.sieve.walk import Walk, walk

Array = NDArray[np.float64]

DEFAULT_SAME: Final = 0.01
_RESAMPLES: Final = 2_000


class Estimate(NamedTuple):
    """A mean over orders with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """How a policy did over many orders."""

    policy: Policy
    gpu_s_to_oracle: Estimate
    gpu_s_to_stop: Estimate
    saving: Estimate
    """1 - this policy's mean GPU-seconds to the oracle's decision / those of uniform random."""

    saving_by_class: tuple[Estimate, ...]
    """The same of the GPU-seconds spent on each class."""

    regret_fulfilment: float  # mean at the stop
    worst_regret_fulfilment: float
    regret_per_s: float  # mean at the stop
    wrong_certificates: int
    orders: int


def compare(
    policies: Sequence[Policy],
    sieve: Sieve,
    table: Table,
    *,
    orders: int,
    seed: int = 0,
    same: float = DEFAULT_SAME,
    progress: Callable[[], None] = lambda: None,
) -> list[Summary]:
    """Let policies walk through a table in the same random orders.

    Parameters
    ----------
    policies
        Whom to compare; uniform random takes part in any case.
    sieve
        The decision to make.
    table
        What every run would find.
    orders
        How many.
    seed
        Of the first order; the others follow it.
    same
        A decision is the oracle's if both its goals are less than this share of demand below it.
    progress
        Called after each policy's way through each order.
    """
    walks: dict[Policy, list[Walk]] = {}
    for policy in dict.fromkeys([Policy.RANDOM, *policies]):
        walks[policy] = []
        for number in range(seed, seed + orders):
            walks[policy].append(walk(policy, sieve, table, number, same))
            progress()
    return [_summary(policy, walks[policy], walks[Policy.RANDOM], seed) for policy in policies]


def _summary(policy: Policy, walks: list[Walk], random: list[Walk], seed: int) -> Summary:
    spent, spent_at_random = _spent(walks), _spent(random)
    total, total_at_random = spent.sum(axis=1), spent_at_random.sum(axis=1)
    return Summary(
        policy,
        _mean(total, seed),
        _mean(np.array([one.gpu_s_to_stop for one in walks]), seed),
        _saving(total, total_at_random, seed),
        tuple(
            _saving(one, other, seed) for one, other in zip(spent.T, spent_at_random.T, strict=True)
        ),
        float(np.mean([one.regret_fulfilment for one in walks])),
        float(np.max([one.regret_fulfilment for one in walks])),
        float(np.mean([one.regret_per_s for one in walks])),
        sum(one.is_wrong_certificate for one in walks),
        len(walks),
    )


def _spent(walks: list[Walk]) -> Array:
    return np.array([one.gpu_s_to_oracle_by_class for one in walks])


def _mean(values: Array, seed: int) -> Estimate:
    return _estimate(lambda sample, axis: sample.mean(axis=axis), (values,), seed)


def _saving(values: Array, at_random: Array, seed: int) -> Estimate:
    """Return the saving in the mean; orders are drawn together, since both took the same."""

    def saving(one: Array, other: Array, axis: int) -> Array:
        return np.asarray(1.0 - one.mean(axis=axis) / other.mean(axis=axis))

    if not at_random.any():
        return Estimate(np.nan, np.nan, np.nan)
    return _estimate(saving, (values, at_random), seed)


def _estimate(statistic: Callable[..., Array], samples: tuple[Array, ...], seed: int) -> Estimate:
    mean = float(statistic(*samples, axis=0))
    if len(samples[0]) < 2 or all(np.ptp(sample) == 0.0 for sample in samples):
        return Estimate(mean, mean, mean)
    interval = bootstrap(
        samples,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(mean, float(interval.low), float(interval.high))
