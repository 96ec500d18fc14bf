"""The Faust app of a worker: its services and what Faust starts for them.

Faust gives the runtime: services started and stopped in order, signals, a supervisor's view of
failures. Consuming is the ingest service's own business, so Faust's consumer stays off.
"""

from __future__ import annotations

import faust
from faust.app.base import BootStrategy

from fleetopt.config.settings import Settings
from fleetopt.connectors.redis import connect
from fleetopt.pipeline.ingest import Ingest
from fleetopt.pipeline.replan import Replan


class _ServicesOnly(BootStrategy):  # type: ignore[misc]
    enable_kafka = False


class WorkerApp(faust.App):  # type: ignore[misc]
    """A Faust app whose work is done by the services added to it."""

    BootStrategy = _ServicesOnly


def create_app(settings: Settings) -> faust.App:
    """Return the app of one worker; nothing is connected before it starts."""
    app = WorkerApp(
        "fleetopt",
        broker=f"kafka://{settings.kafka.bootstrap_servers}",
        store="memory://",
        web_enabled=settings.worker.web_port is not None,
        web_port=settings.worker.web_port or 6066,
        table_standby_replicas=0,
        topic_disable_leader=True,
        monitor=None,
    )
    client = connect(settings.redis)
    ingest = Ingest(settings, client)
    replan = Replan(settings, client, ingest)

    app.service(ingest)
    app.service(replan)
    return app
