"""Size one pool: the fewest replicas that hold its utilisation and its P99 TTFT."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.availability import replicas_for, replicas_up
from fleetopt.planner.end_to_end import late_share
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.inter_token import TokenGaps, gap_share, token_gaps
from fleetopt.planner.length_points import Lengths
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX, TtftTarget
from fleetopt.planner.ttft import Bursts, PromptMix, Queues, exceeding_share, queues

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_ROUNDING: Final = 1e-9
_NO_SHARE: Final = 1e-9
_FIRST_STEP: Final = 0.03
_STEP_GROWTH: Final = 2.5
_NEAR: Final = 1.3
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
    lengths: Lengths

    @property
    def load(self) -> Array:
        """Replicas at full throughput, shape (pools,)."""
        return self.sums.load

    def take(self, index: Index) -> "Pools":
        """The pools at these indices."""
        mix, lengths = self.mix.take(index), self.lengths.take(index)
        return Pools(self.engine, self.sums.take(index), mix, lengths)


def load_replicas(load: Array, request: PlanRequest) -> Array:
    """Replicas that utilisation asks for; infinite where load is.

    Of N provisioned replicas, ⌊N · node_availability⌋ are up, and these carry the load.
    """
    up = np.ceil(load / request.max_utilization - _ROUNDING)
    return replicas_for(up, request.node_availability)


def least_replicas(load: Array, request: PlanRequest) -> Array:
    """Replicas that utilisation and the configured minimum ask for; infinite where load is."""
    return np.maximum(load_replicas(load, request), float(request.min_replicas))


def queues_at(pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts) -> Queues:
    """The pools' queues with so many replicas provisioned."""
    servers = replicas_up(replicas, request.node_availability)
    sums = pools.sums
    return queues(sums.per_s, sums.slot_count, servers, pools.mix, pools.engine, bursts)


def violation_share(
    pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts, target: TtftTarget
) -> Array:
    """Share of each pool's requests whose TTFT exceeds the target; 0 in an empty pool."""
    state = queues_at(pools, replicas, request, bursts)
    share = exceeding_share(pools.mix, state, pools.engine, target)
    return np.where(pools.sums.per_s[REQUESTS] > 0.0, share, 0.0)


def further_shares(
    pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts
) -> tuple[Array, Array]:
    """Shares beyond the other targets: of requests end to end, and of times between tokens.

    0 where there is no such target, and in an empty pool.
    """
    late, slow = np.zeros((2, replicas.size))
    e2e, gap_s = request.slo_e2e_p99, request.slo_itl_p99_s
    state = queues_at(pools, replicas, request, bursts)
    gaps = gaps_at(pools, replicas, request, bursts, state)
    if e2e is not None:
        late = late_share(state, gaps, pools.lengths.mix(), pools.engine, e2e)
    if gap_s is not None:
        slow = gap_share(gaps, pools.mix, pools.engine, np.full(replicas.size, gap_s))
    busy = pools.sums.per_s[REQUESTS] > 0.0
    return np.where(busy, late, 0.0), np.where(busy, slow, 0.0)


def gaps_at(
    pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts, state: Queues
) -> TokenGaps:
    """The pools' times between tokens with so many replicas provisioned."""
    servers = replicas_up(replicas, request.node_availability)
    return token_gaps(pools.sums.per_s, servers, state.field, pools.engine, bursts.prefill)


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
    More replicas never raise the violation share, so the count is searched between two ends.
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
        most = np.minimum(floor * MOST_PER_LOAD, ceiling)[short]
        answer[short] = _fewest(pools.take(short), floor[short], most, request, bursts)
    return answer


def _meets(
    pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts
) -> NDArray[np.bool_]:
    return np.asarray(excess(pools, replicas, request, bursts) <= 0.0)


def excess(pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts) -> Array:
    """By how much too many requests exceed a target, as a logarithm; at most 0 where it's met."""
    share = violation_share(pools, replicas, request, bursts, request.slo_ttft_p99)
    if request.has_further_targets:
        share = np.maximum(share, np.maximum(*further_shares(pools, replicas, request, bursts)))
    return np.asarray(np.log(np.maximum(share, _NO_SHARE) * (1.0 / TTFT_VIOLATIONS_MAX)))


def late_shares(pools: Pools, replicas: Array, request: PlanRequest, bursts: Bursts) -> Array:
    """Shares of requests beyond the target to the first token and end to end, shape (2, pools).

    All of them where times between tokens are too long, which no other pool makes up for.
    """
    share = violation_share(pools, replicas, request, bursts, request.slo_ttft_p99)
    if not request.has_further_targets:
        return np.stack([share, np.zeros_like(share)])
    late, slow = further_shares(pools, replicas, request, bursts)
    return np.where(slow > TTFT_VIOLATIONS_MAX, np.inf, np.stack([share, late]))


def _fewest(
    pools: Pools, too_few: Array, most: Array, request: PlanRequest, bursts: Bursts
) -> Array:
    """Fewest replicas that meet the target, more than a number that doesn't; infinite above `most`.

    The most there may be is tried first where that is not far, and else ever larger steps, since
    few more mostly do. Once both ends are known, the logarithm of the share is nearly straight
    between them: probes are where a line through both ends crosses the allowed share, and every
    third halves what is left.
    """
    low, high = too_few.copy(), np.floor(most) + 1.0  # the upper end is not known to be enough
    over, under = np.full(low.size, np.nan), np.full(low.size, np.nan)
    open_ = np.flatnonzero(high - low > 1.0)
    step, round_ = _FIRST_STEP, 0
    while open_.size:
        bottom, top = low[open_], high[open_]
        with np.errstate(invalid="ignore"):
            crossing = bottom + (top - bottom) * over[open_] / (over[open_] - under[open_])
        middle = 0.5 * (bottom + top)
        straight = np.isfinite(crossing) & (round_ % 3 != 2)
        inside = np.ceil(np.where(straight, crossing, middle))
        near = top <= _NEAR * bottom
        ahead = np.where(near, top - 1.0, np.floor(bottom * (1.0 + step) + 1.0))
        probe = np.where(np.isfinite(under[open_]), inside, ahead)
        probe = np.clip(probe, bottom + 1.0, top - 1.0)
        found = excess(pools.take(open_), probe, request, bursts)
        met = found <= 0.0
        high[open_[met]], under[open_[met]] = probe[met], found[met]
        low[open_[~met]], over[open_[~met]] = probe[~met], found[~met]
        step, round_ = step * _STEP_GROWTH, round_ + 1
        open_ = open_[high[open_] - low[open_] > 1.0]
    return np.where(np.isfinite(under), high, np.inf)
