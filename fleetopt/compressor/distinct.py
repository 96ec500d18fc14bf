"""Sorted arrays without repetitions."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", np.int64, np.uint64)


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """Return the values sorted, each once.

    numpy's `unique` goes through a hash table, which takes up to a hundred times as long for
    hundreds of thousands of positions that are nearly sorted already.
    """
    ordered = np.sort(values, kind="stable")
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
