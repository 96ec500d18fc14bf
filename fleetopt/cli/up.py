"""`fleetopt up`: Kafka and Redis on this machine, without a container."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from types import FrameType


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="FOLDER",
            help="Where Redis keeps its data. Default: a temporary folder. The broker keeps "
            "everything in memory.",
        ),
    ] = None,
) -> None:
    """Start a Kafka-protocol broker and a Redis on the loopback interface, until Ctrl-C.

    Prints the variables that point the other commands at them. For laptops and tests, not for
    production: the broker forgets everything when it stops.

    \b
    Examples:
      fleetopt up
      fleetopt up --data-dir ./data
      fleetopt up > services.env        # and elsewhere: source services.env
    """
    from fleetopt.pipeline.embedded import EmbeddedServices

    told = False

    def on_sigterm(_: int, __: FrameType | None) -> None:
        # Not an Event: a handler that sets one while it is being waited for can lock up.
        nonlocal told
        told = True

    before = signal.signal(signal.SIGTERM, on_sigterm)
    try:
        with EmbeddedServices(data_dir) as services:
            for name, value in (
                ("FLEETOPT_KAFKA__BOOTSTRAP_SERVERS", services.bootstrap_servers),
                ("FLEETOPT_REDIS__URL", services.redis_url),
            ):
                sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
            sys.stdout.flush()
            sys.stderr.write(
                f"Kafka protocol at {services.bootstrap_servers}, Redis at {services.redis_url}\n"
                "Export the variables above where you run `fleetopt worker`, `replay` and "
                "`watch`. Ctrl-C stops both.\n"
            )
            while not told:
                time.sleep(0.2)
    finally:
        signal.signal(signal.SIGTERM, before)
