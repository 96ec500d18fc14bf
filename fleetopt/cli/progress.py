"""How far a long command is: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINE_EVERY_S: Final = 5.0


@contextmanager
def progress(
    verb: str, expected: Callable[[], int | None], unit: str = "requests"
) -> Iterator[Callable[[int], None]]:
    """Yield what to call with the number done so far."""
    if sys.stderr.isatty():
        with _bar(verb, expected()) as advance:
            yield advance
    else:
        yield _lines(verb, unit)


@contextmanager
def _bar(verb: str, total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from fleetopt.cli.output import console

    with Progress(
        TextColumn(verb),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console(sys.stderr),
        transient=True,
    ) as bar:
        task = bar.add_task(verb, total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(verb: str, unit: str) -> Callable[[int], None]:
    last_s = time.monotonic()

    def advance(done: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= LINE_EVERY_S:
            last_s = now_s
            sys.stderr.write(f"{verb} {done:,} {unit}\n")
            sys.stderr.flush()

    return advance
