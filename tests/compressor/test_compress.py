"""Laws of compression over hostile, real and generated prompts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleetopt.compressor.compress import compress
from fleetopt.compressor.options import CompressOptions
from fleetopt.compressor.outcome import Compressed, Reason, Stage, Unchanged
from fleetopt.compressor.tokens import TokenCounter
from fleetopt.connectors.tokenizers import BundledCounter
from fleetopt.errors import ServiceError
from tests.compressor.hostile import hostile_texts
from tests.compressor.laws import checked, texts_of
from tests.compressor.xquad import paragraphs

HOSTILE = hostile_texts()
# Everything may be cut, so that the laws are tried on as much as possible.
LOOSE = CompressOptions(category="prose", min_kept_share=0.0, min_prose_tokens=0)
STORY = (
    "The river rose in the night. Nobody in the valley had seen it so high. The bridge at the mill "
    "was shut by noon, and two barns were lost. The miller counted 212 sacks of wheat. "
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text(name: str, counter: TokenCounter) -> None:
    text = HOSTILE[name]
    tokens = counter.count(text)
    checked(text, int(tokens * 0.8), counter)
    checked(text, int(tokens * 0.6), counter, LOOSE)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_paragraphs(language: str, shared_data: Path, counter: TokenCounter) -> None:
    """Every set of eight paragraphs with a question, at three budgets; most of them are filled."""
    found = paragraphs(shared_data, language)
    for first in range(0, len(found), 8):
        group = found[first : first + 8]
        messages = [
            {"role": "system", "content": "Answer from the context."},
            {"role": "user", "content": "\n\n".join(paragraph.text for paragraph in group)},
            {"role": "user", "content": group[first % len(group)].questions[0][0]},
        ]
        tokens = counter.count_prompt(messages)
        for keep in (0.8, 0.67, 0.55):
            budget = int(tokens * keep)
            outcome = checked(messages, budget, counter)
            assert isinstance(outcome, Compressed), outcome
            assert outcome.tokens_after >= 0.95 * budget
            if budget >= 1_000:
                assert outcome.tokens_after >= 0.98 * budget


UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PIECES = st.lists(
    st.one_of(
        UNICODE,
        st.sampled_from(
            [
                STORY,
                "Yes. ",
                "\n\n",
                "```\n",
                "| a | b |\n",
                "- item\n",
                "。",
                "好的",
                "e\u0301",
                "\r\n",
            ]
        ),
    ),
    max_size=60,
)


@given(PIECES, st.floats(0, 1))
@settings(max_examples=300, deadline=None)
def test_any_text(pieces: list[str], keep: float) -> None:
    text = "".join(pieces)
    counter = BundledCounter("Qwen/Qwen3-32B")
    checked(text, int(counter.count(text) * keep), counter, LOOSE)


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), PIECES), max_size=6))
@settings(max_examples=100, deadline=None)
def test_any_chat(chat: list[tuple[str, list[str]]]) -> None:
    counter = BundledCounter("Qwen/Qwen3-32B")
    messages = [{"role": role, "content": "".join(pieces)} for role, pieces in chat]
    tokens = counter.count_prompt(messages)
    outcome = checked(messages, int(tokens * 0.8), counter, LOOSE)
    if isinstance(outcome, Compressed):
        for before, after in zip(messages, outcome.prompt, strict=True):
            assert isinstance(after, dict)
            assert before["role"] == after["role"]
            assert before["role"] == "user" or before == after


def test_same_in_every_process(tmp_path: Path, counter: TokenCounter) -> None:
    """Neither the hash seed nor what ran before changes the output."""
    texts = [HOSTILE[name] for name in ("question first", "Thai", "Hindi", "abbreviations")]
    budgets = [int(counter.count(text) * 0.6) for text in texts]
    expected = [compress(text, b, counter) for text, b in zip(texts, budgets, strict=True)]
    (tmp_path / "in.json").write_text(json.dumps([texts, budgets]))
    script = (
        "import json, sys\n"
        "from fleetopt.compressor.compress import compress\n"
        "from fleetopt.connectors.tokenizers import BundledCounter\n"
        "texts, budgets = json.load(open(sys.argv[1]))\n"
        "counter = BundledCounter('Qwen/Qwen3-32B')\n"
        "out = [compress(t, b, counter) for t, b in zip(texts, budgets)]\n"
        "print(json.dumps([getattr(o, 'prompt', None) for o in reversed(out)]))\n"
    )
    for seed in ("0", "1", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "in.json")],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        there = json.loads(done.stdout)[::-1]
        assert there == [one.prompt if isinstance(one, Compressed) else None for one in expected]
    assert sum(isinstance(one, Compressed) for one in expected) >= 3


def test_protected_text_stays(counter: TokenCounter) -> None:
    code = "```python\n" + "total = total + price * 1.07\n" * 20 + "```\n"
    table = "| year | rain |\n|---|---|\n" + "".join(f"| {1950 + i} | {i} mm |\n" for i in range(9))
    text = STORY * 20 + "\n" + code + "\n" + STORY * 20 + "\n" + table + "\n" + STORY * 20
    outcome = checked(text, int(counter.count(text) * 0.85), counter)
    assert isinstance(outcome, Compressed)
    assert "\n" + code in str(outcome.prompt)
    assert "\n" + table in str(outcome.prompt)


def test_chat_keeps_what_is_not_the_users(counter: TokenCounter) -> None:
    long = STORY * 30
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": long},
        {"role": "user", "content": [{"type": "text", "text": long}]},
        {"role": "assistant", "content": long, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": long},
        {"role": "user", "content": long, "name": "ann"},
        {"role": "user", "content": "How many sacks did the miller count?"},
    ]
    engine = _Contents(counter)
    tokens = engine.count_prompt(chat)
    outcome = checked(chat, int(tokens * 0.85), engine)
    assert isinstance(outcome, Compressed)
    assert not isinstance(outcome.prompt, str)
    for at in (0, 2, 3, 5):
        assert outcome.prompt[at] == chat[at]
    assert outcome.prompt[4]["name"] == "ann"
    assert texts_of(outcome.prompt)[1] != long
    cut = checked(chat, int(tokens * 0.85), engine, CompressOptions(compress_tool_results=True))
    assert isinstance(cut, Compressed)
    assert not isinstance(cut.prompt, str)
    assert cut.prompt[3]["content"] != long


def test_nothing_before_a_cache_marker_changes(counter: TokenCounter) -> None:
    long = STORY * 30
    marked: dict[str, Any] = {"type": "text", "text": long, "cache_control": {"type": "ephemeral"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": long},
        {"role": "user", "content": [marked, {"type": "text", "text": long}]},
        {"role": "user", "content": "How many sacks?"},
    ]
    outcome = checked(messages, int(counter.count_prompt(messages) * 0.9), counter)
    assert isinstance(outcome, Compressed)
    assert not isinstance(outcome.prompt, str)
    assert outcome.prompt[0] == messages[0]
    assert outcome.prompt[1]["content"][0] == marked
    assert outcome.prompt[1]["content"][1]["text"] != long


class _Failing:
    """A counter whose engine has gone."""

    name = "gone"
    per_unit = True

    def count(self, text: str) -> int:
        raise ServiceError("the engine at http://127.0.0.1:1 does not answer")

    def count_many(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return np.array([self.count(text) for text in texts])

    def count_prompt(self, messages: Sequence[Mapping[str, Any]]) -> int:
        return self.count("")


class _Contents:
    """Counts the contents of all messages and eight tokens for each: any role and part will do."""

    name = "contents"
    per_unit = True

    def __init__(self, exact: TokenCounter) -> None:
        self.count = exact.count
        self.count_many = exact.count_many

    def count_prompt(self, messages: Sequence[Mapping[str, Any]]) -> int:
        return sum(self.count(text) for text in texts_of(messages)) + 8 * len(messages)


class _WholePrompts:
    """Counts whole prompts exactly and nothing else cheaply, as a counter over HTTP does."""

    per_unit = False

    def __init__(self, exact: TokenCounter) -> None:
        self.name = exact.name
        self.count = exact.count
        self.count_prompt = exact.count_prompt

    def count_many(self, texts: Sequence[str]) -> NDArray[np.int64]:
        raise AssertionError("too dear over HTTP")


@pytest.mark.parametrize(
    ("prompt", "budget", "options", "reason"),
    [
        ("short", 100, CompressOptions(), Reason.FITS),
        (STORY * 50, 0, CompressOptions(), Reason.NO_BUDGET),
        (STORY * 50, -5, CompressOptions(), Reason.NO_BUDGET),
        (STORY * 50, 500, CompressOptions(), Reason.KEEPS_TOO_LITTLE),
        (STORY * 50, 2_000, CompressOptions(category="code"), Reason.CONTENT),
        (STORY * 50, 2_000, CompressOptions(cached_prompt_tokens=64), Reason.PREFIX_CACHED),
        (
            [{"role": "system", "content": STORY * 50}],
            2_000,
            CompressOptions(),
            Reason.TOO_LITTLE_PROSE,
        ),
        ("a\ud800b" * 50, 2, CompressOptions(), Reason.INVALID_PROMPT),
        ([{"content": "x"}], 2, CompressOptions(), Reason.INVALID_PROMPT),
        (["x"], 2, CompressOptions(), Reason.INVALID_PROMPT),
        ([{"role": "user", "content": 7}], 2, CompressOptions(), Reason.INVALID_PROMPT),
    ],
)
def test_reasons(
    prompt: object, budget: int, options: CompressOptions, reason: Reason, counter: TokenCounter
) -> None:
    outcome = compress(prompt, budget, counter, options=options)  # type: ignore[arg-type]
    assert isinstance(outcome, Unchanged)
    assert outcome.reason is reason


def test_no_counter() -> None:
    outcome = compress(STORY * 50, 1_000, None)
    assert isinstance(outcome, Unchanged)
    assert outcome.reason is Reason.NO_TOKEN_COUNTER


def test_counter_that_fails() -> None:
    outcome = compress(STORY * 50, 1_000, _Failing())
    assert isinstance(outcome, Unchanged)
    assert outcome.reason is Reason.COUNTER_FAILED
    assert "does not answer" in outcome.detail


def test_counter_of_whole_prompts(counter: TokenCounter, shared_data: Path) -> None:
    """Without counts of units, the exact recount alone still keeps and fills the budget."""
    found = paragraphs(shared_data, "en")
    text = "\n\n".join(paragraph.text for paragraph in found[:25])
    budget = int(counter.count(text) * 0.67)
    outcome = checked(text, budget, _WholePrompts(counter))
    assert isinstance(outcome, Compressed)
    assert outcome.tokens_after >= 0.98 * budget


def test_deadline_and_stages(counter: TokenCounter) -> None:
    ticks = iter(range(1_000))
    outcome = compress(
        STORY * 50, 2_000, counter, clock=lambda: float(next(ticks)), deadline_s=1_000.0
    )
    assert isinstance(outcome, Compressed)
    assert set(outcome.stage_s) == set(Stage)
    assert all(seconds >= 1 for seconds in outcome.stage_s.values())
    late = compress(STORY * 50, 2_000, counter, clock=lambda: 5.0, deadline_s=4.0)
    assert isinstance(late, Unchanged)
    assert late.reason is Reason.DEADLINE


def test_question_decides(counter: TokenCounter) -> None:
    filler = "".join(f"The field number {i} was ploughed on a grey morning. " for i in range(300))
    needle = "The mill's strongbox opens with the word heron. "
    half = len(filler) // 2
    text = filler[:half] + needle + filler[half:]
    for messages in (
        [
            {"role": "user", "content": text},
            {"role": "user", "content": "What opens the strongbox?"},
        ],
        [{"role": "user", "content": text + "\n\nWhat opens the strongbox?"}],
        [{"role": "user", "content": "What opens the strongbox?\n\n" + text}],
    ):
        outcome = checked(messages, int(counter.count_prompt(messages) * 0.55), counter)
        assert isinstance(outcome, Compressed)
        assert any("heron" in one for one in texts_of(outcome.prompt))
        assert any("strongbox?" in one for one in texts_of(outcome.prompt))


def test_paper_weights_differ(counter: TokenCounter, shared_data: Path) -> None:
    text = "\n\n".join(paragraph.text for paragraph in paragraphs(shared_data, "en")[:10])
    budget = int(counter.count(text) * 0.67)
    ours = checked(text, budget, counter)
    papers = checked(text, budget, counter, CompressOptions(weights="paper"))
    assert isinstance(ours, Compressed)
    assert isinstance(papers, Compressed)
    assert ours.prompt != papers.prompt


@pytest.mark.parametrize(
    "wrong",
    [{"min_kept_share": 1.5}, {"question_tokens": -1}, {"weights": "other"}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_options(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CompressOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [None, 5, {"role": "user"}, {1}, iter([{"role": "user"}])])
def test_what_is_no_prompt_is_a_reason(prompt: Any, counter: TokenCounter) -> None:
    outcome = compress(prompt, 100, counter)
    assert isinstance(outcome, Unchanged)
    assert outcome.reason is Reason.INVALID_PROMPT
    assert "the prompt is " in outcome.detail


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"budget_tokens": "100"}, TypeError, "budget_tokens is '100'; it is a whole number"),
        ({"budget_tokens": None}, TypeError, "budget_tokens is None; it is a whole number"),
        ({"budget_tokens": 99.5}, TypeError, "budget_tokens is 99.5; it is a whole number"),
        ({"tokens_before": "7"}, TypeError, "tokens_before is '7'; it is a whole number"),
        ({"tokens_before": -1}, ValueError, "tokens_before is -1; it is 0 or more"),
        ({"deadline_s": 1.0}, ValueError, "deadline_s comes without a clock"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str, counter: TokenCounter
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        compress("The river rose.", **{"budget_tokens": 100, "counter": counter, **arguments})


def test_texts_too_short_to_cut_are_not_looked_at(counter: TokenCounter) -> None:
    long = "The river rose in the night, and nobody had seen it so high. " * 100
    turn = [{"role": "user", "content": "Yes, go on."}, {"role": "assistant", "content": "Well."}]
    chat = [*turn * 50, {"role": "user", "content": long}, {"role": "user", "content": "How high?"}]
    outcome = compress(chat, counter.count_prompt(chat) - 400, counter)
    assert isinstance(outcome, Compressed)
    assert outcome.cut is not None
    assert [text.text for text in outcome.cut.document.texts] == [long]
    assert list(outcome.prompt[:100]) == chat[:100]
