"""Features against plain implementations that build what ours avoid to build."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
import pytest

from fleetopt.compressor.characters import Characters
from fleetopt.compressor.document import Document, UnitWords
from fleetopt.compressor.messages import Text
from fleetopt.compressor.scores import PAPER_WEIGHTS, WEIGHTS, centrality, unit_scores
from fleetopt.compressor.terms import TermMatrix, Words, term_of

TEXT = (
    "The river rose in the night. Nobody had seen the river so high! The bridge at the mill was "
    "shut. Two barns and the mill were lost in the night. Rain fell on Monday. Q. Zzz. "
) * 3 + "An odd word stood alone. River river river."


def unit_words(text: str) -> UnitWords:
    return Document.of([Text(0, None, text)], 300, 0).words()


def plain_words(text: str) -> list[list[str]]:
    units = Document.of([Text(0, None, text)], 300, 0).unit_texts()
    found = [re.findall(r"\w+", unit.lower()) for unit in units]
    return [[re.sub(r"(?<=[^s\W]{3})s$", "", word) for word in words] for words in found]


def test_matrix_counts_as_a_dictionary_does() -> None:
    matrix = unit_words(TEXT).matrix()
    counts = [Counter(words) for words in plain_words(TEXT)]
    assert matrix.n_units == len(counts)
    assert len(matrix.hashes) == len({word for unit in counts for word in unit})
    assert len(matrix.term) == sum(len(unit) for unit in counts)
    by_unit = np.bincount(matrix.unit, matrix.count, matrix.n_units)
    assert by_unit.tolist() == [sum(unit.values()) for unit in counts]
    frequency = Counter(word for unit in counts for word in unit)
    assert sorted(matrix.document_frequency.tolist()) == sorted(map(float, frequency.values()))


def test_case_and_plural_are_one_term() -> None:
    hashes = Words.of(Characters.of("River RIVER river rivers Rivers class")).hashes
    assert len(set(hashes[:5].tolist())) == 1
    assert hashes[5] != hashes[0]


def test_a_word_is_the_same_wherever_it_stands() -> None:
    far = Words.of(Characters.of("x " * 40_000 + "strongbox")).hashes[-1]
    assert Words.of(Characters.of("strongbox")).hashes[0] == far


def test_scripts_without_spaces_are_read_in_pairs() -> None:
    first = Words.of(Characters.of("河水上涨")).hashes
    second = Words.of(Characters.of("看河水")).hashes
    assert len(first) == 3
    assert first[0] == second[1]


@pytest.mark.parametrize("text", [TEXT, "河水在夜里上涨。山谷里没人见过河水。水位很高。" * 5])
def test_centrality_is_that_of_the_dense_graph(text: str) -> None:
    matrix = unit_words(text).matrix()
    idf = np.log1p(matrix.n_units / matrix.document_frequency)
    tfidf = matrix.count * idf[matrix.term]
    dense = np.zeros((matrix.n_units, len(matrix.hashes)))
    dense[matrix.unit, matrix.term] = tfidf
    length = np.linalg.norm(dense, axis=1, keepdims=True)
    dense = np.divide(dense, length, out=dense, where=length > 0)
    graph = dense @ dense.T
    np.fill_diagonal(graph, 0)
    degree = graph.sum(axis=1)
    walk = np.divide(graph, degree[:, None], out=np.zeros_like(graph), where=degree[:, None] > 1e-9)
    rank = np.full(matrix.n_units, 1 / matrix.n_units)
    for _ in range(500):
        rank = 0.15 / matrix.n_units + 0.85 * walk.T @ rank
    assert centrality(matrix, tfidf) == pytest.approx(rank, abs=2e-5)


def test_relevance_is_bm25() -> None:
    """A question's unit scores as a plain BM25 says, relative to the best."""
    words = unit_words(TEXT)
    matrix = words.matrix()
    question = term_of(Words.of(Characters.of("Which barn was lost?")).hashes)
    only = dict.fromkeys(["centrality", "place", "rarity", "novelty", "notable", "coverage"], 0.0)
    from dataclasses import replace

    weights = replace(WEIGHTS, relevance=1.0, **only)
    tokens = np.ones(matrix.n_units, np.int64)
    scores = unit_scores(matrix, tokens, question, weights)
    units = plain_words(TEXT)
    asked = {"which", "barn", "was", "lost"}
    mean = sum(map(len, units)) / len(units)
    own = []
    for unit in units:
        total = 0.0
        for word in asked & set(unit):
            holders = sum(word in other for other in units)
            idf = math.log1p((len(units) - holders + 0.5) / (holders + 0.5))
            saturation = 1.2 * (1 - 0.75 + 0.75 * len(unit) / mean)
            total += idf * unit.count(word) * 2.2 / (unit.count(word) + saturation)
        own.append(total)
    padded = [0.0, *own, 0.0]
    spread = [
        max(padded[i], 0.5 * max(padded[i - 1], padded[i + 1])) for i in range(1, len(own) + 1)
    ]
    assert scores == pytest.approx(np.array(spread) / max(spread))


@pytest.mark.parametrize("weights", [WEIGHTS, PAPER_WEIGHTS], ids=["ours", "paper"])
def test_scores_are_finite_without_words(weights: object) -> None:
    matrix = TermMatrix.of(np.zeros(0, np.uint64), np.zeros(0, np.bool_), np.zeros(0, np.int64), 3)
    scores = unit_scores(matrix, np.ones(3, np.int64), np.zeros(0, np.uint64), weights)  # type: ignore[arg-type]
    assert np.isfinite(scores).all()


def test_repeats_are_seen_and_other_orders_are_not() -> None:
    words = unit_words("The dog bit the man. The man bit the dog. The dog bit the man. Yes.")
    assert words.repeated().tolist() == [False, False, True, False]
