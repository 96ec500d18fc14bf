"""The model with which the FleetOpt paper (arXiv 2603.16514) sizes its fleets; simpler than ours.

- A request of L tokens makes I = ⌈i/512⌉ + o iterations and is charged I·L context-iterations, as
  if all of its context were there from the first of them.
- The boundary is given, and only γ is chosen.
- A pool's requests are charged what those below the boundary (or above γB) take on average: a
  compressed request as much as an average short one, one that can't be compressed as much as an
  average long one.
- That average is taken over 3,000 requests that are drawn at random.

None of this is a mode of the product.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.config.profiles import load_profile

RATE_PER_S: Final = 1_000.0
LONG_CONTEXT_TOKENS: Final = 65_536
MAX_UTILIZATION: Final = 0.85
OUTPUT_SHARE: Final = 0.2
DRAWS: Final = 3_000
SEED: Final = 42
ENGINE: Final = load_profile("a100/llama-3-70b/paper")
_QUANTILES: Final = 200_000

Points = Sequence[tuple[float, float]]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """One workload of the paper, with the savings that it publishes, by γ."""

    name: str
    file: str
    boundary_tokens: int
    compressible_share: float
    published_saving: dict[float, float]


@dataclass(frozen=True, slots=True)
class PaperFleet:
    """A fleet as the paper's model sizes it."""

    case: Case
    gamma: float
    short_gpus: int
    long_gpus: int
    one_pool_gpus: int

    @property
    def saving(self) -> float:
        """GPUs saved, as a share of those of one pool."""
        return 1.0 - (self.short_gpus + self.long_gpus) / self.one_pool_gpus


def paper_fleets(case: Case, points: Points, draws: int | None = DRAWS) -> list[PaperFleet]:
    """The fleets of the paper's table, one for each γ; without draws, by exact averages."""
    boundary = case.boundary_tokens
    one = _gpus(1.0, _mean_work_s(points, 0, LONG_CONTEXT_TOKENS, draws))
    below = _cumulative(points, boundary)
    shorter = [(tokens, share / below) for tokens, share in points if tokens <= boundary]
    short_s = _mean_work_s(shorter, 0, boundary, draws)
    fleets = []
    for gamma in case.published_saving:
        limit = int(gamma * boundary)
        reached = _cumulative(points, limit)
        short_share = below + case.compressible_share * (reached - below)
        longer = [(tokens, share) for tokens, share in points if tokens > limit]
        rest = [(tokens, (share - reached) / (1.0 - reached)) for tokens, share in longer]
        long_s = _mean_work_s(rest, limit, LONG_CONTEXT_TOKENS, draws) if rest else 0.0
        short_gpus, long_gpus = _gpus(short_share, short_s), _gpus(1.0 - short_share, long_s)
        fleets.append(PaperFleet(case, gamma, short_gpus, long_gpus, one))
    return fleets


def work_s(tokens: Floats, prompt: Floats, context_tokens: int) -> Floats:
    """Seconds of a replica with full slots that a request is charged: (W/n + κ·L)·I."""
    iterations = np.ceil(prompt / ENGINE.prefill_chunk_tokens) + np.maximum(tokens - prompt, 1.0)
    empty_s = ENGINE.base_iteration_s / ENGINE.slots_reserved(context_tokens)
    return np.asarray(iterations * (empty_s + ENGINE.per_context_token_s * tokens))


def _mean_work_s(points: Points, more_than: int, context_tokens: int, draws: int | None) -> float:
    edges = [0, *(int(tokens) for tokens, _ in points)]
    low = np.maximum(np.array(edges[:-1]) + 1, max(more_than, 1))
    high = np.minimum(np.array(edges[1:]), context_tokens)
    shares = np.array([share for _, share in points])
    if draws is None:
        quantile = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        at = np.searchsorted(shares, quantile)
        before = np.concatenate(([0.0], shares))
        inside = (quantile - before[at]) / (before[at + 1] - before[at])
        tokens = np.floor(low[at] + inside * (high[at] - low[at] + 1))
    else:
        rng = random.Random(SEED)
        drawn = []
        for _ in range(draws):
            bucket = int(np.searchsorted(shares, rng.random()))
            drawn.append(rng.randint(int(low[bucket]), int(high[bucket])))
        tokens = np.array(drawn, dtype=np.float64)
    prompt = np.maximum(np.floor((1.0 - OUTPUT_SHARE) * tokens), 1.0)
    return float(work_s(tokens, prompt, context_tokens).mean())


def _gpus(share: float, mean_work_s: float) -> int:
    """By the cap on utilisation, and one more than the load itself."""
    load = RATE_PER_S * share * mean_work_s
    if load <= 0.0:
        return 0
    return max(math.ceil(load / MAX_UTILIZATION), math.ceil(load) + 1)


def _cumulative(points: Points, tokens: float) -> float:
    known = [(0.0, 0.0), *points]
    return float(np.interp(tokens, [one[0] for one in known], [one[1] for one in known]))
