"""The Faust apps of a worker and of a compressor: their services and what Faust starts for them.

Faust gives the runtime: services started and stopped in order, signals, a supervisor's view of
failures. Consuming is the ingest service's own business, so Faust's consumer stays off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faust
from faust import Service
from faust.app.base import BootStrategy
from redis.asyncio import Redis

from fleetopt.config.settings import Settings
from fleetopt.connectors.redis import connect
from fleetopt.pipeline.compression import Compression
from fleetopt.pipeline.ingest import Ingest
from fleetopt.pipeline.replan import Replan


class _ServicesOnly(BootStrategy):
    enable_kafka = False


class ServicesApp(faust.App):
    """A Faust app whose work is done by services of ours."""

    BootStrategy = _ServicesOnly

    def __init__(
        self, *args: Any, services: Sequence[Service], redis: Redis | None = None, **kw: Any
    ) -> None:
        super().__init__(*args, **kw)
        self._redis = redis
        self._services = services

    async def on_first_start(self) -> None:
        """Make no data folder, as Faust would: a worker keeps nothing on disk."""

    async def on_started_init_extra_services(self) -> None:
        """Start our services last."""
        await super().on_started_init_extra_services()
        for service in self._services:
            await self.add_runtime_dependency(service)

    async def on_shutdown(self) -> None:
        """Close the client when the services that use it have stopped."""
        await super().on_shutdown()
        if self._redis is not None:
            await self._redis.aclose()


def create_app(settings: Settings) -> faust.App:
    """Return the app of one worker; nothing is connected before it starts."""
    redis = connect(settings.redis)
    ingest = Ingest(settings, redis)
    return _app(
        "fleetopt",
        settings,
        settings.worker.web_port,
        services=(ingest, Replan(settings, redis, ingest)),
        redis=redis,
    )


def create_compressor(settings: Settings) -> faust.App:
    """Return the app of one compressor; nothing is connected before it starts."""
    compression = Compression(settings)
    app = _app(
        "fleetopt-compressor", settings, settings.compressor.web_port, services=(compression,)
    )

    async def metrics(web: Any, _: Any) -> Any:
        return web.text(compression.metrics.text(), content_type="text/plain")

    app.page("/metrics")(metrics)
    return app


def _app(name: str, settings: Settings, web_port: int | None, **kw: Any) -> faust.App:
    return ServicesApp(
        name,
        broker=f"kafka://{settings.kafka.bootstrap_servers}",
        store="memory://",
        web_enabled=web_port is not None,
        web_port=web_port or 6066,
        table_standby_replicas=0,
        topic_disable_leader=True,
        **kw,
    )
