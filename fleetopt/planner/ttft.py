"""P(TTFT > target) of pools of replicas: waiting for a slot, for prefill, and the prefill itself.

All functions take a batch of pools of one engine; arrays have one entry per pool.
Errors are on the safe side: see docs/planner.md, "Latency".
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.erlang import erlang_c
from fleetopt.planner.service import (
    CONTEXT,
    CONTEXT_SQ,
    ITERATIONS,
    ITERATIONS_SQ,
    PROMPT,
    PROMPT_SQ,
    REQUESTS,
    running_load,
)
from fleetopt.planner.target import TtftTarget

__all__ = ["PromptMix", "Queues", "TtftTarget", "exceedance", "own_time_s", "queues"]

Array = NDArray[np.float64]

_NORMAL_QUANTILE: Final = 2.326
"""An iteration is taken to be as long as the longest in a hundred."""

_SPREAD: Final = 2.0
_NEGLIGIBLE_EXPONENT: Final = -40.0
_SMALLEST_SHAPE: Final = 1e-6
_LARGEST_SHAPE: Final = 1e9

UNSTABLE_S: Final = 1e9
"""The mean wait of a queue that grows without end."""


@dataclass(frozen=True)
class PromptMix:
    """Prompt lengths of the pools' requests: `share` of them have about `tokens`."""

    tokens: Array  # (pools, points)
    share: Array  # (pools, points); each row sums to 1


@dataclass(frozen=True)
class Queues:
    """The state of pools in the mean field; every field has shape (pools,)."""

    iteration_s: Array  # t, mean iteration, prefill included
    decode_s: Array  # a long iteration without prefill
    sequences: Array  # k, running per replica
    residual_s: Array  # until a running iteration ends
    slot_delay: Array  # P(wait for a slot > 0)
    slot_scale_s: Array  # mean of that wait, given that there is one
    prefill_delay: Array
    prefill_scale_s: Array


