"""The cheapest chains against all chains, one by one."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleetopt.planner.chains import Chains
from tests.planner.examples import PATIENT

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Dear:
    """Exact costs that are worked out on demand, and how often."""

    def __init__(self, exact: Array) -> None:
        self.exact = exact
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: Index, end: Index, limit: Array) -> Array:
        assert start.shape == end.shape == limit.shape
        self.asked += list(zip(start.tolist(), end.tolist(), strict=True))
        cost = self.exact[start, end]
        return np.where(cost <= limit, cost, np.inf)


def brute_force(exact: Array, links: int) -> float:
    last = exact.shape[0] - 1
    between = combinations(range(1, last), links - 1)
    chains = ((0, *inner, last) for inner in between)
    return min((total(exact, chain) for chain in chains), default=np.inf)


def total(exact: Array, chain: tuple[int, ...]) -> float:
    return float(sum(exact[pair] for pair in pairwise(chain)))


def drawn(seed: int, nodes: int, missing: float, looseness: float) -> tuple[Array, Array]:
    """Bounds, and exact costs that are no lower: up to `looseness` times as high, or none."""
    rng = np.random.default_rng(seed)
    least = rng.integers(1, 30, (nodes, nodes)).astype(float)
    least[rng.random((nodes, nodes)) < missing] = np.inf
    least[np.tril_indices(nodes)] = np.inf
    exact = np.floor(least * rng.uniform(1.0, looseness, (nodes, nodes)))
    exact[rng.random((nodes, nodes)) < missing] = np.inf
    return least, exact


@settings(PATIENT, max_examples=300)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 9),
    st.sampled_from([0.0, 0.2, 0.6]),
    st.sampled_from([1.0, 1.3, 6.0]),
)
def test_the_cheapest_chain_is_the_cheapest_of_all(
    seed: int, nodes: int, missing: float, looseness: float
) -> None:
    least, exact = drawn(seed, nodes, missing, looseness)
    chains = Chains(least, Dear(exact))
    for links in range(1, nodes + 2):
        found = chains.cheapest(links)
        lowest = brute_force(exact, links)
        if found is None:
            assert lowest == np.inf
            continue
        assert len(found) == links + 1
        assert total(exact, found) == pytest.approx(lowest)


@pytest.mark.parametrize("order", [range(1, 7), range(6, 0, -1)])
def test_what_one_length_priced_serves_the_others(order: range) -> None:
    least, exact = drawn(5, 60, 0.1, 4.0)
    price = Dear(exact)
    chains = Chains(least, price)
    found = {links: chains.cheapest(links) for links in order}
    for links, chain in found.items():
        alone = Chains(least, Dear(exact)).cheapest(links)
        assert chain is not None
        assert alone is not None
        assert total(exact, chain) == pytest.approx(total(exact, alone))


def test_few_links_are_priced() -> None:
    least, exact = drawn(7, 400, 0.0, 1.2)
    price = Dear(exact)
    assert Chains(least, price).cheapest(4) is not None
    links = 400 * 399 // 2
    assert len(price.asked) < links / 20
    assert Chains(least, price).cheapest(1) == (0, 399)


def test_no_link_is_priced_twice_where_it_is_within_its_limit() -> None:
    least, _ = drawn(9, 40, 0.0, 1.0)
    price = Dear(least)  # exact costs are the bounds: never above a limit
    chains = Chains(least, price)
    for links in range(1, 6):
        chains.cheapest(links)
    assert len(set(price.asked)) == len(price.asked)
    assert price.asked
