"""Prompts whose answers are known: from XQuAD, and generated with a needle in them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fleetopt.compressor.tokens import TokenCounter

SHARED_DATA: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
LANGUAGES: Final = {"en": "English", "zh": "Chinese"}

_SUBJECTS: Final = (
    *("the river", "the old mill", "a farmer", "the council", "the ferry", "the orchard"),
    *("a merchant", "the school", "the railway", "the harbour", "a doctor", "the market"),
)
_VERBS: Final = (
    *("crossed", "supplied", "repaired", "observed", "followed", "described", "carried"),
    *("reached", "visited", "measured", "painted", "remembered"),
)
_OBJECTS: Final = (
    *("the eastern valley", "a narrow bridge", "the winter stores", "two wooden boats"),
    *("the stone church", "an empty field", "the northern road", "a quiet village"),
    *("the summer fair", "a broken wheel", "the long wall", "the lower meadow"),
)
_ENDS: Final = (
    *("before the snow came", "in the early morning", "without much hope", "for many years"),
    *("as everyone expected", "despite the heavy rain", "near the end of autumn"),
    *("while the others slept", "on the way home", "at the request of the town"),
)
_NAMES: Final = ("Falcon", "Orchid", "Granite", "Bluebird", "Cedar", "Nimbus", "Zephyr", "Quartz")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, with (question, answer in its own words) pairs."""

    text: str
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A context, a question and the words that answer it."""

    context: str
    question: str
    answer: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt: the context, then the question."""
        return [
            {"role": "user", "content": self.context},
            {"role": "user", "content": self.question},
        ]


def paragraphs(language: str) -> list[Paragraph]:
    """Read XQuAD in a language."""
    path = SHARED_DATA / "xquad" / f"xquad.{language}.json"
    document = json.loads(path.read_text("utf-8"))
    return [
        Paragraph(
            paragraph["context"],
            tuple((asked["question"], asked["answers"][0]["text"]) for asked in paragraph["qas"]),
        )
        for article in document["data"]
        for paragraph in article["paragraphs"]
    ]


def context_of(
    found: Sequence[Paragraph], first: int, tokens: int, counter: TokenCounter
) -> list[Paragraph]:
    """Return paragraphs from `first` on, until they make so many tokens."""
    chosen: list[Paragraph] = []
    counted = 0
    while counted < tokens:
        paragraph = found[(first + len(chosen)) % len(found)]
        chosen.append(paragraph)
        counted += counter.count(paragraph.text) + 1
    return chosen


def xquad_cases(
    language: str, count: int, tokens: int, counter: TokenCounter, seed: int = 1
) -> Iterator[Case]:
    """Yield contexts of shuffled paragraphs, each with a question on one of them."""
    rng = random.Random(seed)
    found = paragraphs(language)
    for _ in range(count):
        chosen = context_of(found, rng.randrange(len(found)), tokens, counter)
        rng.shuffle(chosen)
        question, answer = rng.choice(rng.choice(chosen).questions)
        yield Case("\n\n".join(one.text for one in chosen), question, answer)


def needle_cases(
    count: int, tokens: int, counter: TokenCounter, *, overlap: bool, seed: int = 2
) -> Iterator[Case]:
    """Yield generated prose with one sentence that answers.

    With overlap, question and needle share words; without, only what is rare about the needle
    can save it.
    """
    rng = random.Random(seed)
    for _ in range(count):
        name, code = rng.choice(_NAMES), str(rng.randrange(10_000, 100_000))
        sentences: list[str] = []
        counted = 0
        while counted < tokens:
            sentences.append(_sentence(rng))
            counted += counter.count(sentences[-1]) + 1
        if overlap:
            needle = f"The access code of project {name} is {code}."
            question = f"What is the access code of project {name}?"
        else:
            needle = f"{name} opens with {code}."
            question = "Which secret was given away?"
        sentences.insert(rng.randrange(len(sentences)), needle)
        lines = [" ".join(sentences[at : at + 6]) for at in range(0, len(sentences), 6)]
        yield Case("\n\n".join(lines), question, code)


def _sentence(rng: random.Random) -> str:
    words = (rng.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS, _ENDS))
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."
