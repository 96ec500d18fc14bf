"""What a compressed prompt still holds: answers, numbers, names, words, passages.

Every method cuts the same units to the same exact budget; only the order in which units are kept
differs. No language model judges anything here: an answer survives when its words are in the text.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.compression_corpus import (
    LANGUAGES,
    SHARED_DATA,
    Case,
    context_of,
    needle_cases,
    paragraphs,
    xquad_cases,
)
from fleetopt.compressor.compress import compress
from fleetopt.compressor.document import Document
from fleetopt.compressor.messages import Text
from fleetopt.compressor.options import CompressOptions
from fleetopt.compressor.outcome import Compressed
from fleetopt.compressor.selection import select
from fleetopt.compressor.tokens import TokenCounter
from fleetopt.connectors.token_counter import counter_for

MODEL: Final = "Qwen/Qwen3-32B"
KEEPS: Final = (0.8, 0.67, 0.5)
DUPLICATED_KEEP: Final = 0.6
_NO_SCRUPLES: Final = 0.1
"""Keep shares below the product's default are measured too."""


class CompressionBenchError(RuntimeError):
    """A method broke a budget, or refused a prompt that it should take."""


Method = Callable[[Case, int, TokenCounter], str]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    cases: int = 200
    context_tokens: int = 4_000
    needle_tokens: int = 6_000


FULL: Final = Sizes()
QUICK: Final = Sizes(8, 1_500, 1_500)


@dataclass(frozen=True, slots=True)
class Survival:
    """Share of answers that are still there."""

    corpus: str
    method: str
    keep: float
    survived: float
    cases: int


