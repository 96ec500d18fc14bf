"""The allocation to choose now, and how certain it is."""

from dataclasses import dataclass
from enum import StrEnum

from fleetopt.planner.sieve.allocation import Allocation, allocate
from fleetopt.planner.sieve.grid import Grid
from fleetopt.planner.sieve.interval import Interval


class Verdict(StrEnum):
    """Whether the budget's GPUs meet every class's demand within its target."""

    FEASIBLE = "certified_feasible"
    UNDECIDED = "undecided"
    INFEASIBLE = "certified_infeasible"


@dataclass(frozen=True)
class Decision:
    """Allocations for the worst, the likely and the best that usable rates may be."""

    conservative: Allocation
    """What to choose: it serves at least this much wherever the intervals hold."""

    likely: Allocation
    optimistic: Allocation
    """No allocation serves more wherever the intervals hold."""

    demand_per_s: float  # of all classes

    @property
    def gap(self) -> float:
        """Share of demand that another allocation could at most add.

        The larger of what it could add to the worst class's fulfilment, and of what it could add
        to all requests as a share of all demand.
        """
        best, worst = self.optimistic, self.conservative
        more_per_s = best.total_served_per_s - worst.total_served_per_s
        return max(
            0.0,
            best.min_fulfilment - worst.min_fulfilment,
            more_per_s / self.demand_per_s,
        )

    @property
    def verdict(self) -> Verdict:
        """Certified only if every realisation within the intervals agrees."""
        if self.conservative.min_fulfilment >= 1.0:
            return Verdict.FEASIBLE
        if self.optimistic.min_fulfilment < 1.0:
            return Verdict.INFEASIBLE
        return Verdict.UNDECIDED


def decide(usable_per_s: Interval, grid: Grid, budget: int) -> Decision:
    """Return the decision for a budget of GPUs, from what one replica may serve."""
    conservative, likely, optimistic = (allocate(rates, grid, budget) for rates in usable_per_s)
    return Decision(conservative, likely, optimistic, float(grid.demand_per_s.sum()))
