"""docs/gateway.md: its examples run, on real services."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from fleetopt.connectors.gateway import Gateway, GatewayReason, Pool, Reason, Route
from fleetopt.connectors.topics import ensure_topic
from fleetopt.pipeline.embedded import EmbeddedBroker
from tests.compressor_process import LONG_S
from tests.connectors.gateway_plans import publish, recommendation, until
from tests.connectors.test_request_outbox import arrived


@pytest.fixture
def page(project: Path) -> str:
    return (project / "docs" / "gateway.md").read_text()


@pytest.fixture
def names(page: str, embedded_broker: EmbeddedBroker, redis_url: str, topic: str) -> dict[str, Any]:
    """What the page's code defines, sent to this test's services."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(code, names)  # the page is ours
    names |= {"REDIS": redis_url, "KAFKA": embedded_broker.bootstrap_servers}
    original = names["RequestOutbox"]
    names["RequestOutbox"] = lambda kafka, _topic, fleet: original(kafka, topic, fleet)
    return names


def test_the_asyncio_example_routes_and_logs(
    names: dict[str, Any], redis_client: redis.Redis, embedded_broker: EmbeddedBroker, topic: str
) -> None:
    messages = [{"role": "user", "content": "What did station 7 see?"}]

    async def run() -> tuple[list[Pool], list[float]]:
        await ensure_topic(embedded_broker.bootstrap_servers, topic, 1, 3_600)
        publish(redis_client, recommendation("chat"))
        waiting = names["serve"]

        async def serve(gateway: Gateway, *request: Any) -> Pool:
            await until(lambda: gateway.is_connected)
            pool: Pool = await waiting(gateway, *request)
            return pool

        names["serve"] = serve
        lengths = (1_000, 5_000, 9_000)
        pools = await names["main"]([(str(tokens), messages, tokens) for tokens in lengths])
        arrivals, _ = await arrived(embedded_broker.bootstrap_servers, topic)
        return pools, arrivals

    with capture_logs():
        pools, arrivals = asyncio.run(run())
    assert pools == [Pool.SHORT, Pool.LONG, Pool.LONG]
    assert len(arrivals) == 3


def test_the_other_example_routes(names: dict[str, Any], redis_client: redis.Redis) -> None:
    publish(redis_client, recommendation("chat"))
    with names["make_gateway"]() as gateway:
        end_s = time.monotonic() + LONG_S
        while gateway.gateway.boundary_tokens is None and time.monotonic() < end_s:
            time.sleep(0.01)
        assert gateway.route(5_000, 100, "rag") is Route.COMPRESS


def test_every_reason_of_the_gateways_own_is_explained(page: str) -> None:
    told = set(re.findall(r"`(\w+)`", page))
    assert {reason.value for reason in GatewayReason} <= told
    assert {Reason.DEADLINE.value, Reason.OVERLOADED.value, Reason.FAILED.value} <= told
