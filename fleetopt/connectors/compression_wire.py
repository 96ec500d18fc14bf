"""Prompts to be compressed and what became of them, on the wire between gateways and workers.

Owns the fields, their limits and the headers. Values are MessagePack; JSON is read too, and
answered in JSON. Knows no broker and nothing of how prompts are compressed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from fleetopt.compressor.outcome import Compressed, Reason, Stage, Unchanged
from fleetopt.connectors.codec import NOT_DECODABLE
from fleetopt.connectors.rows import MAX_DETAIL
from fleetopt.connectors.wire import FleetName, Rejected, Rejection, Tokens
from fleetopt.errors import DecodeError, InputError

COMPRESSION_VERSION: Final = 1
MAX_REQUEST_ID: Final = 256
JSON_MARK: Final = b"{"

REPLY_TOPIC: Final = "reply-topic"
REPLY_PARTITION: Final = "reply-partition"
DEADLINE: Final = "deadline"
TRACEPARENT: Final = "traceparent"

RequestId = Annotated[str, Meta(min_length=1, max_length=MAX_REQUEST_ID)]
Share = Annotated[float, Meta(ge=0, le=1)]
Headers = Sequence[tuple[str, bytes]]

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION: Final = re.compile(r"[0-9]{1,9}")
_CAPPED_TOKENS: Final = 2**31


class WireOptions(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a caller may set about one compression; what is absent is the worker's default.

    An option that a worker doesn't know is refused: it says what may be touched.
    """

    keep_cached_prefix: bool | None = None
    min_kept_share: Share | None = None
    question_tokens: Tokens | None = None
    min_prose_tokens: Tokens | None = None
    compress_tool_results: bool | None = None
    weights: Literal["default", "paper"] | None = None


class CompressionRequest(Struct, frozen=True, omit_defaults=True):
    """One prompt to be fitted into a budget."""

    v: int
    request_id: RequestId
    fleet: FleetName
    model: Annotated[str, Meta(min_length=1, max_length=300)]
    prompt: str | list[dict[str, Any]]
    """A text, or chat messages."""
    budget_tokens: Annotated[int, Meta(ge=-_CAPPED_TOKENS, le=_CAPPED_TOKENS)]
    """Most tokens that the engine may count for the prompt, chat template included."""
    category: Literal["prose", "rag", "code", "tool", "chat", "other"] | None = None
    cached_prompt_tokens: Tokens = 0
    options: WireOptions = WireOptions()


class CompressionReply(Struct, frozen=True, omit_defaults=True):
    """What became of it; an unchanged prompt is not sent back."""

    v: int
    request_id: str
    outcome: Literal["compressed", "unchanged"]
    reason: str | None = None
    """Why it is unchanged; newer workers may know more reasons than the reader."""
    detail: str | None = None
    prompt: str | list[dict[str, Any]] | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    stage_s: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """Where and until when an answer is waited for."""

    topic: str
    #: None: wherever the key's hash says.
    partition: int | None = None
    #: Epoch seconds; None where the sender names none.
    deadline_s: float | None = None
    #: Passed back untouched.
    traceparent: bytes | None = None


_Message = CompressionRequest | CompressionReply
_encode_json: Final[Callable[[_Message], bytes]] = msgspec.json.Encoder().encode
_encode_msgpack: Final[Callable[[_Message], bytes]] = msgspec.msgpack.Encoder().encode
_json_request: Final = msgspec.json.Decoder(CompressionRequest)
_msgpack_request: Final = msgspec.msgpack.Decoder(CompressionRequest)
_json_reply: Final = msgspec.json.Decoder(CompressionReply)
_msgpack_reply: Final = msgspec.msgpack.Decoder(CompressionReply)


def is_json(value: bytes) -> bool:
    """Say whether a value is meant as JSON, and else as MessagePack."""
    return value.lstrip()[:1] == JSON_MARK


def encode_request(request: CompressionRequest, *, as_json: bool = False) -> bytes:
    """Encode a request. Raises InputError for a prompt that can't be: a lone surrogate in it."""
    return _encoded(request, as_json)


def encode_reply(reply: CompressionReply, *, as_json: bool = False) -> bytes:
    """Encode a reply. Raises InputError for a prompt that can't be encoded."""
    return _encoded(reply, as_json)


def decode_request(value: bytes | None) -> CompressionRequest | Rejected:
    """Decode a request; never raises for what the bytes hold."""
    if not value:
        return Rejected(Rejection.EMPTY, "the message has no value", b"")
    try:
        decoder = _json_request if is_json(value) else _msgpack_request
        request = decoder.decode(value)
    except NOT_DECODABLE as error:
        invalid = isinstance(error, msgspec.ValidationError)
        reason = Rejection.INVALID if invalid else Rejection.MALFORMED
        detail = str(error)[:MAX_DETAIL] or type(error).__name__
        return Rejected(reason, detail, value)
    except (TypeError, ValueError) as error:  # MessagePack's maps may have keys that Python's can't
        return Rejected(Rejection.MALFORMED, str(error)[:MAX_DETAIL], value)
    if request.v != COMPRESSION_VERSION:
        detail = f"version {request.v}, this worker reads {COMPRESSION_VERSION}: update FleetOpt"
        return Rejected(Rejection.UNKNOWN_VERSION, detail, value)
    return request


