"""What is kept: within the budget, the best first, and full."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.compressor.selection import fill, select

UNITS = st.lists(st.integers(1, 60), min_size=1, max_size=80)


@given(UNITS, st.integers(0, 2_000))
def test_fill_takes_each_that_still_fits(tokens: list[int], room: int) -> None:
    taken, left = [], room
    for at, size in enumerate(tokens):
        if size <= left:
            taken.append(at)
            left -= size
    assert fill(np.array(tokens), room).tolist() == taken


@given(UNITS, st.integers(-20, 20), st.floats(0, 1), st.randoms(use_true_random=False))
def test_selection_is_within_the_budget(
    tokens: list[int], off: int, keep: float, rng: object
) -> None:
    """Whatever the recount finds beyond the sum of the units, the budget holds."""
    sizes = np.array(tokens)
    scores = np.array([rng.random() for _ in tokens])  # type: ignore[attr-defined]
    forced = np.zeros(len(tokens), np.bool_)
    forced[-1] = True
    fixed = 100
    budget = fixed + int(sizes.sum() * keep)

    def recount(kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        return int(fixed + sizes[kept].sum() + off)

    found = select(scores, sizes, forced, fixed, budget, recount)
    if found is None:
        assert budget - fixed < 16 + max(off, 0) + sizes.min() + 2
        return
    assert found.tokens == recount(found.kept) <= budget
    left = budget - found.tokens
    dropped = sizes[~found.kept]
    assert found.tokens >= 0.98 * budget or len(dropped) == 0 or dropped.min() + 3 > left


def test_forced_then_best_then_earliest() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.1, 0.5])
    forced = np.array([False, False, False, True, False])
    sizes = np.full(5, 100)
    found = select(scores, sizes, forced, 0, 420, lambda kept: int(sizes[kept].sum()))
    assert found is not None
    assert found.kept.tolist() == [True, True, True, True, False]