def queues(
    per_s: Array,
    slot_count: Array,
    servers: Array,
    mix: PromptMix,
    engine: EngineProfile,
    peakedness: float,
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
    peakedness : float
        z ≥ 1 of the arrivals.
    """
    load, iteration, sequences, decode = mean_field(per_s, servers, engine)
    prefill_delay, prefill_scale = _prefill_queue(
        per_s, servers, sequences, decode, mix, engine, peakedness
    )
    slot_delay, slot_scale = slot_queue(
        per_s, slot_count, servers, servers * sequences, load, engine, peakedness
    )
    return Queues(
        iteration,
        decode,
        sequences,
        np.maximum(iteration, decode),
        slot_delay,
        slot_scale,
        prefill_delay,
        prefill_scale,
    )


def mean_field(
    per_s: Array, servers: Array, engine: EngineProfile
) -> tuple[Array, Array, Array, Array]:
    """Running load of the pool, mean iteration, sequences per replica, a long decode iteration."""
    load = running_load(per_s, engine)
    idle = np.maximum(1.0 - load / servers, 1e-9)
    iteration = engine.base_iteration_s / idle
    sequences = per_s[ITERATIONS] / servers * iteration
    return load, iteration, sequences, _long_decode_iteration(per_s, sequences, idle, engine)


def own_time_s(prompt_tokens: Array, decode_s: Array, engine: EngineProfile) -> Array:
    """Prefill of one request in whole iterations beside decoding ones, and one iteration more."""
    chunks = np.ceil(prompt_tokens / engine.prefill_chunk_tokens)
    beside = decode_s + engine.per_context_token_s * prompt_tokens
    return np.asarray((chunks + 1.0) * beside + compute_s(prompt_tokens, engine))


def exceedance(state: Queues, slack_s: Array) -> Array:
    """P(waits > slack) per point, where slack is target − own time; 1 where it is negative.

    Parameters
    ----------
    state : Queues
        As of `queues`.
    slack_s : shape (pools, points)
        Seconds left for waiting.
    """
    left = slack_s - state.residual_s[:, None]
    prefill = state.prefill_delay[:, None] * np.exp(-_over(left, state.prefill_scale_s))
    if not state.slot_delay.any():
        return np.where(left < 0.0, 1.0, prefill)
    slot = state.slot_delay[:, None] * np.exp(-_over(left, state.slot_scale_s))
    longer = _over(left, np.maximum(state.prefill_scale_s, state.slot_scale_s))
    both = (state.prefill_delay * state.slot_delay)[:, None] * (1.0 + longer) * np.exp(-longer)
    return np.where(left < 0.0, 1.0, np.minimum(prefill + slot + both, 1.0))


def _over(left: Array, scale_s: Array) -> Array:
    return np.minimum(np.maximum(left / np.maximum(scale_s, 1e-12)[:, None], 0.0), 700.0)


def prefill_load(per_s: Array, decode_s: Array, engine: EngineProfile) -> Array:
    """Replicas that prefill in full iterations keeps busy."""
    per_token = decode_s / engine.prefill_chunk_tokens + engine.prefill_token_s
    attention = 0.5 * engine.prefill_token_context_s * per_s[PROMPT_SQ]
    return np.asarray(per_token * per_s[PROMPT] + attention)


def compute_s(prompt_tokens: Array, engine: EngineProfile) -> Array:
    """Seconds of prefill that a prompt adds to the iterations it is in."""
    per_token, per_context = engine.prefill_token_s, engine.prefill_token_context_s
    return prompt_tokens * (per_token + 0.5 * per_context * prompt_tokens)


def _long_decode_iteration(
    per_s: Array, sequences: Array, idle: Array, engine: EngineProfile
) -> Array:
    h, kappa = engine.per_sequence_s, engine.per_context_token_s
    iterations = np.maximum(per_s[ITERATIONS], 1e-300)
    mean, mean_sq = per_s[CONTEXT] / iterations, per_s[CONTEXT_SQ] / iterations
    variance = sequences / idle * (h * h + 2.0 * h * kappa * mean + kappa * kappa * mean_sq)
    middle = engine.base_iteration_s + sequences * (h + kappa * mean)
    return np.asarray(middle + _NORMAL_QUANTILE * np.sqrt(variance))


def _prefill_queue(
    per_s: Array,
    servers: Array,
    sequences: Array,
    decode: Array,
    mix: PromptMix,
    engine: EngineProfile,
    peakedness: float,
) -> tuple[Array, Array]:
    """The queue for the chunk budget, where replicas are chosen by how many requests they hold.

    Such a dispatcher doesn't see prefill work: an arrival waits about as often as at a single
    server (the share ρ of the time), and then for the rest of the prefill in progress plus a
    backlog that the choice among N replicas evens out by √N. M/G/N, which sees the work, is
    far below an iteration-level simulation of such a dispatcher. Where prefill is free there
    is no shared budget, and so no queue.
    """
    if engine.prefill_is_free:
        return np.zeros_like(servers), np.zeros_like(servers)
    per_token = decode[:, None] / engine.prefill_chunk_tokens
    service = per_token * mix.tokens + compute_s(mix.tokens, engine)
    load = prefill_load(per_s, decode, engine)
    mean = np.maximum(load / np.maximum(per_s[REQUESTS], 1e-300), 1e-300)
    squared = mix.share * service * service
    mean_sq = np.maximum(squared.sum(axis=1), 1e-300)
    residual = mean_sq / (2.0 * mean)
    tail = (squared * service).sum(axis=1) / (3.0 * mean_sq)  # mean residual of that residual
    residual += np.maximum(tail - residual, 0.0) / np.maximum(servers, 1.0)
    busy = load / servers
    backlog = peakedness * busy / (np.sqrt(servers) * np.maximum(1.0 - busy, 1e-9))
    avoided = 1.0 - _seen_share(sequences, peakedness / servers)
    delay = busy * (1.0 - avoided * np.maximum(1.0 - 1.0 / servers, 0.0))
    if peakedness > 1.0:
        delay = np.maximum(delay, erlang_c(servers / peakedness, load / peakedness))
    stable = busy < 1.0
    return np.where(stable, delay, 1.0), np.where(stable, residual * (1.0 + backlog), UNSTABLE_S)


def _seen_share(sequences: Array, variance_per_sequence: Array) -> Array:
    """Requests that an arrival finds at its replica, as a share of the mean number k.

    Dispatch to the emptiest keeps every replica at m or m + 1 requests, m = ⌊k⌋. An arrival
    fills the gap of a request that left a replica at m, or joins one at m when there is none.
    With f = k − m it finds m·(m − 1 + 2f)/k on average: none at all for k < 1. The mean is
    taken two standard deviations high.
    """
    high = sequences + _SPREAD * np.sqrt(sequences * variance_per_sequence)
    whole = np.floor(high)
    found = whole * (whole - 1.0 + 2.0 * (high - whole))
    return np.asarray(found / np.maximum(high * high, 1e-300))


def slot_queue(
    per_s: Array,
    slot_count: Array,
    servers: Array,
    running: Array,
    load: Array,
    engine: EngineProfile,
    peakedness: float,
) -> tuple[Array, Array]:
    """The queue for slots, by Hayward, with iterations that get slower as slots fill.

    With iterations of W + β·k the number running is negative binomial (r = W/β per replica)
    where it would be Poisson at a constant speed; with β → 0 this is Erlang C. Who waits
    does so at full slots, so the backlog drains at the maximum throughput.
    """
    throughput = np.maximum(load + engine.base_iteration_s * per_s[ITERATIONS] / slot_count, 1e-300)
    free = servers - throughput
    places = servers * slot_count / peakedness
    mean = np.maximum(running, 1e-12) / peakedness
    shape = servers * engine.base_iteration_s * per_s[ITERATIONS] / np.maximum(load, 1e-300)
    shape = np.minimum(np.maximum(shape / peakedness, _SMALLEST_SHAPE), _LARGEST_SHAPE)
    delay = _delay(places, mean, shape, servers / np.maximum(free, 1e-9))
    if not delay.any() and free.min() > 0.0:
        return delay, delay
    iterations = np.maximum(per_s[ITERATIONS], 1e-300)
    residual = 0.5 * per_s[ITERATIONS_SQ] / iterations * (throughput / iterations)
    scale = peakedness * residual / np.maximum(free, 1e-9)
    stable = free > 0.0
    return np.where(stable, delay, 1.0), np.where(stable, scale, UNSTABLE_S)


def _delay(places: Array, mean: Array, shape: Array, waiting: Array) -> Array:
    """P(all places taken), where `waiting` is 1 / (1 − utilisation)."""
    # Chernoff's bound first: mostly it shows the share to be far below any of interest.
    excess, both = places / mean, (places + shape) / (mean + shape)
    bound = (places + shape) * np.log(both) - places * np.log(excess)
    if bound.max() < _NEGLIGIBLE_EXPONENT and excess.min() > 1.0:
        return np.zeros_like(places)
    odds = mean / (mean + shape)
    exponent = (
        gammaln(places + shape)
        - gammaln(shape)
        - gammaln(places + 1.0)
        + shape * np.log1p(-odds)
        + places * np.log(odds)
    )
    full = np.exp(np.minimum(exponent, 0.0)) * waiting
    return np.asarray(full / np.maximum(full + betainc(shape, places, 1.0 - odds), 1e-300))
