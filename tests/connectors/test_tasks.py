"""Background tasks end, even where a library swallows what should end them."""

from __future__ import annotations

import asyncio

from fleetopt.connectors.tasks import end_tasks


def test_a_cancellation_that_is_swallowed_comes_again() -> None:
    async def deaf(times: int) -> None:
        while True:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                times -= 1
                if times < 0:
                    raise

    async def run() -> list[bool]:
        tasks = [asyncio.create_task(deaf(times)) for times in (0, 1, 2)]
        await asyncio.sleep(0)
        await end_tasks(tasks)
        return [task.cancelled() for task in tasks]

    assert asyncio.run(run()) == [True, True, True]


def test_a_task_that_fails_is_left_to_its_owner() -> None:
    async def fail() -> None:
        raise ValueError("a defect")

    async def run() -> BaseException | None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        await end_tasks([task])
        await end_tasks([])
        return task.exception()

    assert isinstance(asyncio.run(run()), ValueError)
