"""Token moments on the aligned bins: what a sketch keeps of the requests' lengths.

Load is linear in these moments, so they price a fleet exactly where a CDF alone can't.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetopt.errors import InputError
from fleetopt.planner.bins import BINS, bin_of

MOMENTS: Final = 6
"""n, Σi, Σo, Σi², Σi·o, Σo² with i prompt and o completion tokens, in this order."""

MAX_TOKENS: Final = 2**31 - 1


class Compressibility(IntEnum):
    """Whether a request's prompt may be compressed; unknown is neither yes nor no."""

    COMPRESSIBLE = 0
    FIXED = 1
    UNKNOWN = 2


_SHAPE: Final = (len(Compressibility), BINS, MOMENTS)


@dataclass(frozen=True, eq=False)
class TokenMoments:
    """Raw moments per compressibility class and length bin; merged by addition.

    Parameters
    ----------
    values : NDArray[np.float64], shape (3, BINS, 6)
        Finite and ≥ 0. Sums of integers are exact, and so is merging, below 2^53.

    Raises
    ------
    InputError
        If the shape differs or a value is negative or not finite.
    """

    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.shape != _SHAPE:
            raise InputError(f"token moments have shape {values.shape}; expected {_SHAPE}")
        if not np.isfinite(values).all() or (values < 0.0).any():
            raise InputError("token moments hold a negative or non-finite value; expected sums ≥ 0")
        object.__setattr__(self, "values", values)

    @classmethod
    def zero(cls) -> Self:
        """No requests."""
        return cls(np.zeros(_SHAPE))

    @classmethod
    def from_requests(
        cls,
        prompt_tokens: ArrayLike,
        completion_tokens: ArrayLike,
        compressibility: ArrayLike | None = None,
    ) -> Self:
        """Moments of a batch of requests.

        Parameters
        ----------
        prompt_tokens, completion_tokens : array of int, shape (requests,)
            0 … 2^31 − 1.
        compressibility : array of Compressibility, shape (requests,), optional
            UNKNOWN where absent.

        Raises
        ------
        InputError
            On unequal lengths, fractions, or values out of range.

        Examples
        --------
        >>> TokenMoments.from_requests([100, 3000], [20, 200]).count
        2.0
        """
        prompt = _tokens("prompt_tokens", prompt_tokens)
        completion = _tokens("completion_tokens", completion_tokens)
        if prompt.size != completion.size:
            raise InputError(
                f"{prompt.size} prompt_tokens but {completion.size} completion_tokens; "
                "expected one of each per request"
            )
        cell = bin_of(prompt + completion)
        cell += BINS * _classes(compressibility, prompt.size)
        i, o = prompt.astype(np.float64), completion.astype(np.float64)
        cells = len(Compressibility) * BINS
        counts = np.bincount(cell, minlength=cells)
        sums = [counts, *(np.bincount(cell, w, cells) for w in (i, o, i * i, i * o, o * o))]
        return cls(np.stack(sums, axis=-1).reshape(_SHAPE))

    def __add__(self, other: "TokenMoments") -> "TokenMoments":
        return TokenMoments(self.values + other.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenMoments) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    @property
    def count(self) -> float:
        """Requests counted, over all classes and bins."""
        return float(self.values[:, :, 0].sum())

    @property
    def count_per_bin(self) -> NDArray[np.float64]:
        """Requests per length bin, shape (BINS,)."""
        counts: NDArray[np.float64] = self.values[:, :, 0].sum(axis=0)
        return counts


def _tokens(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} has {array.ndim} dimensions; expected one value per request")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    whole = array.dtype.kind in "iu"
    if not whole and (array.dtype.kind != "f" or not (np.floor(array) == array).all()):
        raise InputError(f"{name} holds a value that is not a whole number of tokens")
    low, high = array.min(), array.max()
    if low < 0 or high > MAX_TOKENS:
        raise InputError(f"{name} ranges from {low} to {high}; expected 0 to {MAX_TOKENS}")
    return array.astype(np.int64)


def _classes(values: ArrayLike | None, size: int) -> NDArray[np.int64]:
    if values is None:
        return np.full(size, int(Compressibility.UNKNOWN), dtype=np.int64)
    array = np.asarray(values, dtype=np.int64)
    if array.shape != (size,):
        raise InputError(f"compressibility has shape {array.shape}; expected ({size},)")
    if size and (array.min() < 0 or array.max() >= len(Compressibility)):
        raise InputError("compressibility holds an unknown class; expected 0, 1 or 2")
    return array
