"""Replicas for classes under a budget of GPUs: exact, by dynamic programming over GPUs.

What counts first is the smallest share of its demand that a class is served; then requests served
per second in all; then that fewer GPUs are used. The integer program of the same goals, given to
HiGHS, takes more than ten times as long; tests hold the two against each other.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.grid import Grid

Array = NDArray[np.float64]

_SAME: Final = 1e-9
"""Shares and rates this close, relatively, are the same."""


@dataclass(frozen=True)
class Allocation:
    """Replicas of each configuration for each class."""

    replicas: NDArray[np.int64]
    """Shape (classes, configurations)."""

    served_per_s: Array
    """Shape (classes,); never more than the demand."""

    min_fulfilment: float
    """The smallest share of a class's demand that is served."""

    gpus: int
    """How many are used."""

    @property
    def total_served_per_s(self) -> float:
        """Requests served per second, of all classes."""
        return float(self.served_per_s.sum())


def rates_by_gpus(usable_per_s: Array, gpus: Array, budget: int) -> Array:
    """Return the most that each number of GPUs serves of a class, shape (budget + 1, …).

    Parameters
    ----------
    usable_per_s : ndarray, shape (…, configurations)
        Of one replica.
    gpus : ndarray, shape (configurations,)
        Of one replica.
    budget : int
        The highest number of GPUs.
    """
    best = np.zeros((budget + 1, *usable_per_s.shape[:-1]))
    sizes = [int(size) for size in gpus]
    for count in range(1, budget + 1):
        here = best[count]
        np.copyto(here, best[count - 1])
        for position, size in enumerate(sizes):
            if size <= count:
                np.maximum(here, best[count - size] + usable_per_s[..., position], out=here)
    return best


def allocate(usable_per_s: Array, grid: Grid, budget: int) -> Allocation:
    """Return the best allocation if one replica serves `usable_per_s`.

    Parameters
    ----------
    usable_per_s : ndarray, shape (classes, configurations)
        Of one replica, in requests per second.
    grid : Grid
        Demands, and the GPUs of a replica.
    budget : int
        GPUs that there are.
    """
    demand = grid.demand_per_s
    by_gpus = rates_by_gpus(usable_per_s, grid.gpus, budget)
    served = np.minimum(by_gpus, demand)
    spent = _gpus_of_classes(served, _smallest_share(served / demand) * demand)
    replicas = np.array(
        [
            _replicas(by_gpus[: count + 1, one], usable_per_s[one], grid.gpus)
            for one, count in enumerate(spent)
        ],
        dtype=np.int64,
    )
    return allocation_of(replicas, usable_per_s, grid)


def allocation_of(replicas: NDArray[np.int64], usable_per_s: Array, grid: Grid) -> Allocation:
    """Return what given replicas serve if one serves `usable_per_s`."""
    served = np.minimum((replicas * usable_per_s).sum(axis=1), grid.demand_per_s)
    smallest = float((served / grid.demand_per_s).min())
    return Allocation(replicas, served, smallest, int((replicas @ grid.gpus).sum()))


def max_min(one: Array, other: Array) -> Array:
    """Return, for every number of GPUs, the best smaller value of two that share them.

    Both have shape (GPUs,) and don't fall.
    """
    return _shared(one, other, np.minimum)


def max_plus(one: Array, other: Array) -> Array:
    """Return, for every number of GPUs, the best sum of two that share them."""
    return _shared(one, other, np.add)


def _shared(one: Array, other: Array, combine: np.ufunc) -> Array:
    rest, is_split = _splits(len(one))
    values = combine(one, other[rest])
    return np.asarray(values.max(axis=1, where=is_split, initial=-np.inf))


@cache
def _splits(numbers: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return what is left of each number of GPUs when one side takes some, and if it can."""
    rest = np.arange(numbers)[:, None] - np.arange(numbers)
    return np.maximum(rest, 0), rest >= 0


def _smallest_share(shares: Array) -> float:
    """Return the best smallest share of all classes, from those by GPUs, shape (GPUs, classes)."""
    best = shares[:, 0]
    for one in range(1, shares.shape[1]):
        best = max_min(best, shares[:, one])
    return float(best[-1])


def _gpus_of_classes(served: Array, floor_per_s: Array) -> list[int]:
    """Return the GPUs of each class: the most requests in all with no class below its floor.

    `served` is by GPUs, shape (GPUs, classes). Of equal totals, the one with the fewest GPUs.
    """
    budget, classes = served.shape[0] - 1, served.shape[1]
    least = [
        int(np.argmax(served[:, one] >= floor_per_s[one] * (1.0 - _SAME))) for one in range(classes)
    ]
    spare = budget - sum(least)
    more = [served[least[one] : least[one] + spare + 1, one] for one in range(classes)]
    totals = [more[0]]
    for rates in more[1:]:
        totals.append(max_plus(totals[-1], rates))
    left = int(np.argmax(totals[-1] >= totals[-1][-1] * (1.0 - _SAME)))
    spent = least.copy()
    for one in range(classes - 1, 0, -1):
        sums = totals[one - 1][left::-1] + more[one][: left + 1]
        extra = int(np.argmax(sums >= sums.max() * (1.0 - _SAME)))
        spent[one] += extra
        left -= extra
    spent[0] += left
    return spent


def _replicas(by_gpus: Array, usable_per_s: Array, gpus: Array) -> list[int]:
    """Return replicas of each configuration that serve what the last of `by_gpus` says."""
    replicas = [0] * len(gpus)
    count = len(by_gpus) - 1
    while by_gpus[count] > 0.0:
        if by_gpus[count - 1] == by_gpus[count]:
            count -= 1
            continue
        position = next(
            position
            for position, size in enumerate(gpus)
            if size <= count
            and by_gpus[count - int(size)] + usable_per_s[position] == by_gpus[count]
        )
        replicas[position] += 1
        count -= int(gpus[position])
    return replicas
