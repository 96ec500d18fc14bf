"""What a simulated pool did, with how sure that is."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]

BATCHES: Final = 20
CONFIDENCE: Final = 0.95
FEWEST_PER_BATCH: Final = 100
"""With fewer a batch has no request beyond its own P99."""

GROWTH_MAX: Final = 0.01
"""A backlog that takes in more than this share of the arrivals for good is a queue that grows."""

GROWTH_ERRORS: Final = 4.0
_SAMPLES_PER_BATCH: Final = 25


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds; the interval holds P99 with 95 % confidence, None where there is too little."""

    p50_s: float
    p90_s: float
    p99_s: float
    p99_low_s: float | None
    p99_high_s: float | None


@dataclass(frozen=True, slots=True)
class Growth:
    """Whether the requests in a pool become ever more."""

    share_of_arrivals: float
    """Requests by which the backlog grows, for each that arrives; negative when it shrinks."""

    standard_error: float
    is_diverging: bool


def percentiles(seconds: Array) -> Percentiles | None:
    """Percentiles of consecutive requests; None without any.

    The interval is by sectioning: the spread of the P99s of 20 consecutive batches around the
    overall one, with Student's t. Requests in different batches are taken to be independent.
    """
    if seconds.size == 0:
        return None
    p50, p90, p99 = np.quantile(seconds, (0.5, 0.9, 0.99)).tolist()
    batches = min(BATCHES, seconds.size // FEWEST_PER_BATCH)
    if batches < 5:
        return Percentiles(p50, p90, p99, None, None)
    parts = np.array([np.quantile(part, 0.99) for part in np.array_split(seconds, batches)])
    error = np.sqrt(np.square(parts - p99).sum() / (batches - 1) / batches)
    half = float(stdtrit(batches - 1, 0.5 + CONFIDENCE / 2.0) * error)
    return Percentiles(p50, p90, p99, max(p99 - half, 0.0), p99 + half)


def growth(arrival_s: Array, end_s: Array, window_s: tuple[float, float]) -> Growth:
    """The trend of the backlog over the later half of the measured window.

    The number of requests in the pool, waiting and running, is averaged over 20 spans of time;
    a line is fitted to the averages. The queue diverges when the backlog grows by more than 1 %
    of the arrivals and by more than four standard errors of the line's slope.
    """
    start_s = 0.5 * (window_s[0] + window_s[1])
    span_s = window_s[1] - start_s
    arrived = int(np.searchsorted(arrival_s, window_s[1], side="right"))
    arrived -= int(np.searchsorted(arrival_s, start_s, side="right"))
    if arrived == 0 or span_s <= 0.0:
        return Growth(0.0, 0.0, False)
    moments = np.linspace(start_s, window_s[1], BATCHES * _SAMPLES_PER_BATCH)
    held = np.searchsorted(arrival_s, moments, side="right").astype(np.float64)
    held -= np.searchsorted(np.sort(end_s), moments, side="right")
    level = held.reshape(BATCHES, -1).mean(axis=1)
    time = np.arange(BATCHES) - (BATCHES - 1) / 2.0
    slope = float(time @ level / (time @ time))
    residual = level - level.mean() - slope * time
    error = float(np.sqrt(residual @ residual / (BATCHES - 2) / (time @ time)))
    per_batch = arrived / BATCHES
    share, uncertain = slope / per_batch, error / per_batch
    return Growth(share, uncertain, share > max(GROWTH_MAX, GROWTH_ERRORS * uncertain))