def decode_reply(value: bytes | None) -> CompressionReply:
    """Decode a reply. Raises DecodeError for what is none."""
    if not value:
        raise DecodeError(Rejection.EMPTY, "the message has no value")
    try:
        reply = (_json_reply if is_json(value) else _msgpack_reply).decode(value)
    except NOT_DECODABLE as error:
        raise DecodeError(Rejection.MALFORMED, str(error)[:MAX_DETAIL]) from error
    except (TypeError, ValueError) as error:
        raise DecodeError(Rejection.MALFORMED, str(error)[:MAX_DETAIL]) from error
    if reply.v != COMPRESSION_VERSION:
        raise DecodeError(
            Rejection.UNKNOWN_VERSION, f"version {reply.v}, not {COMPRESSION_VERSION}"
        )
    if reply.outcome == "compressed" and (reply.prompt is None or reply.tokens_after is None):
        raise DecodeError(Rejection.INVALID, "compressed, but without prompt or tokens_after")
    return reply


def reply_of(request_id: str, outcome: Compressed | Unchanged) -> CompressionReply:
    """Return the reply that says what became of a request."""
    stage_s = {stage.value: spent_s for stage, spent_s in outcome.stage_s.items()}
    if isinstance(outcome, Unchanged):
        return CompressionReply(
            v=COMPRESSION_VERSION,
            request_id=request_id,
            outcome="unchanged",
            reason=outcome.reason.value,
            detail=outcome.detail[:MAX_DETAIL],
            tokens_before=outcome.tokens_before,
            stage_s=stage_s,
        )
    return CompressionReply(
        v=COMPRESSION_VERSION,
        request_id=request_id,
        outcome="compressed",
        prompt=outcome.prompt,
        tokens_before=outcome.tokens_before,
        tokens_after=outcome.tokens_after,
        stage_s=stage_s,
    )


def outcome_of(reply: CompressionReply) -> Compressed | Unchanged:
    """Return what a decoded reply says; a reason that is not known here is `failed`."""
    known = set(Stage)
    stage_s = {Stage(name): spent_s for name, spent_s in reply.stage_s.items() if name in known}
    if reply.prompt is not None and reply.tokens_after is not None:
        return Compressed(
            prompt=reply.prompt,
            tokens_before=reply.tokens_before or reply.tokens_after,
            tokens_after=reply.tokens_after,
            stage_s=stage_s,
        )
    detail = reply.detail or ""
    try:
        reason = Reason(reply.reason or "")
    except ValueError:
        reason, detail = Reason.FAILED, f"{reply.reason}: {detail}"
    return Unchanged(reason, detail, reply.tokens_before, stage_s)


def request_headers(reply_to: ReplyTo) -> list[tuple[str, bytes]]:
    """Return the headers of a request."""
    headers = [(REPLY_TOPIC, reply_to.topic.encode())]
    if reply_to.partition is not None:
        headers.append((REPLY_PARTITION, str(reply_to.partition).encode()))
    if reply_to.deadline_s is not None:
        headers.append((DEADLINE, f"{reply_to.deadline_s:.6f}".encode()))
    return headers + reply_headers(reply_to)


def reply_headers(reply_to: ReplyTo) -> list[tuple[str, bytes]]:
    """Return the headers of a reply."""
    return [] if reply_to.traceparent is None else [(TRACEPARENT, reply_to.traceparent)]


def reply_to(headers: Headers) -> ReplyTo:
    """Read a request's headers; the last of a name counts.

    Raises
    ------
    DecodeError
        Where there is nobody to answer, or a header is not what it must be.
    """
    found: Mapping[str, bytes] = dict(headers)
    topic = _ascii(found, REPLY_TOPIC)
    if topic is None or not _TOPIC.fullmatch(topic):
        raise DecodeError(
            Rejection.INVALID, f"header {REPLY_TOPIC} is {topic!r}; expected a topic's name"
        )
    partition = _ascii(found, REPLY_PARTITION)
    if partition is not None and not _PARTITION.fullmatch(partition):
        raise DecodeError(
            Rejection.INVALID, f"header {REPLY_PARTITION} is {partition!r}; expected digits"
        )
    return ReplyTo(
        topic,
        None if partition is None else int(partition),
        _deadline_s(_ascii(found, DEADLINE)),
        found.get(TRACEPARENT),
    )


def _encoded(message: _Message, as_json: bool) -> bytes:
    try:
        return (_encode_json if as_json else _encode_msgpack)(message)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"the prompt can't be written to the wire: {error}") from error


def _ascii(headers: Mapping[str, bytes], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("ascii", "backslashreplace")[:MAX_DETAIL]


def _deadline_s(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        deadline_s = float(value)
    except ValueError:
        deadline_s = math.nan
    if not math.isfinite(deadline_s):
        raise DecodeError(
            Rejection.INVALID, f"header {DEADLINE} is {value!r}; expected seconds since 1970"
        )
    return deadline_s
