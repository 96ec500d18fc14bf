"""One Kafka message's bytes → records, batches and what of it was refused.

A message is JSON or MessagePack and holds one record, a columnar batch, or an array of these;
or it is JSON Lines of any of them. Nothing that the bytes hold makes it raise, and one bad row
never takes its neighbours with it. What is refused comes back in as many pieces as there are
reasons, so that a megabyte of rubbish is one dead letter and not a hundred thousand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Raw

from fleetopt.connectors.codec import JSON, MSGPACK, NOT_DECODABLE, Codec, LooseBatch
from fleetopt.connectors.columns import RequestColumns
from fleetopt.connectors.rows import (
    MAX_DETAIL,
    columns_of_batch,
    judge,
    lengths,
    more,
    reason_of,
)
from fleetopt.connectors.wire import COLUMNS_VERSION, Rejected, Rejection, RequestBatch, RequestLog

_OBJECT, _ARRAY = ord("{"), ord("[")
_CLOSERS: Final = {_OBJECT: b"}", _ARRAY: b"]"}
_SPACE: Final = frozenset(b" \t\r\n\v\f")
_UTF8_BOM: Final = b"\xef\xbb\xbf"
_MARK_WITHIN: Final = 64
"""Our own batches have their version within so many first bytes."""


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


def decode_message(value: bytes | None) -> Decoded:
    """Decode one Kafka message; never raises for what the bytes hold."""
    message = Decoded()
    if value and (value[0] in _SPACE or value.startswith(_UTF8_BOM)):
        value = value.removeprefix(_UTF8_BOM).lstrip()
    if not value:
        message.rejected.append(Rejected(Rejection.EMPTY, "the message has no value", b""))
        return message
    first = value[0]
    if _is_lines(value):
        _decode_lines(value, message)
    elif first in _CLOSERS:
        _decode_json(value, message)
    elif 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF:  # MessagePack's maps and arrays
        _decode_strict(value, MSGPACK, message)
    elif not _decode_damaged_lines(value, message):
        detail = f"neither JSON nor MessagePack: the first byte is 0x{first:02x}"
        message.rejected.append(Rejected(Rejection.MALFORMED, detail, value))
    return message


def _is_lines(value: bytes) -> bool:
    """Say whether the first line is a document of its own, and another one seems to follow."""
    end = value.find(b"\n")
    closer = _CLOSERS.get(value[0])
    if end < 0 or closer is None or not value[:end].rstrip().endswith(closer):
        return False
    return value[end : end + _MARK_WITHIN].lstrip()[:1] in (b"{", b"[")


def _decode_lines(value: bytes, message: Decoded) -> None:
    parts = Decoded(message.records, message.batches)
    for line in value.split(b"\n"):
        try:
            message.records.append(JSON.record(line))
        except NOT_DECODABLE:
            stripped = line.strip()
            if stripped:
                _decode_json(stripped, parts)
    message.rejected += _grouped(parts.rejected, b"\n".join)


def _decode_damaged_lines(value: bytes, message: Decoded) -> bool:
    """Decode JSON Lines whose beginning is damaged; False where no line looks whole."""
    if b"\n" not in value or not any(
        line.startswith(b"{") and line.endswith(b"}")
        for line in (line.strip() for line in value.split(b"\n"))
    ):
        return False
    _decode_lines(value, message)
    return True


def _decode_json(value: bytes, message: Decoded) -> None:
    try:
        _decode_document(value, JSON, message)
    except NOT_DECODABLE as error:
        is_malformed = reason_of(error) is Rejection.MALFORMED
        if is_malformed and _decode_damaged_lines(value, message):
            return
        strict = _without_nan(value) if is_malformed else None
        if strict is None:
            message.rejected.append(_refused(error, value))
        else:
            _decode_strict(strict, JSON, message)


def _decode_strict(value: bytes, codec: Codec, message: Decoded) -> None:
    try:
        _decode_document(value, codec, message)
    except NOT_DECODABLE as error:
        message.rejected.append(_refused(error, value))


def _decode_document(value: bytes, codec: Codec, message: Decoded) -> None:
    """Decode an object or an array of objects; raises before anything of it is accepted."""
    first = value[0]
    is_array = first == _ARRAY if codec is JSON else 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)
    if not is_array:
        _decode_object(value, codec, message)
        return
    parts = Decoded(message.records, message.batches)
    for element in codec.elements(value):
        try:
            message.records.append(codec.record(element))
        except NOT_DECODABLE as error:
            try:
                _decode_other(bytes(element), error, codec, parts)
            except NOT_DECODABLE as refusal:
                parts.rejected.append(_refused(refusal, bytes(element)))
    message.rejected += _grouped(parts.rejected, codec.joined)


def _decode_object(value: bytes, codec: Codec, message: Decoded) -> None:
    if value.find(codec.batch_mark, 0, _MARK_WITHIN) >= 0:
        batch = _whole_batch(value, codec)
        if batch is not None:
            columns = columns_of_batch(batch)
            message.batches.append(Batch(batch.fleet, columns, batch.src, batch.seq, batch.until_s))
            return
    try:
        message.records.append(codec.record(value))
    except msgspec.ValidationError as error:
        _decode_other(value, error, codec, message)


def _whole_batch(value: bytes, codec: Codec) -> RequestBatch | None:
    """Return the batch if it surely is one and nothing is wrong with it."""
    try:
        batch = codec.batch(value)
    except msgspec.ValidationError:
        return None
    says_something = bool(batch.ts) or batch.until_s is not None
    is_whole = batch.v == COLUMNS_VERSION and len(lengths(batch)) == 1
    return batch if says_something and is_whole else None


def _decode_other(value: bytes, error: Exception, codec: Codec, message: Decoded) -> None:
    """Decode what is no valid record: a batch, or raise the record's `error`."""
    try:
        envelope = codec.envelope(value)
    except NOT_DECODABLE:
        raise error from None
    if not bytes(envelope.v):
        raise error
    version = codec.version(envelope.v)
    if version != COLUMNS_VERSION:
        detail = f"batch version {version}, this worker reads {COLUMNS_VERSION}: update FleetOpt"
        message.rejected.append(Rejected(Rejection.UNKNOWN_VERSION, detail[:MAX_DETAIL], value))
    elif bytes(envelope.ts) or bytes(envelope.until_s):
        _decode_loose(value, codec.loose(value), codec, message)
    else:
        raise error


