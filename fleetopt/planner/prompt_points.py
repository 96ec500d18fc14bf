"""Prompt lengths of every bin as a few points, for times that are not linear in the tokens.

A bin knows the mean and the variance of its prompts. Where outputs are short that is enough:
the prompt is nearly the whole length. Where they are long, prompts of all lengths are in one bin,
and the longest of them decide the P99.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fleetopt.planner import moments as token_moments
from fleetopt.planner.bins import EDGES_TOKENS
from fleetopt.planner.prefill_queue import PRODUCTS, products_of

Array = NDArray[np.float64]

_NARROW: Final = 0.15
"""Up to this coefficient of variation two points, mean ∓ deviation, stand for a bin's prompts."""

_WEIGHTS: Final = np.array([0.6, 0.28, 0.1, 0.013, 0.007])
_CUTS: Final = ndtri(np.cumsum(_WEIGHTS)[:-1])[:, None]


@dataclass(frozen=True)
class PromptPoints:
    """Points of all bins; arrays of shape (points,), but for `products`."""

    tokens: Array
    computed: Array  # of them, those that are not in the prefix cache
    bin: NDArray[np.intp]
    weight: Array  # within the bin
    products: Array  # (bins, 9), means of `products_of`


def prompt_points(moments: Array) -> PromptPoints:
    """Points with the mean of every bin's prompts, and about their variance.

    Parameters
    ----------
    moments : shape (8, bins)
        Of the length bins from the shortest up.

    Notes
    -----
    A wide bin's prompts are taken to be lognormal, cut into five parts of which each is its mean,
    and none is longer than the bin's upper edge. Where prompts are cached, each point is two:
    those with one and the same part cached, and those with nothing (`cached_parts`).
    """
    bins = moments.shape[1]
    mean, deviation = _mean_and_deviation(moments)
    used = moments[0] > 0.0
    wide = np.flatnonzero(used & (deviation > _NARROW * mean))
    narrow = np.flatnonzero(used & (deviation <= _NARROW * mean))
    pairs = np.stack([mean[narrow] - deviation[narrow], mean[narrow] + deviation[narrow]])
    parts = _lognormal_parts(mean[wide], deviation[wide])
    tokens = np.concatenate(
        [
            _within_bin(pairs, np.full(2, 0.5), narrow).ravel(),
            _within_bin(parts, _WEIGHTS, wide).ravel(),
        ]
    )
    at = np.concatenate([narrow, narrow, *[wide] * _WEIGHTS.size])
    weight = np.concatenate([np.full(2 * narrow.size, 0.5), np.repeat(_WEIGHTS, wide.size)])
    computed = tokens
    if moments[token_moments.CACHED].any():
        hit_share, part = (of_bin[at] for of_bin in token_moments.cached_parts(moments))
        computed = np.concatenate([tokens, tokens * (1.0 - part)])
        weight = np.concatenate([weight * (1.0 - hit_share), weight * hit_share])
        tokens, at = np.tile(tokens, 2), np.tile(at, 2)
    products = np.zeros((bins, PRODUCTS))
    weighted = products_of(tokens, computed) * weight[:, None]
    for product in range(PRODUCTS):
        products[:, product] = np.bincount(at, weighted[:, product], bins)
    return PromptPoints(tokens, computed, at, weight, products)


def two_points(moments: Array) -> tuple[Array, Array]:
    """Prompt lengths mean ∓ standard deviation: the two points with the same two moments."""
    mean, deviation = _mean_and_deviation(moments)
    return np.maximum(mean - deviation, 0.0), mean + deviation


def _mean_and_deviation(moments: Array) -> tuple[Array, Array]:
    count = np.maximum(moments[0], 1e-300)
    mean = moments[token_moments.PROMPT] / count
    variance = moments[token_moments.PROMPT_SQ] / count - mean * mean
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _within_bin(points: Array, weights: Array, bins: NDArray[np.intp]) -> Array:
    """Points no longer than their bin's edge; what that cuts off makes the shortest longer."""
    edges = EDGES_TOKENS[np.minimum(bins, EDGES_TOKENS.size - 1)]
    within = np.minimum(points, edges)
    within[0] += weights @ (points - within) / weights[0]
    return within


def _lognormal_parts(mean: Array, deviation: Array) -> Array:
    """Means of the five parts of lognormal distributions, shape (5, …)."""
    if not mean.size:
        return np.zeros((_WEIGHTS.size, 0))
    sigma = np.sqrt(np.log1p(np.square(deviation / mean)))
    below = np.zeros((_WEIGHTS.size + 1, mean.size))
    below[1:-1] = ndtr(_CUTS - sigma)
    below[-1] = 1.0
    return np.asarray(mean * np.diff(below, axis=0) / _WEIGHTS[:, None])
