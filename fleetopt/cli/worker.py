"""`fleetopt worker`: one process of the stream."""

from __future__ import annotations

import typer

from fleetopt.cli.options import BootstrapOption, ConfigOption, settings_from


def worker(
    config: ConfigOption = None,
    bootstrap_servers: BootstrapOption = None,
) -> None:
    """Read request logs from Kafka, keep sketches in Redis, publish recommendations.

    Start as many as you like: they share the topic's partitions, and each fleet's plan has one
    owner. Ends on Ctrl-C or SIGTERM.

    \b
    Examples:
      fleetopt worker
      fleetopt worker --config fleetopt.yaml
      FLEETOPT_REDIS__URL=redis://redis:6379/0 fleetopt worker --bootstrap-servers kafka:9092
    """
    settings = settings_from(config, kafka={"bootstrap_servers": bootstrap_servers})
    from fleetopt.pipeline.worker import run

    raise typer.Exit(run(settings))