def _decode_loose(value: bytes, batch: LooseBatch, codec: Codec, message: Decoded) -> None:
    found = lengths(batch)
    if len(found) > 1:
        detail = f"the batch's columns differ in length: {found}"
        message.rejected.append(Rejected(Rejection.INVALID, detail, value))
        return
    columns, refused = judge(batch, codec)
    message.batches.append(Batch(batch.fleet, columns, batch.src, batch.seq, batch.until_s))
    message.rejected += refused


def _refused(error: Exception, value: bytes) -> Rejected:
    return Rejected(reason_of(error), str(error)[:MAX_DETAIL] or type(error).__name__, value)


def _grouped(
    rejected: list[Rejected], join: Callable[[Iterable[bytes]], bytes]
) -> Iterator[Rejected]:
    """Put what was refused for the same reason into one piece."""
    by_reason: dict[Rejection, list[Rejected]] = {}
    for refusal in rejected:
        by_reason.setdefault(refusal.reason, []).append(refusal)
    for reason, group in by_reason.items():
        if len(group) == 1:
            yield group[0]
        else:
            rows = sum(refusal.rows for refusal in group)
            value = join([refusal.value for refusal in group])
            yield Rejected(reason, more(group[0].detail, rows), value, rows)


def _without_nan(value: bytes) -> bytes | None:
    """Return JSON that only Python's NaN or Infinity made malformed, with these as strings.

    Such a cell is refused then, and not the rows beside it.
    """
    if b"NaN" not in value and b"Infinity" not in value:
        return None

    def as_written(number: str) -> Raw:
        return Raw(number.encode())

    try:
        loaded = json.loads(value, parse_constant=str, parse_int=as_written, parse_float=as_written)
        return msgspec.json.encode(loaded)
    except (ValueError, RecursionError):
        return None
