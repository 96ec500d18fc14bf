"""Kafka clients: stopping one that fails to, and whose cancellation a cancellation is."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiokafka import AIOKafkaProducer

from fleetopt.connectors import kafka
from fleetopt.connectors.kafka import stop_client, was_cancelled


class _Client(AIOKafkaProducer):  # type: ignore[misc]
    """A client that was never started and whose stop goes wrong in a chosen way."""

    def __init__(self, fault: BaseException | None) -> None:
        self.fault = fault
        self.closed = False

    def __del__(self) -> None: ...

    @property
    def client(self) -> _Client:
        return self

    async def close(self) -> None:
        self.closed = True

    async def stop(self) -> None:
        if self.fault is None:
            await asyncio.sleep(60)
        else:
            raise self.fault


@pytest.mark.parametrize("fault", [asyncio.CancelledError(), OSError("gone"), None])
def test_a_client_that_does_not_stop_stops_nothing_else(
    fault: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "STOP_LIMIT_S", 0.05)

    async def run() -> bool:
        client = _Client(fault)
        await stop_client(client)
        return client.closed

    assert asyncio.run(run())


def test_a_cancellation_that_leaked_is_told_from_our_own() -> None:
    async def leak() -> None:
        raise asyncio.CancelledError

    async def leaked() -> bool:
        try:
            await leak()
        except asyncio.CancelledError as error:
            return was_cancelled(error)
        return True

    async def own(said: list[bool]) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            said.append(was_cancelled(error))
            raise

    async def run() -> list[bool]:
        said = [await leaked()]
        task = asyncio.create_task(own(said))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return said

    assert asyncio.run(run()) == [False, True]
