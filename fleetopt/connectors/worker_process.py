"""A compression process as its pool sees it: started, asked, and ended, without blocking the loop.

The two sides speak over a socket pair. Its end tells either side that the other one is gone,
however it went.
"""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import socket
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, Final, Self, cast

from fleetopt.connectors import compression_process
from fleetopt.connectors.compression_process import LENGTH, Setup, serve
from fleetopt.errors import ConfigError, ServiceError

START_LIMIT_S: Final = 60.0
END_LIMIT_S: Final = 5.0


class ProcessEndedError(Exception):
    """The process ended before it answered."""


class _Frames(asyncio.Protocol):
    """Frames of the socket's other side, one awaited at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended: Callable[[], None] | None = None
        self.has_ended = False
        self._data = bytearray()
        self._awaited: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < LENGTH.size:
            return
        size = LENGTH.size + LENGTH.unpack_from(self._data)[0]
        if len(self._data) >= size:
            frame = bytes(self._data[LENGTH.size : size])
            del self._data[:size]
            if self._awaited is not None and not self._awaited.done():
                self._awaited.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(ProcessEndedError())
        if self.ended is not None:
            self.ended()

    async def next(self) -> bytes:
        if self.has_ended:
            raise ProcessEndedError
        self._awaited = asyncio.get_running_loop().create_future()
        return await self._awaited


class WorkerProcess:
    """One process with its socket; made by `start`."""

    def __init__(self, process: ForkServerProcess, frames: _Frames) -> None:
        self._process = process
        self._frames = frames
        # Before multiprocessing's own, which waits for every child to end.
        atexit.register(self.kill)

    @classmethod
    async def start(cls, setup: Setup) -> Self:
        """Start a process and wait until it is warm.

        Raises ConfigError for what it says is wrong with its setup, ServiceError where it ends or
        says nothing.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = _context().Process(
                target=serve, args=(theirs, setup), name="fleetopt-compressor", daemon=True
            )
            try:
                await asyncio.to_thread(process.start)
            except BaseException:
                ours.close()
                raise
        _, frames = await asyncio.get_running_loop().create_unix_connection(_Frames, sock=ours)
        started = cls(process, frames)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                problem = await frames.next()
        except (ProcessEndedError, TimeoutError) as error:
            raise ServiceError(
                f"a compression process did not start (exit code {await started.end()}): see what "
                "it wrote to standard error"
            ) from error
        except BaseException:
            await asyncio.shield(started.end())
            raise
        if problem:
            await started.end()
            raise ConfigError(problem.decode())
        return started

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether nobody is at the other side of the socket any more."""
        return self._frames.has_ended

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call this when the process ends, whether it was asked something or not."""
        self._frames.ended = call

    async def ask(self, frame: bytes, limit_s: float) -> bytes:
        """Return the answer to a frame.

        Raises ProcessEndedError where there will be none, TimeoutError where it is not there yet.
        """
        transport = self._frames.transport
        if transport is None or self.has_ended:
            raise ProcessEndedError
        transport.write(LENGTH.pack(len(frame)) + frame)
        async with asyncio.timeout(limit_s):
            return await self._frames.next()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    async def end(self) -> int | None:
        """Let it end, or kill it, and return its exit code."""
        if self._frames.transport is not None:
            self._frames.transport.close()
        await asyncio.to_thread(self._process.join, END_LIMIT_S)
        if self._process.is_alive():
            self._process.kill()
            await asyncio.to_thread(self._process.join)
        atexit.unregister(self.kill)
        exit_code = self._process.exitcode
        self._process.close()
        return exit_code


def _context() -> ForkServerContext:
    """Return where processes come from: a server that has loaded the libraries."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([compression_process.__name__])
    return context  # type: ignore[no-any-return]
