"""The cheapest fleet by trying every token boundary on the requests themselves.

Shares no formula's code with the planner: from a list of requests and the engine's figures to the
cost at all boundaries 1 … C_l − 1 and all γ = 2^(j/8), by exact sums over requests. Load alone
decides: no latency. What it takes from the planner's request are numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.request import Admission, PlanRequest

Array = NDArray[np.float64]
Tokens = NDArray[np.int64]

_STEPS_PER_OCTAVE: Final = 8
_KEPT_PROMPT: Final = 8  # a compressed prompt keeps at least an eighth of B
_SECONDS_PER_HOUR: Final = 3600.0
_ROUNDING: Final = 1e-6  # of one request: what is left of none after subtraction


@dataclass(frozen=True, slots=True)
class Fleets:
    """Replicas, as fractions, and compressed requests at 1 request/s; entry k is B = k + 1."""

    gamma: float
    short: Array
    long: Array
    moved: Array


@dataclass(frozen=True, slots=True)
class Costs:
    """USD/h of the same fleets at some rate."""

    gamma: float
    exact: Array
    """Replicas as fractions, no minimum."""
    whole: Array
    """Replicas rounded up, at least the minimum."""


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The cheapest boundary and γ, and its cost."""

    boundary_tokens: int
    gamma: float
    cost_usd_per_h: float


