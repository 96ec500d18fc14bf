"""Machine code for the simulation's inner loops where Numba is installed, plain Python elsewhere.

A compiled function touches its columns by index only, so that the same source runs on arrays
under Numba and on lists, which plain Python reads faster, without it. Both do the same arithmetic
in the same order: their results are equal to the last bit.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

try:
    import numba
except ImportError:  # the extra `simulate` is not installed
    numba = None

F = TypeVar("F", bound=Callable[..., Any])

IS_COMPILED: Final = numba is not None
"""Whether loops run as machine code."""

Ints = list[int]
Floats = list[float]
"""A column: really an array where loops are compiled."""


def compiled(function: F) -> F:
    """Compile on first use, if Numba is there; the machine code is kept beside the source."""
    if numba is None:
        return function
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # no folder to keep machine code in: compile in every process
        return cast(F, numba.njit(function))


def ints(values: NDArray[np.int64]) -> Ints:
    """A column of whole numbers, not shared with the caller."""
    return cast(Ints, np.array(values, dtype=np.int64)) if IS_COMPILED else values.tolist()


def floats(values: NDArray[np.float64]) -> Floats:
    """A column of numbers, not shared with the caller."""
    return cast(Floats, np.array(values, dtype=np.float64)) if IS_COMPILED else values.tolist()
