"""JSON and MessagePack side by side: how each format's bytes are read into the wire's schemas.

Owns the decoders, and nothing of what is done with what they return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from fleetopt.connectors.wire import (
    Bytes,
    CategoryCode,
    ClassCode,
    EpochSeconds,
    Flag,
    FleetName,
    OutcomeCode,
    PoolCode,
    RequestBatch,
    RequestLog,
    Seconds,
    Sequence,
    SourceName,
    Tokens,
)

T = TypeVar("T")

NOT_DECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything that a decoder raises for what the bytes hold."""

CELLS: Final[Mapping[str, Any]] = {
    "ts": EpochSeconds,
    "p": Tokens,
    "o": Tokens,
    "c": ClassCode | None,
    "q": Tokens | None,
    "s": Flag | bool | None,
    "h": Tokens | None,
    "b": Bytes | None,
    "k": CategoryCode | None,
    "r": OutcomeCode | None,
    "t": Seconds | None,
    "w": PoolCode | None,
}
"""What one cell of each column may be when rows are judged one by one."""

_ABSENT: Final = Raw(b"")


class Envelope(Struct, frozen=True, gc=False):
    """The fields that tell a batch from a record; empty where absent."""

    v: Raw = _ABSENT
    ts: Raw = _ABSENT
    until_s: Raw = _ABSENT


class LooseBatch(Struct, frozen=True, gc=False):
    """A batch whose cells are not judged yet."""

    v: int
    fleet: FleetName
    ts: list[Raw] = []
    p: list[Raw] = []
    o: list[Raw] = []
    c: list[Raw] | None = None
    q: list[Raw] | None = None
    s: list[Raw] | None = None
    h: list[Raw] | None = None
    b: list[Raw] | None = None
    k: list[Raw] | None = None
    r: list[Raw] | None = None
    t: list[Raw] | None = None
    w: list[Raw] | None = None
    src: SourceName = ""
    seq: Sequence = 0
    until_s: EpochSeconds | None = None


@dataclass(frozen=True, slots=True)
class Codec:
    """One format's decoders."""

    record: Callable[[bytes | Raw], RequestLog]
    batch: Callable[[bytes | Raw], RequestBatch]
    loose: Callable[[bytes | Raw], LooseBatch]
    envelope: Callable[[bytes | Raw], Envelope]
    version: Callable[[bytes | Raw], int]
    elements: Callable[[bytes | Raw], list[Raw]]
    cells: Mapping[str, Callable[[Raw], Any]]
    encode: Callable[[Any], bytes]
    batch_mark: bytes
    """How the key `v`, which our own batches begin with, looks."""

    def joined(self, values: Iterable[bytes]) -> bytes:
        """Return encoded values as one array."""
        return self.encode([Raw(value) for value in values])


def _json(kind: type[T] | Any) -> Callable[[bytes | Raw], Any]:
    return msgspec.json.Decoder(kind).decode


def _msgpack(kind: type[T] | Any) -> Callable[[bytes | Raw], Any]:
    return msgspec.msgpack.Decoder(kind).decode


def _codec(
    decoder: Callable[[Any], Callable[[bytes | Raw], Any]],
    encode: Callable[[Any], bytes],
    batch_mark: bytes,
) -> Codec:
    return Codec(
        record=decoder(RequestLog),
        batch=decoder(RequestBatch),
        loose=decoder(LooseBatch),
        envelope=decoder(Envelope),
        version=decoder(int),
        elements=decoder(list[Raw]),
        cells={name: decoder(kind) for name, kind in CELLS.items()},
        encode=encode,
        batch_mark=batch_mark,
    )


JSON: Final = _codec(_json, msgspec.json.encode, b'"v"')
MSGPACK: Final = _codec(_msgpack, msgspec.msgpack.encode, b"\xa1v")
