"""What a chat prompt has in tokens: as the models' own templates write it, never less."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_harmony import (
    Conversation,
    DeveloperContent,
    HarmonyEncodingName,
    Message,
    Role,
    SystemContent,
    load_harmony_encoding,
)

from fleetopt.connectors.model_names import Vocabulary
from fleetopt.connectors.tokenizers import BundledCounter
from fleetopt.errors import InputError
from tests.connectors.reference_tokenizers import Reference, references, table

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "\n Why is the sky blue? \n"},
    {"role": "assistant", "content": "Rayleigh."},
    {"role": "user", "content": "And red?"},
]

CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n"
    "<|im_start|>user\n\n Why is the sky blue? \n<|im_end|>\n"
    "<|im_start|>assistant\nRayleigh.<|im_end|>\n"
    "<|im_start|>user\nAnd red?<|im_end|>\n"
    "<|im_start|>assistant\n"
)
NO_THINKING = "<think>\n\n</think>\n\n"
DATES = "Cutting Knowledge Date: December 2023\nToday Date: 05 Mar 2026\n\n"
LLAMA3 = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{dates}Be brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWhy is the sky blue?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nRayleigh.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nAnd red?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)


@pytest.fixture(scope="module")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> dict[Vocabulary, Reference]:
    return references(tmp_path_factory.mktemp("tiktoken"))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("qwen2.5-7b-instruct", CHATML),
        ("qwen3-coder-30b-a3b-instruct", CHATML),
        ("qwen3-4b-instruct-2507", CHATML),
        ("qwen3-8b", CHATML + NO_THINKING),
        ("llama-3-8b-instruct", LLAMA3.format(dates="")),
        ("llama-3.1-8b-instruct", LLAMA3.format(dates=DATES)),
    ],
)
def test_a_chat_counts_as_its_template_writes_it(
    model: str, text: str, reference_of: dict[Vocabulary, Reference]
) -> None:
    counter = BundledCounter(model)
    expected = len(reference_of[counter.model.vocabulary].with_special(text))
    assert counter.count_prompt(CHAT) == expected


def test_thinking_that_is_on_has_four_tokens_fewer(
    reference_of: dict[Vocabulary, Reference],
) -> None:
    exact = len(reference_of[Vocabulary.QWEN3].with_special(CHATML))
    assert BundledCounter("qwen3-8b").count_prompt(CHAT) == exact + 4


def test_without_a_system_message_the_templates_add_theirs(
    reference_of: dict[Vocabulary, Reference],
) -> None:
    chat = CHAT[1:]
    said = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    text = f"<|im_start|>system\n{said}<|im_end|>\n" + CHATML.partition("<|im_end|>\n")[2]
    expected = len(reference_of[Vocabulary.QWEN3].with_special(text))
    assert BundledCounter("qwen2.5-7b-instruct").count_prompt(chat) == expected
    text = LLAMA3.format(dates=DATES).replace("Be brief.", "")
    expected = len(reference_of[Vocabulary.LLAMA3].with_special(text))
    assert BundledCounter("llama-3.3-70b-instruct").count_prompt(chat) == expected


def test_thoughts_are_left_out_of_the_history_and_kept_after_the_last_question(
    reference_of: dict[Vocabulary, Reference],
) -> None:
    counter = BundledCounter("qwen3-8b")
    thinking = {"role": "assistant", "content": "<think>\nBlue is short.\n</think>\n\nRayleigh."}
    told = {"role": "assistant", "content": "Rayleigh.", "reasoning_content": "Blue is short."}
    assert counter.count_prompt([*CHAT[:2], thinking, CHAT[3]]) == counter.count_prompt(CHAT)
    assert counter.count_prompt([*CHAT[:2], told, CHAT[3]]) == counter.count_prompt(CHAT)
    text = CHATML.replace(
        "<|im_start|>assistant\nRayleigh.", "<|im_start|>assistant\n" + str(thinking["content"])
    )
    text = text.partition("<|im_start|>user\nAnd red?")[0] + "<|im_start|>assistant\n" + NO_THINKING
    exact = len(reference_of[Vocabulary.QWEN3].with_special(text))
    assert counter.count_prompt([*CHAT[:2], thinking]) == exact
    assert counter.count_prompt([*CHAT[:2], told]) == exact


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_the_date_in_a_prompt_has_as_many_tokens_on_any_day(model: str) -> None:
    counter = BundledCounter(model)
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=at) for at in range(27_000)]
    texts = [f"\n\nToday Date: {day:%d %b %Y}\n\nCurrent date: {day:%Y-%m-%d}\n" for day in days]
    assert len(set(counter.count_many(texts).tolist())) == 1


texts = st.text(st.characters(exclude_categories=["Cs", "Cn"]), min_size=1, max_size=60)


@pytest.fixture(scope="module")
def harmony(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """OpenAI's own renderer for gpt-oss, with the table that it would download."""
    folder = tmp_path_factory.mktemp("harmony")
    (folder / "o200k_base.tiktoken").write_bytes(table(Vocabulary.O200K))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


