"""Headings stay with what they head, and a colon with the list that it announces."""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetopt.compressor.characters import Characters
from fleetopt.compressor.compress import compress
from fleetopt.compressor.leads import leads_of, lifted
from fleetopt.compressor.outcome import Compressed
from fleetopt.compressor.tokens import TokenCounter

TOPICS = ("harbour", "orchard", "foundry", "library", "station", "granary", "brewery", "mill")


def chapters() -> str:
    """Eight chapters of prose, each under a heading."""
    return "\n\n".join(
        f"## The {topic} of the town\n\n"
        + " ".join(
            f"In {1700 + 13 * at + number} the {topic} had {number + 3} keepers who wrote letters "
            f"about weather, grain and the price of rope number {at * 31 + number}."
            for number in range(12)
        )
        for at, topic in enumerate(TOPICS)
    )


@pytest.mark.parametrize("share", [0.6, 0.75, 0.9])
def test_a_heading_stays_where_something_under_it_does(share: float, counter: TokenCounter) -> None:
    text = chapters()
    found = compress(text, int(share * counter.count(text)), counter)
    assert isinstance(found, Compressed)
    assert isinstance(found.prompt, str)
    for topic in TOPICS:
        if re.search(rf"the {topic} had", found.prompt):
            assert f"## The {topic} of the town" in found.prompt


def test_what_announces_a_table_stays_with_it(counter: TokenCounter) -> None:
    table = "\n".join(
        ["| rope | price |", "| --- | --- |", *(f"| {n} | {n * n} |" for n in range(9))]
    )
    lead = "These are the prices that everybody agreed on in the end:"
    text = f"{chapters()}\n\n{lead}\n\n{table}\n\n{chapters()}"
    found = compress(text, int(0.7 * counter.count(text)), counter)
    assert isinstance(found, Compressed)
    assert isinstance(found.prompt, str)
    assert table in found.prompt
    assert lead in found.prompt


def units(*texts: str) -> tuple[Characters, NDArray[np.int64], NDArray[np.int64]]:
    """Units end to end."""
    ends = np.cumsum([len(text) for text in texts])
    return Characters.of("".join(texts)), np.append(0, ends[:-1]), ends


def test_which_units_lead() -> None:
    leads = leads_of(
        *units("# One\n", "Words here. ", "Namely:\n", "- a\n", " ## Two", " \n", "x" * 200 + "#")
    )
    assert leads.headings.tolist() == [0, 4]
    assert leads.colons.tolist() == [2]
    assert not leads.forced.any()


def test_a_colon_before_what_stays_is_forced() -> None:
    characters, begin, end = units("One. ", "As follows:", "TABLE", " After. ")
    leads = leads_of(characters, np.delete(begin, 2), np.delete(end, 2))
    assert leads.forced.tolist() == [False, True, False]


def test_a_unit_that_leads_is_worth_the_best_of_what_it_leads_to() -> None:
    leads = leads_of(*units("# A\n", "## B\n", "one. ", "two. ", "# C\n", "see:\n", "- x\n", "- y"))
    scores = np.array([0.1, 0.2, 0.5, 0.9, 0.0, 0.1, 0.3, 0.7])
    found = lifted(scores, leads)
    assert found.tolist() == pytest.approx([0.9, 0.9, 0.5, 0.9, 0.7, 0.7, 0.3, 0.7])
    assert found[0] > 0.9
    assert scores[0] == 0.1, "what is given stays"


def test_nothing_leads_where_there_is_nothing() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    leads = leads_of(Characters.of("  "), nothing, nothing)
    assert lifted(np.zeros(0), leads).tolist() == []
