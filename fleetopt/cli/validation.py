"""`plan --validate`: the plan's fleet simulated on the traffic that it was planned for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from fleetopt.cli.output import print_note
from fleetopt.cli.plan_file import PlanFile, PlannedPool
from fleetopt.cli.progress import progress
from fleetopt.cli.simulate import SLOW_REQUESTS, enough_requests
from fleetopt.cli.simulate_input import Input, Wanted, read_input
from fleetopt.cli.simulate_text import as_json, describe
from fleetopt.planner.simulate.compiled import IS_COMPILED
from fleetopt.planner.simulate.fleet import SimulatedFleet
from fleetopt.planner.simulate.outcome import Simulation
from fleetopt.planner.simulate.simulation import simulate

if TYPE_CHECKING:
    from fleetopt.planner.plan import Plan, PlanRequest


@dataclass(frozen=True, slots=True)
class Validation:
    """What was simulated, beside what was predicted."""

    simulation: Simulation
    planned: PlanFile
    given: Input

    @property
    def diverging(self) -> list[str]:
        """The pools whose queues grow without end."""
        return [pool.name for pool in self.simulation.pools if pool.growth.is_diverging]

    def json(self) -> dict[str, Any]:
        """Return what `fleetopt simulate --output json` would print."""
        return as_json(self.simulation, self.planned, self.given)

    def describe(self) -> None:
        """Print it for a reader."""
        describe(self.simulation, self.planned, self.given)


def check_twice(path: str) -> None:
    """Refuse what can be read once only: the plan takes sums of it, the simulation its requests."""
    if not Path(path).is_file():
        raise typer.BadParameter(
            "--validate reads the traffic twice: name a file, not standard input or a pipe"
        )


def validate(
    plan: Plan,
    request: PlanRequest,
    path: str,
    *,
    rate_per_s: float,
    fleet: str | None,
    output_share: float | None,
    cached_share: float | None,
) -> Validation:
    """Simulate a plan on the file that it was made from, as `fleetopt simulate` does."""
    wanted = Wanted(
        rate_per_s=rate_per_s,
        requests=enough_requests(rate_per_s),
        arrivals=None,
        fleet=fleet,
        output_share=output_share,
        cached_share=cached_share,
        seed=0,
    )
    given = read_input(path, wanted)
    if len(given.stream) > SLOW_REQUESTS and not IS_COMPILED:
        print_note("with `pip install 'fleetopt[simulate]'` --validate is about 14 times as fast")
    planned = PlanFile(
        SimulatedFleet.of_plan(plan, request),
        rate_per_s,
        tuple(msgspec.convert(pool, PlannedPool, from_attributes=True) for pool in plan.pools),
    )
    with progress("simulated", lambda: len(given.stream)) as advance:
        done = simulate(planned.fleet, given.stream, on_progress=advance)
    return Validation(done, planned, given)
