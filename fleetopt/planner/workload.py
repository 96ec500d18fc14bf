"""The workload a fleet is planned for: token moments, a planned rate and its burstiness."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetopt.errors import InputError
from fleetopt.planner.arrivals import ArrivalStatistics
from fleetopt.planner.bins import BINS, EDGES_TOKENS
from fleetopt.planner.compression_outcomes import OutcomeCounts
from fleetopt.planner.dispersion import Dispersion, index_at
from fleetopt.planner.moments import MOMENTS, Compressibility, TokenMoments

__all__ = [
    "MOMENTS",
    "ArrivalStatistics",
    "Compressibility",
    "Dispersion",
    "TokenMoments",
    "Workload",
]


@dataclass(frozen=True)
class Workload:
    """What the traffic looks like, and how much of it there is.

    Parameters
    ----------
    moments : TokenMoments
        Lengths before compression; only their proportions matter.
    arrival_rate_per_s : float
        λ, the rate to plan for. Positive, unless there are no requests at all.
    dispersion : float
        Index of dispersion of counts at about the service time, ≥ 1 (1 is Poisson).
    sample_count : int
        Requests that the moments were measured on; 0 for a given distribution.
    dispersion_by_scale : tuple of Dispersion
        The same index at several window lengths, shortest first; empty where it is not measured.
    cache_known_share : float
        Of the requests, those whose cached prompt tokens are known, or assumed; the others
        count as nothing cached.
    outcomes : OutcomeCounts, optional
        What compressions of these requests came to; None where nobody tried.
    """

    moments: TokenMoments
    arrival_rate_per_s: float
    dispersion: float = 1.0
    sample_count: int = 0
    dispersion_by_scale: tuple[Dispersion, ...] = ()
    cache_known_share: float = 0.0
    outcomes: OutcomeCounts | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        rate = self.arrival_rate_per_s
        if not math.isfinite(rate) or rate < 0.0 or (rate == 0.0 and self.moments.count > 0.0):
            raise InputError(f"arrival_rate_per_s is {rate}; expected a finite number > 0")
        if not (math.isfinite(self.dispersion) and self.dispersion >= 1.0):
            raise InputError(f"dispersion is {self.dispersion}; expected a finite number ≥ 1")
        if self.sample_count < 0:
            raise InputError(f"sample_count is {self.sample_count}; expected ≥ 0")
        if not 0.0 <= self.cache_known_share <= 1.0:
            raise InputError(f"cache_known_share is {self.cache_known_share}; expected 0 to 1")

    def dispersion_at(self, window_s: float) -> float:
        """Index of dispersion of counts at a time scale; `dispersion` where none is measured."""
        index = index_at(self.dispersion_by_scale, window_s)
        return self.dispersion if index is None else index

    @classmethod
    def from_requests(
        cls,
        prompt_tokens: ArrayLike,
        completion_tokens: ArrayLike,
        arrival_rate_per_s: float,
        compressibility: ArrayLike | None = None,
        dispersion: float = 1.0,
        dispersion_by_scale: tuple[Dispersion, ...] = (),
        cached_tokens: ArrayLike | None = None,
    ) -> Self:
        """Workload with the lengths of the given requests at a given rate.

        `cached_tokens` of each prompt are in the prefix cache, < 0 where that is unknown.
        """
        known_share = 0.0
        if cached_tokens is not None:
            cached = np.asarray(cached_tokens)
            known_share = float((cached >= 0).mean()) if cached.size else 0.0
            cached_tokens = np.maximum(cached, 0)
        moments = TokenMoments.from_requests(
            prompt_tokens, completion_tokens, compressibility, cached_tokens
        )
        count = int(moments.count)
        return cls(moments, arrival_rate_per_s, dispersion, count, dispersion_by_scale, known_share)

    @classmethod
    def from_cdf(
        cls,
        points: Sequence[tuple[float, float]],
        output_share: float,
        arrival_rate_per_s: float,
    ) -> Self:
        """Workload of a total-token CDF, linear between its breakpoints.

        Parameters
        ----------
        points : sequence of (tokens, cumulative fraction)
            Tokens > 0 and strictly rising; fractions in 0…1, not falling, the last one 1.
            What lies below the first point is spread evenly between 0 and it.
        output_share : float
            o / L of every request, in 0…1. A CDF alone doesn't know it, and a wrong one
            misstates the load severalfold.
        arrival_rate_per_s : float
            λ > 0.

        Raises
        ------
        InputError
            If the points are no CDF or a number is out of range.

        Examples
        --------
        >>> Workload.from_cdf([(1000, 0.5), (2000, 1.0)], 0.2, 10.0).moments.count
        1.0
        """
        if not (math.isfinite(output_share) and 0.0 <= output_share <= 1.0):
            raise InputError(f"output_share is {output_share}; expected 0 to 1")
        tokens, fractions = _cdf(points)
        mass, first, second = _length_moments(tokens, fractions)
        i, o = 1.0 - output_share, output_share
        values = np.zeros((len(Compressibility), BINS, MOMENTS))
        values[Compressibility.UNKNOWN] = np.stack(
            [
                mass,
                i * first,
                o * first,
                i * i * second,
                i * o * second,
                o * o * second,
                np.zeros_like(mass),
                np.zeros_like(mass),
            ],
            axis=-1,
        )
        return cls(TokenMoments(values), arrival_rate_per_s)

    def with_cached_share(self, share: float) -> "Workload":
        """The same requests with this share of every prompt in the prefix cache: a premise."""
        moments = self.moments.with_cached_share(share)
        return replace(self, moments=moments, cache_known_share=1.0)

    def scaled_to(self, arrival_rate_per_s: float) -> "Workload":
        """The same lengths and burstiness at another rate."""
        return replace(self, arrival_rate_per_s=arrival_rate_per_s)


def _cdf(
    points: Sequence[tuple[float, float]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    try:
        array = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("a CDF is a list of [tokens, cumulative fraction] pairs") from error
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] != 2:
        raise InputError("a CDF is a non-empty list of [tokens, cumulative fraction] pairs")
    tokens, fractions = array[:, 0], array[:, 1]
    _all_points(0, tokens, np.isfinite(tokens) & (tokens > 0.0), "finite tokens above 0")
    _all_points(1, fractions, (fractions >= 0.0) & (fractions <= 1.0), "a fraction from 0 to 1")
    rising, kept = np.diff(tokens, prepend=0.0) > 0.0, np.diff(fractions, prepend=0.0) >= 0.0
    _all_points(0, tokens, rising, "more tokens than in the point before: sort the points")
    _all_points(1, fractions, kept, "no less than in the point before: a CDF never falls")
    if not math.isclose(fractions[-1], 1.0, abs_tol=1e-6):
        raise InputError(
            f"cdf[{fractions.size - 1}][1] is {fractions[-1]:g}; expected the last fraction to be 1"
        )
    return np.concatenate(([0.0], tokens)), np.concatenate(([0.0], fractions))


def _all_points(
    column: int, values: NDArray[np.float64], are_right: NDArray[np.bool_], expected: str
) -> None:
    """Refuse the first of a CDF's values that is not right, by its place."""
    if not are_right.all():
        wrong = int(are_right.argmin())
        raise InputError(f"cdf[{wrong}][{column}] is {values[wrong]:g}; expected {expected}")


def _length_moments(
    tokens: NDArray[np.float64], fractions: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Integrals of 1, L and L² over each bin of the piecewise-uniform density."""
    inner = EDGES_TOKENS[: np.searchsorted(EDGES_TOKENS, tokens[-1], side="left")]
    cuts = np.union1d(tokens, inner.astype(np.float64))
    low, high = cuts[:-1], cuts[1:]
    weight = np.diff(np.interp(cuts, tokens, fractions))
    cell = np.searchsorted(EDGES_TOKENS, high, side="left")
    mean, mean_square = (low + high) / 2.0, (low * low + low * high + high * high) / 3.0

    def per_bin(value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(cell, value, BINS), dtype=np.float64)

    return per_bin(weight), per_bin(weight * mean), per_bin(weight * mean_square)
