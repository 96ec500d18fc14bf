"""The time of each stage and the deadline, on a clock that the caller brings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleetopt.compressor.outcome import Stage

Clock = Callable[[], float]


class DeadlineError(Exception):
    """The deadline passed before the work was done."""


class Stopwatch:
    """Adds up seconds by stage; does nothing without a clock."""

    def __init__(self, clock: Clock | None, deadline_s: float | None) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self.stage_s: dict[Stage, float] = {}

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[None]:
        """Time a stage. Raises `DeadlineError` where it would begin too late."""
        self.check()
        if self._clock is None:
            yield
            return
        began_s = self._clock()
        try:
            yield
        finally:
            self.stage_s[stage] = self.stage_s.get(stage, 0.0) + self._clock() - began_s

    def check(self) -> None:
        """Raise `DeadlineError` where the deadline has passed."""
        if self._clock is None or self._deadline_s is None:
            return
        late_s = self._clock() - self._deadline_s
        if late_s > 0:
            raise DeadlineError(f"the deadline passed {late_s:.3f} s ago")
