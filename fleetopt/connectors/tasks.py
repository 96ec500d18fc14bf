"""Background tasks, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.2


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended; what they raise is left in them.

    Once is not always enough: a library that waits with a time limit may take the cancellation
    for its own, and the task goes on.
    """
    going = set(tasks)
    while going:
        for task in going:
            task.cancel()
        _, going = await asyncio.wait(going, timeout=CANCEL_AGAIN_S)
