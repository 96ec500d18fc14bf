"""The cheapest fleets that the simulation accepts: one pool, two, and two with compression.

Given who goes where, pools don't touch each other. So each is simulated alone, and its replicas
are bisected; a fleet is the sum of its pools. The planner only says where to look first.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

from fleetopt.planner.figures import fleet_at
from fleetopt.planner.fixed import needed_at
from fleetopt.planner.grid import boundaries_of, build
from fleetopt.planner.outcome import Infeasible, Plan
from fleetopt.planner.plan import plan
from fleetopt.planner.simulate.fleet import SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.simulation import simulate, slot_service_s
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX
from fleetopt.planner.workload import Workload
from validation import streams, traffic
from validation.cache import kept
from validation.rows import QWEN, Arrivals, Row

REQUESTS: Final = 150_000
QUICK_REQUESTS: Final = 20_000
SHORT_RUN: Final = 5
SURELY_GOOD: Final = 0.004
SURELY_BAD: Final = 0.025
"""A run of a fifth of the requests is enough where it shows fewer, or more, over their target."""

GAMMAS: Final = (1.0, 2.0**0.5, 2.0)
SHORTEST_TOKENS: Final = 256
COARSE: Final = 4
"""Every fourth bin edge, half an octave apart, is tried in any case."""

PROMISING: Final = 6
"""So many boundaries besides, those that the planner finds cheapest for each γ."""

MOST_PER_LOAD: Final = 8
WITHIN: Final = 0.05

QUESTIONS: Final = tuple(
    Row(QWEN, name, Arrivals.POISSON, rate, target)
    for name, rate, target in (
        ("chat", 60.0, "1s"),
        ("code", 40.0, "2s"),
        ("long_context", 8.0, "6s"),
        ("chat", 60.0, "250ms+0.1ms/token"),
        ("code", 40.0, "250ms+0.15ms/token"),
        ("long_context", 8.0, "300ms+0.2ms/token"),
        ("long_context", 24.0, "300ms+0.2ms/token"),
        ("chat", 600.0, "250ms+0.1ms/token"),
        ("code", 400.0, "250ms+0.15ms/token"),
        ("long_context", 80.0, "6s"),
    )
    if name in traffic.names()
)


class Kind(StrEnum):
    """What a fleet may do."""

    ONE_POOL = "one pool"
    TWO_POOLS = "two pools"
    COMPRESSED = "two pools, compression"


@dataclass(frozen=True, slots=True)
class Trial:
    """What one simulation of a pool says."""

    violation_share: float
    ttft_p99_s: float
    is_diverging: bool

    @property
    def is_accepted(self) -> bool:
        """Whether the pool meets the target and its queue doesn't grow."""
        return self.violation_share <= TTFT_VIOLATIONS_MAX and not self.is_diverging


@dataclass(frozen=True, slots=True)
class FoundFleet:
    """A fleet and its cost; without replicas where no number is accepted."""

    boundary_tokens: int
    gamma: float
    replicas: tuple[int, ...]
    cost_usd_per_h: float

    @property
    def is_found(self) -> bool:
        """Whether there is such a fleet."""
        return math.isfinite(self.cost_usd_per_h)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question comes to."""

    row: Row
    cheapest: dict[str, FoundFleet]
    planned: FoundFleet
    planned_trials: tuple[Trial, ...]
    tried: int
    """Fleets of which at least one pool was simulated."""

    @property
    def best(self) -> FoundFleet:
        """The cheapest of all that the simulation accepts."""
        return min(self.cheapest.values(), key=lambda fleet: fleet.cost_usd_per_h)

    @property
    def planned_over_best(self) -> float:
        """What the planner's choice costs more than that."""
        return self.planned.cost_usd_per_h / self.best.cost_usd_per_h - 1.0

    @property
    def more_replicas(self) -> int:
        """Replicas that the planner's choice has more than the cheapest fleet."""
        return sum(self.planned.replicas) - sum(self.best.replicas)

    @property
    def is_accepted(self) -> bool:
        """Whether the simulation accepts the planner's choice."""
        return bool(self.planned_trials) and all(one.is_accepted for one in self.planned_trials)


def answer(row: Row, requests: int = REQUESTS) -> Answer:
    """Search for the cheapest fleet of each kind, and try the planner's own."""
    return _Search(row, requests).answer()


