"""`fleetopt compressor`: prompts compressed for gateways."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetopt.cli.options import BootstrapOption, ConfigOption, settings_from


def compressor(
    config: ConfigOption = None,
    bootstrap_servers: BootstrapOption = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Processes that compress.")
    ] = None,
) -> None:
    """Answer gateways' requests to compress a prompt: Kafka in, Kafka out.

    Start as many as you like: they share the request topic's partitions. Every prompt comes back
    by its deadline, within its budget or unchanged with the reason. Ends on Ctrl-C or SIGTERM,
    when what it has read is answered.

    \b
    Examples:
      fleetopt compressor
      fleetopt compressor --workers 4 --config fleetopt.yaml
      FLEETOPT_COMPRESSOR__WEB_PORT=9464 fleetopt compressor --bootstrap-servers kafka:9092
    """
    settings = settings_from(
        config,
        kafka={"bootstrap_servers": bootstrap_servers},
        compressor={"workers": workers},
    )
    from fleetopt.pipeline.worker import run_compressor

    raise typer.Exit(run_compressor(settings))
