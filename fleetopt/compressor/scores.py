"""How much each unit of a prompt is worth keeping.

A weighted sum of features in [0, 1]: centrality (TextRank over the cosine graph of TF-IDF vectors),
rare words, place, novelty, numbers and names, relevance to the question (BM25), and coverage, which
credits each term to one unit only and so sees duplicates for what they are.

The cosine graph S = X Xᵀ - I of n units is never built: power iteration needs S·v alone, which is
X (Xᵀ v) less the diagonal, with the sparse row-normalised X. [1]_ [2]_

References
----------
.. [1] R. Mihalcea, P. Tarau, "TextRank: Bringing Order into Text", EMNLP 2004.
.. [2] S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fleetopt.compressor.terms import Hashes, TermMatrix, is_pair

Scores = NDArray[np.float64]

_DAMPING: Final = 0.85
_MAX_ITERATIONS: Final = 16
_TOLERANCE: Final = 1e-5
_BM25_SATURATION: Final = 1.2
_BM25_LENGTH: Final = 0.75
# What a unit beside a relevant one inherits: the answer may stand next to the question's words.
_NEIGHBOUR_SHARE: Final = 0.5
_COVERAGE_ROUNDS: Final = 2
# Coverage is 1 at this quantile of the units, and no more than the maximum: a few short units with
# many rare words would otherwise make all others look alike.
_COVERAGE_HIGH: Final = 0.9
_COVERAGE_MAX: Final = 1.5
# How much more a number or a name is worth covering than another term as rare.
_NOTABLE_VALUE: Final = 3.5
# A word of a script without spaces makes about two pairs of characters.
_PAIR_VALUE: Final = 0.35


@dataclass(frozen=True, slots=True)
class Weights:
    """What each feature counts."""

    centrality: float
    place: float
    rarity: float
    novelty: float
    notable: float
    relevance: float
    coverage: float


WEIGHTS: Final = Weights(
    centrality=0.20,
    place=0.05,
    rarity=0.35,
    novelty=0.05,
    notable=0.03,
    relevance=2.0,
    coverage=1.5,
)
# FleetOpt, arXiv 2603.16514: TextRank, position, TF-IDF, novelty; no question.
PAPER_WEIGHTS: Final = Weights(
    centrality=0.20,
    place=0.40,
    rarity=0.35,
    novelty=0.05,
    notable=0.0,
    relevance=0.0,
    coverage=0.0,
)


def unit_scores(
    matrix: TermMatrix,
    unit_tokens: NDArray[np.int64],
    question: Hashes,
    weights: Weights,
) -> Scores:
    """Return the score of each unit, higher is better.

    Parameters
    ----------
    matrix : TermMatrix
        Words of n units.
    unit_tokens : ndarray of int64, shape (n,)
        Tokens of each unit, at least 1 where it has words.
    question : ndarray of uint64
        Terms of the question; empty where there is none.
    weights : Weights
        What each feature counts.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    n = matrix.n_units
    words = np.bincount(matrix.unit, matrix.count, n).astype(np.float64)
    idf = np.log1p(n / matrix.document_frequency)
    tfidf = matrix.count * idf[matrix.term]
    tokens = np.maximum(unit_tokens, 1).astype(np.float64)
    scores = weights.rarity * _share_of_max(
        np.bincount(matrix.unit, tfidf, n) / np.maximum(words, 1)
    )
    scores += weights.place * (1 - np.arange(n) / max(n, 1))
    if weights.centrality:
        scores += weights.centrality * _share_of_max(centrality(matrix, tfidf))
    if weights.novelty:
        scores += weights.novelty * _novelty(matrix, tfidf)
    if weights.notable:
        notable = np.bincount(matrix.unit, matrix.count * matrix.notable[matrix.term], n)
        scores += weights.notable * _share_of_max(notable / np.maximum(words, 1))
    if weights.relevance and len(question):
        scores += weights.relevance * _share_of_max(_relevance(matrix, words, question))
    if weights.coverage:
        value = idf * (1 + _NOTABLE_VALUE * matrix.notable)
        value[is_pair(matrix.hashes)] *= _PAIR_VALUE
        scores += weights.coverage * _coverage(matrix, value, scores, tokens, weights.coverage)
    return scores


