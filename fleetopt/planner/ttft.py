"""P(TTFT > target) of pools of replicas: waiting for a slot, for prefill, and the prefill itself.

All functions take a batch of pools of one engine; arrays have one entry per pool.
What the figures rest on, and how far they are off: docs/planner.md, "Latency".
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.mean_field import MeanField, mean_field
from fleetopt.planner.prefill_queue import PrefillQueue, prefill_queue
from fleetopt.planner.slot_queue import slot_queue
from fleetopt.planner.target import TtftTarget

Array = NDArray[np.float64]

_LEAST_DELAY: Final = 1e-300
NEGLIGIBLE_DELAY: Final = 1e-7
"""So small a share of requests that wait for a slot is nothing beside the 1 % that P99 is about."""

_AT_ONCE: Final = 12_000
"""Points that are worked out together: more leave a processor's cache, and ask for fresh memory."""


@dataclass(frozen=True)
class PromptMix:
    """Prompt lengths of the pools' requests: `share` of them have about `tokens`.

    `computed` of the tokens are not in the prefix cache, and `products` are the means of
    `products_of` both.
    """

    tokens: Array  # (pools, points)
    computed: Array  # (pools, points)
    share: Array  # (pools, points); each row sums to 1
    products: Array  # (9, pools)

    def take(self, index: NDArray[np.intp] | slice) -> "PromptMix":
        """The pools at these indices."""
        tokens = self.tokens[index]
        computed = tokens if self.computed is self.tokens else self.computed[index]
        return PromptMix(tokens, computed, self.share[index], self.products[:, index])

    def used(self) -> "PromptMix":
        """Without the points that none of the pools has."""
        share = self.share.any(axis=0)
        tokens = self.tokens[:, share]
        computed = tokens if self.computed is self.tokens else self.computed[:, share]
        return PromptMix(tokens, computed, self.share[:, share], self.products)


@dataclass(frozen=True)
class Bursts:
    """How much burstier than Poisson arrivals are, where it matters; ≥ 1."""

    prefill: float = 1.0  # over the time that a backlog of prefill lasts
    slots: float = 1.0  # over the time that a request holds its slot


@dataclass(frozen=True)
class Queues:
    """The state of pools: the mean field and the two queues; every array has shape (pools,)."""

    field: MeanField
    prefill: PrefillQueue
    slot_delay: Array  # P(wait for a slot > 0)
    slot_scale_s: Array  # mean of that wait, given that there is one

    def take(self, index: NDArray[np.intp] | slice) -> "Queues":
        """The pools at these indices."""
        field, prefill = self.field.take(index), self.prefill.take(index)
        return Queues(field, prefill, self.slot_delay[index], self.slot_scale_s[index])


def queues(
    per_s: Array,
    slot_count: Array,
    servers: Array,
    mix: PromptMix,
    engine: EngineProfile,
    bursts: Bursts,
) -> Queues:
    """Mean-field iteration time and the two queues of pools of `servers` replicas each.

    Parameters
    ----------
    per_s : shape (7, pools)
        Work per second of the whole pool, with requests in it.
    slot_count, servers : shape (pools,)
        n ≥ 1, and replicas > load.
    mix : PromptMix
        The pools' prompt lengths.
    engine : EngineProfile
        The engine of all of them.
    bursts : Bursts
        Of the arrivals.
    """
    field = mean_field(per_s, servers, engine, bursts.prefill)
    prefill = prefill_queue(per_s, servers, mix.products, field, engine, bursts.prefill)
    slot_delay, slot_scale = slot_queue(per_s, slot_count, servers, field, engine, bursts.slots)
    return Queues(field, prefill, slot_delay, slot_scale)


def own_time_s(mix: PromptMix, field: MeanField, engine: EngineProfile) -> Array:
    """Prefill of one request in whole iterations: beside decoding ones, where it has a price.

    Parameters
    ----------
    mix : PromptMix
        The pools' prompt lengths.
    field : MeanField
        Of the same pools.
    engine : EngineProfile
        The engine of all of them.
    """
    chunks = np.maximum(np.ceil(mix.computed / engine.prefill_chunk_tokens), 1.0)
    if engine.prefill_is_free:
        read = engine.per_context_token_s * mix.tokens
        iteration = field.iteration_s + 0.5 * field.deviation_s
        return np.asarray(chunks * (iteration[:, None] + read))
    compute = compute_s(mix.tokens, mix.computed, engine)
    return np.asarray(chunks * field.decode_s[:, None] + compute)


