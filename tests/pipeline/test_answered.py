"""A commit covers what is answered, and never a request that is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetopt.pipeline.answered import AnsweredOffsets


def test_nothing_is_covered_before_something_was_taken() -> None:
    assert AnsweredOffsets().position is None


def test_answers_out_of_order_wait_for_the_first() -> None:
    offsets = AnsweredOffsets()
    for offset in (5, 6, 9):  # 7 and 8 are a transaction's marks
        offsets.take(offset)
    assert (offsets.position, offsets.open) == (5, 3)
    offsets.answer(9)
    offsets.answer(6)
    assert (offsets.position, offsets.open) == (5, 1)
    offsets.answer(5)
    assert (offsets.position, offsets.open) == (10, 0)


def test_what_is_answered_twice_counts_once() -> None:
    offsets = AnsweredOffsets()
    for offset in (5, 6):
        offsets.take(offset)
    for offset in (5, 5, 4, 6, 6):
        offsets.answer(offset)
    assert (offsets.position, offsets.open) == (7, 0)


@given(data=st.data())
def test_the_position_covers_all_before_the_first_without_an_answer(data: st.DataObject) -> None:
    taken = sorted(data.draw(st.sets(st.integers(0, 50), min_size=1)))
    order = data.draw(st.permutations(taken))
    offsets = AnsweredOffsets()
    for offset in taken:
        offsets.take(offset)
    for number, offset in enumerate(order, start=1):
        offsets.answer(offset)
        left = set(taken) - set(order[:number])
        end = min(left, default=taken[-1] + 1)
        assert offsets.position is not None
        assert max((one for one in taken if one < end), default=end - 1) < offsets.position <= end
        assert offsets.open == len(left)
