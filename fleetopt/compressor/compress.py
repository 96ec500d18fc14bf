"""Fits a prompt into a budget of tokens by leaving out what it can best do without.

Extractive, without a model, deterministic: the output is made of slices of the input, in order,
and an exact count by the engine's own tokenizer decides whether it fits. Whatever is in doubt comes
back as `Unchanged` with a reason, and goes to a pool that it fits as it is.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.blocks import Block, blocks
from fleetopt.compressor.characters import Characters
from fleetopt.compressor.content import Content
from fleetopt.compressor.cut import Cut
from fleetopt.compressor.distinct import distinct
from fleetopt.compressor.document import Document, UnitWords
from fleetopt.compressor.gate import content_of_category, main_content
from fleetopt.compressor.leads import leads_of, lifted
from fleetopt.compressor.messages import InvalidPromptError, Text, Texts, texts_of, with_texts
from fleetopt.compressor.options import CompressOptions
from fleetopt.compressor.outcome import Compressed, Prompt, Reason, Stage, Unchanged
from fleetopt.compressor.scores import PAPER_WEIGHTS, WEIGHTS, unit_scores
from fleetopt.compressor.selection import select
from fleetopt.compressor.stopwatch import Clock, DeadlineError, Stopwatch
from fleetopt.compressor.terms import MAX_UNITS, Words, term_of
from fleetopt.compressor.tokens import TokenCounter
from fleetopt.errors import FleetOptError

_FIRST_UNITS: Final = 3
_LAST_UNITS: Final = 2
# Puts what was said before behind everything that was not.
_REPEATED_PENALTY: Final = 10.0
# Whole units and the margin of the first count may leave this much of the prose's share unused.
_SHARE_SLACK: Final = 0.05
_QUESTION_MARKS: Final = "?？؟\u037e"
# A piece of an overlong unit is about this share of the budget, so that it can be filled.
_PIECE_SHARE: Final = 0.01


class _UnchangedError(Exception):
    """Ends a compression with a reason."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def compress(
    prompt: Prompt,
    budget_tokens: int,
    counter: TokenCounter | None,
    *,
    tokens_before: int | None = None,
    options: CompressOptions = CompressOptions(),  # noqa: B008 - frozen
    clock: Clock | None = None,
    deadline_s: float | None = None,
) -> Compressed | Unchanged:
    """Return the prompt within the budget, or why it stays as it is.

    Parameters
    ----------
    prompt : str or sequence of chat messages
        Messages are objects with `role` and `content`, as chat completion APIs take them.
    budget_tokens : int
        Most tokens that the engine may count for the prompt, chat template included: the boundary
        less what is reserved for the completion.
    counter : TokenCounter or None
        Counts as the engine does. Without one nothing is compressed.
    tokens_before : int, optional
        The engine's own count of the prompt, where the caller has it; else it is counted here.
    options : CompressOptions
        What may be touched.
    clock : callable, optional
        Returns seconds; where given, the time of each stage is in the result.
    deadline_s : float, optional
        On `clock`. No stage begins after it.

    Returns
    -------
    Compressed or Unchanged

    Raises
    ------
    TypeError, ValueError
        If a count of tokens isn't a whole number, or a deadline comes without a clock. Whatever is
        wrong with the prompt is a reason, not an exception.

    Examples
    --------
    >>> compress("nobody can count this", 100, None).reason
    <Reason.NO_TOKEN_COUNTER: 'no_token_counter'>
    """
    if counter is None:
        return Unchanged(Reason.NO_TOKEN_COUNTER, "there is no exact token counter for the model")
    _check_arguments(budget_tokens, tokens_before, clock, deadline_s)
    watch = Stopwatch(clock, deadline_s)
    try:
        with watch(Stage.COUNT):
            texts = _texts(prompt, options, counter)
            if tokens_before is None:
                tokens_before = _count(prompt, counter)
        _check_budget(tokens_before, budget_tokens)
        _check_cache(options)
        return _compress(prompt, texts, tokens_before, budget_tokens, counter, options, watch)
    except _UnchangedError as stop:
        reason, detail = stop.reason, stop.detail
    except InvalidPromptError as error:
        reason, detail = Reason.INVALID_PROMPT, str(error)
    except DeadlineError as error:
        reason, detail = Reason.DEADLINE, str(error)
    except FleetOptError as error:
        reason, detail = Reason.COUNTER_FAILED, str(error)
    return Unchanged(reason, detail, tokens_before, watch.stage_s)


