"""Compression requests and replies survive the wire; whatever else arrives is refused in words."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.compressor.outcome import Compressed, Reason, Stage, Unchanged
from fleetopt.connectors.compression_wire import (
    CompressionReply,
    CompressionRequest,
    ReplyTo,
    WireOptions,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    outcome_of,
    reply_headers,
    reply_of,
    reply_to,
    request_headers,
)
from fleetopt.connectors.wire import Rejected, Rejection
from fleetopt.errors import DecodeError, InputError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PROMPTS = TEXTS | st.lists(st.dictionaries(TEXTS, JSON_VALUES, max_size=4), max_size=4)


def request(**fields: Any) -> CompressionRequest:
    known = {
        "v": 1,
        "request_id": "r-1",
        "fleet": "chat",
        "model": "Qwen/Qwen3-32B",
        "prompt": "Some prose.",
        "budget_tokens": 4000,
    }
    return CompressionRequest(**{**known, **fields})


@given(prompt=PROMPTS, as_json=st.booleans(), budget_tokens=st.integers(-5, 2**31))
def test_a_request_survives(prompt: Any, as_json: bool, budget_tokens: int) -> None:
    sent = request(
        prompt=prompt,
        budget_tokens=budget_tokens,
        category="rag",
        cached_prompt_tokens=17,
        options=WireOptions(min_kept_share=0.7, compress_tool_results=True),
    )
    assert decode_request(encode_request(sent, as_json=as_json)) == sent


@given(prompt=PROMPTS, as_json=st.booleans())
def test_a_reply_survives(prompt: Any, as_json: bool) -> None:
    sent = CompressionReply(
        v=1,
        request_id="r-1",
        outcome="compressed",
        prompt=prompt,
        tokens_before=900,
        tokens_after=600,
        stage_s={"count": 0.001},
    )
    assert decode_reply(encode_reply(sent, as_json=as_json)) == sent


def test_defaults_need_no_bytes() -> None:
    assert set(json.loads(encode_request(request(), as_json=True))) == {
        "v",
        "request_id",
        "fleet",
        "model",
        "prompt",
        "budget_tokens",
    }


@given(value=st.binary(max_size=200))
def test_no_bytes_make_a_decoder_raise_anything_else(value: bytes) -> None:
    assert isinstance(decode_request(value), CompressionRequest | Rejected)
    with contextlib.suppress(DecodeError):
        decode_reply(value)


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        ({"v": 2}, Rejection.UNKNOWN_VERSION, "version 2"),
        ({"request_id": ""}, Rejection.INVALID, "request_id"),
        ({"request_id": "r" * 257}, Rejection.INVALID, "request_id"),
        ({"fleet": "two words"}, Rejection.INVALID, "fleet"),
        ({"model": ""}, Rejection.INVALID, "model"),
        ({"prompt": 7}, Rejection.INVALID, "prompt"),
        ({"prompt": ["text"]}, Rejection.INVALID, "prompt"),
        ({"budget_tokens": 4000.5}, Rejection.INVALID, "budget_tokens"),
        ({"budget_tokens": 2**40}, Rejection.INVALID, "budget_tokens"),
        ({"category": "poem"}, Rejection.INVALID, "category"),
        ({"cached_prompt_tokens": -1}, Rejection.INVALID, "cached_prompt_tokens"),
        ({"options": {"min_kept_share": 2}}, Rejection.INVALID, "options.min_kept_share"),
        ({"options": {"keep_everything": True}}, Rejection.INVALID, "keep_everything"),
    ],
)
@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode])
def test_what_is_wrong_is_named(
    change: dict[str, Any], reason: Rejection, said: str, encode: Any
) -> None:
    value = encode({**msgspec.to_builtins(request()), **change})
    refused = decode_request(value)
    assert isinstance(refused, Rejected)
    assert (refused.reason, refused.value) == (reason, value)
    assert said in refused.detail


@pytest.mark.parametrize(
    "value",
    [
        b"no map",
        b"{",
        b'{"v":1,"prompt":"\\ud800"}',
        b"\x81\x90\x01",  # a map whose key is a list
        b'{"v":1,"prompt":' + b"[" * 10_000,
        b"\x91" * 10_000,
    ],
)
def test_damaged_bytes_are_refused(value: bytes) -> None:
    refused = decode_request(value)
    assert isinstance(refused, Rejected)
    assert refused.detail


@pytest.mark.parametrize("value", [None, b""])
def test_an_empty_message_is_refused(value: bytes | None) -> None:
    refused = decode_request(value)
    assert isinstance(refused, Rejected)
    assert refused.reason is Rejection.EMPTY
    with pytest.raises(DecodeError, match="no value"):
        decode_reply(value)


@pytest.mark.parametrize("prompt", ["lone \ud800", [{"role": "user", "content": "\udfff"}]])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_lone_surrogate_is_the_callers_error(prompt: Any, as_json: bool) -> None:
    with pytest.raises(InputError, match="surrogate"):
        encode_request(request(prompt=prompt), as_json=as_json)


def test_a_compressed_reply_has_its_prompt() -> None:
    reply = CompressionReply(v=1, request_id="r", outcome="compressed", tokens_after=3)
    with pytest.raises(DecodeError, match="without prompt"):
        decode_reply(encode_reply(reply))


def test_a_reply_of_another_version_is_refused() -> None:
    reply = CompressionReply(v=9, request_id="r", outcome="unchanged", reason="fits")
    with pytest.raises(DecodeError, match="version 9"):
        decode_reply(encode_reply(reply))


@pytest.mark.parametrize(
    "address",
    [
        ReplyTo("replies"),
        ReplyTo("replies", 3, 1_760_000_000.25, b"00-4bf92f3577b34da6-00f067aa0ba902b7-01"),
    ],
)
def test_headers_survive(address: ReplyTo) -> None:
    assert reply_to(request_headers(address)) == address


def test_a_reply_carries_the_trace_alone() -> None:
    assert reply_headers(ReplyTo("replies", 1, 2.0)) == []
    assert reply_headers(ReplyTo("replies", traceparent=b"00-aa")) == [("traceparent", b"00-aa")]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "reply-topic is None"),
        ([("reply-topic", b"")], "reply-topic is ''"),
        ([("reply-topic", b"no topic")], "reply-topic is 'no topic'"),
        ([("reply-topic", b"t\xff")], "reply-topic"),
        ([("reply-topic", b"t"), ("reply-partition", b"-1")], "reply-partition is '-1'"),
        ([("reply-topic", b"t"), ("reply-partition", "٣".encode())], "reply-partition"),
        ([("reply-topic", b"t"), ("deadline", b"soon")], "deadline is 'soon'"),
        ([("reply-topic", b"t"), ("deadline", b"nan")], "deadline is 'nan'"),
        ([("reply-topic", b"t"), ("deadline", b"inf")], "deadline is 'inf'"),
    ],
)
def test_bad_headers_are_named(headers: list[tuple[str, bytes]], said: str) -> None:
    with pytest.raises(DecodeError, match="header") as raised:
        reply_to(headers)
    assert said in raised.value.detail


@pytest.mark.parametrize(
    "outcome",
    [
        *(Unchanged(reason, f"because of {reason}", 17) for reason in Reason),
        Unchanged(Reason.FAILED, "before anything was counted"),
        Unchanged(Reason.DEADLINE, "late", 17, {Stage.COUNT: 0.5, Stage.SPLIT: 0.25}),
        Compressed("a text", 17, 11, stage_s=dict.fromkeys(Stage, 0.125)),
        Compressed([{"role": "user", "content": "a chat"}], 17, 11),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_outcome_survives(outcome: Compressed | Unchanged, as_json: bool) -> None:
    reply = decode_reply(encode_reply(reply_of("r-1", outcome), as_json=as_json))
    assert reply.request_id == "r-1"
    assert outcome_of(reply) == outcome


def test_what_a_newer_worker_says_is_kept_in_words() -> None:
    newer = CompressionReply(
        v=1, request_id="r", outcome="unchanged", reason="full_moon", stage_s={"howl": 1.0}
    )
    outcome = outcome_of(newer)
    assert isinstance(outcome, Unchanged)
    assert (outcome.reason, outcome.stage_s) == (Reason.FAILED, {})
    assert "full_moon" in outcome.detail
