"""The cheapest chains of a given number of links, where a link's exact cost is dear to work out.

Knows nothing of pools. Nodes are numbered along the chain; node 0 is its start, the last one its
end. Every link has a lower bound on its cost. Dynamic programming over the bounds finds the chain
that could be cheapest; the exact costs of the links in question replace their bounds, until the
cheapest chain has no bound left in it. So the answer is exact, and most links are never priced.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Price = Callable[[Index, Index, Array], Array]
"""Exact costs of links (from, to, limits); infinite above the limit or where there is none."""

_DIVES: Final = 8
"""So many times only the cheapest chain's own links are priced: mostly that is all."""
_FIRST_BATCH: Final = 64
_LARGEST_BATCH: Final = 4096
_GROWTH: Final = 2
_TIE: Final = 4e-9
"""Costs whose ratio is nearer to 1 are the same."""


class Chains:
    """The cheapest chains of any number of links over the same nodes.

    Parameters
    ----------
    least : shape (nodes, nodes)
        A lower bound on the cost of every link from a node to a later one; infinite where there
        is no such link.
    price : Price
        Works exact costs out.
    """

    def __init__(self, least: Array, price: Price) -> None:
        self._cost = least.copy()
        self._is_exact = ~np.isfinite(least)
        self._price = price

    def cheapest(self, links: int) -> tuple[int, ...] | None:
        """Nodes of the cheapest chain of exactly so many links; None where there is none."""
        best, limit = None, np.inf
        batch, rounds = _FIRST_BATCH, 0
        while True:
            ahead = _ahead(self._cost, links)
            if not ahead[links, -1] < limit * (1.0 - _TIE):
                return best
            chain = _trace(self._cost, ahead, links)
            found = np.array(chain[:-1]), np.array(chain[1:])
            unknown = ~self._is_exact[found]
            if not unknown.any():
                return chain
            if rounds < _DIVES:
                slack = np.full(links, limit - ahead[links, -1])
                asked = _Links(found[0][unknown], found[1][unknown], slack[unknown])
            else:
                asked = self._promising(ahead, links, limit, batch)
                batch = min(batch * _GROWTH, _LARGEST_BATCH)
            self._work_out(asked)
            rounds += 1
            best, limit = self._best_known(links, best, limit)

    def _work_out(self, asked: "_Links") -> None:
        """Replace bounds by exact costs, or raise them where a link is dearer than it may be."""
        at = asked.start, asked.end
        limit = self._cost[at] + asked.slack
        cost = self._price(*at, limit)
        is_exact = np.isfinite(cost) | ~np.isfinite(limit)
        self._cost[at] = np.where(is_exact, cost, np.maximum(self._cost[at], limit))
        self._is_exact[at] = is_exact

    def _promising(self, ahead: Array, links: int, limit: float, most: int) -> "_Links":
        """Links without exact cost whose chains could be cheapest, those first that cost least."""
        behind = _behind(self._cost, links)
        around = (ahead[0][:, None] + behind[links - 1]).copy()
        for link in range(1, links):
            np.minimum(around, ahead[link][:, None] + behind[links - 1 - link], out=around)
        total = around + self._cost
        total[self._is_exact] = np.inf
        start, end = np.nonzero(total < limit * (1.0 - _TIE))
        cost = total[start, end]
        if cost.size > most:
            nearest = np.argpartition(cost, most)[:most]
            start, end, cost = start[nearest], end[nearest], cost[nearest]
        return _Links(start, end, limit - cost)

    def _best_known(
        self, links: int, best: tuple[int, ...] | None, limit: float
    ) -> tuple[tuple[int, ...] | None, float]:
        """The cheapest chain of exact links, if it is cheaper than the best so far."""
        known = np.where(self._is_exact, self._cost, np.inf)
        ahead = _ahead(known, links)
        if not ahead[links, -1] < limit:
            return best, limit
        return _trace(known, ahead, links), float(ahead[links, -1])


@dataclass(frozen=True)
class _Links:
    """Links to price; `slack` is by how much each may cost more and still be of interest."""

    start: Index
    end: Index
    slack: Array


def _ahead(cost: Array, links: int) -> Array:
    """The least cost from the start to each node, shape (links + 1, nodes): row j with j links."""
    least = np.full((links + 1, cost.shape[0]), np.inf)
    least[0, 0] = 0.0
    for link in range(1, links + 1):
        if link == 1:
            least[1] = cost[0]
        elif link == links:
            least[link, -1] = (least[link - 1] + cost[:, -1]).min()
        else:
            least[link] = (least[link - 1][:, None] + cost).min(axis=0)
    return least


def _behind(cost: Array, links: int) -> Array:
    """The least cost from each node to the end, shape (links, nodes): row j with j links."""
    least = np.full((links, cost.shape[0]), np.inf)
    least[0, -1] = 0.0
    for link in range(1, links):
        least[link] = cost[:, -1] if link == 1 else (cost + least[link - 1]).min(axis=1)
    return least


def _trace(cost: Array, ahead: Array, links: int) -> tuple[int, ...]:
    """Nodes of the chain that costs as little as `ahead` says."""
    nodes = [cost.shape[0] - 1]
    for link in range(links, 0, -1):
        nodes.append(int((ahead[link - 1] + cost[:, nodes[-1]]).argmin()))
    return tuple(reversed(nodes))
