"""The gateway's side for programs without an event loop.

One thread runs the asyncio gateway, so that both kinds are the same code; a second one over
blocking clients would be a second protocol to keep right. Routing needs no thread: it reads the
snapshot where it is called.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from fleetopt.compressor.outcome import Reason
from fleetopt.connectors.compression_client import KafkaCompressor
from fleetopt.connectors.compression_pool import CompressionPool
from fleetopt.connectors.gateway import (
    FLUSH_S,
    Answer,
    Gateway,
    GatewayReason,
    Pool,
    Prompt,
    Route,
)
from fleetopt.connectors.wire import RequestLog

__all__ = ["SyncGateway"]

GRACE_S: Final = 0.05
"""For the thread to hand its answer over; it keeps the deadline itself."""

STOP_S: Final = 20.0

OwnedCompressor = KafkaCompressor | CompressionPool


class SyncGateway:
    """A `Gateway` in a thread of its own; use it as a context manager, from any thread.

    Make it where it is used: a thread does not survive a fork.

    Parameters
    ----------
    make : callable
        Makes the gateway, inside the thread. What it is given is the compressor.
    make_compressor : callable, optional
        Makes the compressor; it is started and stopped with the gateway.

    Raises
    ------
    ConfigError
        From `make`, or from a compressor in this process that can't count a model's tokens.
    """

    def __init__(
        self,
        make: Callable[[OwnedCompressor | None], Gateway],
        make_compressor: Callable[[], OwnedCompressor] | None = None,
    ) -> None:
        self._make = make
        self._make_compressor = make_compressor
        self._started: concurrent.futures.Future[Gateway] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._flush_s = FLUSH_S
        self._thread = threading.Thread(target=self._run, name="fleetopt-gateway", daemon=True)
        self._thread.start()
        self._gateway = self._started.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def gateway(self) -> Gateway:
        """The gateway in the thread, for its properties: `is_stale`, `recommendation`, counts."""
        return self._gateway

    def route(
        self,
        prompt_tokens: int,
        max_completion_tokens: int | None = None,
        category: str | None = None,
    ) -> Route:
        """As `Gateway.route`."""
        return self._gateway.route(prompt_tokens, max_completion_tokens, category)

    def route_bytes(
        self,
        prompt_bytes: int,
        max_completion_tokens: int | None = None,
        category: str | None = None,
    ) -> Route:
        """As `Gateway.route_bytes`."""
        return self._gateway.route_bytes(prompt_bytes, max_completion_tokens, category)

    def compress(
        self,
        prompt: Prompt,
        max_completion_tokens: int | None = None,
        *,
        model: str,
        deadline_s: float,
        **details: Any,
    ) -> Answer:
        """As `Gateway.compress`, waiting for it; at the deadline the prompt goes as it is."""
        loop = self._loop
        if loop is None or not self._thread.is_alive():
            return Answer(Pool.LONG, prompt, GatewayReason.NO_COMPRESSOR, "the gateway is closed")
        answer = asyncio.run_coroutine_threadsafe(
            self._gateway.compress(
                prompt, max_completion_tokens, model=model, deadline_s=deadline_s, **details
            ),
            loop,
        )
        try:
            return answer.result(deadline_s + GRACE_S)
        except (TimeoutError, concurrent.futures.CancelledError):
            answer.cancel()
            return Answer(Pool.LONG, prompt, Reason.DEADLINE, "it was not answered in time")

    def log(self, record: RequestLog) -> None:
        """As `Gateway.log`."""
        self._gateway.log(record)

    def close(self, flush_s: float = FLUSH_S) -> None:
        """As `Gateway.close`; the compressor is stopped, too."""
        loop, end = self._loop, self._end
        self._flush_s = flush_s
        if loop is not None and end is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(end.set)
            self._thread.join(flush_s + STOP_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            compressor: OwnedCompressor | None = None
            if self._make_compressor is not None:
                compressor = await stack.enter_async_context(self._make_compressor())
            gateway = self._make(compressor)
            gateway.start()
            self._started.set_result(gateway)
            await self._end.wait()
            self._loop = None
            await gateway.close(self._flush_s)
