"""How good a method would have been, and the upper quantile that its own errors ask for."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BLOCKS: Final = 3
"""Near, middle and far steps have quantiles of their own: errors grow with the distance."""

MIN_ERRORS: Final = 20
"""With fewer errors a block has no quantile of its own."""

LOWEST_SHARE: Final = 0.1
"""A forecast near zero in busy traffic is a miss, not a certainty."""


def counts_ahead(counts: Array, steps: int) -> Array:
    """The counts of the slices after each slice, shape (slices, steps); NaN where not known."""
    padded = np.concatenate((counts[1:], np.full(steps, np.nan)))
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, steps))


def upper_bounds(paths: Array, ahead: Array, errors_from: int, quantile: float) -> Array:
    """The bound along each path that holds this share of the counts.

    Parameters
    ----------
    paths, ahead : array, shape (slices, steps)
        Forecast and true counts; NaN where not known. Both are known somewhere from
        `errors_from` on.
    errors_from : int
        The first slice whose errors count.
    quantile : float
        In 0.5 … 1.

    Returns
    -------
    array, shape (slices, steps)
        Never below the quantile of Poisson counts around the path.

    Notes
    -----
    Errors are measured in standard deviations of a count with mean f and variance f + c·f²: at
    c = 0 that is Poisson, and c is what the errors have beyond it. So errors made at night serve
    for the day. Their quantile corrects a bias too: on a ramp, a flat path has large ones.
    """
    known = ~np.isnan(paths) & ~np.isnan(ahead)
    known[:errors_from] = False
    at, true = paths[known], ahead[known]
    lowest = LOWEST_SHARE * float(true.mean())
    mean = np.maximum(paths, max(lowest, 1.0))
    # Divided by the mean before squaring: the square of a huge count could overflow.
    beyond = float(((np.square(true - at) / mean[known] - 1.0) / mean[known]).mean())
    deviation = np.sqrt(mean) * np.sqrt(1.0 + max(0.0, beyond) * mean)
    errors = (true - at) / deviation[known]
    bounds = np.full(paths.shape[1], float(np.quantile(errors, quantile)))
    for block in np.array_split(np.arange(paths.shape[1]), BLOCKS):
        in_block = known & np.isin(np.arange(paths.shape[1]), block)
        of_block = errors[in_block[known]]
        if of_block.size >= MIN_ERRORS:
            bounds[block] = float(np.quantile(of_block, quantile))
    noise = float(ndtri(quantile)) * np.sqrt(paths)
    return np.asarray(paths + np.maximum(bounds * deviation, noise))


def pinball_loss(upper: Array, ahead: Array, judged: Mask, quantile: float) -> float:
    """Mean quantile loss [1]_ of bounds over the judged cells: the lower, the better.

    A count above the bound costs `quantile` for each request, one below it 1 − `quantile`.

    References
    ----------
    .. [1] R. Koenker, G. Bassett, "Regression quantiles", Econometrica 46 (1978), 33-50.

    Examples
    --------
    >>> bounds, counts = np.array([[10.0, 10.0]]), np.array([[12.0, 8.0]])
    >>> round(pinball_loss(bounds, counts, np.full((1, 2), True), 0.9), 3)
    1.0
    """
    over = ahead[judged] - upper[judged]
    return float(np.maximum(quantile * over, (quantile - 1.0) * over).mean())
