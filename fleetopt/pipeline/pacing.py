"""When each request of a trace is sent, and how often. Pure: the time is an argument.

A trace at m times its rate is what m such services side by side would see: every request is sent
⌊m⌋ or ⌊m⌋ + 1 times, so the length mix stays, and each copy of the traffic is shifted within its
minute, so that the copies' bursts do not coincide while the minute's rate does not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError

BLOCK_S: Final = 60.0
"""Copies are shifted within blocks of this length; slower changes of the rate stay in step."""

_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
"""Multiples of it, modulo 1, are spread as evenly as can be, however many there are."""

_EXACT: Final = 1e-9
"""Keeps a product such as 3 · 0.1 / 0.1 from falling just short of a whole number."""

MAX_SPEED = "max"


def parse_speed(text: str) -> float:
    """Return a speed-up: "1", "10", "2.5x", or "max" (infinite)."""
    if text == MAX_SPEED:
        return math.inf
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = math.nan
    if not (math.isfinite(speed) and speed > 0):
        raise InputError(f"speed {text!r}; expected a number above 0, such as 1 or 10, or max")
    return speed


@dataclass(frozen=True, slots=True)
class Pacer:
    """Maps recorded arrivals to send times: `speed` times as fast as recorded, from a start."""

    first_arrival_s: float
    started_at_s: float
    speed: float

    def due_s(self, arrival_s: float) -> float:
        """Return when to send a request; at infinite speed, at once."""
        return self.started_at_s + (arrival_s - self.first_arrival_s) / self.speed

    def due_count(self, records: list[RequestLog], start: int, now_s: float) -> int:
        """Return how many of `records[start:]`, in order of arrival, are due."""
        low, high = start, len(records)
        while low < high:
            middle = (low + high) // 2
            if self.due_s(records[middle].arrival_s) <= now_s:
                low = middle + 1
            else:
                high = middle
        return low - start


def multiplied(
    chunks: Iterable[list[RequestLog]], multiplier: float, block_s: float = BLOCK_S
) -> Iterator[list[RequestLog]]:
    """Yield the traffic at `multiplier` times its rate, in order of arrival.

    Holds one block of traffic at a time. In all, ⌊rows · multiplier⌋ requests come out; copies
    get the request's id with `#2`, `#3`, …
    """
    if not (math.isfinite(multiplier) and multiplier > 0):
        raise InputError(f"rate multiplier {multiplier}; expected a number above 0, such as 2.5")
    if multiplier == 1:
        yield from chunks
        return
    rows = 0
    for block in _blocks(chunks, block_s):
        yield _copies(block, rows, multiplier)
        rows += len(block)


def _blocks(chunks: Iterable[list[RequestLog]], block_s: float) -> Iterator[list[RequestLog]]:
    block: list[RequestLog] = []
    index = None
    for chunk in chunks:
        for record in chunk:
            found = record.arrival_s // block_s
            if found != index:
                if block:
                    yield block
                block, index = [], found
            block.append(record)
    if block:
        yield block


def _copies(block: list[RequestLog], rows_before: int, multiplier: float) -> list[RequestLog]:
    first_s = block[0].arrival_s
    # One mean gap more than from first to last, so that a shift by a whole turn meets no row.
    span_s = (block[-1].arrival_s - first_s) * len(block) / max(len(block) - 1, 1)
    copies: list[RequestLog] = []
    for at, record in enumerate(block, rows_before):
        before = math.floor(at * multiplier + _EXACT)
        after = math.floor((at + 1) * multiplier + _EXACT)
        copies += (_shifted(record, copy, first_s, span_s) for copy in range(after - before))
    copies.sort(key=lambda record: record.arrival_s)
    return copies


def _shifted(record: RequestLog, copy: int, first_s: float, span_s: float) -> RequestLog:
    if not copy:
        return record
    shift_s = (copy * _GOLDEN) % 1.0 * span_s
    offset_s = record.arrival_s - first_s + shift_s
    if offset_s >= span_s:
        offset_s -= span_s
    return msgspec.structs.replace(
        record, request_id=f"{record.request_id}#{copy + 1}", arrival_s=first_s + offset_s
    )
