"""How long requests wait until their own prefill starts, where a replica's prompts share a budget.

All functions take a batch of pools of one engine; arrays have one entry per pool.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.mean_field import MeanField
from fleetopt.planner.service import REQUESTS

Array = NDArray[np.float64]

UNSTABLE_S: Final = 1e9
"""The mean wait of a queue that grows without end."""

PRODUCTS: Final = 9
"""E[u], E[q], E[u²], E[u·q], E[q²], E[u³], E[u²·q], E[u·q²], E[q³]: what the first three moments
of prefill times need. u = i − g prompt tokens are computed, and q = i² − g²."""

_SERVICE: Final = 0.83
_BATCH: Final = 0.19
_OWN_BACKLOG: Final = 0.84
_COMMON_BACKLOG: Final = 1.03
_DELAYED: Final = 1.45
_SEEN: Final = 1.2
_ITERATION: Final = 1.06
_SHIFT: Final = 0.8
_FLOOR: Final = 1.05
"""Calibrated on 480 simulated pools; see docs/planner.md, "Latency"."""

_NORMAL_QUANTILE: Final = 2.326
"""Where prefill is free, the iteration that an arrival finds is the longest in a hundred."""

DEVIATIONS: Final = np.array([[-1.5], [-0.5], [0.5], [1.5]])
WEIGHTS: Final = np.array([0.1, 0.4, 0.4, 0.1])
"""A normal distribution in four points: deviations from the mean, and weights."""


@dataclass(frozen=True)
class PrefillQueue:
    """P(wait > x) = delay · exp(−(x − offset)/scale), at most 1; nobody waits less than floor.

    Every field has shape (pools,).
    """

    floor_s: Array
    offset_s: Array
    delay: Array
    scale_s: Array

    def take(self, index: NDArray[np.intp] | slice) -> "PrefillQueue":
        """The pools at these indices."""
        return PrefillQueue(
            self.floor_s[index], self.offset_s[index], self.delay[index], self.scale_s[index]
        )

    @property
    def mean_s(self) -> Array:
        """About the mean wait."""
        return self.offset_s + self.delay * self.scale_s


def prefill_queue(
    per_s: Array,
    servers: Array,
    products: Array,
    field: MeanField,
    engine: EngineProfile,
    burstiness: float,
) -> PrefillQueue:
    """The queue for the chunk budget of replicas that are chosen by how many requests they hold.

    Parameters
    ----------
    per_s : shape (7, pools)
        Work per second of the whole pool.
    servers : shape (pools,)
        Replicas that are up.
    products : shape (9, pools)
        Means over the pool's requests, of what `products_of` returns.
    field : MeanField
        Of the same pools.
    engine : EngineProfile
        The engine of all of them.
    burstiness : float
        z ≥ 1 of the arrivals.

    Notes
    -----
    A replica is a server of prefill that takes ch tokens an iteration, so that a prompt is in
    service for s = u·(D/ch + p) + (c/2)·q, D an iteration without prefill. It is busy for ρ of
    the time, and for ρ' of its *iterations*: those with a full chunk last longer.

    Whoever sends a request to the replica with the fewest keeps all replicas at about the same
    number. So a replica gets a request when it has finished one, which it does per iteration and
    not per second: while a long prompt holds up its decoding, it gets no more. Its own backlog is
    therefore that of a queue with the load ρ', far shorter than one with ρ. What the arrivals do
    to all N replicas together is a backlog of one server with the load ρ, shared by N.
    """
    if engine.prefill_is_free:
        return running_iteration(field)
    chunk, c = engine.prefill_chunk_tokens, engine.prefill_token_context_s
    a, b = field.decode_s / chunk + engine.prefill_token_s, 0.5 * c
    u, q, uu, uq, qq, uuu, uuq, uqq, qqq = products
    mean = np.maximum(a * u + b * q, 1e-300)
    mean_sq = np.maximum(a * (a * uu + 2.0 * b * uq) + b * b * qq, 1e-300)
    mean_cube = a * (a * (a * uuu + 3.0 * b * uuq) + 3.0 * b * b * uqq) + b**3 * qqq
    full = field.decode_s + chunk * (engine.prefill_token_s + b * q / np.maximum(u, 1e-300))
    busy = per_s[REQUESTS] / servers * mean
    residual, tail = 0.5 * mean_sq / mean, mean_cube / (3.0 * mean_sq)
    return shared_budget(busy, full, residual, tail, servers, field, burstiness)


def running_iteration(field: MeanField) -> PrefillQueue:
    """What there is to wait for where prefill is free: the iteration that is running."""
    nothing = np.zeros_like(field.iteration_s)
    running = field.iteration_s + _NORMAL_QUANTILE * field.deviation_s
    return PrefillQueue(running, running, nothing, nothing)


def shared_budget(
    busy: Array,
    full_s: Array,
    residual_s: Array,
    tail_s: Array,
    servers: Array,
    field: MeanField,
    burstiness: float,
) -> PrefillQueue:
    """The queue for a shared budget, from what is known of prefill times; it rises with each.

    Parameters
    ----------
    busy : shape (pools,)
        ρ, share of the time that a replica prefills; 1 or more is unstable.
    full_s : shape (pools,)
        An iteration with a full chunk.
    residual_s, tail_s : shape (pools,)
        E[s²]/2E[s] and E[s³]/3E[s²] of the prefill times s.
    servers : shape (pools,)
        Replicas that are up.
    field : MeanField
        Of the same pools.
    burstiness : float
        z ≥ 1 of the arrivals.
    """
    free = np.maximum(1.0 - busy, 1e-9)
    own = busy * field.decode_s / np.maximum(free * full_s, 1e-300)  # ρ'/(1 − ρ')
    common = burstiness * busy / (servers * free)
    scale = (_SERVICE + _OWN_BACKLOG * own) * tail_s + _BATCH * busy * full_s
    scale += _COMMON_BACKLOG * common * residual_s
    seen = found_share(field.sequences, burstiness / servers)
    delay = (busy * (seen + (1.0 - seen) / np.maximum(servers, 1.0)) ** _SEEN) ** _DELAYED
    offset = _ITERATION * field.iteration_s + _SHIFT * scale
    stable = busy < 1.0
    return PrefillQueue(
        _FLOOR * field.decode_s,
        offset,
        np.where(stable, delay, 1.0),
        np.where(stable, scale, UNSTABLE_S),
    )


def products_of(tokens: Array, computed_tokens: Array) -> Array:
    """The nine products of u and q of prompts, in the order of PRODUCTS.

    Parameters
    ----------
    tokens, computed_tokens : shape (…,)
        i of each prompt, and of them u = i − g that are not in the prefix cache.

    Returns
    -------
    shape (…, 9)
    """
    u, q = computed_tokens, computed_tokens * (2.0 * tokens - computed_tokens)
    products = np.empty((*tokens.shape, PRODUCTS))
    products[..., 0], products[..., 1] = u, q
    for at, (one, factor) in enumerate(((0, u), (1, u), (1, q)), start=2):
        np.multiply(products[..., one], factor, out=products[..., at])
    for at, (one, factor) in enumerate(((2, u), (2, q), (4, u), (4, q)), start=5):
        np.multiply(products[..., one], factor, out=products[..., at])
    return products


def found_share(sequences: Array, variance_per_sequence: Array) -> Array:
    """Requests that an arrival finds at its replica, as a share of the mean number k.

    Dispatch to the emptiest keeps every replica at m or m + 1 requests, m = ⌊k⌋. An arrival
    fills the gap of a request that left a replica at m, or joins one at m when there is none.
    With f = k − m it finds m·(m − 1 + 2f)/k on average: none at all for k < 1. The level k is
    taken to be normal.
    """
    spread = np.sqrt(sequences * variance_per_sequence)
    level = np.maximum(sequences + DEVIATIONS * spread, 1e-3)
    whole = np.floor(level)
    found = WEIGHTS @ (whole * (2.0 * level - whole - 1.0) / level)
    return np.asarray(np.minimum(found / np.maximum(sequences, 1e-300), 1.0))
