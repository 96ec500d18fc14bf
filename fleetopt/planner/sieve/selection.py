"""Which run to make next: the one expected to narrow the decision most for its GPU-seconds."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.allocation import max_min, max_plus, rates_by_gpus
from fleetopt.planner.sieve.chances import chances
from fleetopt.planner.sieve.evidence import Evidence, Noise, left_over
from fleetopt.planner.sieve.grid import Grid, Point
from fleetopt.planner.sieve.interval import Interval
from fleetopt.planner.sieve.knowledge import Knowledge
from fleetopt.planner.sieve.prior import Prior

Array = NDArray[np.float64]

_OWN: Final = 0.01
"""How much a narrower cell counts by itself, against a narrower decision.

One run alone often can't move the decision, as when two configurations look equally good.
"""


@dataclass(frozen=True)
class _Outcomes:
    """A cell's usable rate after a run, shape (classes, configurations, loads)."""

    chance: Array  # that it holds the target
    low_if_held: Array
    high_if_held: Array
    high_if_missed: Array


def next_run(
    known: Knowledge,
    usable_per_s: Interval,
    evidence: Evidence,
    grid: Grid,
    *,
    budget: int,
    noise: Noise,
    prior: Prior | None,
    order: NDArray[np.int64],
) -> Point | None:
    """Return the run to make next; None if there is none left.

    Parameters
    ----------
    known, usable_per_s
        What the evidence says.
    evidence
        All runs so far.
    grid
        All runs that may be made.
    budget
        GPUs of the fleet.
    noise, prior
        What `known` was made with.
    order
        A number for each cell, no two alike: of equally good ones, the smallest is taken.
    """
    is_left = evidence.runs < grid.repeats
    if not is_left.any():
        return None
    worth = expected_narrowing(
        _outcomes(known, usable_per_s, evidence, grid, noise, prior), usable_per_s, grid, budget
    )
    rate = np.where(is_left, worth / grid.cost_gpu_s, -np.inf).ravel()
    best = np.flatnonzero(rate >= rate.max() - 1e-12 * abs(rate.max()))
    chosen = best[np.argmin(order[best])]
    return Point(*map(int, np.unravel_index(chosen, grid.shape)))


def _outcomes(
    known: Knowledge,
    usable_per_s: Interval,
    evidence: Evidence,
    grid: Grid,
    noise: Noise,
    prior: Prior | None,
) -> _Outcomes:
    throughput, p99 = known.throughput_per_s, known.completion_p99_s
    share = 1.0 + noise.throughput * left_over(evidence.runs + 1, grid.repeats)
    low, high = usable_per_s.low[:, :, None], usable_per_s.high[:, :, None]
    may_hold = p99.low <= grid.slo_completion_p99_s[:, None, None]
    possible = np.where(may_hold, throughput.high, 0.0)
    zero = np.zeros((*grid.shape[:2], 1))
    below = np.maximum.accumulate(np.concatenate([zero, possible[:, :, :-1]], axis=2), axis=2)
    above = np.concatenate([possible[:, :, 1:], zero], axis=2)
    above = np.maximum.accumulate(above[:, :, ::-1], axis=2)[:, :, ::-1]
    return _Outcomes(
        chances(known, evidence, grid, prior),
        low_if_held=np.maximum(low, throughput.point / share),
        high_if_held=np.minimum(high, np.maximum(above, throughput.point * share)),
        high_if_missed=np.broadcast_to(np.maximum(below, low), grid.shape),
    )


def expected_narrowing(
    outcomes: _Outcomes, usable_per_s: Interval, grid: Grid, budget: int
) -> Array:
    """Return by how much one run at each cell is expected to narrow the decision.

    Shape (classes, configurations, loads).
    """
    chance = outcomes.chance
    worst = _Values(usable_per_s.low, grid, budget)
    best = _Values(usable_per_s.high, grid, budget)
    rise = worst.with_cells(outcomes.low_if_held) - worst.now
    fall_if_held = best.now - best.with_cells(outcomes.high_if_held)
    fall_if_missed = best.now - best.with_cells(outcomes.high_if_missed)
    own_rise = worst.alone(outcomes.low_if_held) - worst.alone(usable_per_s.low[:, :, None])
    own_high = best.alone(usable_per_s.high[:, :, None])
    own_if_held = own_rise + own_high - best.alone(outcomes.high_if_held)
    own_if_missed = own_high - best.alone(outcomes.high_if_missed)
    decision = chance * (rise + fall_if_held) + (1.0 - chance) * fall_if_missed
    own = chance * own_if_held + (1.0 - chance) * own_if_missed
    return np.asarray(decision + _OWN * own)


class _Values:
    """What usable rates are worth to a fleet, and what they would be with one cell changed.

    Worth is the best smallest fulfilment plus the best mean fulfilment. The mean alone grows when
    one class's rate becomes known while another's is still unknown.
    """

    def __init__(self, usable_per_s: Array, grid: Grid, budget: int) -> None:
        self._usable_per_s, self._grid, self._budget = usable_per_s, grid, budget
        shares = self._shares(usable_per_s, grid.demand_per_s)
        classes = shares.shape[1]
        self._smallest_of_others, self._sum_of_others = [], []
        for one in range(classes):
            smallest, total = np.ones(budget + 1), np.zeros(budget + 1)
            for other in range(classes):
                if other != one:
                    smallest = max_min(smallest, shares[:, other])
                    total = max_plus(total, shares[:, other])
            self._smallest_of_others.append(smallest)
            self._sum_of_others.append(total)
        self.now = float(self._worth(0, shares[:, :1])[0])

    def with_cells(self, rates_per_s: Array) -> Array:
        """Return the worth with each cell's usable rate replaced, one at a time.

        `rates_per_s` has shape (classes, configurations, n): n replacements for each cell.
        """
        classes, configurations, count = rates_per_s.shape
        worth = np.empty(rates_per_s.shape)
        usable = np.broadcast_to(
            self._usable_per_s[:, None, None, :], (classes, configurations, count, configurations)
        ).copy()
        every = np.arange(configurations)
        usable[:, every, :, every] = rates_per_s.transpose(1, 0, 2)
        shares = self._shares(usable, self._grid.demand_per_s[:, None, None])
        for one in range(classes):
            worth[one] = self._worth(one, shares[:, one])
        return worth

    def alone(self, rates_per_s: Array) -> Array:
        """Return the share of a class's demand that each cell could serve with all GPUs."""
        replicas = self._budget // self._grid.gpus
        demand = self._grid.demand_per_s[:, None, None]
        return np.minimum(rates_per_s * replicas[None, :, None] / demand, 1.0)

    def _shares(self, usable_per_s: Array, demand_per_s: Array) -> Array:
        by_gpus = rates_by_gpus(usable_per_s, self._grid.gpus, self._budget)
        return np.minimum(by_gpus / demand_per_s, 1.0)

    def _worth(self, one: int, shares: Array) -> Array:
        """Return the worth if class `one` has other shares by GPUs, shape (GPUs, …)."""
        shape = (-1, *[1] * (shares.ndim - 1))
        smallest = self._smallest_of_others[one][::-1].reshape(shape)
        total = self._sum_of_others[one][::-1].reshape(shape)
        classes = len(self._sum_of_others)
        return np.asarray(
            np.minimum(smallest, shares).max(axis=0) + (total + shares).max(axis=0) / classes
        )
