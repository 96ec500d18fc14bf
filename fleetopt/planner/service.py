"""Token moments → the work they make: iterations, context, prefill, slots and load.

Everything but the number of slots is linear in the moments, so the work of any set of length
bins is a difference of cumulative sums.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fleetopt.planner import moments as token_moments
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.moments import MOMENTS
from fleetopt.planner.request import Admission, PlanRequest

# Rows of a work array, shape (7, …): sums over requests.
REQUESTS: Final = 0
ITERATIONS: Final = 1  # I
ITERATIONS_SQ: Final = 2  # I²
CONTEXT: Final = 3  # K, context-iterations
CONTEXT_SQ: Final = 4  # squared context, summed over iterations
PROMPT: Final = 5  # i − g, prompt tokens that are computed
PROMPT_SQ: Final = 6  # i² − g², twice the pairs of a computed token and one before it
WORK: Final = 7

_COUNT, _PROMPT, _COMPLETION = token_moments.COUNT, token_moments.PROMPT, token_moments.COMPLETION
_PROMPT_SQ, _CROSS, _COMPLETION_SQ = (
    token_moments.PROMPT_SQ,
    token_moments.CROSS,
    token_moments.COMPLETION_SQ,
)
_CACHED, _CACHED_SQ = token_moments.CACHED, token_moments.CACHED_SQ


def work(
    moments: NDArray[np.float64], length_tokens: NDArray[np.float64], profile: EngineProfile
) -> NDArray[np.float64]:
    """Work of groups of requests on one engine.

    Parameters
    ----------
    moments : NDArray[np.float64], shape (8, …)
        n, Σi, Σo, Σi², Σi·o, Σo², Σg, Σg² of each group.
    length_tokens : NDArray[np.float64], shape (…,)
        About the total length L of the group's requests; used for CONTEXT_SQ only.
    profile : EngineProfile
        The engine that serves them.

    Returns
    -------
    NDArray[np.float64], shape (7, …)
        Rows REQUESTS … PROMPT_SQ. A request whose first g prompt tokens are cached runs
        I = (i − g)/ch + ½ + o iterations and K = ((i − g)/ch + ½)·(i + g)/2 + o·(i + o/2)
        context-iterations. What is cached takes room and is read like any other context.

    Notes
    -----
    The squared context needs third moments. Within a bin L is known to 9 %, so i³ ≤ L·i² and
    o·(L² + L·i + i²)/3 = o·L²/3 + 2·L·i·o/3 − i·o²/3, where Σi·o² ≥ (Σi·o)²/Σi by Cauchy and
    Schwarz, bound it from above: slots err on the safe side. With equal outputs nothing is lost.
    With g, i·g ≤ L·g and Σg³ ≥ (Σg²)²/Σg keep it an upper bound. So is I², which takes g as 0.
    """
    chunk = profile.prefill_chunk_tokens
    result = (moment_rows(chunk) @ moments.reshape(MOMENTS, -1)).reshape(WORK, *moments.shape[1:])
    by_length = moments[_PROMPT_SQ] * (1.0 / (3.0 * chunk)) + moments[_CROSS] * (2.0 / 3.0)
    by_length += (length_tokens * (1.0 / 3.0)) * moments[_COMPLETION]
    cached, cached_sq = moments[_CACHED], moments[_CACHED_SQ]
    if cached.any():
        by_length += cached * (1.0 / 6.0)
        result[CONTEXT_SQ] -= cached_sq * cached_sq / np.maximum(3.0 * chunk * cached, 1e-300)
    by_length *= length_tokens
    cross = moments[_CROSS]
    output = np.minimum(cross / np.maximum(moments[_PROMPT], 1e-300), length_tokens)
    by_length -= output * cross * (1.0 / 3.0)
    result[CONTEXT_SQ] += by_length
    return np.asarray(result)


@cache
def moment_rows(chunk: int) -> NDArray[np.float64]:
    """Work as linear functions of the moments, shape (7, 8); CONTEXT_SQ but for L's part."""
    rows = np.zeros((WORK, MOMENTS))
    rows[REQUESTS, _COUNT] = 1.0
    rows[ITERATIONS, : _COMPLETION + 1] = 0.5, 1.0 / chunk, 1.0
    rows[ITERATIONS, _CACHED] = -1.0 / chunk
    rows[ITERATIONS_SQ, :_CACHED] = 0.25, 1.0 / chunk, 1.0, chunk**-2, 2.0 / chunk, 1.0
    rows[CONTEXT, _PROMPT:_CACHED] = 0.25, 0.0, 0.5 / chunk, 1.0, 0.5
    rows[CONTEXT, _CACHED:] = 0.25, -0.5 / chunk
    rows[CONTEXT_SQ, [_PROMPT_SQ, _CACHED_SQ]] = 1.0 / 6.0
    rows[PROMPT, _PROMPT] = rows[PROMPT_SQ, _PROMPT_SQ] = 1.0
    rows[PROMPT, _CACHED] = rows[PROMPT_SQ, _CACHED_SQ] = -1.0
    rows.setflags(write=False)
    return rows