def try_pool(
    row: Row, boundary: int, gamma: float, at: int, replicas: int, requests: int = REQUESTS
) -> Trial:
    """What the simulation says of one pool (0 is short, or the only one) of a split."""
    return _Search(row, requests).trial(boundary, gamma, at, replicas)


class _Search:
    """One question: its traffic, and what is known so far."""

    def __init__(self, row: Row, requests: int) -> None:
        self.row, self.requests = row, requests
        self.request = row.request()
        recorded = traffic.requests(row.traffic)
        self.workload = Workload.from_requests(
            recorded.prompt_tokens, recorded.completion_tokens, row.rate_per_s
        )
        self.tried = 0

    def answer(self) -> Answer:
        """Every kind's cheapest fleet."""
        context = self.request.long_context_tokens
        cheapest = {Kind.ONE_POOL.value: self._fleet(context, 1.0, math.inf)}
        two = self._best(Kind.TWO_POOLS, GAMMAS[:1], math.inf)
        cheapest[Kind.TWO_POOLS.value] = two
        cheapest[Kind.COMPRESSED.value] = self._best(Kind.COMPRESSED, GAMMAS[1:], math.inf)
        chosen = plan(self.workload, self.request)
        if isinstance(chosen, Infeasible):
            nothing = FoundFleet(0, 1.0, (), math.inf)
            return Answer(self.row, cheapest, nothing, (), self.tried)
        planned = self._planned(chosen)
        return Answer(self.row, cheapest, planned, self._trials(chosen), self.tried)

    def trial(self, boundary: int, gamma: float, at: int, replicas: int) -> Trial:
        """One pool with so many replicas."""
        fleet = SimulatedFleet.of_plan(self._figures(boundary, gamma), self.request)
        part = streams.pools_traffic(self.row.traffic, fleet)[at]
        return self._try(replace(fleet.pools[at], replicas=replicas), part, fleet, at)

    def _planned(self, chosen: Plan) -> FoundFleet:
        counts = (chosen.short_replicas, chosen.long_replicas)
        replicas = counts if chosen.long else counts[:1]
        return FoundFleet(
            chosen.boundary_tokens, chosen.gamma, replicas, self._cost(replicas, chosen)
        )

    def _trials(self, chosen: Plan) -> tuple[Trial, ...]:
        fleet = SimulatedFleet.of_plan(chosen, self.request)
        parts = streams.pools_traffic(self.row.traffic, fleet)
        return tuple(
            self._try(pool, part, fleet, at)
            for at, (pool, part) in enumerate(zip(fleet.pools, parts, strict=True))
        )

    def _best(self, kind: Kind, gammas: tuple[float, ...], limit: float) -> FoundFleet:
        """The cheapest fleet of two pools with one of these γ."""
        best = FoundFleet(0, gammas[0], (), limit)
        for boundary, gamma in self._candidates(gammas):
            found = self._fleet(boundary, gamma, best.cost_usd_per_h)
            if found.cost_usd_per_h < best.cost_usd_per_h:
                best = found
        return best

    def _candidates(self, gammas: tuple[float, ...]) -> list[tuple[int, float]]:
        """Boundaries half an octave apart and those that look cheap; the cheapest first."""
        edges = boundaries_of(build(self.workload, self.request).rows)[1:].astype(int)
        known: list[tuple[float, int, float]] = []
        for gamma in gammas:
            costs = []
            for number, edge in enumerate(edges.tolist()):
                if edge < SHORTEST_TOKENS or edge * gamma > self.request.long_context_tokens:
                    continue
                needed = needed_at(self.workload, self.request, edge, gamma)
                cost = math.inf
                if needed:
                    cost = float(needed.short_replicas + needed.long_replicas)
                costs.append((cost, edge, number % COARSE == 0))
            costs.sort()
            known += [
                (cost, edge, gamma)
                for rank, (cost, edge, is_coarse) in enumerate(costs)
                if is_coarse or rank < PROMISING
            ]
        return [(edge, gamma) for _, edge, gamma in sorted(known)]

    def _fleet(self, boundary: int, gamma: float, limit: float) -> FoundFleet:
        """Fewest replicas of both pools, as far as they can cost less than the limit."""
        figures = self._figures(boundary, gamma)
        fleet = SimulatedFleet.of_plan(figures, self.request)
        parts = streams.pools_traffic(self.row.traffic, fleet)
        floors = [self._floor(pool, part) for pool, part in zip(fleet.pools, parts, strict=True)]
        counts: list[int] = list(floors)
        nothing = FoundFleet(boundary, gamma, (), math.inf)
        if self._cost(counts, figures) >= limit:
            return nothing
        self.tried += 1
        price = self.request.long_profile.price_usd_per_replica_h
        guesses = needed_at(self.workload, self.request, boundary, gamma)
        for at, (pool, part) in enumerate(zip(fleet.pools, parts, strict=True)):
            guess = 0
            if guesses:
                guess = guesses.long_replicas if at else guesses.short_replicas
            most = MOST_PER_LOAD * floors[at] + 8
            if math.isfinite(limit):
                spare = (limit - self._cost(counts, figures)) / price
                most = min(most, counts[at] + math.ceil(spare - 1e-9) - 1)
            found = self._fewest(pool, part, fleet, at, (floors[at], guess, most))
            if found is None:
                return nothing
            counts[at] = found
        return FoundFleet(boundary, gamma, tuple(counts), self._cost(counts, figures))

    def _figures(self, boundary: int, gamma: float) -> Plan:
        """The split, its slots and its compressed share; counts are one each."""
        return fleet_at(self.workload, self.request, boundary, gamma, (1, 1))

    def _cost(self, counts: tuple[int, ...] | list[int], figures: Plan) -> float:
        """GPUs and compression, as the planner counts them."""
        profile = self.request.long_profile
        return sum(counts) * profile.price_usd_per_replica_h + figures.compression_usd_per_h

    def _floor(self, pool: SimulatedPool, part: streams.PoolTraffic) -> int:
        """Replicas that the cap on utilisation asks for: fleets are held to it as plans are."""
        if not len(part.routed):
            return 1
        rate = self.row.rate_per_s * part.share
        load = rate * float(slot_service_s(pool, part.routed).mean()) / pool.slots
        return max(math.ceil(load / self.request.max_utilization - 1e-3), 1)

    def _fewest(
        self,
        pool: SimulatedPool,
        part: streams.PoolTraffic,
        fleet: SimulatedFleet,
        at: int,
        bounds: tuple[int, int, int],
    ) -> int | None:
        """Fewest replicas that are accepted: in growing steps from a guess, then by halves.

        The bounds are the fewest that may be, the guess, and the most that are of interest.
        """

        def accepts(count: int) -> bool:
            return self._try(replace(pool, replicas=count), part, fleet, at).is_accepted

        floor, guess, most = bounds
        high = min(max(guess, floor), most)
        low, step = floor - 1, 1
        if accepts(high):
            while high - step > low:
                if not accepts(high - step):
                    low = high - step
                    break
                high -= step
                step *= 2
        else:
            low = high
            while True:
                if low >= most:
                    return None
                high = min(low + step, most)
                if accepts(high):
                    break
                low, step = high, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            if accepts(middle):
                high = middle
            else:
                low = middle
        return high

    def _try(
        self, pool: SimulatedPool, part: streams.PoolTraffic, fleet: SimulatedFleet, at: int
    ) -> Trial:
        split = [fleet.boundary_tokens, fleet.compress_up_to_tokens, at]
        asked = [asdict(pool), asdict(fleet.target), self.row.traffic, self.row.rate_per_s]
        return kept(
            [*asked, split, self.requests, SHORT_RUN, SURELY_GOOD, SURELY_BAD],
            Trial,
            lambda: self._run(pool, part, fleet),
        )

    def _run(self, pool: SimulatedPool, part: streams.PoolTraffic, fleet: SimulatedFleet) -> Trial:
        if not len(part.routed):
            return Trial(0.0, 0.0, False)
        found = self._run_for(self.requests // SHORT_RUN, pool, part, fleet)
        if SURELY_GOOD < found.violation_share < SURELY_BAD or found.is_diverging:
            return self._run_for(self.requests, pool, part, fleet)
        return found

    def _run_for(
        self, requests: int, pool: SimulatedPool, part: streams.PoolTraffic, fleet: SimulatedFleet
    ) -> Trial:
        context = pool.context_tokens
        alone = SimulatedFleet(pool, None, context, context, 0.0, fleet.target)
        stream = streams.poisson(part, self.row.rate_per_s, requests, seed=1)
        seen = simulate(alone, stream).pools[0]
        p99_s = seen.ttft.p99_s if seen.ttft else 0.0
        return Trial(seen.ttft_violation_share, p99_s, seen.growth.is_diverging)
