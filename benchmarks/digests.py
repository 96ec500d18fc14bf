"""The choice of t-digest: `fastdigest` (Rust), which the sketches use, beside `tdigest`.

Both hold the total tokens of the same seeded requests, each at the setting it is used with: ours
with the sketches' centroids, `tdigest` (the tests' oracle) with its defaults.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

import fastdigest
import numpy as np
import tdigest

from fleetopt.connectors.producer import ROWS_PER_BATCH
from fleetopt.pipeline.generator import Archetype, draw
from fleetopt.pipeline.sketch import CENTROIDS

QUANTILES: Final = (0.5, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class DigestFigures:
    """CPU time of one operation, in seconds, and how good the digest is."""

    library: str
    update_s: float
    batch_update_s: float
    """For each value of a batch of 250."""
    quantile_s: float
    cdf_s: float
    merge_s: float
    """Of two digests of half the values each, into a new one."""
    centroids: int
    rank_errors: dict[float, float]
    """By quantile: the difference between it and the share of values up to the answer."""


def measure(values: int, repeats: int = 5, seed: int = 1) -> list[DigestFigures]:
    """Measure both libraries on so many requests."""
    _, prompt_tokens, completion_tokens = draw(
        Archetype.DISPERSED, values, np.random.default_rng(seed)
    )
    totals = (prompt_tokens + completion_tokens).astype(np.float64)
    return [_fastdigest(totals, repeats), _tdigest(totals, repeats)]


def _fastdigest(totals: np.ndarray[Any, np.dtype[np.float64]], repeats: int) -> DigestFigures:
    numbers = totals.tolist()
    new = partial(fastdigest.TDigest, max_centroids=CENTROIDS)
    half = len(numbers) // 2
    whole, first, second = new(), new(), new()
    whole.batch_update(numbers)
    first.batch_update(numbers[:half])
    second.batch_update(numbers[half:])
    return DigestFigures(
        "fastdigest",
        _each(lambda: _update(new(), numbers), len(numbers), repeats),
        _each(lambda: _batch_update(new(), numbers), len(numbers), repeats),
        _each(lambda: whole.quantile(0.99), 1, repeats),
        _each(lambda: whole.cdf(8_192.0), 1, repeats),
        _each(lambda: first.merge(second), 1, repeats),
        whole.n_centroids,
        {q: _rank_error(totals, whole.quantile(q), q) for q in QUANTILES},
    )


def _tdigest(totals: np.ndarray[Any, np.dtype[np.float64]], repeats: int) -> DigestFigures:
    numbers = totals.tolist()
    half = len(numbers) // 2
    whole, first, second = tdigest.TDigest(), tdigest.TDigest(), tdigest.TDigest()
    whole.batch_update(numbers)
    first.batch_update(numbers[:half])
    second.batch_update(numbers[half:])
    return DigestFigures(
        "tdigest",
        _each(lambda: _update(tdigest.TDigest(), numbers), len(numbers), repeats),
        _each(lambda: _batch_update(tdigest.TDigest(), numbers), len(numbers), repeats),
        _each(lambda: whole.percentile(99), 1, repeats),
        _each(lambda: whole.cdf(8_192.0), 1, repeats),
        _each(lambda: first + second, 1, repeats),
        len(whole),
        {q: _rank_error(totals, whole.percentile(100 * q), q) for q in QUANTILES},
    )


def _update(digest: Any, numbers: list[float]) -> None:
    update = digest.update
    for number in numbers:
        update(number)


def _batch_update(digest: Any, numbers: list[float]) -> None:
    for start in range(0, len(numbers), ROWS_PER_BATCH):
        digest.batch_update(numbers[start : start + ROWS_PER_BATCH])


def _each(action: Callable[[], object], operations: int, repeats: int) -> float:
    """Return the CPU time of one of the action's operations: the median of some repeats."""
    timer = timeit.Timer(action, timer=time.process_time)
    calls, took_s = 1, timer.timeit(1)
    while took_s < 0.02:  # the clock's resolution must not show
        calls *= 4
        took_s = timer.timeit(calls)
    return median(timer.repeat(repeats, calls)) / calls / operations


def _rank_error(
    totals: np.ndarray[Any, np.dtype[np.float64]], answer: float, quantile: float
) -> float:
    return abs(float((totals <= answer).mean()) - quantile)
