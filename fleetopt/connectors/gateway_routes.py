"""Where a request goes under one recommendation: the arithmetic of routing, and nothing else.

Owns the snapshot that a gateway routes by. It is never changed, only replaced, so that any number
of threads may read it without a lock. Knows no service and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fleetopt.connectors.columns import CATEGORY_COMPRESSIBILITY
from fleetopt.errors import InputError
from fleetopt.planner.bytes_per_token import CATEGORIES
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.recommendation import Recommendation

MIN_BAND_REQUESTS: Final = 100
"""A band of bytes per token that fewer requests have made is not relied on."""

NEVER_COMPRESSED: Final = frozenset(
    category
    for category, compressibility in CATEGORY_COMPRESSIBILITY.items()
    if compressibility is Compressibility.FIXED
)


class Route(StrEnum):
    """What to do with a request."""

    SHORT = "short"
    LONG = "long"
    COMPRESS = "compress"


_SHORT: Final = Route.SHORT
_LONG: Final = Route.LONG
_COMPRESS: Final = Route.COMPRESS


@dataclass(frozen=True, slots=True)
class Routes:
    """A snapshot of what routing takes. As made by `Routes()`, everything goes to the long pool.

    Parameters
    ----------
    boundary_tokens : int
        Most tokens, prompt and reserved completion together, that the short pool serves.
    compress_up_to_tokens : int
        Requests above the boundary and up to this many tokens may be compressed.
    reserved_tokens : int or None
        Completion tokens reserved for a request that names no limit; None: it goes to the long
        pool.
    min_kept_share : float
        A prompt of which less than this would fit is not worth trying.
    fewest_bytes_per_token : mapping of category to float
        The lower end of each band.
    """

    boundary_tokens: int = -1
    compress_up_to_tokens: int = -1
    reserved_tokens: int | None = None
    min_kept_share: float = 0.5
    fewest_bytes_per_token: Mapping[str | None, float] = field(default_factory=dict)

    def route(
        self,
        prompt_tokens: int,
        max_completion_tokens: int | None = None,
        category: str | None = None,
    ) -> Route:
        """Say where a request goes.

        Examples
        --------
        >>> routes = Routes(boundary_tokens=4096, compress_up_to_tokens=6144)
        >>> [routes.route(tokens, 96, "rag").value for tokens in (4000, 4001, 6048, 6049)]
        ['short', 'compress', 'compress', 'long']
        >>> routes.route(1_077, 32_000).value
        'long'
        """
        reserved_tokens = max_completion_tokens
        if reserved_tokens is None:
            reserved_tokens = self.reserved_tokens
            if reserved_tokens is None:
                return _LONG
        if prompt_tokens <= 0 or reserved_tokens < 0:  # a length that is not known
            return _LONG
        total_tokens = prompt_tokens + reserved_tokens
        if total_tokens <= self.boundary_tokens:
            return _SHORT
        if total_tokens > self.compress_up_to_tokens or category in NEVER_COMPRESSED:
            return _LONG
        fitting_tokens = self.boundary_tokens - reserved_tokens
        return _COMPRESS if fitting_tokens >= prompt_tokens * self.min_kept_share else _LONG

    def route_bytes(
        self,
        prompt_bytes: int,
        max_completion_tokens: int | None = None,
        category: str | None = None,
    ) -> Route:
        """Say where a request goes whose prompt has been measured in UTF-8 bytes only.

        It is taken for as long as prompts of its category with the fewest bytes per token are;
        where no such band is known, for one token a byte.
        """
        known = self.fewest_bytes_per_token
        bytes_per_token = known.get(category) or known.get(None) or 1.0
        prompt_tokens = math.ceil(prompt_bytes / bytes_per_token)
        return self.route(prompt_tokens, max_completion_tokens, category)


def routes_of(
    recommendation: Recommendation,
    *,
    short_context_tokens: int | None = None,
    reserved_tokens: int | None = None,
    min_kept_share: float,
) -> Routes | None:
    """Return the snapshot of a recommendation's active plan, None where it has no plan.

    Parameters
    ----------
    recommendation : Recommendation
        As published.
    short_context_tokens : int, optional
        What the engines of the short pool serve at present. A boundary above it waits for them.
    reserved_tokens : int, optional
        For requests that name no limit of their completion. By default the 99th percentile of
        the window's whole requests, which no smaller share of the completions exceeds.
    min_kept_share : float
        As the compressor is set.

    Raises
    ------
    InputError
        The record contradicts itself.
    """
    plan = recommendation.active
    if plan is None:
        return None
    boundary_tokens, up_to_tokens = plan.boundary_tokens, plan.compress_up_to_tokens
    if not 0 < boundary_tokens <= up_to_tokens:
        raise InputError(
            f"recommendation of fleet {recommendation.fleet!r}: boundary_tokens "
            f"{boundary_tokens} and compress_up_to_tokens {up_to_tokens}; expected a boundary "
            "above 0 and not above the other"
        )
    if short_context_tokens is not None:
        boundary_tokens = min(boundary_tokens, short_context_tokens)
    if reserved_tokens is None and recommendation.lengths is not None:
        reserved_tokens = recommendation.lengths.p99_tokens
    return Routes(
        boundary_tokens,
        up_to_tokens,
        reserved_tokens,
        min_kept_share,
        _fewest_bytes_per_token(recommendation),
    )


def _fewest_bytes_per_token(recommendation: Recommendation) -> dict[str | None, float]:
    bands: dict[str | None, float] = {
        category: band.low
        for category, band in recommendation.bytes_per_token.items()
        if band.requests >= MIN_BAND_REQUESTS and band.low > 0.0
    }
    unknown = bands.pop(CATEGORIES[-1], None)
    if unknown is not None:
        bands[None] = unknown
    return bands
