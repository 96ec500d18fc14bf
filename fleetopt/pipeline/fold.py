"""Messages of one partition, in order, folded into its windows. Pure.

What can't be used comes back as dead letters; everything else is counted, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from fleetopt.connectors.columns import (
    BYTES_UNKNOWN,
    CACHE_UNKNOWN,
    NOT_TRIED,
    RequestColumns,
    concatenate,
)
from fleetopt.connectors.decode import Batch, decode_message
from fleetopt.connectors.rows import columns_of_records
from fleetopt.connectors.wire import COLUMNS_VERSION, Rejected, Rejection, RequestLog
from fleetopt.pipeline.window import MAX_FLEETS, PartitionWindows


class Message(Protocol):
    """What is needed of a Kafka record."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp(self) -> int: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A refused message or row, and where it stood."""

    offset: int
    rejected: Rejected


class _Pending:
    """A fleet's rows of one fetch, in the order of the log."""

    __slots__ = ("_parts", "_records")

    def __init__(self) -> None:
        self._parts: list[RequestColumns] = []
        self._records: list[RequestLog] = []

    def add_record(self, record: RequestLog) -> None:
        self._records.append(record)

    def add_columns(self, columns: RequestColumns) -> None:
        self._close_records()
        self._parts.append(columns)

    def drain(self) -> RequestColumns | None:
        self._close_records()
        parts, self._parts = self._parts, []
        return concatenate(parts) if parts else None

    def _close_records(self) -> None:
        if self._records:
            self._parts.append(columns_of_records(self._records))
            self._records = []


def fold(
    windows: PartitionWindows,
    messages: Iterable[Message],
    max_future_s: float,
    received_s: float = math.inf,
) -> list[DeadLetter]:
    """Count the messages' requests in `windows` and move its position past the last message.

    Messages before the position are covered already and are passed over. A request may not
    arrive more than `max_future_s` later than its message's timestamp, or than `received_s`, our
    own clock: one clock ahead of the others would close everybody's slices.
    """
    letters: list[DeadLetter] = []
    pending: dict[str, _Pending] = {}

    def reject(offset: int, rejected: Rejected) -> None:
        windows.reject(rejected.reason.value, rejected.rows)
        letters.append(DeadLetter(offset, rejected))

    for message in messages:
        offset = message.offset
        if offset < windows.position:
            continue
        windows.position = offset + 1
        logged_s = message.timestamp / 1e3 if message.timestamp > 0 else math.inf
        latest_s = min(logged_s, received_s) + max_future_s
        decoded = decode_message(message.value)
        for rejected in decoded.rejected:
            reject(offset, rejected)
        for record in decoded.records:
            if record.arrival_s > latest_s:
                reject(offset, _future(record.arrival_s, latest_s, msgspec.json.encode(record)))
                continue
            rows = pending.get(record.fleet)
            if rows is None:
                if windows.fleet(record.fleet) is None:
                    reject(offset, _too_many(record.fleet, msgspec.json.encode(record)))
                    continue
                rows = pending[record.fleet] = _Pending()
            rows.add_record(record)
        for batch in decoded.batches:
            for rejected in _fold_batch(windows, pending, batch, latest_s):
                reject(offset, rejected)
    for fleet, rows in pending.items():
        _drain(windows, fleet, rows)
    return letters


def _fold_batch(
    windows: PartitionWindows, pending: dict[str, _Pending], batch: Batch, latest_s: float
) -> list[Rejected]:
    window = windows.fleet(batch.fleet)
    if window is None:
        value = _as_json(batch.fleet, batch.columns)
        return [_too_many(batch.fleet, value, max(1, len(batch.columns)))]
    if windows.is_repeated(batch.src, batch.seq):
        window.meta.duplicated += len(batch.columns)
        return []
    rejected: list[Rejected] = []
    columns, until_s = batch.columns, batch.until_s
    if len(columns) and columns.arrival_s.max() > latest_s:
        early = columns.arrival_s > latest_s
        ahead = columns.take(early)
        value = _as_json(batch.fleet, ahead)
        rejected = [_future(float(ahead.arrival_s.max()), latest_s, value, len(ahead))]
        columns = columns.take(~early)
    rows = pending.get(batch.fleet)
    if rows is None:
        rows = pending[batch.fleet] = _Pending()
    rows.add_columns(columns)
    if until_s is not None:
        _drain(windows, batch.fleet, rows)
        if until_s > latest_s:
            value = msgspec.json.encode({"fleet": batch.fleet, "until_s": until_s})
            rejected.append(_future(until_s, latest_s, value))
        else:
            window.promise(until_s, batch.src)
    return rejected


def _drain(windows: PartitionWindows, fleet: str, rows: _Pending) -> None:
    columns = rows.drain()
    window = windows.fleet(fleet)
    if columns is not None and window is not None:
        window.update(columns)


def _future(time_s: float, latest_s: float, value: bytes, rows: int = 1) -> Rejected:
    detail = (
        f"{time_s:.3f} is {time_s - latest_s:.3f} s past the latest time accepted with this "
        "message's timestamp: check the sender's clock, or raise kafka.max_future_s"
    )
    return Rejected(Rejection.FUTURE_ARRIVAL, detail, value, rows)


def _too_many(fleet: str, value: bytes, rows: int = 1) -> Rejected:
    detail = f"fleet {fleet!r} is new and its partition has {MAX_FLEETS} fleets already"
    return Rejected(Rejection.TOO_MANY_FLEETS, detail, value, rows)


def _as_json(fleet: str, columns: RequestColumns) -> bytes:
    return msgspec.json.encode(
        {
            "v": COLUMNS_VERSION,
            "fleet": fleet,
            "ts": columns.arrival_s.tolist(),
            "p": columns.prompt_tokens.tolist(),
            "o": columns.completion_tokens.tolist(),
            "c": columns.compressibility.tolist(),
            "s": (~columns.measured).astype(int).tolist(),
            **_cached(columns),
            **_bytes(columns),
            **_outcomes(columns),
        }
    )


def _cached(columns: RequestColumns) -> dict[str, list[int | None]]:
    if columns.cached_tokens is None:
        return {}
    cached = columns.cached_tokens.tolist()
    return {"h": [None if tokens == CACHE_UNKNOWN else tokens for tokens in cached]}


def _bytes(columns: RequestColumns) -> dict[str, list[int | None]]:
    if columns.prompt_bytes is None or columns.category is None:
        return {}
    found = columns.prompt_bytes.tolist()
    sizes = [None if size == BYTES_UNKNOWN else size for size in found]
    return {"b": sizes, "k": columns.category.tolist()}


def _outcomes(columns: RequestColumns) -> dict[str, list[int | None]]:
    if columns.compression is None or columns.sent_prompt_tokens is None:
        return {}
    codes = [None if code == NOT_TRIED else code for code in columns.compression.tolist()]
    sent, before = columns.sent_prompt_tokens.tolist(), columns.prompt_tokens.tolist()
    return {"r": codes, "p": sent, "q": before}