def slots(
    per_s: NDArray[np.float64],
    context_tokens: NDArray[np.float64],
    profile: EngineProfile,
    request: PlanRequest,
) -> NDArray[np.float64]:
    """Sequences that a replica runs at once: n(C); 0 where not even one context fits.

    Parameters
    ----------
    per_s : NDArray[np.float64], shape (7, …)
        The pool's work.
    context_tokens : NDArray[np.float64], shape (…,)
        The pool's context window C.
    profile : EngineProfile
        The pool's engine.
    request : PlanRequest
        For its admission and preemption probability.

    Notes
    -----
    Reserved: ⌊KV / block-rounded C⌋. Statistical: the largest n with
    n·E[ctx] + max(z_ε·√(n·Var[ctx]), C) ≤ KV, where ctx is the context of a running request at
    a random iteration: the contexts of many requests are about normal, and whatever exceeds KV
    then is less than one whole request. Never below reserved, which can't exceed KV at all.
    """
    block = profile.kv_block_tokens
    capacity = float(profile.kv_capacity_tokens)
    reserved = capacity // (np.ceil(context_tokens / block) * block)
    if request.admission is Admission.RESERVED:
        return np.asarray(reserved, dtype=np.float64)
    iterations = np.maximum(per_s[ITERATIONS], 1e-300)
    mean = np.maximum(per_s[CONTEXT] / iterations, 1.0)
    spread = np.maximum(per_s[CONTEXT_SQ] / iterations - mean * mean, 0.0)
    spread *= float(ndtri(request.preemption_probability)) ** 2
    root = np.sqrt(spread + (4.0 * capacity) * mean) - np.sqrt(spread)
    root *= root
    bounded = np.minimum(root / (4.0 * mean), capacity - context_tokens) / mean
    statistical = np.maximum(np.floor(bounded), reserved)
    return statistical if reserved.min() >= 1.0 else np.where(reserved >= 1.0, statistical, 0.0)


def running_seconds(profile: EngineProfile) -> NDArray[np.float64]:
    """Seconds per unit of each row of work: all of an iteration's time but W. Shape (7,)."""
    seconds = np.zeros(WORK)
    seconds[ITERATIONS] = profile.per_sequence_s
    seconds[CONTEXT] = profile.per_context_token_s
    seconds[PROMPT] = profile.prefill_token_s
    seconds[PROMPT_SQ] = 0.5 * profile.prefill_token_context_s
    return seconds


def running_load(per_s: NDArray[np.float64], profile: EngineProfile) -> NDArray[np.float64]:
    """Seconds of work per second that grow with what runs: all of an iteration but W."""
    return np.asarray(running_seconds(profile) @ per_s)


def load(
    per_s: NDArray[np.float64], slot_count: NDArray[np.float64], profile: EngineProfile
) -> NDArray[np.float64]:
    """Replicas that run at full throughput to do this work.

    Parameters
    ----------
    per_s : NDArray[np.float64], shape (7, …)
        Work per second.
    slot_count : NDArray[np.float64], shape (…,)
        n of a replica, as of `slots`.
    profile : EngineProfile
        The pool's engine.

    Returns
    -------
    NDArray[np.float64], shape (…,)
        W·I/n + h·I + κ·K + p·(i − g) + (c/2)·(i² − g²), a second; infinite where n < 1.
    """
    base = profile.base_iteration_s * per_s[ITERATIONS] / np.maximum(slot_count, 1e-300)
    base += running_load(per_s, profile)
    return base if slot_count.min() >= 1.0 else np.where(slot_count >= 1.0, base, np.inf)
