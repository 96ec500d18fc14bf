"""Request logs on the wire: the two schemas, what a refusal says, and columns → bytes.

Owns the field names, their limits and the closed set of reasons; `decode` reads messages with
them. Knows no broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from fleetopt.connectors.columns import MAX_ARRIVAL_S, MAX_BYTES, MAX_TOKENS, MIN_ARRIVAL_S
from fleetopt.planner.bytes_per_token import UNKNOWN_CATEGORY
from fleetopt.planner.compression_outcomes import CompressionOutcome
from fleetopt.planner.moments import Compressibility

COLUMNS_VERSION: Final = 1

FleetName = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=r"^[^\s{}\x00-\x1f\x7f-\x9f]+\Z")
]
"""A fleet's name: no white space or braces, since it stands inside Redis hash tags."""

SourceName = Annotated[str, Meta(max_length=200)]
Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
EpochSeconds = Annotated[float, Meta(gt=MIN_ARRIVAL_S, lt=MAX_ARRIVAL_S)]
"""The open interval also refuses NaN, which MessagePack can carry."""
Seconds = Annotated[float, Meta(ge=0, lt=1e9)]
ClassCode = Annotated[int, Meta(ge=0, le=int(max(Compressibility)))]
CategoryCode = Annotated[int, Meta(ge=0, le=UNKNOWN_CATEGORY)]
Bytes = Annotated[int, Meta(ge=0, le=MAX_BYTES)]
PoolCode = Annotated[int, Meta(ge=0, le=1)]
OutcomeCode = Annotated[int, Meta(ge=0, le=int(max(CompressionOutcome)))]
Flag = Annotated[int, Meta(ge=0, le=1)]
Sequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]


CompressionLog = Literal[
    "compressed",
    "fits",
    "no_budget",
    "too_little_prose",
    "keeps_too_little",
    "content",
    "prefix_cached",
    "no_token_counter",
    "counter_failed",
    "invalid_prompt",
    "too_large",
    "over_budget",
    "deadline",
    "overloaded",
    "worker_failed",
    "failed",
]
"""What became of a compression: `compressed`, or the compressor's reason for leaving it."""


class Rejection(StrEnum):
    """Why a message or a row of it was refused (closed set)."""

    EMPTY = "empty"
    MALFORMED = "malformed"
    INVALID = "invalid"
    OUT_OF_RANGE = "out_of_range"
    FUTURE_ARRIVAL = "future_arrival"
    UNKNOWN_VERSION = "unknown_version"
    TOO_MANY_FLEETS = "too_many_fleets"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A refused message or rows of one, with what the dead letter says."""

    reason: Rejection
    detail: str
    value: bytes
    """What was refused, in the format it came in, so that it can be sent again once mended."""
    rows: int = 1
    """Rows in it; 1 for a message whose rows can't be told."""


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
    prompt_bytes: Bytes | None = None
    compression: CompressionLog | None = None
    category: Literal["prose", "rag", "code", "tool", "chat", "other"] | None = None
    pool: Literal["short", "long"] | None = None
    ttft_s: Seconds | None = None
    e2e_s: Seconds | None = None
    status: Literal["ok", "error", "rejected"] | None = None


class RequestBatch(Struct, frozen=True, gc=False, omit_defaults=True):
    """Requests of one fleet, a column a field: what our own producers send.

    `src` and `seq` let a worker drop a batch that its producer sent twice: `seq` grows by
    source and partition. With no rows and `until_s`, it is a heartbeat: the source has reported
    every request that arrived before `until_s`, so that silence means idle, not unknown. A
    gateway promises no more than the arrival of its oldest request in flight.
    """

    v: int
    fleet: FleetName
    ts: list[EpochSeconds] = []  # arrival
    p: list[Tokens] = []  # prompt tokens, before compression where `q` is absent
    o: list[Tokens] = []  # completion tokens
    c: list[ClassCode] | None = None  # Compressibility by row
    q: list[Tokens] | None = None  # prompt tokens before compression
    s: list[Flag] | None = None  # 1 where the tokens are unknown (failed or rejected)
    h: list[Tokens | None] | None = None  # of `p`, in the prefix cache; None where unknown
    b: list[Bytes | None] | None = None  # UTF-8 bytes of the prompt before compression
    k: list[CategoryCode] | None = None  # category by row
    r: list[OutcomeCode | None] | None = None  # of a compression; None where none was tried
    t: list[Seconds | None] | None = None  # time to first token
    w: list[PoolCode | None] | None = None  # 0 where the short pool served it, 1 where the long
    src: SourceName = ""
    seq: Sequence = 0
    until_s: EpochSeconds | None = None


_batch_encoder = msgspec.msgpack.Encoder()


def encode_batch(batch: RequestBatch) -> bytes:
    """Encode a columnar batch as MessagePack."""
    return _batch_encoder.encode(batch)
