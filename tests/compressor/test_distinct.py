"""Sorted arrays without repetitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.compressor.distinct import distinct


@given(st.lists(st.integers(0, 50)))
def test_it_is_the_sorted_set(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))
