"""`fleetopt replay --offline`: recommendations without services."""

from __future__ import annotations

import asyncio
import math
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from fleetopt.cli.output import ExitCode, Output, print_error, print_note
from fleetopt.cli.progress import progress
from fleetopt.cli.watch import show
from fleetopt.config.profiles import load_catalogue
from fleetopt.pipeline.offline import Offline
from fleetopt.pipeline.replay import Replay, Timestamps, WallClock
from fleetopt.planner.effects import Effect, Publish

if TYPE_CHECKING:
    from fleetopt.cli.source import Source
    from fleetopt.config.settings import Settings
    from fleetopt.planner.recommendation import Recommendation


def run_offline(source: Source, settings: Settings, speed: float, output: Output) -> int:
    """Print every recommendation that the trace leads to; 3 if a fleet's last has no plan."""
    newest: dict[str, Recommendation] = {}

    def on_effect(fleet: str, _: float, effect: Effect) -> None:
        if isinstance(effect, Publish):
            newest[fleet] = effect.recommendation
            show(effect.recommendation, output)

    sink = Offline(settings, load_catalogue(settings.profiles), speed, on_effect)
    with ExitStack() as stack:
        # On a terminal the recommendations show how far it is; a bar would break their lines.
        on_progress = (
            (lambda _: None)
            if sys.stdout.isatty()
            else stack.enter_context(progress("counted", source.expected))
        )
        run = Replay(
            sink,
            speed=math.inf,
            timestamps=Timestamps.RECORDED,
            slice_s=settings.window.slice_s,
            clock=WallClock(),
            on_progress=on_progress,
        )
        asyncio.run(run.run(source.chunks()))
    for note in source.notes:
        print_note(note)
    print_note(f"counted {sink.accepted:,} requests, {sink.late:,} late, without Kafka and Redis")
    if not newest:
        print_error(
            "no recommendation: no slice was closed, or no request says how many tokens it had; "
            f"a slice is {settings.window.slice_s} s long (window.slice_s)"
        )
        return ExitCode.FAILED
    if any(one.infeasible is not None for one in newest.values()):
        return ExitCode.INFEASIBLE
    return ExitCode.DONE
