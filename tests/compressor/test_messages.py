"""Which texts of a chat may be cut."""

from __future__ import annotations

from typing import Any

import pytest

from fleetopt.compressor.messages import InvalidPromptError, Text, texts_of, with_texts
from fleetopt.compressor.options import CompressOptions

LONG = "word " * 1_000


def texts(messages: list[Any], **options: Any) -> tuple[list[Text], str | None]:
    found = texts_of(messages, CompressOptions(**options), lambda text: len(text.split()))
    return list(found.texts), found.question


def test_short_last_user_message_is_the_question() -> None:
    messages = [
        {"role": "user", "content": LONG},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because"},
    ]
    assert texts(messages) == ([Text(0, None, LONG)], "Why?")


def test_long_last_user_message_may_be_cut() -> None:
    assert texts([{"role": "user", "content": LONG}]) == ([Text(0, None, LONG)], None)


def test_parts_that_are_not_text_are_left_out() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": LONG}]}]
    assert texts(messages) == ([Text(0, 1, LONG)], None)


def test_tool_results_only_where_the_caller_says_so() -> None:
    messages = [
        {"role": "tool", "tool_call_id": "1", "content": LONG},
        {"role": "user", "content": "Why?"},
    ]
    assert texts(messages) == ([], "Why?")
    assert texts(messages, compress_tool_results=True) == ([Text(0, None, LONG)], "Why?")


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "unheard-of"])
def test_other_roles_stay(role: str) -> None:
    assert texts([{"role": role, "content": LONG}])[0] == []


def test_all_before_the_last_cache_marker_stays() -> None:
    part = {"type": "text", "text": LONG}
    marked = {**part, "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": LONG},
        {"role": "system", "content": LONG, "cache_control": {"type": "ephemeral"}},
        {"role": "user", "content": LONG},
    ]
    assert texts(messages)[0] == [Text(2, None, LONG)]
    messages = [{"role": "user", "content": [part, marked, part]}]
    assert texts(messages)[0] == [Text(0, 2, LONG)]


def test_replaced_texts_leave_the_original_alone() -> None:
    part = {"type": "text", "text": "long", "extra": 1}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [part]},
        {"role": "user", "content": "b", "name": "n"},
    ]
    assert with_texts(messages, {(0, 0): "l", (1, None): ""}) == [
        {"role": "user", "content": [{"type": "text", "text": "l", "extra": 1}]},
        {"role": "user", "content": "", "name": "n"},
    ]
    assert messages[0]["content"] == [part]
    assert part["text"] == "long"


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        (["x"], r"messages\[0\]"),
        ([{"content": "x"}], r"messages\[0\]\.role"),
        ([{"role": "user", "content": 5}], r"messages\[0\]\.content"),
        ([{"role": "user", "content": ["x"]}], r"messages\[0\]\.content\[0\]"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\]\.content\[0\]\.text"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(messages: list[Any], path: str) -> None:
    with pytest.raises(InvalidPromptError, match=path):
        texts(messages)
