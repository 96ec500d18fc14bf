"""Replicas that are up, of those that a fleet has: whole ones, for the plan and the simulation."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROUNDING: Final = 1e-12


def replicas_up(replicas: Array | float, node_availability: float) -> Array:
    """Whole replicas that are up when a share of the nodes is; of any at least one.

    Parameters
    ----------
    replicas : array or float
        Replicas that the fleet has, whole numbers ≥ 0.
    node_availability : float
        Share of nodes that are up, in (0, 1].

    Examples
    --------
    >>> replicas_up(np.array([0.0, 1.0, 3.0, 100.0]), 0.97)
    array([ 0.,  1.,  2., 97.])
    """
    if node_availability >= 1.0:
        return np.asarray(replicas, dtype=np.float64)
    up = np.floor(np.asarray(replicas) * node_availability * (1.0 + 2.0 * _ROUNDING))
    return np.asarray(np.maximum(up, np.minimum(replicas, 1.0)))


def replicas_for(up: Array | float, node_availability: float) -> Array:
    """Fewest replicas of which so many are up.

    Parameters
    ----------
    up : array
        Replicas that have to be up, whole numbers ≥ 0, or infinite.
    node_availability : float
        Share of nodes that are up, in (0, 1].

    Examples
    --------
    >>> replicas_for(np.array([0.0, 1.0, 2.0, 97.0]), 0.97)
    array([  0.,   2.,   3., 100.])
    """
    if node_availability >= 1.0:
        return np.asarray(up, dtype=np.float64)
    return np.asarray(np.ceil(up / node_availability * (1.0 - _ROUNDING)))
