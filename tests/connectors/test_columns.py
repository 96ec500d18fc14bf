"""Columns are cut and joined without changing a row."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.compressor.outcome import Reason
from fleetopt.connectors.columns import (
    BYTES_UNKNOWN,
    CACHE_UNKNOWN,
    CATEGORY_COMPRESSIBILITY,
    COMPRESSION_OUTCOMES,
    MAX_TOKENS,
    NOT_TRIED,
    RequestColumns,
    concatenate,
)
from fleetopt.connectors.wire import RequestLog
from fleetopt.planner.bytes_per_token import CATEGORIES, UNKNOWN_CATEGORY
from fleetopt.planner.moments import Compressibility, TokenMoments

ARRAYS = ("arrival_s", "prompt_tokens", "completion_tokens", "compressibility", "measured")
OPTIONAL = (
    "cached_tokens", "prompt_bytes", "category", "compression", "sent_prompt_tokens", "ttft_cell",
)  # fmt: skip


def columns(rows: int) -> RequestColumns:
    at = np.arange(rows, dtype=np.int64)
    return RequestColumns(
        1.7e9 + at.astype(np.float64),
        10 * at,
        at,
        (at % 3).astype(np.int8),
        (at % 2).astype(np.bool_),
    )


def same(one: RequestColumns, other: RequestColumns) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in (*ARRAYS, *OPTIONAL)
    )


def test_what_is_cached_stays_unknown_beside_parts_that_say_it() -> None:
    silent, telling = columns(2), replace(columns(3), cached_tokens=np.array([0, -1, 7]))
    joined = concatenate([silent, telling]).cached_tokens
    assert joined is not None
    assert joined.tolist() == [CACHE_UNKNOWN, CACHE_UNKNOWN, 0, CACHE_UNKNOWN, 7]
    taken = telling.take(slice(1, 3)).cached_tokens
    assert taken is not None
    assert taken.tolist() == [CACHE_UNKNOWN, 7]
    assert concatenate([silent, silent]).cached_tokens is None


def test_bytes_stay_unknown_beside_parts_that_say_them() -> None:
    told = {"prompt_bytes": np.array([9, -1, 7]), "category": np.array([0, 6, 4], dtype=np.int8)}
    silent, telling = columns(2), replace(columns(3), **told)
    joined = concatenate([silent, telling, silent]).take(slice(1, 6))
    assert joined.prompt_bytes is not None
    assert joined.category is not None
    assert joined.prompt_bytes.tolist() == [BYTES_UNKNOWN, 9, BYTES_UNKNOWN, 7, BYTES_UNKNOWN]
    assert joined.category.tolist() == [UNKNOWN_CATEGORY, 0, UNKNOWN_CATEGORY, 4, UNKNOWN_CATEGORY]
    assert joined.category.dtype == np.int8


@given(rows=st.integers(0, 50), cuts=st.lists(st.integers(0, 50), max_size=5))
def test_joining_the_pieces_gives_the_whole(rows: int, cuts: list[int]) -> None:
    whole = columns(rows)
    bounds = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    pieces = [whole.take(slice(start, end)) for start, end in pairwise(bounds)]
    assert same(concatenate(pieces), whole)


def test_rows_are_taken_by_index_and_by_mask() -> None:
    whole = columns(6)
    by_mask = whole.take(whole.measured)
    assert len(by_mask) == 3
    assert same(by_mask, whole.take(np.array([1, 3, 5])))


def test_every_category_of_the_wire_has_a_class_and_silence_is_unknown() -> None:
    literal, _ = get_args(get_type_hints(RequestLog)["category"])
    assert {*get_args(literal), None} == set(CATEGORY_COMPRESSIBILITY)
    assert CATEGORY_COMPRESSIBILITY[None] is Compressibility.UNKNOWN
    assert {*CATEGORIES[:UNKNOWN_CATEGORY]} == {*get_args(literal)}


@pytest.mark.parametrize("tokens", [0, MAX_TOKENS])
def test_the_limits_are_within_what_the_planner_takes(tokens: int) -> None:
    moments = TokenMoments.from_requests([tokens], [tokens])
    assert moments.count == 1


def test_first_tokens_stay_unknown_beside_parts_that_say_them() -> None:
    told = replace(columns(2), ttft_cell=np.array([144, 3], dtype=np.int16))
    joined = concatenate([columns(1), told]).take(slice(0, 2)).ttft_cell
    assert joined is not None
    assert joined.tolist() == [-1, 144]
    assert concatenate([columns(1), columns(2)]).ttft_cell is None


def test_every_outcome_of_a_compression_has_a_place() -> None:
    literal, _ = get_args(get_type_hints(RequestLog)["compression"])
    reasons = {reason.value for reason in Reason}
    assert {*get_args(literal)} == {"compressed", *reasons}
    assert {*COMPRESSION_OUTCOMES} == {None, "compressed", *reasons}


def test_outcomes_stay_unknown_beside_parts_that_say_them() -> None:
    told = {"compression": np.array([0, 2], dtype=np.int8), "sent_prompt_tokens": np.array([7, 8])}
    silent, telling = columns(2), replace(columns(2), **told)
    joined = concatenate([silent, telling]).take(slice(1, 4))
    assert joined.compression is not None
    assert joined.compression.tolist() == [NOT_TRIED, 0, 2]
    assert concatenate([silent, silent]).compression is None
