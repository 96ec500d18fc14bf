"""The requests that a simulation runs: when they arrive and how long they are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.errors import InputError
from fleetopt.planner.moments import Compressibility

_INTEGERS = ("prompt_tokens", "completion_tokens", "cached_tokens", "compressibility")


@dataclass(frozen=True, eq=False)
class RequestStream:
    """Requests in order of arrival; all arrays have shape (requests,).

    Parameters
    ----------
    arrival_s : array of float
        Seconds from any moment, not falling.
    prompt_tokens, completion_tokens : array of int
        Before compression, ≥ 0.
    cached_tokens : array of int
        Prompt tokens that the engine finds in its prefix cache, 0 to the prompt.
    compressibility : array of Compressibility

    Raises
    ------
    InputError
        If an array has another length, or a value is out of range.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    completion_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    compressibility: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrival_s", np.asarray(self.arrival_s, dtype=np.float64))
        count = self.arrival_s.size
        for name in _INTEGERS:
            values = np.asarray(getattr(self, name), dtype=np.int64)
            if values.shape != (count,):
                raise InputError(f"{name} has shape {values.shape}; expected ({count},)")
            if count and values.min() < 0:
                raise InputError(f"{name} holds {values.min()}; expected whole numbers ≥ 0")
            object.__setattr__(self, name, values)
        if not np.isfinite(self.arrival_s).all() or (np.diff(self.arrival_s) < 0.0).any():
            raise InputError("arrival_s must be finite and in order; sort the requests by arrival")
        if (self.cached_tokens > self.prompt_tokens).any():
            raise InputError("cached_tokens exceed prompt_tokens; expected at most the prompt")
        if count and self.compressibility.max() >= len(Compressibility):
            raise InputError("compressibility holds an unknown class; expected 0, 1 or 2")

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    @property
    def total_tokens(self) -> NDArray[np.int64]:
        """L = i + o."""
        return self.prompt_tokens + self.completion_tokens

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "RequestStream":
        """These requests; their arrivals must be in order."""
        return self.at(self.arrival_s[rows], rows)

    def at(
        self, arrival_s: NDArray[np.float64], rows: NDArray[np.intp] | NDArray[np.bool_]
    ) -> "RequestStream":
        """The lengths of these requests at other moments."""
        return RequestStream(arrival_s, *(getattr(self, name)[rows] for name in _INTEGERS))
