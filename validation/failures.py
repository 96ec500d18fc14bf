"""Says in words where a figure misses its goal: what those pools have in common.

No sentence is written beforehand. A cause is one or two facts about a pool ("code traffic",
"tenants' arrivals"); of all pairs, the one that fits the failures best is named, then the one that
fits best what is left. Fit is the harmonic mean of two shares: of the pools with these facts, those
that fail; and of those that fail, the ones with these facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from fleetopt.cli.plan_text import BINDINGS
from fleetopt.planner.outcome import Binding
from validation.measure import PoolResult, RowResult
from validation.rows import PAPER, Arrivals

MOST_CAUSES: Final = 5
_SMALL_REPLICAS: Final = 20
_FEW_TAKEN: Final = 0.05
_PLAIN: Final = 1.02
"""A pair of facts must fit so much better than one alone."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pool, what is known of it, and one figure's error there."""

    facts: frozenset[str]
    error: float
    fails: bool


@dataclass(frozen=True, slots=True)
class Cause:
    """Facts, how many of the pools that have them fail, and by how much."""

    facts: tuple[str, ...]
    failing: int
    having: int
    median_error: float
    worst_error: float

    def sentence(self) -> str:
        """In words."""
        where = ", ".join(self.facts) if self.facts else "elsewhere"
        if self.failing == 1:
            return f"{where}: 1 of {self.having}, by {self.worst_error:+.0%}"
        return (
            f"{where}: {self.failing} of {self.having}, by {self.median_error:+.0%} in the middle "
            f"and {self.worst_error:+.0%} at worst"
        )


def facts_of(result: RowResult, pool: PoolResult) -> frozenset[str]:
    """What may explain how a pool was predicted."""
    row = result.row
    is_constant = "token" not in row.target
    is_small = pool.replicas < _SMALL_REPLICAS
    is_compressed = result.gamma > 1.0
    kind = {"one": "single pools", "short": "short pools", "long": "long pools"}[pool.name]
    found = {
        "the paper's engine" if row.engine == PAPER else "silicon engines",
        f"{row.traffic} traffic",
        "tenants' arrivals" if row.arrivals is Arrivals.TENANTS else "Poisson arrivals",
        f"{row.rate_per_s:,.0f} requests/s",
        "constant targets" if is_constant else "length-aware targets",
        f"{row.admission} admission",
        kind,
        f"sized by {BINDINGS[Binding(pool.binding)]}",
        f"fewer than {_SMALL_REPLICAS} replicas"
        if is_small
        else f"{_SMALL_REPLICAS} replicas or more",
        "fewer than 5 % of slots taken"
        if pool.simulated.slot_occupancy < _FEW_TAKEN
        else "at least 5 % of slots taken",
    }
    if row.engine != PAPER:
        found.add(row.engine)
    if pool.name != "one":
        found.add("compression" if is_compressed else "no compression")
        if is_compressed:
            found.add(f"{kind} that compression changes")
    return frozenset(found)


def causes(cases: Sequence[Case], most: int = MOST_CAUSES) -> list[Cause]:
    """What failing pools have in common; the last one may be what is left."""
    left = {number for number, case in enumerate(cases) if case.fails}
    found: list[Cause] = []
    while left and len(found) < most:
        facts = _best(cases, left)
        having = [number for number, case in enumerate(cases) if facts <= case.facts]
        failing = [number for number in having if number in left]
        found.append(_cause(cases, tuple(sorted(facts)), failing, len(having)))
        left -= set(failing)
    if left:
        found.append(_cause(cases, (), sorted(left), len(left)))
    return found


def _best(cases: Sequence[Case], left: set[int]) -> frozenset[str]:
    """The one or two facts that fit the failures that are left."""
    names = sorted({fact for number in left for fact in cases[number].facts})
    has = {fact: {n for n, case in enumerate(cases) if fact in case.facts} for fact in names}

    def fit(facts: tuple[str, ...]) -> float:
        having = set.intersection(*(has[fact] for fact in facts))
        told = {number for number in having if number in left or not cases[number].fails}
        return 2.0 * len(having & left) / max(len(told) + len(left), 1)

    alone = max(((fact,) for fact in names), key=fit)
    pair = max(combinations(names, 2), key=fit, default=alone)
    return frozenset(pair if fit(pair) > _PLAIN * fit(alone) else alone)


def _cause(
    cases: Sequence[Case], facts: tuple[str, ...], failing: Sequence[int], having: int
) -> Cause:
    errors = np.array([cases[number].error for number in failing])
    worst = float(errors[np.abs(errors).argmax()])
    return Cause(facts, len(failing), having, float(np.median(errors)), worst)
