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

MOMENTS: Final = 8
"""n, Σi, Σo, Σi², Σi·o, Σo², Σg, Σg² with i prompt and o completion tokens, in this order.

g of the prompt tokens were in the prefix cache. The last one is always computed: g < i.
"""

COUNT, PROMPT, COMPLETION, PROMPT_SQ, CROSS, COMPLETION_SQ, CACHED, CACHED_SQ = range(MOMENTS)

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
    values : NDArray[np.float64], shape (3, BINS, 8)
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
        cached_tokens: ArrayLike | None = None,
    ) -> Self:
        """Moments of a batch of requests.

        Parameters
        ----------
        prompt_tokens, completion_tokens : array of int, shape (requests,)
            0 … 2^31 − 1.
        compressibility : array of Compressibility, shape (requests,), optional
            UNKNOWN where absent.
        cached_tokens : array of int, shape (requests,), optional
            Of each prompt, found in the prefix cache; 0 where absent. No prompt is cached to
            its end: more than all but its last token counts as that.

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
        weights = [i, o, i * i, i * o, o * o]
        if cached_tokens is not None:
            g = _cached(cached_tokens, prompt)
            weights += [g, g * g]
        cells = len(Compressibility) * BINS
        values = np.zeros((MOMENTS, cells))
        values[COUNT] = np.bincount(cell, minlength=cells)
        for row, weight in enumerate(weights, start=PROMPT):
            values[row] = np.bincount(cell, weight, cells)
        return cls(np.ascontiguousarray(values.T).reshape(_SHAPE))

    def __add__(self, other: "TokenMoments") -> "TokenMoments":
        return TokenMoments(self.values + other.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenMoments) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    @property
    def count(self) -> float:
        """Requests counted, over all classes and bins."""
        return float(self.values[:, :, COUNT].sum())

    @property
    def count_per_bin(self) -> NDArray[np.float64]:
        """Requests per length bin, shape (BINS,)."""
        counts: NDArray[np.float64] = self.values[:, :, COUNT].sum(axis=0)
        return counts

    @property
    def cached_share(self) -> float:
        """Share of all prompt tokens that were in the prefix cache."""
        _, prompt, *_, cached, _ = self.values.sum(axis=(0, 1)).tolist()
        return float(cached / prompt) if prompt else 0.0

    def with_cached_share(self, share: float) -> Self:
        """The same requests, each with this share of its prompt cached, whatever it was.

        Raises
        ------
        InputError
            If the share is not in 0…1.
        """
        if not 0.0 <= share <= 1.0:  # NaN too
            raise InputError(f"cached_share is {share}; expected 0 to 1")
        values = self.values.copy()
        count, prompt, prompt_sq = (values[..., row] for row in (COUNT, PROMPT, PROMPT_SQ))
        all_but_last = np.maximum(prompt - count, 0.0)
        is_most = share * prompt > all_but_last
        squared = np.maximum(prompt_sq - 2.0 * prompt + count, 0.0)
        values[..., CACHED] = np.where(is_most, all_but_last, share * prompt)
        values[..., CACHED_SQ] = np.where(is_most, squared, share * share * prompt_sq)
        return type(self)(values)


def cached_parts(moments: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Split groups of requests into those that find part of the prompt cached and those that don't.

    Parameters
    ----------
    moments : NDArray[np.float64], shape (8, …)
        n, Σi, Σo, Σi², Σi·o, Σo², Σg, Σg² of each group.

    Returns
    -------
    tuple of arrays, shape (…,)
        The share q of the group's requests that hit, and the part s of their prompts that is
        cached; both 0 where nothing is.

    Notes
    -----
    q·s and q·s² are the first two moments of g/i, taken as independent of i within the group.
    Of all distributions with these two, this one has most requests with nothing cached (P(g > 0)
    is at least E[g]²/E[g²]): their prefill is the longest, and they make the tail of the TTFT.
    """
    prompt, prompt_sq = np.maximum(moments[PROMPT], 1e-300), np.maximum(moments[PROMPT_SQ], 1e-300)
    first = np.clip(moments[CACHED] / prompt, 0.0, 1.0)
    second = np.clip(moments[CACHED_SQ] / prompt_sq, first * first, first)
    safe = np.maximum(second, 1e-300)
    return first * first / safe, np.asarray(
        np.where(first > 0.0, second / np.maximum(first, 1e-300), 0.0)
    )


def _cached(values: ArrayLike, prompt: NDArray[np.int64]) -> NDArray[np.float64]:
    cached = _tokens("cached_tokens", values)
    if cached.size != prompt.size:
        raise InputError(
            f"{cached.size} cached_tokens but {prompt.size} prompt_tokens; "
            "expected one of each per request"
        )
    return np.maximum(np.minimum(cached, prompt - 1), 0).astype(np.float64)


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
