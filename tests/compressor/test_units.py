"""Where units begin."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.compressor.characters import EXTENDS, Characters
from fleetopt.compressor.units import MAX_UNIT_CHARACTERS, unit_bounds


def units(text: str, piece_characters: int = 300) -> list[str]:
    bounds = unit_bounds(Characters.of(text), piece_characters).tolist()
    return [text[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("One.", ["One."]),
        ("One. Two! Three? Four", ["One.", " Two!", " Three?", " Four"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', " Then he left."]),
        ("It cost (about $5.) They paid.", ["It cost (about $5.)", " They paid."]),
        ("Dr. Smith of the U.S. Navy left.", ["Dr. Smith of the U.S. Navy left."]),
        ("See e.g. the mill, i.e. the old one.", ["See e.g. the mill, i.e. the old one."]),
        ("Use v1.2.3 now. Or 3.14 of it.", ["Use v1.2.3 now.", " Or 3.14 of it."]),
        ("It ended at 5. Then it rained.", ["It ended at 5.", " Then it rained."]),
        ("Wait... and see. Done.", ["Wait... and see.", " Done."]),
        ("A title\n\nA paragraph", ["A title", "\n\nA paragraph"]),
        ("A title\r\n\r\nA paragraph", ["A title", "\r\n\r\nA paragraph"]),
        ("A line\nand its rest", ["A line\nand its rest"]),
        ("A line\r\nand its rest", ["A line\r\nand its rest"]),
        ("List:\n- one\n- two", ["List:", "\n- one", "\n- two"]),
        ("List:\n1. one\n2. two\n12) three", ["List:", "\n1. one", "\n2. two", "\n12) three"]),
        ("List:\n  • one\n  • two", ["List:", "\n  • one", "\n  • two"]),
        ("河水上涨了。没有人见过！真的吗?是的", ["河水上涨了。", "没有人见过！", "真的吗?是的"]),
        ("他说：「上涨了。」没有人见过。", ["他说：「上涨了。」", "没有人见过。"]),
        ("पानी बढ़ गया। किसी ने नहीं देखा।", ["पानी बढ़ गया।", " किसी ने नहीं देखा।"]),
        ("هل ارتفع النهر؟ نعم.", ["هل ارتفع النهر؟", " نعم."]),
    ],
)
def test_written_language(text: str, expected: list[str]) -> None:
    assert units(text) == expected


@given(st.text())
def test_units_cover_the_text(text: str) -> None:
    found = units(text)
    assert "".join(found) == text
    assert all(found)


@given(
    st.text("ab ,;\u0301\u200d👩", min_size=MAX_UNIT_CHARACTERS, max_size=3 * MAX_UNIT_CHARACTERS)
)
def test_long_units_are_cut_between_clusters(text: str) -> None:
    flags = Characters.of(text).flags
    at = 0
    for unit in units(text, 100)[:-1]:
        at += len(unit)
        assert not flags[at] & EXTENDS
        assert text[at - 1] != "\u200d"


def test_long_units_are_cut_at_the_best_place() -> None:
    text = ("word " * 15 + "end, ") * 20
    pieces = units(text)
    assert max(map(len, pieces)) <= 300
    assert all(piece.rstrip().endswith(",") for piece in pieces[:-1])


def test_a_cluster_longer_than_a_piece_stays_whole() -> None:
    text = "a" + "\u0301" * 2_000 + "b" * 10
    assert units(text)[0] == "a" + "\u0301" * 2_000


def test_classes_of_all_code_points() -> None:
    codes = np.arange(0x110000, dtype=np.uint32)
    codes = codes[(codes < 0xD800) | (codes > 0xDFFF)]
    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    found = Characters.of(text)
    assert np.array_equal(found.codes, codes)
    assert [chr(code) for code in codes[(found.flags & 4) > 0]] == [
        character
        for character in text
        if character.isspace() and character not in "\x1c\x1d\x1e\x1f"
    ]
