"""Runs one worker until it is told to stop."""

from __future__ import annotations

import asyncio

from faust import Worker

from fleetopt.config.settings import Settings
from fleetopt.pipeline.app import create_app
from fleetopt.pipeline.logs import configure_logs


def run(settings: Settings) -> int:
    """Run a worker; returns its exit code: 0 when told to stop, 1 after a failure."""
    configure_logs(settings.worker)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = Worker(
        create_app(settings),
        loop=loop,
        loglevel=settings.worker.log_level,
        override_logging=False,
        redirect_stdouts=False,
        quiet=True,
    )
    worker.spinner = None  # it writes escape codes to standard output
    try:
        worker.execute_from_commandline()
    except SystemExit as stop:
        return int(stop.code or 0) if isinstance(stop.code, int | None) else 1
