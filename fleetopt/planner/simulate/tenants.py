"""A trace scaled to another rate as independent tenants, each of whom sends what it recorded.

Compressing time would make bursts sharper than any user is, and drawing arrivals afresh would
lose them. So the trace is copied: every copy starts at a moment of its own and goes round.
"""

import math
from typing import Final

import numpy as np

from fleetopt.errors import InputError
from fleetopt.planner.simulate.stream import RequestStream

LONGEST_S: Final = 1e9
"""Beyond that seconds as floats are no longer fine enough for waits."""

_SPARSE: Final = 0.01
"""Below this share of a trace's own rate, rows are drawn by the gaps between them."""


def tenant_stream(
    recorded: RequestStream, rate_per_s: float, count: int, seed: int
) -> RequestStream:
    """Superposed copies of a trace, shifted at random.

    Parameters
    ----------
    recorded : RequestStream
        A trace of at least two requests that span some time.
    rate_per_s : float
        Mean rate of all copies, > 0. What is not a whole multiple of the trace's own rate is a
        last copy that keeps each request with the remaining probability.
    count : int
        About how many requests are wanted: a time of count / rate is covered, at most 1e9 s.
    seed : int
        Of the random numbers.
    """
    if not (math.isfinite(rate_per_s) and rate_per_s > 0.0):
        raise InputError(f"rate_per_s is {rate_per_s}; expected a finite number > 0")
    if count < 1:
        raise InputError(f"count is {count}; expected ≥ 1")
    if len(recorded) < 2 or recorded.span_s <= 0.0:
        raise InputError(
            f"the trace has {len(recorded)} requests over {recorded.span_s} s; expected two or "
            "more at different times, to have a rate of its own"
        )
    rng = np.random.default_rng(seed)
    offset_s = recorded.arrival_s - recorded.arrival_s[0]
    period_s = recorded.span_s * len(recorded) / (len(recorded) - 1)
    copies = rate_per_s / (len(recorded) / period_s)
    whole = int(copies + 1e-9)
    rest = max(copies - whole, 0.0)
    span_s = count / rate_per_s
    if span_s > LONGEST_S:
        raise InputError(
            f"{count:,} requests at {rate_per_s:g}/s last {span_s:.3g} s; expected at most "
            f"{LONGEST_S:.0e} s: take a higher rate or fewer requests"
        )
    arrivals, rows = [], []
    for copy in range(whole + (rest > 1e-9)):
        start_s = rng.uniform(0.0, period_s)
        is_sparse = whole == 0 and rest < _SPARSE
        thinned = (rest, rng) if is_sparse else None
        row, at_s = _lap(offset_s, period_s, start_s, span_s, thinned)
        if copy == whole and not is_sparse:
            kept = rng.random(row.size) < rest
            row, at_s = row[kept], at_s[kept]
        rows.append(row)
        arrivals.append(at_s)
    arrival_s = np.concatenate(arrivals)
    order = np.argsort(arrival_s, kind="stable")
    return recorded.at(arrival_s[order], np.concatenate(rows)[order])


def _lap(
    offset_s: np.ndarray,
    period_s: float,
    start_s: float,
    span_s: float,
    thinned: tuple[float, np.random.Generator] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and moments from a start, round and round for a span; only a share of them if asked."""
    first = int(np.searchsorted(offset_s, start_s))
    last_s = start_s + span_s
    laps = int(last_s // period_s)
    end = laps * offset_s.size + int(np.searchsorted(offset_s, last_s - laps * period_s))
    index = np.arange(first, max(end, first)) if thinned is None else _few(first, end, *thinned)
    lap, row = np.divmod(index, offset_s.size)
    return row, offset_s[row] + lap * period_s - start_s


def _few(first: int, end: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Each whole number of a range with a small probability, without a draw for each."""
    enough = (end - first) * share
    batch = int(enough + 6.0 * math.sqrt(enough)) + 10
    at, found = first - 1, [np.empty(0, dtype=np.int64)]
    while at < end:
        steps = at + np.cumsum(rng.geometric(share, batch))
        found.append(steps)
        at = int(steps[-1])
    index = np.concatenate(found)
    return index[index < end]
