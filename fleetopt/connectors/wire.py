"""Request logs on the wire: message bytes → columns and rejected rows, and columns → bytes.

A message is JSON or MessagePack and holds one record, an array of records, JSON Lines, or a
columnar batch. Owns both schemas and every reason for which a row is refused; knows no broker.

One bad row never takes its neighbours with it: rows are judged one by one, and what is refused
comes back with its reason, to be dead-lettered by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from fleetopt.connectors.columns import (
    CATEGORY_COMPRESSIBILITY,
    MAX_ARRIVAL_S,
    MAX_TOKENS,
    MIN_ARRIVAL_S,
    RequestColumns,
)
from fleetopt.planner.workload import Compressibility

COLUMNS_VERSION: Final = 1

FleetName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\s{}\x00-\x1f\x7f]+$")]
"""A fleet's name: no white space or braces, since it stands inside Redis hash tags."""

Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
EpochSeconds = Annotated[float, Meta(gt=MIN_ARRIVAL_S, lt=MAX_ARRIVAL_S)]
Seconds = Annotated[float, Meta(ge=0, lt=1e9)]


class Rejection(StrEnum):
    """Why a message or a row of it was refused (closed set)."""

    EMPTY = "empty"
    MALFORMED = "malformed"
    INVALID = "invalid"
    OUT_OF_RANGE = "out_of_range"
    FUTURE_ARRIVAL = "future_arrival"
    UNKNOWN_VERSION = "unknown_version"
    TOO_MANY_FLEETS = "too_many_fleets"


class RequestLog(Struct, frozen=True, gc=False, omit_defaults=True):
    """One request as its gateway logged it; fields that are absent are unknown."""

    fleet: FleetName
    request_id: str
    arrival_s: EpochSeconds
    prompt_tokens: Tokens
    completion_tokens: Tokens
    original_prompt_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    cached_prompt_tokens: Tokens | None = None
    prompt_bytes: Annotated[int, Meta(ge=0)] | None = None
    category: Literal["prose", "rag", "code", "tool", "chat", "other"] | None = None
    pool: Literal["short", "long"] | None = None
    ttft_s: Seconds | None = None
    e2e_s: Seconds | None = None
    status: Literal["ok", "error", "rejected"] | None = None


class RequestBatch(Struct, frozen=True, gc=False, omit_defaults=True):
    """Requests of one fleet, a column a field: what our own producers send.

    `src` and `seq` let a worker drop a batch that its producer sent twice: `seq` grows by
    source and partition. With no rows and `until_s`, it is a heartbeat: the source has reported
    every request that arrived before `until_s`, so that silence means idle, not unknown.
    """

    v: int
    fleet: FleetName
    ts: list[float] = []  # arrival, epoch seconds
    p: list[int] = []  # prompt tokens, before compression where `q` is absent
    o: list[int] = []  # completion tokens
    c: list[int] | None = None  # Compressibility by row
    q: list[int] | None = None  # prompt tokens before compression
    s: list[int] | None = None  # 1 where the tokens are unknown (failed or rejected)
    src: str = ""
    seq: int = 0
    until_s: EpochSeconds | None = None


