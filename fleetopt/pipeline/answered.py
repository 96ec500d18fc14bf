"""Which requests of a partition are answered, and so how far its offset may be committed.

Answers come in any order, and a commit covers all before it: so it stops at the first request that
has none yet. Pure: knows no consumer.
"""

from __future__ import annotations

from collections import deque


class AnsweredOffsets:
    """One partition's requests in the order of their offsets."""

    def __init__(self) -> None:
        self._taken: deque[int] = deque()
        self._answered: set[int] = set()
        self._position: int | None = None

    @property
    def position(self) -> int | None:
        """Offset of the first request without an answer; None before the first was taken."""
        return self._position

    @property
    def open(self) -> int:
        """Requests that were taken and have no answer yet."""
        return len(self._taken) - len(self._answered)

    def take(self, offset: int) -> None:
        """Note a request; offsets must grow, but may leave some out."""
        if self._position is None:
            self._position = offset
        self._taken.append(offset)

    def answer(self, offset: int) -> None:
        """Note that a request needs no answer any more."""
        if self._position is not None and offset < self._position:
            return
        self._answered.add(offset)
        while self._taken and self._taken[0] in self._answered:
            first = self._taken.popleft()
            self._answered.discard(first)
            self._position = first + 1