@dataclass(frozen=True, slots=True)
class Retention:
    """Shares of what a context holds that are still there (XQuAD English)."""

    method: str
    keep: float
    numbers: float
    names: float
    once_only_words: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that was found."""

    survival: list[Survival]
    retention: list[Retention]
    # Share of unique units kept, by method, where every passage stands twice.
    unique_units: dict[str, float]


def measure(sizes: Sizes) -> Figures:
    """Run all methods over all corpora. Without the shared data, over generated text alone."""
    counter = counter_for(MODEL)
    corpora: dict[str, list[Case]] = {}
    if SHARED_DATA.is_dir():
        for language, name in LANGUAGES.items():
            cases = xquad_cases(language, sizes.cases, sizes.context_tokens, counter)
            corpora[f"XQuAD {name}"] = list(cases)
    for overlap, name in ((True, "needle"), (False, "needle without word overlap")):
        cases = needle_cases(sizes.cases, sizes.needle_tokens, counter, overlap=overlap)
        corpora[name] = list(cases)
    survival, retention = [], []
    for corpus, cases_of in corpora.items():
        for keep in KEEPS:
            for method in METHODS:
                outputs = [_output(method, case, keep, counter) for case in cases_of]
                survived = sum(
                    case.answer in output for case, output in zip(cases_of, outputs, strict=True)
                )
                survival.append(
                    Survival(corpus, method, keep, survived / len(cases_of), len(cases_of))
                )
                if corpus == "XQuAD English":
                    retention.append(_retention(method, keep, cases_of, outputs))
    return Figures(survival, retention, _unique_units(sizes, counter))


def _output(method: str, case: Case, keep: float, counter: TokenCounter) -> str:
    budget = int(keep * counter.count_prompt(case.messages))
    output = METHODS[method](case, budget, counter)
    shortened = [{"role": "user", "content": output}, case.messages[1]]
    if counter.count_prompt(shortened) > budget:
        raise CompressionBenchError(f"{method} broke its budget of {budget} tokens")
    return output


def _compressed(weights: str) -> Method:
    def method(case: Case, budget: int, counter: TokenCounter) -> str:
        options = CompressOptions(
            min_kept_share=_NO_SCRUPLES,
            weights="paper" if weights == "paper" else "default",
        )
        outcome = compress(case.messages, budget, counter, options=options)
        if not isinstance(outcome, Compressed):
            raise CompressionBenchError(f"{weights}: unchanged, {outcome.detail}")
        return str(outcome.prompt[0]["content"])  # type: ignore[index]

    return method


def _ordered(scores_of: Callable[[int], NDArray[np.float64]]) -> Method:
    """Make a method that keeps units by place alone."""

    def method(case: Case, budget: int, counter: TokenCounter) -> str:
        document = Document.of([Text(0, None, case.context)], 240, 0)
        tokens = np.maximum(counter.count_many(document.unit_texts()), 1)
        question = case.messages[1]

        def rebuilt(kept: NDArray[np.bool_]) -> str:
            return document.rebuilt(kept)[0, None]

        def recount(kept: NDArray[np.bool_]) -> int:
            return counter.count_prompt([{"role": "user", "content": rebuilt(kept)}, question])

        n = len(tokens)
        fixed = counter.count_prompt(case.messages) - int(tokens.sum())
        nothing = np.zeros(n, np.bool_)
        found = select(scores_of(n), tokens, nothing, fixed, budget, recount)
        if found is None:
            raise CompressionBenchError("no selection fits")
        return rebuilt(found.kept)

    return method


def _random_scores(n: int) -> NDArray[np.float64]:
    return np.random.default_rng(n).random(n)


METHODS: Final[dict[str, Method]] = {
    "FleetOpt": _compressed("ours"),
    "paper weights": _compressed("paper"),
    "random": _ordered(_random_scores),
    "head": _ordered(lambda n: -np.arange(n, dtype=np.float64)),
    "tail": _ordered(lambda n: np.arange(n, dtype=np.float64)),
}


def _retention(
    method: str, keep: float, cases: Sequence[Case], outputs: Sequence[str]
) -> Retention:
    return Retention(
        method,
        keep,
        numbers=_kept(_numbers, cases, outputs),
        names=_kept(_names, cases, outputs),
        once_only_words=_kept(_once_only_words, cases, outputs, _words),
    )


def _kept(
    found_in: Callable[[str], set[str]],
    cases: Sequence[Case],
    outputs: Sequence[str],
    held_by: Callable[[str], set[str]] | None = None,
) -> float:
    kept = total = 0
    for case, output in zip(cases, outputs, strict=True):
        wanted = found_in(case.context)
        kept += len(wanted & (held_by or found_in)(output))
        total += len(wanted)
    return kept / total


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:[.,]\d+)*", text))


def _names(text: str) -> set[str]:
    """Return capitalised words that don't begin a sentence."""
    return set(re.findall(r"(?<=[a-z,;] )[A-Z]\w+", text))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _once_only_words(text: str) -> set[str]:
    counted = Counter(re.findall(r"\w+", text.lower()))
    return {word for word, times in counted.items() if times == 1}


def _unique_units(sizes: Sizes, counter: TokenCounter) -> dict[str, float]:
    """Return the share of unique units kept where every passage stands twice, by method."""
    if not SHARED_DATA.is_dir():
        return {}
    rng = random.Random(3)
    found = paragraphs("en")
    kept: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(max(sizes.cases // 5, 2)):
        first = rng.randrange(len(found))
        chosen = 2 * context_of(found, first, sizes.context_tokens // 2, counter)
        rng.shuffle(chosen)
        case = Case("\n\n".join(one.text for one in chosen), chosen[0].questions[0][0], "")
        units = _unit_set(case.context)
        for method in METHODS:
            output = _output(method, case, DUPLICATED_KEEP, counter)
            kept[method].append(sum(unit in output for unit in units) / len(units))
    return {method: float(np.mean(shares)) for method, shares in kept.items()}


def _unit_set(text: str) -> set[str]:
    document = Document.of([Text(0, None, text)], 240, 0)
    return {unit.strip() for unit in document.unit_texts()}