class _LooseBatch(Struct, frozen=True, gc=False):
    """A batch with a cell that is no number: its rows are judged one by one."""

    v: int
    fleet: FleetName
    ts: list[Any] = []
    p: list[Any] = []
    o: list[Any] = []
    c: list[Any] | None = None
    q: list[Any] | None = None
    s: list[Any] | None = None
    src: str = ""
    seq: int = 0
    until_s: EpochSeconds | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A refused message or row, with what its dead letter says."""

    reason: Rejection
    detail: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """Accepted rows of one fleet, with the batch's place in its source's sequence."""

    fleet: str
    columns: RequestColumns
    src: str = ""
    seq: int = 0
    until_s: float | None = None


@dataclass(slots=True)
class Decoded:
    """What a message held."""

    records: list[RequestLog] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


_record_json = msgspec.json.Decoder(RequestLog)
_record_msgpack = msgspec.msgpack.Decoder(RequestLog)
_batch_json = msgspec.json.Decoder(RequestBatch)
_batch_msgpack = msgspec.msgpack.Decoder(RequestBatch)
_loose_json = msgspec.json.Decoder(_LooseBatch)
_loose_msgpack = msgspec.msgpack.Decoder(_LooseBatch)
_raws_json = msgspec.json.Decoder(list[msgspec.Raw])
_raws_msgpack = msgspec.msgpack.Decoder(list[msgspec.Raw])
_batch_encoder = msgspec.msgpack.Encoder()

_JSON_OBJECT, _JSON_ARRAY = ord("{"), ord("[")
_JSON_SPACE = b" \t\r\n"
_UTF8_BOM = b"\xef\xbb\xbf"
_MAX_DETAIL = 300


def encode_batch(batch: RequestBatch) -> bytes:
    """Encode a columnar batch as MessagePack."""
    return _batch_encoder.encode(batch)


def decode_message(value: bytes | None) -> Decoded:
    """Decode one Kafka message; never raises for what the bytes hold."""
    decoded = Decoded()
    if not value or value.isspace():
        decoded.rejected.append(Rejected(Rejection.EMPTY, "the message has no value", value or b""))
        return decoded
    first = value[0]
    if first in _JSON_SPACE or value.startswith(_UTF8_BOM):
        value = value.removeprefix(_UTF8_BOM).lstrip()
        first = value[0] if value else 0
    try:
        if first == _JSON_OBJECT:
            _decode_json_object(value, decoded)
        elif first == _JSON_ARRAY:
            _decode_each(_raws_json.decode(value), _record_json.decode, decoded)
        elif _is_msgpack_map(first):
            _decode_object(value, decoded, _MSGPACK)
        elif _is_msgpack_array(first):
            _decode_each(_raws_msgpack.decode(value), _record_msgpack.decode, decoded)
        else:
            detail = f"neither JSON nor MessagePack: the first byte is 0x{first:02x}"
            decoded.rejected.append(Rejected(Rejection.MALFORMED, detail, value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        decoded.rejected.append(_rejected(error, value))
    return decoded


def columns_of(records: list[RequestLog]) -> RequestColumns:
    """Turn records of one fleet into columns."""
    return RequestColumns(
        np.array([record.arrival_s for record in records], dtype=np.float64),
        np.array(
            [
                record.prompt_tokens
                if record.original_prompt_tokens is None
                else record.original_prompt_tokens
                for record in records
            ],
            dtype=np.int64,
        ),
        np.array([record.completion_tokens for record in records], dtype=np.int64),
        np.array([CATEGORY_COMPRESSIBILITY[record.category] for record in records], dtype=np.int8),
        np.array(
            [record.prompt_tokens > 0 and record.status in _MEASURED for record in records],
            dtype=np.bool_,
        ),
    )


_MEASURED: Final = frozenset({None, "ok"})


@dataclass(frozen=True, slots=True)
class _Codec:
    record: Callable[[bytes], RequestLog]
    batch: Callable[[bytes], RequestBatch]
    loose: Callable[[bytes], _LooseBatch]
    batch_marks: tuple[bytes, bytes]


_JSON = _Codec(_record_json.decode, _batch_json.decode, _loose_json.decode, (b'"v"', b'"fleet"'))
_MSGPACK = _Codec(
    _record_msgpack.decode, _batch_msgpack.decode, _loose_msgpack.decode, (b"\xa1v", b"\xa5fleet")
)


def _is_msgpack_map(first: int) -> bool:
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _is_msgpack_array(first: int) -> bool:
    return 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)


def _decode_json_object(value: bytes, decoded: Decoded) -> None:
    lines = value.split(b"\n")
    if len(lines) > 1 and lines[0].rstrip().endswith(b"}"):  # JSON Lines, not one pretty object
        _decode_each([line for line in lines if line.strip()], _record_json.decode, decoded)
    else:
        _decode_object(value, decoded, _JSON)


def _decode_object(value: bytes, decoded: Decoded, codec: _Codec) -> None:
    if codec.batch_marks[0] in value[:64]:
        _decode_batch(value, decoded, codec)
        return
    try:
        decoded.records.append(codec.record(value))
    except msgspec.ValidationError:
        if codec.batch_marks[0] not in value:
            raise
        _decode_batch(value, decoded, codec)  # `v` need not come first


def _decode_each(
    values: Iterable[Any], decode: Callable[[Any], RequestLog], decoded: Decoded
) -> None:
    for value in values:
        try:
            decoded.records.append(decode(value))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            decoded.rejected.append(_rejected(error, bytes(value)))


def _rejected(error: Exception, value: bytes) -> Rejected:
    detail = str(error)[:_MAX_DETAIL] or type(error).__name__
    if not isinstance(error, msgspec.ValidationError):
        return Rejected(Rejection.MALFORMED, detail, value)
    out_of_range = detail.startswith("Expected `") and ("<" in detail or ">" in detail)
    return Rejected(
        Rejection.OUT_OF_RANGE if out_of_range else Rejection.INVALID, detail, value
    )


def _decode_batch(value: bytes, decoded: Decoded, codec: _Codec) -> None:
    batch: RequestBatch | _LooseBatch
    try:
        batch = codec.batch(value)
    except msgspec.ValidationError:
        batch = codec.loose(value)
    if batch.v != COLUMNS_VERSION:
        detail = f"batch version {batch.v}, this worker reads {COLUMNS_VERSION}: update FleetOpt"
        decoded.rejected.append(Rejected(Rejection.UNKNOWN_VERSION, detail, value))
        return
    columns = [batch.ts, batch.p, batch.o, batch.c, batch.q, batch.s]
    lengths = {len(column) for column in columns if column is not None}
    if len(lengths) > 1:
        detail = f"the batch's columns differ in length: {sorted(lengths)}"
        decoded.rejected.append(Rejected(Rejection.INVALID, detail, value))
        return
    accepted = _vectorised(batch) if isinstance(batch, RequestBatch) else None
    if accepted is None:
        accepted = _row_by_row(batch, decoded)
    decoded.batches.append(Batch(batch.fleet, accepted, batch.src, batch.seq, batch.until_s))


def _vectorised(batch: RequestBatch) -> RequestColumns | None:
    """Return the batch's columns, or None where a row needs a closer look."""
    rows = len(batch.ts)
    try:
        arrival_s = np.array(batch.ts, dtype=np.float64)
        sent_tokens = np.array(batch.p, dtype=np.int64)
        completion_tokens = np.array(batch.o, dtype=np.int64)
        prompt_tokens = sent_tokens if batch.q is None else np.array(batch.q, dtype=np.int64)
        classes = (
            np.full(rows, Compressibility.UNKNOWN, dtype=np.int8)
            if batch.c is None
            else np.array(batch.c, dtype=np.int8)
        )
        unknown = (
            np.zeros(rows, dtype=np.bool_) if batch.s is None else np.array(batch.s, dtype=np.bool_)
        )
    except (OverflowError, ValueError):
        return None
    if rows and not (
        # Written so that a NaN fails it.
        arrival_s.min() > MIN_ARRIVAL_S
        and arrival_s.max() < MAX_ARRIVAL_S
        and min(sent_tokens.min(), completion_tokens.min(), prompt_tokens.min()) >= 0
        and max(sent_tokens.max(), completion_tokens.max(), prompt_tokens.max()) <= MAX_TOKENS
        and classes.min() >= 0
        and classes.max() < len(Compressibility)
    ):
        return None
    return RequestColumns(
        arrival_s, prompt_tokens, completion_tokens, classes, (sent_tokens > 0) & ~unknown
    )


