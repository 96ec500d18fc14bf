"""Runs one worker or compressor until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from faust import App, Worker

from fleetopt.config.settings import Settings
from fleetopt.pipeline.app import create_app, create_compressor
from fleetopt.pipeline.compression_setup import check_models
from fleetopt.pipeline.logs import configure_logs


def run(settings: Settings) -> int:
    """Run a worker; returns its exit code: 0 when told to stop, 1 after a failure."""
    return _run(create_app, settings)


def run_compressor(settings: Settings) -> int:
    """Run a compressor; returns its exit code as `run` does. Raises ConfigError for its models."""
    check_models(settings.compressor)
    return _run(create_compressor, settings)


def _run(create: Callable[[Settings], App], settings: Settings) -> int:
    configure_logs(settings.worker)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = Worker(
        create(settings),
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