class BruteForce:
    """Costs of all fleets for these requests, of which those longer than C_l are left out.

    Rates are arrivals of all requests, also of those left out.

    Parameters
    ----------
    prompt_tokens, completion_tokens : shape (requests,)
        i and o.
    asked : PlanRequest
        Engines, limits and prices.
    compressible : shape (requests,), optional
        Share of each request that may be compressed; `compressible_share` of all by default.
    """

    def __init__(
        self,
        prompt_tokens: Tokens,
        completion_tokens: Tokens,
        asked: PlanRequest,
        compressible: Array | None = None,
    ) -> None:
        self.asked = asked
        context = asked.long_context_tokens
        length = prompt_tokens + completion_tokens
        kept = length <= context
        if compressible is None:
            compressible = np.full(length.size, asked.compressible_share)
        self._prompt, self._completion = prompt_tokens[kept], completion_tokens[kept]
        self._length, self._compressible = length[kept], compressible[kept]
        self._per_request = 1.0 / length.size
        self._boundaries = np.arange(1.0, context)
        self._below, _ = self._split(asked.short_profile)
        self._one, self._above = self._split(asked.long_profile)
        self._fleets: dict[float, Fleets] = {}

    def one_pool(self, rate_per_s: float) -> tuple[float, float]:
        """Cost of a single pool with replicas as fractions, and rounded up."""
        context = np.array([float(self.asked.long_context_tokens)])
        engine = self.asked.long_profile
        replicas = rate_per_s * _replicas(self._one[:, -1:], context, engine, self.asked)
        price = engine.price_usd_per_replica_h
        return float(replicas[0] * price), float(_rounded(replicas, self.asked)[0] * price)

    def two_pools(self, gamma: float, rate_per_s: float) -> Costs:
        """Cost of two pools at every boundary."""
        asked, fleets = self.asked, self._two_pools(gamma)
        short, long = rate_per_s * fleets.short, rate_per_s * fleets.long
        short_usd = asked.short_profile.price_usd_per_replica_h
        long_usd = asked.long_profile.price_usd_per_replica_h
        penalty_usd = asked.compression_penalty_usd * _SECONDS_PER_HOUR
        penalty = rate_per_s * fleets.moved * penalty_usd
        return Costs(
            gamma,
            short * short_usd + long * long_usd + penalty,
            _rounded(short, asked) * short_usd + _rounded(long, asked) * long_usd + penalty,
        )

    def all_costs(self, rate_per_s: float) -> Iterator[Costs]:
        """Costs at every γ up to the limit."""
        steps = int(math.log2(self.asked.gamma_max) * _STEPS_PER_OCTAVE + 1e-9)
        for step in range(steps + 1):
            yield self.two_pools(2.0 ** (step / _STEPS_PER_OCTAVE), rate_per_s)

    def cheapest(self, rate_per_s: float) -> tuple[Cheapest, Cheapest]:
        """The cheapest fleet with replicas as fractions, and with whole ones."""
        exact, whole = (
            Cheapest(self.asked.long_context_tokens, 1.0, cost)
            for cost in self.one_pool(rate_per_s)
        )
        for costs in self.all_costs(rate_per_s):
            exact = _cheaper(exact, costs.exact, costs.gamma)
            whole = _cheaper(whole, costs.whole, costs.gamma)
        return exact, whole

    def cost_at(self, boundary_tokens: int, gamma: float, rate_per_s: float) -> tuple[float, float]:
        """Cost of one fleet with replicas as fractions, and with whole ones."""
        if boundary_tokens == self.asked.long_context_tokens:
            return self.one_pool(rate_per_s)
        costs = self.two_pools(gamma, rate_per_s)
        return float(costs.exact[boundary_tokens - 1]), float(costs.whole[boundary_tokens - 1])

    def _two_pools(self, gamma: float) -> Fleets:
        if gamma not in self._fleets:
            asked, engine = self.asked, self.asked.long_profile
            taken, arrived, moved = self._moved(gamma)
            context = np.full(self._boundaries.size, float(asked.long_context_tokens))
            short_work = self._below[:, 1:-1] + arrived
            long_work = self._above[:, 1:-1] - taken
            long_work[:, long_work[0] < _ROUNDING * self._per_request] = 0.0
            short = _replicas(short_work, self._boundaries, asked.short_profile, asked)
            long = _replicas(long_work, context, engine, asked)
            self._fleets[gamma] = Fleets(gamma, short, long, moved)
        return self._fleets[gamma]

    def _split(self, engine: EngineProfile) -> tuple[Array, Array]:
        """Work at 1 request/s with L ≤ B, and with L > B, for B = 0 … C_l; shape (6, C_l + 1)."""
        by_length = self._by_token(self._length, _work(self._prompt, self._completion, engine))
        below = np.cumsum(by_length, axis=1)
        above = np.zeros_like(below)
        above[:, :-1] = np.cumsum(by_length[:, :0:-1], axis=1)[:, ::-1]
        return below, above

    def _moved(self, gamma: float) -> tuple[Array, Array, Array]:
        """Compressed requests at every B: work before (long engine), after (short), and number.

        A request is compressed at the boundaries from the first that its band and its output
        leave room for, up to its own length. So all sums over the compressed are running sums
        of what enters at one boundary and leaves at another.
        """
        o = self._completion
        first = np.maximum(np.ceil(self._length / gamma).astype(np.int64), 1)
        first = np.maximum(first, -(-_KEPT_PROMPT * o // (_KEPT_PROMPT - 1)))
        ever = first < self._length
        weight = self._compressible[ever]
        first, leaves, o = first[ever], self._length[ever], o[ever]
        before = _work(self._prompt[ever], o, self.asked.long_profile)
        powers = np.stack([np.ones(o.size), *(o.astype(np.float64) ** k for k in (1, 2, 3))])
        rows = np.concatenate([before, powers]) * weight
        running = np.cumsum(self._by_token(first, rows) - self._by_token(leaves, rows), axis=1)
        running = running[:, 1:-1]
        arrived = _arrived_work(running[6:], self._boundaries, self.asked.short_profile)
        return running[:6], arrived, running[6]

    def _by_token(self, tokens: Tokens, rows: Array) -> Array:
        size = self.asked.long_context_tokens + 1
        sums = np.stack([np.bincount(tokens, row, size) for row in rows])
        return np.asarray(sums * self._per_request, dtype=np.float64)


def _work(prompt: Tokens, completion: Tokens, engine: EngineProfile) -> Array:
    """Each request's 1, I, K, Σ of squared context over its iterations, i and i²; shape (6, n)."""
    i, o = prompt.astype(np.float64), completion.astype(np.float64)
    prefill = i / engine.prefill_chunk_tokens + 0.5
    end = i + o
    squares = prefill * i**2 / 3.0 + o * (i * i + i * end + end * end) / 3.0
    context = prefill * i / 2.0 + o * (i + o / 2.0)
    return np.stack([np.ones(i.size), prefill + o, context, squares, i, i * i])


def _arrived_work(powers: Array, b: Array, engine: EngineProfile) -> Array:
    """The same sums for requests that arrive with i = B − o, from n, Σo, Σo² and Σo³."""
    n, o, o2, o3 = powers
    ch = engine.prefill_chunk_tokens
    i = b * n - o
    i2 = b**2 * n - 2.0 * b * o + o2
    i3 = b**3 * n - 3.0 * b**2 * o + 3.0 * b * o2 - o3
    squares = i3 / (3.0 * ch) + i2 / 6.0 + b**2 * o - b * o2 + o3 / 3.0
    context = i2 / (2.0 * ch) + i / 4.0 + b * o - o2 / 2.0
    return np.stack([n, i / ch + 0.5 * n + o, context, squares, i, i2])


def _replicas(work: Array, context: Array, engine: EngineProfile, asked: PlanRequest) -> Array:
    """Replicas that hold the load at most at its cap, as fractions."""
    _, iterations, context_iterations, _, prompt, prompt_sq = work
    slots = np.maximum(_slots(work, context, engine, asked), 1e-9)
    load = (
        (engine.base_iteration_s / slots + engine.per_sequence_s) * iterations
        + engine.per_context_token_s * context_iterations
        + engine.prefill_token_s * prompt
        + 0.5 * engine.prefill_token_context_s * prompt_sq
    )
    replicas: Array = load / (asked.max_utilization * asked.node_availability)
    return replicas


def _slots(work: Array, context: Array, engine: EngineProfile, asked: PlanRequest) -> Array:
    """Sequences at once: by reserved windows, or by the normal bound on the running contexts."""
    block, cache = engine.kv_block_tokens, float(engine.kv_capacity_tokens)
    reserved = np.floor(cache / (np.ceil(context / block) * block))
    if asked.admission is Admission.RESERVED:
        return np.asarray(reserved, dtype=np.float64)
    z = NormalDist().inv_cdf(1.0 - asked.preemption_probability)
    iterations = np.maximum(work[1], 1e-300)
    mean = np.maximum(work[2] / iterations, 1.0)
    deviation = np.sqrt(np.maximum(work[3] / iterations - mean**2, 0.0))
    # n·mean + z·√n·deviation ≤ cache, a quadratic in √n; and n·mean + C ≤ cache
    root = (np.sqrt((z * deviation) ** 2 + 4.0 * mean * cache) - z * deviation) / (2.0 * mean)
    fits = np.floor(np.minimum(root**2, (cache - context) / mean))
    return np.asarray(np.where(reserved >= 1.0, np.maximum(fits, reserved), 0.0))


def _rounded(replicas: Array, asked: PlanRequest) -> Array:
    up = np.ceil(replicas * asked.node_availability - 1e-9)  # whole ones are up, or down
    needed = np.ceil(up / asked.node_availability - 1e-9)
    return np.asarray(np.maximum(needed, asked.min_replicas))


def _cheaper(best: Cheapest, costs: Array, gamma: float) -> Cheapest:
    lowest = int(costs.argmin())
    if costs[lowest] >= best.cost_usd_per_h:
        return best
    return Cheapest(lowest + 1, gamma, float(costs[lowest]))
