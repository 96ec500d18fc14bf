"""The sieve: from the runs made so far to the decision, and to the next run.

It keeps nothing but what it is given, so whoever replays the same runs gets the same next one.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import ConfigError
from fleetopt.planner.sieve.decision import Decision, decide
from fleetopt.planner.sieve.evidence import Evidence, Noise
from fleetopt.planner.sieve.grid import Grid, Point
from fleetopt.planner.sieve.interval import Interval
from fleetopt.planner.sieve.knowledge import Knowledge, what_is_known
from fleetopt.planner.sieve.prior import Prior
from fleetopt.planner.sieve.selection import next_run
from fleetopt.planner.sieve.usable import usable_rates

DEFAULT_TOLERANCE: Final = 0.02


@dataclass(frozen=True)
class State:
    """What is known after some runs, and what follows."""

    evidence: Evidence
    known: Knowledge
    usable_per_s: Interval
    decision: Decision


@dataclass(frozen=True)
class Sieve:
    """A fleet decision to be made, and what may be measured for it.

    Raises
    ------
    ConfigError
        If a figure is out of range or the prior is for another grid.
    """

    grid: Grid
    budget: int
    """GPUs of the fleet."""

    noise: Noise = field(default_factory=Noise)
    prior: Prior | None = None
    tolerance: float = DEFAULT_TOLERANCE
    """Share of demand: with no more to gain, profiling stops."""

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ConfigError(f"budget is {self.budget}; expected a whole number of GPUs ≥ 1")
        if not 0.0 <= self.tolerance < 1.0:
            raise ConfigError(f"tolerance is {self.tolerance}; expected a share in [0, 1)")
        if self.prior is not None and self.prior.completion_p99_s.shape[:3] != self.grid.shape:
            raise ConfigError(
                f"prior has shape {self.prior.completion_p99_s.shape[:3]}; "
                f"expected the grid's, {self.grid.shape}"
            )

    def state(self, evidence: Evidence) -> State:
        """Return what the evidence says."""
        known = what_is_known(evidence, self.grid, self.noise, self.prior)
        usable = usable_rates(known, self.grid)
        return State(evidence, known, usable, decide(usable, self.grid, self.budget))

    def is_certain(self, state: State) -> bool:
        """Tell whether nothing within the intervals could gain more than the tolerance."""
        return state.decision.gap <= self.tolerance

    def next_run(self, state: State, order: NDArray[np.int64] | None = None) -> Point | None:
        """Return the run to make next, None if all are made.

        `order` has a number for each cell, no two alike, that decides between equals.
        """
        if order is None:
            order = np.arange(self.grid.offered_per_s.size)
        return next_run(
            state.known,
            state.usable_per_s,
            state.evidence,
            self.grid,
            budget=self.budget,
            noise=self.noise,
            prior=self.prior,
            order=order,
        )
