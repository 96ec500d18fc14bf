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
"""A queue that takes in more than this share of the arrivals grows without end."""

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
    """Whether those who wait in a pool become ever more."""

    share_of_arrivals: float
    """Requests by which the queue grows, for each that arrives; negative when it shrinks."""

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


def growth(arrival_s: Array, served_s: Array, window_s: tuple[float, float]) -> Growth:
    """The trend of the queue over the later half of the measured window.

    Parameters
    ----------
    arrival_s, served_s : array, shape (requests,)
        When each request arrived, in order, and when it stopped waiting: at its first token, or
        when it got its slot.
    window_s : (float, float)
        The measured window.

    Notes
    -----
    The number that wait is averaged over 20 spans of time, and a line is fitted to the averages.
    The queue diverges when it takes in more than 1 % of the arrivals and its slope is more than
    four standard errors. Requests that run are not counted: they cannot be more than the slots.
    So a pool shows its overload once its slots are full, and hides one of less than 1 %.
    """
    start_s = 0.5 * (window_s[0] + window_s[1])
    arrived = int(np.searchsorted(arrival_s, window_s[1], side="right"))
    arrived -= int(np.searchsorted(arrival_s, start_s, side="right"))
    if arrived == 0 or window_s[1] <= start_s:
        return Growth(0.0, 0.0, False)
    moments = np.linspace(start_s, window_s[1], BATCHES * _SAMPLES_PER_BATCH)
    waiting = np.searchsorted(arrival_s, moments, side="right").astype(np.float64)
    waiting -= np.searchsorted(np.sort(served_s), moments, side="right")
    level = waiting.reshape(BATCHES, -1).mean(axis=1)
    time = np.arange(BATCHES) - (BATCHES - 1) / 2.0
    slope = float(time @ level / (time @ time))
    residual = level - level.mean() - slope * time
    error = float(np.sqrt(residual @ residual / (BATCHES - 2) / (time @ time)))
    per_batch = arrived / BATCHES
    share, uncertain = slope / per_batch, error / per_batch
    return Growth(share, uncertain, share > max(GROWTH_MAX, GROWTH_ERRORS * uncertain))
