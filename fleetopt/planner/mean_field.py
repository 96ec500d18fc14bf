"""How fast a pool's replicas iterate and how many sequences they run, in the mean.

All functions take a batch of pools of one engine; arrays have one entry per pool.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.service import (
    CONTEXT,
    CONTEXT_SQ,
    ITERATIONS,
    PROMPT,
    PROMPT_SQ,
    REQUESTS,
    running_load,
)

Array = NDArray[np.float64]

_LEAST_IDLE: Final = 1e-4
"""With less the queues have no end, and the figures no meaning."""

_SWINGS: Final = 5.0
_LEVEL_SEQUENCES: Final = 5.0
_ALONE: Final = 0.07
_WAITING: Final = 0.03
"""Calibrated, see docs/planner.md: with few sequences swings of the level are cut off at none;
sequences hold a slot until their first iteration starts, and while their prefill waits."""


@dataclass(frozen=True)
class MeanField:
    """The state of pools in the mean; every field has shape (pools,)."""

    load: Array  # seconds of work per second that grow with what runs
    iteration_s: Array  # t, prefill included
    decode_s: Array  # an iteration without prefill
    deviation_s: Array  # of an iteration, where prefill is free
    sequences: Array  # k, in a slot, per replica

    def take(self, index: NDArray[np.intp] | slice) -> "MeanField":
        """The pools at these indices."""
        return MeanField(
            self.load[index],
            self.iteration_s[index],
            self.decode_s[index],
            self.deviation_s[index],
            self.sequences[index],
        )


def mean_field(per_s: Array, servers: Array, engine: EngineProfile, burstiness: float) -> MeanField:
    """Iteration times and sequences of pools of `servers` replicas each.

    Parameters
    ----------
    per_s : shape (7, pools)
        Work per second of the whole pool.
    servers : shape (pools,)
        Replicas that are up, more than the load.
    engine : EngineProfile
        The engine of all of them.
    burstiness : float
        z ≥ 1 of the arrivals.

    Notes
    -----
    With u seconds of work a second that grow with what runs, an iteration takes t = W/(1 − u)
    and k = r·I·t sequences run. Two effects make k larger. A sequence always sees its own work,
    so that the work beside it is that of 1 + (those it found) sequences, which is more than k
    when k < 1 or when k is between two whole numbers. And the level, at which a dispatcher
    keeps all replicas, swings like the number in one server as fast as all N.

    The first token comes out of the prefill, so that o − 1 iterations follow it: one less than
    the load counts.
    """
    base_s = engine.base_iteration_s
    h, kappa = engine.per_sequence_s, engine.per_context_token_s
    rows = per_s / servers
    requests, prompt, prompt_sq = rows[REQUESTS], rows[PROMPT], rows[PROMPT_SQ]
    chunk = 1.0 / engine.prefill_chunk_tokens
    output = np.maximum(rows[ITERATIONS] - prompt * chunk - 0.5 * requests, 0.0)
    iterations = np.maximum(rows[ITERATIONS] - np.minimum(requests, output), 1e-300)
    context = rows[CONTEXT]
    context = np.maximum(context - 0.5 * (prompt + np.minimum(output, context)), 0.0)
    work = h * iterations + kappa * context
    work += engine.prefill_token_s * prompt
    work += (0.5 * engine.prefill_token_context_s) * prompt_sq
    idle = np.maximum(1.0 - work, _LEAST_IDLE)
    iteration = base_s / idle
    mean = iterations * iteration
    part = mean - np.floor(mean)
    level = burstiness / (servers * idle) * (mean / (mean + _LEVEL_SEQUENCES))
    together = mean + work * (level + part * (1.0 - part) / np.maximum(mean, 1.0)) / idle
    alone = base_s * iterations + work * (1.0 + level * np.minimum(mean, 1.0))
    sequences = np.maximum(together, alone)
    full = np.minimum(work, 1.0)
    sequences *= 1.0 + _WAITING * full * full + _ALONE / (1.0 + sequences)
    prefilled = prompt_sq * (0.5 * chunk) + 0.75 * prompt
    decoding = kappa * np.maximum(context - prefilled, 0.0)
    if h:
        decoding += h * np.maximum(output - requests, 0.0)
    deviation = np.zeros_like(iteration)
    if engine.prefill_is_free:
        deviation = _deviation_s(rows, mean, 1.0 + _SWINGS / servers, idle, engine)
    return MeanField(
        running_load(per_s, engine), iteration, base_s + iteration * decoding, deviation, sequences
    )


def _deviation_s(
    rows: Array, sequences: Array, swings: Array, idle: Array, engine: EngineProfile
) -> Array:
    """Standard deviation of an iteration: of what its sequences have read, and of their number."""
    h, kappa = engine.per_sequence_s, engine.per_context_token_s
    iterations = np.maximum(rows[ITERATIONS], 1e-300)
    mean, mean_sq = rows[CONTEXT] / iterations, rows[CONTEXT_SQ] / iterations
    squared = h * h + 2.0 * h * kappa * mean + kappa * kappa * mean_sq
    return np.asarray(np.sqrt(sequences * swings / idle * squared))
