"""Prompt and completion of every bin's requests as points, for times that need both.

Completions make most of the time end to end, so they are cut finely, and the prompt of each part
is the one that comes with it in the mean.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from fleetopt.planner import moments as token_moments
from fleetopt.planner.bins import EDGES_TOKENS
from fleetopt.planner.ttft import PromptMix

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_WEIGHTS: Final = np.array([0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.01, 0.006, 0.004, 0.005])


@dataclass(frozen=True)
class LengthPoints:
    """Points of all bins; arrays of shape (points,)."""

    tokens: Array  # of the prompt
    computed: Array  # of them, those that are not in the prefix cache
    completion: Array
    bin: Index
    weight: Array  # within the bin


@dataclass(frozen=True)
class LengthMix:
    """Prompts of the pools' requests as points, and the completion that each comes with."""

    prompts: PromptMix
    completion: Array  # (pools, points)


@dataclass(frozen=True)
class Requests:
    """Which requests the pools of a batch have."""

    points: Callable[[], LengthPoints]
    counts: Array  # (pools, bins)
    arrived: Array | None  # (8, pools), moments of what comes compressed

    @cached_property
    def compressed(self) -> tuple[Array, Array, Array] | None:
        """Prompts, completions and how many of them; each of shape (pools, parts)."""
        if self.arrived is None or not self.arrived[token_moments.COUNT].any():
            return None
        some = np.flatnonzero(self.arrived[token_moments.COUNT] > 0.0)
        found = np.zeros((3, self.counts.shape[0], _WEIGHTS.size))
        found[:, some] = _compressed(self.arrived[:, some])
        prompts, outputs, count = found
        return prompts, outputs, count


@dataclass(frozen=True)
class Lengths:
    """What requests pools have; their points are made when somebody asks for them."""

    requests: Requests
    chosen: Index | None = None  # pools of the batch; None is all

    def take(self, index: Index) -> "Lengths":
        """The pools at these indices."""
        return Lengths(self.requests, index if self.chosen is None else self.chosen[index])

    def mix(self) -> LengthMix:
        """Their points."""
        chosen = slice(None) if self.chosen is None else self.chosen
        points, counts = self.requests.points(), self.requests.counts[chosen]
        share = counts[:, points.bin] * points.weight
        tokens, computed, completion = (
            np.broadcast_to(values, share.shape)
            for values in (points.tokens, points.computed, points.completion)
        )
        if self.requests.compressed is not None:
            prompts, outputs, count = (values[chosen] for values in self.requests.compressed)
            tokens = np.concatenate([tokens, prompts], axis=1)
            computed = np.concatenate([computed, prompts], axis=1)
            completion = np.concatenate([completion, outputs], axis=1)
            share = np.concatenate([share, count], axis=1)
        share = share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
        no_products = np.zeros((0, share.shape[0]))
        return LengthMix(PromptMix(tokens, computed, share, no_products), completion)


def length_points(moments: Array) -> LengthPoints:
    """Points with the mean of every bin's prompts and completions, and about their variances.

    Parameters
    ----------
    moments : shape (8, bins)
        Of the length bins from the shortest up.

    Notes
    -----
    Completions have a beta distribution from 0 to the bin's upper edge, cut into ten parts of
    which each is its mean. Prompts follow on the line through both means whose slope is that of
    the moments: where the whole length is nearly the same, a longer completion has a shorter
    prompt.
    """
    used = np.flatnonzero(moments[token_moments.COUNT] > 0.0)
    bins = moments[:, used]
    count, prompt = bins[token_moments.COUNT], bins[token_moments.PROMPT]
    prompt = prompt / count
    completion, variance = _completions(bins)
    together = bins[token_moments.CROSS] / count - prompt * completion
    edge = EDGES_TOKENS[np.minimum(used, EDGES_TOKENS.size - 1)].astype(np.float64)
    parts = _beta_parts(completion, variance, edge)
    slope = together / np.maximum(variance, 1e-9)
    tokens = np.clip(prompt + slope * (parts - completion), 0.0, edge).ravel()
    outputs = parts.ravel()
    at = np.tile(used, _WEIGHTS.size)
    weight = np.repeat(_WEIGHTS, used.size)
    if not moments[token_moments.CACHED].any():
        return LengthPoints(tokens, tokens, outputs, at, weight)
    hit_share, part = (of_bin[at] for of_bin in token_moments.cached_parts(moments))
    return LengthPoints(
        np.tile(tokens, 2),
        np.concatenate([tokens, tokens * (1.0 - part)]),
        np.tile(outputs, 2),
        np.tile(at, 2),
        np.concatenate([weight * (1.0 - hit_share), weight * hit_share]),
    )


def _compressed(arrived: Array) -> tuple[Array, Array, Array]:
    """Prompts and completions of what is compressed, which make B together, and their counts."""
    count = arrived[token_moments.COUNT]
    prompt = arrived[token_moments.PROMPT] / count
    output, variance = _completions(arrived)
    outputs = _beta_parts(output, variance, np.maximum(prompt + output, 1.0)).T
    prompts = np.maximum((prompt + output)[:, None] - outputs, 0.0)
    return prompts, outputs, count[:, None] * _WEIGHTS


def _completions(moments: Array) -> tuple[Array, Array]:
    count = moments[token_moments.COUNT]
    mean = moments[token_moments.COMPLETION] / count
    variance = moments[token_moments.COMPLETION_SQ] / count - mean * mean
    return mean, np.maximum(variance, 0.0)


def _beta_parts(mean: Array, variance: Array, most: Array) -> Array:
    """Means of the ten parts of beta distributions from 0 to `most`, shape (10, …)."""
    centre = np.clip(mean / most, 1e-6, 1.0 - 1e-6)
    spread = np.maximum(variance / np.square(most), 1e-9)
    both = np.maximum(centre * (1.0 - centre) / spread - 1.0, 1e-2)
    above, below = centre * both, (1.0 - centre) * both
    cuts = betaincinv(above, below, np.cumsum(_WEIGHTS)[:-1, None])
    upto = np.zeros((_WEIGHTS.size + 1, mean.size))
    upto[1:-1] = betainc(above + 1.0, below, cuts)
    upto[-1] = 1.0
    return np.asarray(mean * np.diff(upto, axis=0) / _WEIGHTS[:, None])
