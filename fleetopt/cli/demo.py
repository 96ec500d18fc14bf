"""`fleetopt demo`: live traffic being replanned, on this machine, in about a minute."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from fleetopt.cli.options import OutputOption
from fleetopt.cli.output import ExitCode, Output, print_error, print_json

if TYPE_CHECKING:
    from rich.live import Live

    from fleetopt.pipeline.demo import DemoResult, DemoState


def demo(
    duration: Annotated[
        float, typer.Option(min=20, max=3_600, metavar="SECONDS", help="How long traffic flows.")
    ] = 60.0,
    rate: Annotated[
        float, typer.Option(min=50, max=5_000, metavar="PER_SECOND", help="Requests per second.")
    ] = 300.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated traffic.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show live traffic being replanned: everything real, nothing to install or configure.

    Starts a Kafka-protocol broker and a Redis on the loopback interface and a worker, sends
    generated traffic whose lengths shift on the way, shows each recommendation as it is
    published, and at the end holds what was counted against what was sent. Slices last a second
    and plans are made every two, so that a minute shows what takes hours in production.

    \b
    Examples:
      fleetopt demo
      fleetopt demo --duration 30 --rate 500
      fleetopt demo --output json
    """
    from fleetopt.pipeline.demo import run_demo, schedule

    async def until_told() -> DemoResult:
        task = asyncio.current_task()
        if task is not None:  # so that a supervisor's order ends what was started, too
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await run_demo(schedule(duration, rate), seed, view.show)

    # The client's own remarks would tear the screen; what goes wrong comes back as an error.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    view = _View(live=sys.stdout.isatty(), quiet=output is Output.JSON)
    try:
        with view.screen:
            result = asyncio.run(until_told())
    except asyncio.CancelledError:
        raise typer.Exit(ExitCode.TERMINATED) from None
    raise typer.Exit(_report(result, output))


class _View:
    """Redraws the screen on a terminal; elsewhere prints a line for each recommendation."""

    def __init__(self, *, live: bool, quiet: bool) -> None:
        self.screen: AbstractContextManager[object] = nullcontext()
        """What is redrawn within this context."""
        self._live: Live | None = None
        self._quiet = quiet
        self._printed = 0
        self._alerts_printed = 0
        if live and not quiet:
            from rich.live import Live as RichLive

            from fleetopt.cli.output import console

            self.screen = self._live = RichLive(console=console(), auto_refresh=False)

    async def show(self, state: DemoState) -> None:
        from fleetopt.cli.demo_view import lines, screen

        if self._live is not None:
            self._live.update(screen(state), refresh=True)
        elif not self._quiet:
            new = lines(state, self._printed, self._alerts_printed)
            self._printed = len(state.recommendations)
            self._alerts_printed = len(state.alerts)
            for line in new:
                typer.echo(line)


def _report(result: DemoResult, output: Output) -> int:
    from fleetopt.cli.demo_view import summary, summary_json

    if output is Output.JSON:
        print_json(summary_json(result))
    else:
        from fleetopt.cli.output import console

        console().print(summary(result))
    counts, sent = result.counts, result.state.sent
    if counts.total != sent or counts.accepted != sent:
        print_error(f"{sent} requests were sent, but {counts} were counted")
        return ExitCode.FAILED
    if result.state.newest is None:
        print_error("no recommendation was published")
        return ExitCode.FAILED
    return ExitCode.DONE
