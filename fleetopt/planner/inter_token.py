"""P(time between two tokens > x): an iteration as the sequences see it that decode in it.

All functions take a batch of pools of one engine; arrays have one entry per pool.
How far it is off: docs/planner.md, "End to end and between tokens".
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammaln, ndtr

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.mean_field import MeanField
from fleetopt.planner.prefill_queue import DEVIATIONS, WEIGHTS, found_share
from fleetopt.planner.service import CONTEXT, CONTEXT_SQ, ITERATIONS, REQUESTS
from fleetopt.planner.target import VIOLATIONS_MAX
from fleetopt.planner.ttft import PromptMix

Array = NDArray[np.float64]

_SPREAD: Final = 1.35
_PROMPTS: Final = 1.3
_ALONE: Final = 0.15
_FILLED: Final = 2.5
"""Calibrated on 130 simulated pools, a little on the safe side."""

_NUMBER_VARIANCE: Final = 0.25
_LEAST_IDLE: Final = 1e-4
_TOGETHER: Final = np.arange(2.0, 17.0)
"""So many prompts' last chunks in one iteration are told apart; more fill it."""

_LOG_FACTORIALS: Final = gammaln(_TOGETHER + 1.0)

_LEAST_WEIGHT: Final = 1e-12
"""More prompts together than have this probability change no share that anybody looks at."""

_WITHIN: Final = 1e-5
_HALVE_EVERY: Final = 3
_FURTHEST: Final = -4.0
_LEAST_SHARE: Final = 1e-300
_MOST_DEVIATIONS: Final = 5.0


@dataclass(frozen=True)
class TokenGaps:
    """What makes iterations differ; every field has shape (pools,)."""

    decode_s: Array  # one in which nobody prefills
    deviation_s: Array  # of that
    prompts: Array  # that begin in an iteration, as far as somebody decodes beside them
    seen_share: Array  # of the prefill, what others see of it


def token_gaps(
    per_s: Array, servers: Array, field: MeanField, engine: EngineProfile, burstiness: float
) -> TokenGaps:
    """Iterations with and without prefill of pools of `servers` replicas each.

    Parameters
    ----------
    per_s : shape (7, pools)
        Work per second of the whole pool.
    servers : shape (pools,)
        Replicas that are up, more than the load.
    field : MeanField
        Of the same pools.
    engine : EngineProfile
        The engine of all of them.
    burstiness : float
        z ≥ 1 of the arrivals.

    Notes
    -----
    Without prefill an iteration differs by what its sequences have read, and by their number,
    which swings at all replicas alike. An arrival slows down those that it finds decoding: with
    few sequences that is mostly nobody, since it goes to the emptiest replica.
    """
    iterations = np.maximum(per_s[ITERATIONS], 1e-300)
    mean = per_s[CONTEXT] / iterations
    variance = np.maximum(per_s[CONTEXT_SQ] / iterations - mean * mean, 0.0)
    h, kappa = engine.per_sequence_s, engine.per_context_token_s
    idle = np.maximum(1.0 - field.load / servers, _LEAST_IDLE)
    number = field.sequences * burstiness / (servers * idle) + _NUMBER_VARIANCE
    spread = field.sequences * kappa * kappa * variance + np.square(h + kappa * mean) * number
    seen = found_share(field.sequences, burstiness / servers)
    arriving = per_s[REQUESTS] / servers * field.iteration_s
    return TokenGaps(
        field.iteration_s if engine.prefill_is_free else field.decode_s,
        _SPREAD * np.sqrt(spread),
        _PROMPTS * arriving * (_ALONE + (1.0 - _ALONE) * seen),
        seen,
    )


def gap_share(gaps: TokenGaps, mix: PromptMix, engine: EngineProfile, target_s: Array) -> Array:
    """Share of the times between tokens that exceed a target, shape (pools,)."""
    return _share(gaps, mix, _chunks_of(mix, engine), target_s)


def gap_p99_s(gaps: TokenGaps, mix: PromptMix, engine: EngineProfile) -> Array:
    """P99 of the time between two tokens, to 1e-5 of the longest; shape (pools,)."""
    chunks = _chunks_of(mix, engine)
    low, high = np.zeros_like(gaps.decode_s), gaps.decode_s + _MOST_DEVIATIONS * gaps.deviation_s
    if chunks is not None:
        high = high + chunks.longest_s
    within = _WITHIN * high
    over, under = np.full(low.size, np.log(1.0 / VIOLATIONS_MAX)), np.full(low.size, _FURTHEST)
    round_, last = 0, np.zeros(low.size)
    while (high - low > within).any():
        round_ += 1
        part = over / (over - under) if round_ % _HALVE_EVERY else 0.5
        middle = np.clip(low + (high - low) * part, low + 0.5 * within, high - 0.5 * within)
        share = _share(gaps, mix, chunks, middle)
        found = np.log(np.maximum(share, _LEAST_SHARE) * (1.0 / VIOLATIONS_MAX))
        met = found <= 0.0
        # an end that stays where it is twice counts for half: else a curve keeps it there
        over = np.where(met, np.where(last > 0.0, 0.5 * over, over), found)
        under = np.where(
            met, np.maximum(found, _FURTHEST), np.where(last < 0.0, 0.5 * under, under)
        )
        high, low = np.where(met, middle, high), np.where(met, low, middle)
        last = np.where(met, 1.0, -1.0)
    return high