def longest_own_time_s(tokens: Array, field: MeanField, engine: EngineProfile) -> Array:
    """At least the own time of prompts with nothing cached, and convex in the tokens.

    Parameters
    ----------
    tokens : shape (pools, points)
        Prompt lengths; whole chunks are taken one too many instead of being rounded up.
    field : MeanField
        Of the same pools.
    engine : EngineProfile
        The engine of all of them.
    """
    chunks = tokens / engine.prefill_chunk_tokens + 1.0
    if engine.prefill_is_free:
        read = engine.per_context_token_s * tokens
        return np.asarray(chunks * ((field.iteration_s + field.deviation_s)[:, None] + read))
    return np.asarray(chunks * field.decode_s[:, None] + compute_s(tokens, tokens, engine))


def compute_s(tokens: Array, computed_tokens: Array, engine: EngineProfile) -> Array:
    """Seconds of prefill that a prompt adds to its iterations: p·(i − g) + (c/2)·(i² − g²)."""
    per_token, per_context = engine.prefill_token_s, engine.prefill_token_context_s
    return computed_tokens * (per_token + 0.5 * per_context * (2.0 * tokens - computed_tokens))


def exceedance(state: Queues, slack_s: Array) -> Array:
    """P(waits > slack) per point, where slack is target − own time; 1 where it is negative.

    Parameters
    ----------
    state : Queues
        As of `queues`.
    slack_s : shape (pools, points)
        Seconds left for waiting.

    Notes
    -----
    The two waits are taken to be independent of each other and of the prompt.
    """
    queue = state.prefill
    # P = delay · exp((offset − slack) / scale), at most 1, in few passes over memory
    rate = 1.0 / np.maximum(queue.scale_s, 1e-12)
    reach = queue.offset_s * rate + np.log(np.maximum(queue.delay, _LEAST_DELAY))
    over = slack_s * -rate[:, None]
    over += reach[:, None]
    np.minimum(over, 0.0, out=over)
    np.exp(over, out=over)
    waits = np.flatnonzero(state.slot_delay > NEGLIGIBLE_DELAY)
    if waits.size:
        over[waits] = _with_slots(state.take(waits), slack_s[waits], over[waits])
    over[slack_s < queue.floor_s[:, None]] = 1.0
    return over


def exceeding_share(
    mix: PromptMix, state: Queues, engine: EngineProfile, target: TtftTarget
) -> Array:
    """Share of each pool's requests that are over the target, shape (pools,).

    Parameters
    ----------
    mix : PromptMix
        The pools' prompts.
    state : Queues
        Of the same pools.
    engine : EngineProfile
        The engine of all of them.
    target : TtftTarget
        For the time to first token.
    """
    pools, points = mix.share.shape
    share = np.empty(pools)
    step = max(_AT_ONCE // max(points, 1), 1)
    for first in range(0, pools, step):
        some = slice(first, first + step)
        part = mix.take(some)
        at = state if pools <= step else state.take(some)
        slack = target.at(part.tokens) - own_time_s(part, at.field, engine)
        np.einsum("ij,ij->i", part.share, exceedance(at, slack), out=share[some])
    return np.minimum(share, 1.0)


def _with_slots(state: Queues, slack_s: Array, prefill: Array) -> Array:
    """P(both waits > slack), where there are waits for slots."""
    queue = state.prefill
    left = np.maximum(slack_s - queue.offset_s[:, None], 0.0)
    slot = state.slot_delay[:, None] * np.exp(-_over(left, state.slot_scale_s))
    longer = _over(left, np.maximum(queue.scale_s, state.slot_scale_s))
    both = (queue.delay * state.slot_delay)[:, None] * (1.0 + longer) * np.exp(-longer)
    return np.minimum(prefill + slot + both, 1.0)


def _over(left: Array, scale_s: Array) -> Array:
    return np.minimum(left / np.maximum(scale_s, 1e-12)[:, None], 700.0)