def centrality(matrix: TermMatrix, tfidf: Scores) -> Scores:
    """Return TextRank of each unit over the cosine graph, without building the graph.

    Parameters
    ----------
    matrix : TermMatrix
        Words of n units.
    tfidf : ndarray of float64
        Weight of each stored pair of `matrix`.

    Returns
    -------
    ndarray of float64, shape (n,)
        Sums to at most 1; units without words in common with others share the rest.
    """
    n = matrix.n_units
    if n == 0:
        return np.zeros(0)
    length = np.sqrt(np.bincount(matrix.unit, tfidf * tfidf, n))
    # A term of one unit links it to nothing but itself.
    frequency = matrix.document_frequency
    shared_term = frequency > 1
    shared = shared_term[matrix.term]
    unit = matrix.unit[shared]
    weight = tfidf[shared] / length[unit]
    # Pairs are stored by term, so that the row pointers are known without sorting.
    pointers = np.concatenate(([0], np.cumsum(frequency[shared_term].astype(np.int64))))
    by_term = csr_array((weight, unit, pointers), shape=(len(pointers) - 1, n))
    by_unit = by_term.T
    itself = np.bincount(unit, weight * weight, n)

    def linked(v: Scores) -> Scores:
        product: Scores = by_unit @ (by_term @ v) - itself * v
        return product

    degree = linked(np.ones(n))
    inverse = np.zeros(n)
    np.divide(1.0, degree, out=inverse, where=degree > 1e-9)
    rank = np.full(n, 1 / n)
    for _ in range(_MAX_ITERATIONS):
        previous, rank = rank, (1 - _DAMPING) / n + _DAMPING * linked(rank * inverse)
        if np.abs(rank - previous).sum() < _TOLERANCE:
            break
    return rank


def _relevance(matrix: TermMatrix, words: Scores, question: Hashes) -> Scores:
    """Return BM25 of each unit to the question; a neighbour counts half."""
    n = matrix.n_units
    asked = np.isin(matrix.hashes, question)[matrix.term]
    term, unit, count = matrix.term[asked], matrix.unit[asked], matrix.count[asked]
    frequency = matrix.document_frequency[term]
    idf = np.log1p((n - frequency + 0.5) / (frequency + 0.5))
    relative = words[unit] / max(float(words.mean()), 1.0)
    saturation = _BM25_SATURATION * (1 - _BM25_LENGTH + _BM25_LENGTH * relative)
    own = np.bincount(unit, idf * count * (_BM25_SATURATION + 1) / (count + saturation), n)
    beside = np.zeros(n)
    beside[1:] = own[:-1]
    beside[:-1] = np.maximum(beside[:-1], own[1:])
    return np.maximum(own, _NEIGHBOUR_SHARE * beside)


def _novelty(matrix: TermMatrix, tfidf: Scores) -> Scores:
    """Return the share of a unit's weight in terms that no earlier unit has."""
    n = matrix.n_units
    # Pairs are sorted by term, then unit: the first pair of a term is its first unit.
    first = matrix.term_begin
    new = np.bincount(matrix.unit[first], tfidf[first], n)
    return new / np.maximum(np.bincount(matrix.unit, tfidf, n), 1e-12)


def _coverage(
    matrix: TermMatrix, value: Scores, scores: Scores, tokens: Scores, weight: float
) -> Scores:
    """Credit each term to the unit with the best score that holds it, per token.

    The credit moves scores, and with them who is best: a second round follows the first.
    """
    begin = matrix.term_begin
    if len(begin) == 0:
        return np.zeros(matrix.n_units)
    credit = np.zeros(matrix.n_units)
    for _ in range(_COVERAGE_ROUNDS):
        score = (scores + weight * credit)[matrix.unit]
        best = np.flatnonzero(score == np.maximum.reduceat(score, begin)[matrix.term])
        term = matrix.term[best]
        # Ties go to the earlier unit.
        best = best[np.concatenate(([True], term[1:] != term[:-1]))]
        credit = np.bincount(matrix.unit[best], value[matrix.term[best]], matrix.n_units) / tokens
        high = np.quantile(credit, _COVERAGE_HIGH)
        credit = np.minimum(credit / high, _COVERAGE_MAX) if high > 0 else _share_of_max(credit)
    return credit


def _share_of_max(values: Scores) -> Scores:
    top = values.max(initial=0.0)
    return values / top if top > 0 else np.zeros_like(values)