def _check_arguments(
    budget_tokens: int, tokens_before: int | None, clock: Clock | None, deadline_s: float | None
) -> None:
    counts = {"budget_tokens": budget_tokens, "tokens_before": tokens_before or 0}
    for name, tokens in counts.items():
        if not isinstance(tokens, int | np.integer):
            raise TypeError(f"{name} is {tokens!r}; it is a whole number of tokens")
    if tokens_before is not None and tokens_before < 0:
        raise ValueError(f"tokens_before is {tokens_before}; it is 0 or more")
    if deadline_s is not None and clock is None:
        raise ValueError("deadline_s comes without a clock, so that nobody would heed it")


def _texts(prompt: object, options: CompressOptions, counter: TokenCounter) -> Texts:
    if isinstance(prompt, str):
        texts = Texts((Text(0, None, prompt),), None)
    elif isinstance(prompt, Sequence):
        texts = texts_of(prompt, options, counter.count)
    else:
        raise InvalidPromptError(
            f"the prompt is {type(prompt).__name__}; it is a text or a list of messages"
        )
    for text in texts.texts:
        try:
            text.text.encode()
        except UnicodeEncodeError as error:
            where = "" if isinstance(prompt, str) else f" of messages[{text.message}]"
            raise InvalidPromptError(
                f"character {error.start}{where} is a lone surrogate: no tokenizer takes it"
            ) from None
    return texts


def _count(prompt: Prompt, counter: TokenCounter) -> int:
    return counter.count(prompt) if isinstance(prompt, str) else counter.count_prompt(prompt)


def _check_budget(tokens_before: int, budget_tokens: int) -> None:
    if tokens_before <= budget_tokens:
        detail = f"{tokens_before} tokens fit the budget of {budget_tokens}"
        raise _UnchangedError(Reason.FITS, detail)
    if budget_tokens <= 0:
        raise _UnchangedError(Reason.NO_BUDGET, f"the budget is {budget_tokens} tokens")


def _check_cache(options: CompressOptions) -> None:
    if options.keep_cached_prefix and options.cached_prompt_tokens > 0:
        raise _UnchangedError(
            Reason.PREFIX_CACHED,
            f"{options.cached_prompt_tokens} tokens of it are in the prefix cache",
        )


def _check_content(
    found: list[tuple[Block, ...]], options: CompressOptions
) -> list[tuple[Block, ...]]:
    """Return the blocks of each text, where they are mainly prose."""
    if not any(found):
        raise _UnchangedError(Reason.TOO_LITTLE_PROSE, "no text of it may be cut")
    content = content_of_category(options.category) or main_content(chain.from_iterable(found))
    if content is not Content.PROSE:
        raise _UnchangedError(Reason.CONTENT, f"its content is {content}")
    return found