def _row_by_row(batch: RequestBatch | _LooseBatch, decoded: Decoded) -> RequestColumns:
    """Return the rows that hold, and note the others as rejected."""
    good: list[tuple[float, int, int, int, bool]] = []
    for row in _rows(batch):
        detail = _problem(row)
        if detail:
            reason = Rejection.INVALID if detail.startswith("not") else Rejection.OUT_OF_RANGE
            shown = {key: repr(cell) for key, cell in row.items()}
            value = msgspec.json.encode({"fleet": batch.fleet, "src": batch.src, **shown})
            decoded.rejected.append(Rejected(reason, detail, value))
        else:
            good.append(
                (
                    float(row["ts"]),
                    row["p"] if row["q"] is None else row["q"],
                    row["o"],
                    Compressibility.UNKNOWN if row["c"] is None else row["c"],
                    row["p"] > 0 and not row["s"],
                )
            )
    arrival_s, prompt_tokens, completion_tokens, classes, measured = zip(*good, strict=True) if (
        good
    ) else ((), (), (), (), ())
    return RequestColumns(
        np.array(arrival_s, dtype=np.float64),
        np.array(prompt_tokens, dtype=np.int64),
        np.array(completion_tokens, dtype=np.int64),
        np.array(classes, dtype=np.int8),
        np.array(measured, dtype=np.bool_),
    )


def _rows(batch: RequestBatch | _LooseBatch) -> Iterator[dict[str, Any]]:
    absent = [None] * len(batch.ts)
    names = ("ts", "p", "o", "c", "q", "s")
    columns = (batch.ts, batch.p, batch.o, batch.c or absent, batch.q or absent, batch.s or absent)
    for cells in zip(*columns, strict=True):
        yield dict(zip(names, cells, strict=True))


def _problem(row: dict[str, Any]) -> str | None:
    arrival_s = row["ts"]
    if isinstance(arrival_s, bool) or not isinstance(arrival_s, int | float):
        return f"not a number: ts = {arrival_s!r}"
    if not math.isfinite(arrival_s) or not MIN_ARRIVAL_S < arrival_s < MAX_ARRIVAL_S:
        return f"ts = {arrival_s!r}: expected epoch seconds"
    for name in ("p", "o", "q"):
        tokens = row[name]
        if tokens is None and name == "q":
            continue
        if isinstance(tokens, bool) or not isinstance(tokens, int):
            return f"not an integer: {name} = {tokens!r}"
        if not 0 <= tokens <= MAX_TOKENS:
            return f"{name} = {tokens}: expected 0 to {MAX_TOKENS} tokens"
    if row["c"] is not None and row["c"] not in tuple(Compressibility):
        return f"c = {row['c']!r}: expected one of {[int(code) for code in Compressibility]}"
    if row["s"] not in (None, 0, 1, False, True):
        return f"s = {row['s']!r}: expected 0 or 1"
    return None