@settings(max_examples=100, deadline=None)
@given(turns=st.lists(texts, min_size=1, max_size=4), instructions=st.none() | texts)
def test_harmony_counts_what_openais_renderer_writes(
    harmony: Any, turns: list[str], instructions: str | None
) -> None:
    system = SystemContent.new().with_conversation_start_date("2026-12-01")
    said = [Message.from_role_and_content(Role.SYSTEM, system)]
    chat: list[Mapping[str, Any]] = []
    if instructions is not None:
        developer = DeveloperContent.new().with_instructions(instructions)
        said.append(Message.from_role_and_content(Role.DEVELOPER, developer))
        chat.append({"role": "developer", "content": instructions})
    for at, text in enumerate(turns):
        role = Role.ASSISTANT if at % 2 else Role.USER
        message = Message.from_role_and_content(role, text)
        said.append(message.with_channel("final") if at % 2 else message)
        chat.append({"role": role.value, "content": text})
    conversation = Conversation.from_messages(said)
    rendered = len(harmony.render_conversation_for_completion(conversation, Role.ASSISTANT))
    counted = BundledCounter("gpt-oss-20b").count_prompt(chat)
    slack = 0 if instructions is None else 2  # some engines end the instructions with a blank line
    assert rendered <= counted <= rendered + slack


def test_openais_models_count_at_least_what_openai_states() -> None:
    counter = BundledCounter("gpt-4o")
    chat = [{"role": "user", "content": "Hello there", "name": "ann"}]
    parts = sum(counter.count(text) for text in ("user", "ann", "Hello there"))
    assert counter.count_prompt(chat) >= 3 + 3 + 1 + parts


@pytest.mark.parametrize("model", ["qwen3-8b", "llama-3.1-8b", "gpt-4o", "gpt-oss-20b"])
@settings(max_examples=60, deadline=None)
@given(parts=st.lists(texts, max_size=4))
def test_text_parts_count_for_their_longest_joining(model: str, parts: list[str]) -> None:
    counter = BundledCounter(model)
    content = [{"type": "text", "text": part} for part in parts]
    counted = counter.count_prompt([{"role": "user", "content": content}])
    for joint in ("", " ", "\n"):
        joined = counter.count_prompt([{"role": "user", "content": joint.join(parts)}])
        assert counted >= joined


def test_no_content_is_an_empty_message() -> None:
    counter = BundledCounter("qwen3-8b")
    empty = counter.count_prompt([{"role": "user", "content": ""}])
    assert counter.count_prompt([{"role": "user", "content": None}]) == empty
    assert counter.count_prompt([{"role": "user", "content": []}]) == empty
    assert counter.count_prompt([]) < empty


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"role": "tool", "content": "42", "tool_call_id": "1"}, r"messages\[1\]: role 'tool'"),
        ({"content": "x"}, r"messages\[1\]: role None"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, r"messages\[1\]\.tool_calls"),
        ({"role": "user", "content": 7}, r"messages\[1\]\.content is a int"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            r"messages\[1\]\.content\[0\] is a part of type 'image_url'",
        ),
        ({"role": "user", "content": [7]}, r"messages\[1\]\.content\[0\] is a part of type 'int'"),
        ({"role": "user", "content": [{"type": "text"}]}, r"content\[0\] is a part of type 'text'"),
    ],
)
@pytest.mark.parametrize("model", ["qwen3-8b", "llama-3.1-8b", "gpt-4o", "gpt-oss-20b"])
def test_what_is_not_text_is_refused_with_its_place(
    model: str, message: dict[str, Any], path: str
) -> None:
    with pytest.raises(InputError, match=path):
        BundledCounter(model).count_prompt([{"role": "user", "content": "x"}, message])
