"""Machine code for the simulation's inner loops where Numba is installed, plain Python elsewhere.

State is kept in rows: `rows[i].field`. Under Numba they are a structured array, without it a list
of objects, which plain Python reads faster; the loops' source is the same. Both do the same
arithmetic in the same order, so their results are equal to the last bit.

Numba keeps machine code beside the source and looks at each file's age by itself: after a change
here in a file that others call, remove `__pycache__`.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

try:
    numba: Any = import_module("numba")
except ImportError:  # the extra `simulate` is not installed
    numba = None

F = TypeVar("F", bound=Callable[..., Any])
Row = TypeVar("Row")

IS_COMPILED: Final = numba is not None
"""Whether loops run as machine code."""


def compiled(function: F) -> F:
    """Compile on first use, if Numba is there."""
    if numba is None:
        return function
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # no folder to keep machine code in: compile in every process
        return cast(F, numba.njit(function))


def rows(kind: type[Row], count: int, **columns: NDArray[Any]) -> list[Row]:
    """So many rows of a data class of numbers with defaults; columns that are given are copied."""
    if not IS_COMPILED:
        values = {name: column.tolist() for name, column in columns.items()}
        return [kind(**{name: value[at] for name, value in values.items()}) for at in range(count)]
    described = {field.name: field for field in fields(cast(Any, kind))}
    codes: Mapping[Any, str] = {int: "i8", float: "f8", "int": "i8", "float": "f8"}
    table = np.empty(count, dtype=[(name, codes[one.type]) for name, one in described.items()])
    for name, one in described.items():
        table[name] = columns.get(name, one.default)
    return cast(list[Row], table)


def column(table: list[Row], name: str) -> NDArray[Any]:
    """One field of all rows, as an array of its own."""
    if IS_COMPILED:
        return np.array(cast(Any, table)[name])
    return np.array([getattr(row, name) for row in table])


def row(kind: type[Row], table: list[Row], at: int) -> Row:
    """One row as an object of its own, for code that is never compiled."""
    return kind(**{one.name: column(table, one.name)[at].item() for one in fields(cast(Any, kind))})


def ints(count: int) -> list[int]:
    """So many zeros that loops may change."""
    return cast(list[int], np.zeros(count, dtype=np.int64)) if IS_COMPILED else [0] * count
