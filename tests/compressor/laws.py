"""What holds for every compression, whatever the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetopt.compressor.compress import compress
from fleetopt.compressor.options import CompressOptions
from fleetopt.compressor.outcome import Compressed, Prompt, Reason, Unchanged
from fleetopt.compressor.tokens import TokenCounter


def checked(
    prompt: Prompt,
    budget_tokens: int,
    counter: TokenCounter,
    options: CompressOptions | None = None,
) -> Compressed | Unchanged:
    """Compress twice and hold the outcome to the laws."""
    options = options or CompressOptions()
    outcome = compress(prompt, budget_tokens, counter, options=options)
    again = compress(prompt, budget_tokens, counter, options=options)
    if isinstance(outcome, Unchanged):
        assert isinstance(again, Unchanged)
        assert (outcome.reason, outcome.detail) == (again.reason, again.detail)
        assert outcome.detail
        if outcome.tokens_before is not None:
            fits = outcome.tokens_before <= budget_tokens
            assert fits == (outcome.reason is Reason.FITS)
        return outcome
    assert isinstance(again, Compressed)
    assert again.prompt == outcome.prompt
    assert outcome.tokens_before == tokens_of(prompt, counter) > budget_tokens
    assert outcome.tokens_after == tokens_of(outcome.prompt, counter) <= budget_tokens
    for before, after in zip(texts_of(prompt), texts_of(outcome.prompt), strict=True):
        assert is_subsequence(after, before)
    assert_spans(prompt, outcome)
    return outcome


def tokens_of(prompt: Prompt, counter: TokenCounter) -> int:
    """Count a prompt exactly."""
    return counter.count(prompt) if isinstance(prompt, str) else counter.count_prompt(prompt)


def texts_of(prompt: Prompt) -> list[str]:
    """Return all texts of a prompt, in order."""
    if isinstance(prompt, str):
        return [prompt]
    texts = []
    for message in prompt:
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif content is not None:
            texts += [part["text"] for part in content if "text" in part]
    return texts


def is_subsequence(short: str, long: str) -> bool:
    """Return whether the characters of one text are in the other, in order."""
    rest = iter(long)
    return all(character in rest for character in short)


def assert_spans(prompt: Prompt, outcome: Compressed) -> None:
    """The spans cover each text that was cut, and the kept ones make the new text."""
    assert outcome.cut is not None
    spans = outcome.cut.spans()
    places = {(span.message, span.part) for span in spans}
    for message, part in places:
        own = [span for span in spans if (span.message, span.part) == (message, part)]
        before, after = _text(prompt, message, part), _text(outcome.prompt, message, part)
        assert [span.begin for span in own] == [0, *(span.end for span in own[:-1])]
        assert own[-1].end == len(before)
        assert "".join(before[span.begin : span.end] for span in own if span.kept) == after
        assert all(span.kept for span in own if span.score is None)


def _text(prompt: Prompt | Sequence[Mapping[str, Any]], message: int, part: int | None) -> str:
    if isinstance(prompt, str):
        return prompt
    content = prompt[message]["content"]
    text = content if part is None else content[part]["text"]
    assert isinstance(text, str)
    return text