def _compress(
    prompt: Prompt,
    texts: Texts,
    tokens_before: int,
    budget_tokens: int,
    counter: TokenCounter,
    options: CompressOptions,
    watch: Stopwatch,
) -> Compressed:
    characters = sum(len(text.text) for text in texts.texts)
    characters_per_token = characters / tokens_before
    min_prose_characters = int(options.min_prose_tokens * characters_per_token)
    # A chat may have thousands of texts that are too short for a stretch of prose.
    long = [text for text in texts.texts if len(text.text) >= min_prose_characters]
    with watch(Stage.SPLIT):
        found = _check_content([blocks(text.text) for text in long], options)
        document = Document.of(
            long,
            piece_characters=int(_PIECE_SHARE * budget_tokens * characters_per_token),
            min_prose_characters=min_prose_characters,
            found=found,
        )
        n_units = int(document.prose.sum())
        if not 0 < n_units < MAX_UNITS:
            reason = Reason.TOO_LARGE if n_units else Reason.TOO_LITTLE_PROSE
            raise _UnchangedError(reason, f"{n_units} units of prose")
        words = document.words()
    with watch(Stage.COUNT):
        unit_tokens = _unit_tokens(document, counter, characters_per_token)
    prose_tokens = int(unit_tokens.sum())
    _check_room(prose_tokens, tokens_before - budget_tokens, options)
    with watch(Stage.SCORE):
        question, asked = _question(words, options.question or texts.question, document)
        scores = unit_scores(
            words.matrix(),
            unit_tokens,
            question,
            PAPER_WEIGHTS if options.weights == "paper" else WEIGHTS,
        )
        if options.weights == "default":
            scores[words.repeated()] -= _REPEATED_PENALTY
        leads = leads_of(document.characters, document.unit_begin, document.unit_end)
        scores = lifted(scores, leads)
    forced = leads.forced.copy()
    forced[asked] = True
    forced[:_FIRST_UNITS] = True
    forced[-_LAST_UNITS:] = True

    def rebuilt(kept: NDArray[np.bool_]) -> str | list[dict[str, object]]:
        parts = document.rebuilt(kept)
        return parts[0, None] if isinstance(prompt, str) else with_texts(prompt, parts)

    def recount(kept: NDArray[np.bool_]) -> int:
        watch.check()
        return _count(rebuilt(kept), counter)

    with watch(Stage.SELECT):
        selection = select(
            scores, unit_tokens, forced, tokens_before - prose_tokens, budget_tokens, recount
        )
    if selection is None:
        raise _UnchangedError(
            Reason.OVER_BUDGET, f"no selection came within {budget_tokens} tokens"
        )
    kept_share = int(unit_tokens[selection.kept].sum()) / prose_tokens
    if kept_share < options.min_kept_share - _SHARE_SLACK:
        raise _UnchangedError(
            Reason.KEEPS_TOO_LITTLE, f"{kept_share:.0%} of the prose fits, in whole units"
        )
    return Compressed(
        prompt=rebuilt(selection.kept),
        tokens_before=tokens_before,
        tokens_after=selection.tokens,
        cut=Cut(document, selection.kept, scores),
        stage_s=watch.stage_s,
    )


def _unit_tokens(
    document: Document, counter: TokenCounter, characters_per_token: float
) -> NDArray[np.int64]:
    """Return the tokens of each unit, by length alone where a count would cost a request."""
    if counter.per_unit:
        return np.maximum(counter.count_many(document.unit_texts()), 1)
    lengths = document.unit_end - document.unit_begin
    return np.maximum(lengths / characters_per_token, 1).astype(np.int64)


def _check_room(prose_tokens: int, cut_tokens: int, options: CompressOptions) -> None:
    if prose_tokens <= cut_tokens:
        raise _UnchangedError(
            Reason.TOO_LITTLE_PROSE,
            f"{cut_tokens} tokens are too many, and only {prose_tokens} are prose that may be cut",
        )
    kept_share = 1 - cut_tokens / prose_tokens
    if kept_share < options.min_kept_share:
        raise _UnchangedError(
            Reason.KEEPS_TOO_LITTLE,
            f"{kept_share:.0%} of the prose would be kept, less than {options.min_kept_share:.0%}",
        )


def _question(
    words: UnitWords, question: str | None, document: Document
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the terms of the question, and the units that ask it."""
    if question is not None:
        hashes = term_of(Words.of(Characters.of(question)).hashes)
        return distinct(hashes), np.zeros(0, np.int64)
    n = words.n_units
    edge = sorted({*range(min(_FIRST_UNITS, n)), *range(max(n - _LAST_UNITS, 0), n)})
    begins, ends = document.unit_begin, document.unit_end
    asked = [
        unit
        for unit in edge
        if any(mark in document.joined[begins[unit] : ends[unit]] for mark in _QUESTION_MARKS)
    ]
    units = np.array(asked or edge[-_LAST_UNITS:], np.int64)
    return distinct(term_of(words.hashes[np.isin(words.unit, units)])), units
