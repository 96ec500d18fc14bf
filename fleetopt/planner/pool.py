"""Size one pool: the fewest replicas that hold its utilisation and its P99 TTFT."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX, TtftTarget
from fleetopt.planner.ttft import Bursts, PromptMix, Queues, exceedance, own_time_s, queues

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_ROUNDING: Final = 1e-9
MOST_PER_LOAD: Final = 64.0
"""More than this many times the replicas that the load asks for is no plan but a sign that the
target can't be met: nothing waits any more, and what is left is the requests' own time."""


@dataclass(frozen=True)
class Sums:
    """What a batch of pools does; arrays have one entry per pool."""

    per_s: Array  # (7, pools), work per second
    slot_count: Array  # (pools,)
    load: Array  # (pools,), replicas at full throughput

    def take(self, index: Index) -> "Sums":
        """The pools at these indices."""
        return Sums(self.per_s[:, index], self.slot_count[index], self.load[index])

    def with_(self, other: "Sums") -> "Sums":
        """Both batches in one: a small batch takes as long as a larger one."""
        return Sums(
            np.concatenate([self.per_s, other.per_s], axis=1),
            np.concatenate([self.slot_count, other.slot_count]),
            np.concatenate([self.load, other.load]),
        )

    def split(self, count: int) -> tuple["Sums", "Sums"]:
        """The first `count` pools, and the rest."""
        return (
            Sums(self.per_s[:, :count], self.slot_count[:count], self.load[:count]),
            Sums(self.per_s[:, count:], self.slot_count[count:], self.load[count:]),
        )


@dataclass(frozen=True)
class Pools:
    """A batch of candidate pools of one engine, with their prompts."""

    engine: EngineProfile
    sums: Sums
    mix: PromptMix

    @property
    def load(self) -> Array:
        """Replicas at full throughput, shape (pools,)."""
        return self.sums.load

    def take(self, index: Index) -> "Pools":
        """The pools at these indices."""
        return Pools(self.engine, self.sums.take(index), self.mix.take(index))


def least_replicas(load: Array, request: PlanRequest) -> Array:
    """Replicas that utilisation and the configured minimum ask for; infinite where load is.

    Of N provisioned replicas, N · node_availability are up.
    """
    usable = request.max_utilization * request.node_availability
    return np.maximum(np.ceil(load / usable - _ROUNDING), float(request.min_replicas))


def queues_at(pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts) -> Queues:
    """The pools' queues with so many replicas provisioned."""
    servers = replicas * request.node_availability
    sums = pools.sums
    return queues(sums.per_s, sums.slot_count, servers, pools.mix, pools.engine, bursts)


def violation_share(
    pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts, target: TtftTarget
) -> Array:
    """Share of each pool's requests whose TTFT exceeds the target; 0 in an empty pool."""
    state = queues_at(pools, replicas, request, bursts)
    own = own_time_s(pools.mix, state.field, pools.engine)
    over = exceedance(state, target.at(pools.mix.tokens) - own)
    share = np.minimum((pools.mix.share * over).sum(axis=1), 1.0)
    return np.where(pools.sums.per_s[REQUESTS] > 0.0, share, 0.0)


def size(pools: Pools, request: PlanRequest, bursts: Bursts, at_most: Array | None = None) -> Array:
    """Fewest replicas of each pool; infinite where no number (up to the limit) is enough.

    Parameters
    ----------
    pools : Pools
        A batch of candidates.
    request : PlanRequest
        Its target and limits.
    bursts : Bursts
        Of the arrivals.
    at_most : shape (pools,), optional
        Counts above this are of no interest: the answer is then infinite.

    Notes
    -----
    More replicas never raise the violation share, so the count is bisected.
    """
    limit = np.inf if request.max_replicas is None else float(request.max_replicas)
    ceiling = np.full(pools.load.shape, limit) if at_most is None else np.minimum(at_most, limit)
    floor = least_replicas(pools.load, request)
    answer = np.where(floor <= ceiling, floor, np.inf)

    short = np.flatnonzero(np.isfinite(answer))
    if short.size == answer.size:  # the common case, without a copy
        short = short[~_meets(pools, floor, request, bursts)]
    elif short.size:
        short = short[~_meets(pools.take(short), floor[short], request, bursts)]
    if short.size:
        answer[short] = np.inf
        highest = np.minimum(floor * MOST_PER_LOAD, ceiling)
        short = short[_meets(pools.take(short), highest[short], request, bursts)]
        most = highest[short]
        answer[short] = _bisect(pools.take(short), floor[short], most, request, bursts)
    return answer


def _meets(
    pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts
) -> NDArray[np.bool_]:
    share = violation_share(pools, replicas, request, bursts, request.slo_ttft_p99)
    return np.asarray(share <= TTFT_VIOLATIONS_MAX)


def _bisect(
    pools: Pools, too_few: Array, enough: Array, request: PlanRequest, bursts: Bursts
) -> Array:
    """Fewest replicas that meet the target; steps double first, since few more mostly do."""
    low, high = too_few.copy(), enough.copy()
    step, galloping = 1.0, np.ones(low.size, dtype=np.bool_)
    open_ = np.flatnonzero(high - low > 1.0)
    while open_.size:
        middle = np.floor((low[open_] + high[open_]) / 2.0)
        ahead = np.minimum(low[open_] + step, middle)
        probe = np.where(galloping[open_], ahead, middle)
        met = _meets(pools.take(open_), probe, request, bursts)
        high[open_[met]] = probe[met]
        low[open_[~met]] = probe[~met]
        galloping[open_[met]] = False
        step *= 2.0
        open_ = open_[high[open_] - low[open_] > 1.0]
    return high
