"""Processes that compress prompts beside the event loop, and the bounded line in front of them.

Every prompt that is submitted is answered by its deadline: compressed, or unchanged with the
reason. A process that dies takes one prompt with it, the one that it had, and is replaced. Knows no
broker.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Self

import msgspec
import structlog

from fleetopt.compressor.outcome import Compressed, Reason, Unchanged
from fleetopt.connectors.compression_process import TIME_LEFT, Answer, Setup
from fleetopt.connectors.compression_wire import CompressionRequest, encode_request, outcome_of
from fleetopt.connectors.worker_process import ProcessEndedError, WorkerProcess
from fleetopt.errors import ConfigError, InputError, ServiceError

log = structlog.get_logger(__name__)

GRACE_S: Final = 1.0
"""For a process to end itself past its limit, before it is killed."""

FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 10.0
_PACE_WEIGHT: Final = 0.1
_PACE_MARGIN: Final = 1.3
"""A prompt that is expected to be done just in time often is not."""

Outcome = Compressed | Unchanged


@dataclass(slots=True)
class _Job:
    request: bytes
    deadline_s: float
    done: asyncio.Future[Outcome]

    def settle(self, outcome: Outcome) -> None:
        if not self.done.done():
            self.done.set_result(outcome)


class CompressionPool:
    """A fixed number of processes; belongs to the event loop that started it.

    Parameters
    ----------
    setup : Setup
        What the processes know of models and defaults.
    workers : int
        Processes.
    queue_limit : int
        Prompts that may wait; one more is answered `overloaded` at once.
    """

    def __init__(self, setup: Setup, *, workers: int = 2, queue_limit: int = 64) -> None:
        if workers < 1 or queue_limit < 0:
            raise ConfigError(
                f"a pool of {workers} workers with room for {queue_limit} prompts; expected at "
                "least 1 worker and room for 0"
            )
        self.replaced = 0
        """Processes that ended without being told to."""
        self._setup = setup
        self._workers = workers
        self._queue_limit = queue_limit
        self._waiting: OrderedDict[int, _Job] = OrderedDict()
        self._waiting_bytes = 0
        self._working: dict[int, _Job] = {}
        self._jobs = 0
        self._turns: deque[asyncio.Future[None]] = deque()
        self._seats: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, WorkerProcess] = {}
        self._is_open = False
        self._is_closing = False
        self._s_per_byte = 0.0

    @property
    def pids(self) -> list[int]:
        """Process ids of those that are up."""
        return [process.pid for process in self._processes.values() if process.pid is not None]

    @property
    def waiting(self) -> int:
        """Prompts that wait for a process."""
        return len(self._waiting)

    @property
    def working(self) -> int:
        """Prompts that a process has."""
        return len(self._working)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the processes and wait until each is warm.

        Raises ConfigError for a model that can't be counted, ServiceError where none starts.
        """
        started = await asyncio.gather(
            *(WorkerProcess.start(self._setup) for _ in range(self._workers)),
            return_exceptions=True,
        )
        processes = [one for one in started if isinstance(one, WorkerProcess)]
        failed = [one for one in started if isinstance(one, BaseException)]
        if failed:
            await asyncio.gather(*(process.end() for process in processes))
            raise failed[0]
        self._is_open = True
        for number, process in enumerate(processes):
            self._processes[number] = process
            self._seats[number] = asyncio.create_task(self._seat(number, process))

    async def submit(
        self,
        request: CompressionRequest,
        deadline_s: float,
        *,
        traceparent: str | None = None,
    ) -> Outcome:
        """Return what becomes of a prompt, at the latest at its deadline.

        Parameters
        ----------
        request : CompressionRequest
            The prompt and its budget.
        deadline_s : float
            On the event loop's clock.
        traceparent : str, optional
            Plays no part: the prompt doesn't leave this process.
        """
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if now_s >= deadline_s:
            return Unchanged(Reason.DEADLINE, "its deadline had passed when it came")
        try:
            encoded = encode_request(request)
        except InputError as error:
            return Unchanged(Reason.INVALID_PROMPT, str(error))
        if refusal := self.refusal(len(encoded), deadline_s - now_s):
            return refusal
        job = _Job(encoded, deadline_s, loop.create_future())
        self._jobs += 1
        number = self._jobs
        self._waiting[number] = job
        self._waiting_bytes += len(encoded)
        late = Unchanged(Reason.DEADLINE, "its deadline passed before it was done")
        timer = loop.call_at(deadline_s, job.settle, late)
        self._wake_one()
        try:
            return await job.done
        finally:
            timer.cancel()
            self._forget(number)

    async def stop(self, drain_s: float = 10.0) -> None:
        """Take no more prompts, wait for those that are here, end the processes.

        What is not done after `drain_s` is answered `overloaded`.
        """
        self._is_closing = True
        jobs = [*self._waiting.values(), *self._working.values()]
        if jobs:
            await asyncio.wait([job.done for job in jobs], timeout=drain_s)
        for job in jobs:
            job.settle(Unchanged(Reason.OVERLOADED, "the compressor is stopping"))
        self._is_open = False
        self._wake_all()
        for number, seat in self._seats.items():
            if number not in self._processes:  # it waits for one to start
                seat.cancel()
        if self._working:
            for process in self._processes.values():
                process.kill()
        if self._seats:
            await asyncio.wait(self._seats.values())
        self._seats.clear()

    def refusal(self, size: int, left_s: float) -> Unchanged | None:
        """Return what a request of so many bytes would be answered, if it would be refused.

        It takes no look at the request, so that an overload costs little.
        """
        if not self._is_open or self._is_closing:
            why = "the compressor is stopping" if self._is_closing else "it has not started"
            return Unchanged(Reason.OVERLOADED, why)
        here = len(self._working) + len(self._waiting)
        if here < self._workers:
            return None
        if here >= self._workers + self._queue_limit:
            return Unchanged(Reason.OVERLOADED, f"{self._queue_limit} prompts wait already")
        ahead_bytes = self._waiting_bytes + sum(len(job.request) for job in self._working.values())
        expected_s = _PACE_MARGIN * self._s_per_byte * (ahead_bytes / self._workers + size)
        if expected_s > left_s:
            return Unchanged(
                Reason.OVERLOADED,
                f"it would be done in {expected_s:.3f} s, and its deadline is in {left_s:.3f} s",
            )
        return None

    def _forget(self, number: int) -> None:
        job = self._waiting.pop(number, None)
        if job is not None:
            self._waiting_bytes -= len(job.request)

    def _wake_one(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._turns:
            self._wake_one()

    async def _seat(self, number: int, process: WorkerProcess) -> None:
        """Keep one process at work, and another in its place when it ends."""
        while True:
            try:
                await self._work(process)
            finally:
                exit_code = await process.end()
                del self._processes[number]
            if not self._is_open:
                return
            self.replaced += 1
            log.warning("a compression process ended and is replaced", exit_code=exit_code)
            process = self._processes[number] = await self._restarted()
            log.info("a compression process took its place", pid=process.pid)

    async def _restarted(self) -> WorkerProcess:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await WorkerProcess.start(self._setup)
            except (ConfigError, ServiceError, OSError) as error:
                log.warning(
                    "a compression process does not start", error=str(error), retry_in_s=pause_s
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _work(self, process: WorkerProcess) -> None:
        """Give a process one prompt after the other until it ends or the pool closes."""
        loop = asyncio.get_running_loop()
        process.when_ended(self._wake_all)
        while self._is_open and not process.has_ended:
            if not self._waiting:
                turn: asyncio.Future[None] = loop.create_future()
                self._turns.append(turn)
                await turn
                continue
            number, job = self._waiting.popitem(last=False)
            self._waiting_bytes -= len(job.request)
            if job.done.done():
                continue
            self._working[number] = job
            try:
                await self._hand_over(process, job)
            finally:
                del self._working[number]

    async def _hand_over(self, process: WorkerProcess, job: _Job) -> None:
        left_s = job.deadline_s - asyncio.get_running_loop().time()
        if self._waiting and left_s < self._s_per_byte * len(job.request):
            job.settle(Unchanged(Reason.DEADLINE, f"{left_s:.3f} s are left: too few to begin"))
            return
        frame = TIME_LEFT.pack(left_s) + job.request
        limit_s = self._setup.limit_s
        try:
            answer = msgspec.msgpack.decode(
                await process.ask(frame, limit_s + GRACE_S), type=Answer
            )
        except ProcessEndedError:
            job.settle(Unchanged(Reason.WORKER_FAILED, "the process that had it ended"))
            return
        except TimeoutError:
            job.settle(Unchanged(Reason.WORKER_FAILED, f"it took longer than {limit_s:g} s"))
            process.kill()
            return
        if answer.traceback is not None:
            log.error("a prompt could not be compressed", traceback=answer.traceback)
        outcome = outcome_of(answer.reply)
        self._learn(answer.took_s / len(job.request), outcome)
        job.settle(outcome)

    def _learn(self, s_per_byte: float, outcome: Outcome) -> None:
        """Follow how long prompts take; one that ran out of time would have taken longer."""
        if isinstance(outcome, Unchanged) and outcome.reason is Reason.DEADLINE:
            s_per_byte = max(s_per_byte, self._s_per_byte)
        self._s_per_byte += _PACE_WEIGHT * (s_per_byte - self._s_per_byte)