def _share(gaps: TokenGaps, mix: PromptMix, chunks: "_Chunks | None", target_s: Array) -> Array:
    left = target_s - gaps.decode_s
    over = np.asarray(ndtr(-left / np.maximum(gaps.deviation_s, 1e-12)))
    if chunks is None:
        return over
    over += WEIGHTS @ _prefill_share(gaps, mix, chunks, left - DEVIATIONS * gaps.deviation_s)
    return np.asarray(np.minimum(over, 1.0))


@dataclass(frozen=True)
class _Chunks:
    """What prompts add to iterations. Arrays of shape (pools, points), or (pools,) where said."""

    whole: Array  # full chunks
    first_s: Array  # the first of them takes
    rest_s: Array  # what is left after them takes; 0 where nothing is
    filled_s: Array  # the same, with another prompt's beginning in the rest of the chunk
    per_prompt: Array  # chunks, (pools,)
    mean_s: Array  # of a chunk, (pools,)
    variance: Array  # of that, (pools,)
    step_s: float  # each next full chunk takes longer by
    full_s: float  # a full chunk takes at least
    longest_s: Array  # no iteration has more, (pools,)


def _chunks_of(mix: PromptMix, engine: EngineProfile) -> _Chunks | None:
    """None where prefill is free."""
    if engine.prefill_is_free:
        return None
    chunk = float(engine.prefill_chunk_tokens)
    h, kappa = engine.per_sequence_s, engine.per_context_token_s
    p, c = engine.prefill_token_s, engine.prefill_token_context_s
    cached = mix.tokens - mix.computed
    whole = np.floor(mix.computed / chunk)
    rest = mix.computed - whole * chunk
    room = chunk - rest
    has_rest = rest > 0.0
    first_s = chunk * (p + c * (cached + 0.5 * chunk)) + h + kappa * (cached + chunk)
    step_s = chunk * (c * chunk + kappa)
    rest_s = rest * (p + c * (mix.tokens - 0.5 * rest)) + (h + kappa * mix.tokens) * has_rest
    filled_s = (rest_s + room * (p + 0.5 * c * room) + h + kappa * room) * has_rest
    number = np.maximum((mix.share * (whole + has_rest)).sum(axis=1), 1e-300)
    wholes_s = whole * (first_s + 0.5 * step_s * np.maximum(whole - 1.0, 0.0))
    mean_s = (mix.share * (wholes_s + rest_s)).sum(axis=1) / number
    squares = (mix.share * (whole * first_s * first_s + rest_s * rest_s)).sum(axis=1) / number
    variance = np.maximum(squares - mean_s * mean_s, 1e-6 * mean_s * mean_s)
    last_s = np.maximum(first_s + step_s * whole, filled_s) * (mix.share > 0.0)
    return _Chunks(
        whole,
        first_s,
        rest_s,
        filled_s,
        number,
        mean_s,
        variance,
        step_s,
        p * chunk,
        last_s.max(axis=1, initial=0.0) + p * chunk,
    )


def _prefill_share(gaps: TokenGaps, mix: PromptMix, chunks: _Chunks, left_s: Array) -> Array:
    """P(prefill takes longer than what is left of the target), of shape (levels, pools) both.

    One chunk alone is exact. Several in one iteration are a gamma distribution with their mean
    and variance, as long as they don't fill it.
    """
    left = left_s[..., None]
    short_s = np.floor((left - chunks.first_s) / max(chunks.step_s, 1e-300)) + 1.0
    longer = chunks.whole - np.clip(short_s, 0.0, chunks.whole)
    filled = gaps.prompts * _FILLED * (mix.share * chunks.whole).sum(axis=1)
    longer += np.where(
        chunks.rest_s > left, 1.0, np.minimum(filled, 1.0)[:, None] * (chunks.filled_s > left)
    )
    one = np.minimum(gaps.prompts * np.einsum("ij,kij->ki", mix.share, longer), 1.0)
    begun = gaps.prompts * chunks.per_prompt
    fits = left_s < chunks.full_s
    if fits.any():
        logs = np.log(np.maximum(begun, 1e-300))[:, None]
        weight = np.exp(_TOGETHER * logs - begun[:, None] - _LOG_FACTORIALS)
        most = np.maximum(1.0 - np.exp(-begun) * (1.0 + begun) - weight.sum(axis=1), 0.0)
        count = max(int(np.count_nonzero(weight.max(axis=0) > _LEAST_WEIGHT)), 1)
        scale_s = np.maximum(chunks.variance / np.maximum(chunks.mean_s, 1e-300), 1e-300)
        shape = _TOGETHER[:count] * (chunks.mean_s / scale_s)[:, None]
        above = gammaincc(shape, np.maximum(left_s / scale_s, 0.0)[..., None])
        several = (weight[:, :count] * above).sum(axis=-1) + most
        one = np.where(fits, one * np.exp(-begun) + several, one)
    return np.where(left_s <= 0.0, 1.0, np.minimum(one, 1.0))
