"""Erlang's loss and delay formulas, in constant time for any number of servers.

The number of servers is a real number: Hayward's approximation divides it by the peakedness.
A plan is not made with them, since iterations slow down as slots fill. They are what the planner's
slot queue comes to at a constant speed, and what it and the slot-level simulation are held to.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc, gammaln

_LN_SQRT_2PI: Final = 0.5 * np.log(2.0 * np.pi)
_SERIES_FROM: Final = 16.0
_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_ATANH: Final = tuple(1.0 / (2 * k + 3) for k in range(14))


def erlang_b(servers: ArrayLike, load: ArrayLike) -> NDArray[np.float64]:
    """Share of Poisson arrivals that find all servers busy and are lost.

    Parameters
    ----------
    servers : array of float, > 0
        c; need not be whole.
    load : array of float, ≥ 0
        a = arrival rate · mean service time, in servers.

    Returns
    -------
    NDArray[np.float64]
        Erlang B, of the arguments' broadcast shape; relative error below 1e-10 against a
        40-digit evaluation for c = 1 … 1e6 and a/c = 0.01 … 0.9999.

    Notes
    -----
    The ratio of a Poisson probability to a Poisson distribution function [1]_. The former is
    Loader's saddle-point form [2]_, which loses no digits where c is large.

    References
    ----------
    .. [1] D. L. Jagerman, "Some properties of the Erlang loss function", Bell System
       Technical Journal 53, 1974.
    .. [2] C. Loader, "Fast and accurate computation of binomial probabilities", 2000.

    Examples
    --------
    >>> round(float(erlang_b(2.0, 1.0)), 12)
    0.2
    """
    c, a = np.asarray(servers, dtype=np.float64), np.asarray(load, dtype=np.float64)
    deviation = (a - c) / c
    with np.errstate(under="ignore"):
        pmf = np.exp(
            -_stirling_error(c) - c * _less_log1p(deviation) - 0.5 * np.log(c) - _LN_SQRT_2PI
        )
        return np.asarray(pmf / gammaincc(c + 1.0, a), dtype=np.float64)


def erlang_c(servers: ArrayLike, load: ArrayLike) -> NDArray[np.float64]:
    """Share of Poisson arrivals that must wait for a server; 1 where load ≥ servers.

    Parameters and accuracy are those of `erlang_b`.

    Examples
    --------
    >>> round(float(erlang_c(2.0, 1.0)), 12)
    0.333333333333
    """
    c, a = np.asarray(servers, dtype=np.float64), np.asarray(load, dtype=np.float64)
    stable = np.minimum(a, c)
    blocked = erlang_b(c, stable)
    return np.asarray(blocked / (1.0 - (stable / c) * (1.0 - blocked)), dtype=np.float64)


def _stirling_error(c: NDArray[np.float64]) -> NDArray[np.float64]:
    """δ(c) = ln Γ(c + 1) − (c + ½) ln c + c − ½ ln 2π."""
    small = np.minimum(c, _SERIES_FROM)
    direct = gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small - _LN_SQRT_2PI
    large = np.maximum(c, _SERIES_FROM)
    square = 1.0 / (large * large)
    series = np.zeros_like(large)
    for coefficient in reversed(_STIRLING):
        series = series * square + coefficient
    return np.where(c < _SERIES_FROM, direct, series / large)


def _less_log1p(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Value of d − ln(1 + d), without cancellation near 0; infinite at d = −1."""
    near = np.clip(d, -0.3, 0.3)
    x = near / (2.0 + near)
    square = x * x
    series = np.zeros_like(x)
    for coefficient in reversed(_ATANH):
        series = series * square + coefficient
    with np.errstate(divide="ignore"):
        far = d - np.log1p(d)
    return np.where(np.abs(d) < 0.3, x * (near - 2.0 * square * series), far)
