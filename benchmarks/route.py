"""What one routing decision costs, beside the least that any program could do.

The rivals know less: an `if` with two numbers in it, a table by bin of 256 tokens, and the
gateway's own decision behind a lock, as a client would have that changed its plan in place.
"""

from __future__ import annotations

import threading
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from benchmarks.report import Table
from fleetopt.connectors.gateway_routes import Route, Routes

BOUNDARY: Final = 4_096
UP_TO: Final = 6_144
_BIN: Final = 256
_CATEGORIES: Final = ("rag", "chat", "code", None)

Ask = tuple[int, int | None, str | None]
Decide = Callable[[int, int | None, str | None], object]


@dataclass(frozen=True, slots=True)
class RouteFigures:
    """Time of one decision, the call included, in seconds."""

    name: str
    decide_s: float
    shares: dict[str, float]
    """Of the requests, by where they go; empty where a rival can't say."""


class Holder:
    """A gateway's part: the snapshot is read where it is, and replaced by another thread."""

    def __init__(self) -> None:
        self.routes = Routes(BOUNDARY, UP_TO, 512, fewest_bytes_per_token={None: 3.0})
        self._lock = threading.Lock()

    def route(self, prompt: int, completion: int | None, category: str | None) -> Route:
        """Decide as `Gateway.route` does."""
        return self.routes.route(prompt, completion, category)

    def route_bytes(self, size: int, completion: int | None, category: str | None) -> Route:
        """Decide as `Gateway.route_bytes` does."""
        return self.routes.route_bytes(size, completion, category)

    def route_locked(self, prompt: int, completion: int | None, category: str | None) -> Route:
        """Decide under a lock."""
        with self._lock:
            return self.routes.route(prompt, completion, category)


def plain_if(prompt: int, completion: int | None, _category: str | None) -> str:
    """Compare with two numbers."""
    total = prompt + (completion or 0)
    if total <= BOUNDARY:
        return "short"
    return "compress" if total <= UP_TO else "long"


_TABLE: Final = {at: plain_if(at * _BIN, 0, None) for at in range((1 << 20) // _BIN)}


def by_table(prompt: int, completion: int | None, _category: str | None) -> str:
    """Look it up by bin."""
    return _TABLE[(prompt + (completion or 0)) // _BIN]


def requests(count: int, seed: int = 1) -> list[Ask]:
    """Draw prompts with and without a limit of the completion."""
    random = np.random.default_rng(seed)
    prompts = np.clip(random.lognormal(np.log(2_500), 0.9, count), 1, 100_000).astype(int).tolist()
    limits = random.choice([128, 512, 1_024], count).tolist()
    return [
        (prompt, None if at % 5 == 0 else limit, _CATEGORIES[at % 4])
        for at, (prompt, limit) in enumerate(zip(prompts, limits, strict=True))
    ]


def measure(count: int = 20_000, repeats: int = 9) -> list[RouteFigures]:
    """Measure every way on the same requests, in turns."""
    asks = requests(count)
    sizes = [(4 * prompt, limit, category) for prompt, limit, category in asks]
    holder = Holder()
    ways: list[tuple[str, Decide, list[Ask], bool]] = [
        ("gateway, tokens", holder.route, asks, True),
        ("gateway, bytes", holder.route_bytes, sizes, True),
        ("gateway behind a lock", holder.route_locked, asks, True),
        ("plain if", plain_if, asks, False),
        ("table lookup", by_table, asks, False),
    ]
    taken: dict[str, list[float]] = {name: [] for name, *_ in ways}
    for _ in range(repeats):
        for name, decide, given, _says in ways:
            taken[name].append(_each_s(decide, given))
    return [
        RouteFigures(name, median(taken[name]), _shares(decide, given) if says else {})
        for name, decide, given, says in ways
    ]


def route_tables(figures: list[RouteFigures]) -> list[Table]:
    """One table."""
    rows = [
        [
            one.name,
            f"{one.decide_s * 1e9:.0f} ns",
            *(f"{one.shares[route]:.0%}" if one.shares else "" for route in Route),
        ]
        for one in figures
    ]
    return [
        Table("One routing decision, the call included", ("way", "time", *map(str, Route)), rows)
    ]


def _each_s(decide: Decide, given: list[Ask]) -> float:
    def run() -> None:
        for prompt, completion, category in given:
            decide(prompt, completion, category)

    return timeit.timeit(run, number=1) / len(given)


def _shares(decide: Decide, given: list[Ask]) -> dict[str, float]:
    routes = [decide(*ask) for ask in given]
    return {route.value: routes.count(route) / len(routes) for route in Route}
