"""A profiling session: asks the sieve for the next run, has it made, and keeps what it found.

All it knows is the journal. So a session that was ended anywhere goes on with the same run as one
that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fleetopt.config.sieve_problem import Problem
from fleetopt.connectors.bench_command import Finished, run_command
from fleetopt.connectors.benchmark_result import BenchmarkResult
from fleetopt.connectors.sieve_journal import Journal, JournalRun
from fleetopt.errors import InputError
from fleetopt.planner.sieve.evidence import Evidence
from fleetopt.planner.sieve.grid import Grid, Point, Run
from fleetopt.planner.sieve.measured import MeasuredProfile, Seen, measured_profile
from fleetopt.planner.sieve.sieve import State

_SAME_RATE: Final = 1e-6
_KEPT_UP: Final = 0.9
_ENDLESS: Final = BenchmarkResult(throughput_per_s=0.0, completion_p99_s=math.inf)


class OnFailure(StrEnum):
    """What becomes of a run that can't be made."""

    STOP = "stop"
    LATE = "late"
    """It counts as one whose requests never end: the configuration can't serve this load."""


class RunFailedError(InputError):
    """A run failed as often as it may."""


@dataclass
class Session:
    """What has been measured for a problem, and what to do next."""

    problem: Problem
    journal: Journal
    attempts: int = 3
    limit_s: float = 900.0
    on_failure: OnFailure = OnFailure.STOP
    say: Callable[[str], None] = lambda text: None
    foreign: list[JournalRun] = field(init=False)
    """Runs of the journal that the problem has no place for."""

    evidence: Evidence = field(init=False)

    def __post_init__(self) -> None:
        self.foreign, self.evidence = [], Evidence.none(self.problem.sieve.grid)
        for kept in self.journal.runs:
            self._take(kept)

    @property
    def state(self) -> State:
        """What follows from the runs so far."""
        return self.problem.sieve.state(self.evidence)

    def next_run(self, state: State) -> Point | None:
        """Return what to measure next; None if the decision is certain, or nothing is left."""
        if self.problem.sieve.is_certain(state):
            return None
        return self.problem.sieve.next_run(state)

    def command(self, point: Point) -> tuple[str, dict[str, str]]:
        """Return the command of a run, and what its placeholders stand for."""
        grid = self.problem.sieve.grid
        configuration = grid.configurations[point.configuration]
        rate = float(grid.offered_per_s[point])
        repeat = int(self.evidence.runs[point]) + 1
        values = {
            "class": grid.classes[point.request_class].name,
            "configuration": configuration.name,
            "gpus": str(configuration.gpus),
            "tp": str(configuration.gpus),
            "rate": f"{rate:.6g}",
            "requests": str(max(1, math.ceil(rate * self.problem.run_s))),
            "duration_s": f"{self.problem.run_s:g}",
            "repeat": str(repeat),
        }
        return self.problem.commands[point.configuration], values

    def measure(self, point: Point) -> JournalRun:
        """Make a run, again if it fails, and keep it.

        Raises
        ------
        RunFailedError
            If it failed as often as it may, unless such runs count as late.
        """
        template, values = self.command(point)
        grid = self.problem.sieve.grid
        reason = ""
        for attempt in range(1, self.attempts + 1):
            try:
                return self._keep(point, run_command(template, values, self.limit_s), None)
            except InputError as error:
                reason = str(error)
                self.say(f"attempt {attempt} of {self.attempts} failed: {reason}")
        if self.on_failure is OnFailure.LATE:
            return self._keep(point, Finished(_ENDLESS, 0.0), reason)
        raise RunFailedError(
            f"{grid.label(point)} failed {_times(self.attempts)}: {reason}; mend it and run the "
            "same command again (what is measured is kept), or count it as late with "
            "--on-failure late"
        )

    def measured_profiles(self) -> dict[str, MeasuredProfile | None]:
        """Return what the runs say of each configuration's engine; None where that is nothing.

        Configurations without a predicted profile, or classes without lengths, are left out.
        """
        found = {}
        names = [one.name for one in self.problem.sieve.grid.configurations]
        for name, engine in zip(names, self.problem.engines, strict=True):
            if engine is not None:
                seen = [one for kept in self.journal.runs for one in self._seen(kept, name)]
                found[name] = measured_profile(engine, seen, self.problem.context_tokens)
        return found

    def _seen(self, kept: JournalRun, configuration: str) -> list[Seen]:
        """Return a run of this configuration, if it tells how fast the engine is."""
        point = place_of(kept, self.problem.sieve.grid)
        if point is None or kept.configuration != configuration or kept.failure is not None:
            return []
        workload = self.problem.workloads[point.request_class]
        if workload is None or kept.result.throughput_per_s < _KEPT_UP * kept.offered_per_s:
            return []
        return [Seen(workload, kept.offered_per_s, kept.result.completion_p99_s)]

    def _keep(self, point: Point, finished: Finished, failure: str | None) -> JournalRun:
        grid = self.problem.sieve.grid
        configuration = grid.configurations[point.configuration]
        kept = JournalRun(
            request_class=grid.classes[point.request_class].name,
            configuration=configuration.name,
            offered_per_s=float(grid.offered_per_s[point]),
            cost_gpu_s=configuration.gpus * finished.seconds,
            result=finished.result,
            finished_at=time.time(),
            failure=failure,
        )
        self.journal.append(kept)
        self._take(kept)
        return kept

    def _take(self, kept: JournalRun) -> None:
        grid = self.problem.sieve.grid
        point = place_of(kept, grid)
        if point is None or self.evidence.runs[point] >= grid.repeats:
            self.foreign.append(kept)
            return
        result = kept.result
        run = Run(point, result.throughput_per_s, result.completion_p99_s, kept.cost_gpu_s)
        self.evidence = self.evidence.plus(run)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def place_of(kept: JournalRun, grid: Grid) -> Point | None:
    """Return the cell that a run belongs to; None if the grid has no such cell."""
    classes = [one.name for one in grid.classes]
    configurations = [one.name for one in grid.configurations]
    if kept.request_class not in classes or kept.configuration not in configurations:
        return None
    one, other = classes.index(kept.request_class), configurations.index(kept.configuration)
    rates: Sequence[float] = grid.offered_per_s[one, other].tolist()
    for load, rate in enumerate(rates):
        if math.isclose(rate, kept.offered_per_s, rel_tol=_SAME_RATE):
            return Point(one, other, load)
    return None
