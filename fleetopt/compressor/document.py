"""The texts of a prompt laid end to end, cut into units, some of which may be dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.blocks import Block, blocks
from fleetopt.compressor.characters import SPACE, Characters
from fleetopt.compressor.content import Content
from fleetopt.compressor.distinct import distinct
from fleetopt.compressor.messages import Text
from fleetopt.compressor.terms import TermMatrix, Words
from fleetopt.compressor.units import unit_bounds

# Stands between texts, belongs to none, and lets no word or sentence run on.
_SEPARATOR: Final = "\n\n"


@dataclass(frozen=True, slots=True)
class Document:
    """n units of prose, in order, between text that stays.

    `bounds` cuts the whole of `joined` into slices; `prose` says which are units.
    """

    texts: tuple[Text, ...]
    # Where each text begins in `joined`.
    offsets: NDArray[np.int64]
    joined: str
    characters: Characters
    bounds: NDArray[np.int64]
    prose: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        texts: Sequence[Text],
        piece_characters: int,
        min_prose_characters: int,
        found: Sequence[Sequence[Block]] | None = None,
    ) -> "Document":
        """Cut the texts into units; shorter stretches of prose between atoms stay whole.

        `found` are the blocks of each text, where the caller has them already.
        """
        found = found or [blocks(text.text) for text in texts]
        joined = _SEPARATOR.join(text.text for text in texts)
        lengths = np.array([len(text.text) + len(_SEPARATOR) for text in texts], np.int64)
        offsets = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        characters = Characters.of(joined)
        begins, ends = _prose(found, offsets, characters, min_prose_characters)
        bounds = distinct(np.concatenate((unit_bounds(characters, piece_characters), begins, ends)))
        stretch = np.searchsorted(begins, bounds[:-1], side="right") - 1
        prose = stretch >= 0
        prose[prose] = bounds[:-1][prose] < ends[stretch[prose]]
        return cls(tuple(texts), offsets, joined, characters, bounds, prose)

    @property
    def unit_begin(self) -> NDArray[np.int64]:
        """Where each unit begins in `joined`."""
        return self.bounds[:-1][self.prose]

    @property
    def unit_end(self) -> NDArray[np.int64]:
        """Where each unit ends in `joined`."""
        return self.bounds[1:][self.prose]

    def unit_texts(self) -> list[str]:
        """Return the text of each unit."""
        ends = self.unit_end.tolist()
        return [
            self.joined[begin:end]
            for begin, end in zip(self.unit_begin.tolist(), ends, strict=True)
        ]

    def words(self) -> "UnitWords":
        """Return the words of the units."""
        words = Words.of(self.characters)
        at = np.searchsorted(self.bounds, words.begin, side="right") - 1
        in_prose = self.prose[at]
        unit = (np.cumsum(self.prose) - 1)[at[in_prose]]
        return UnitWords(
            n_units=int(self.prose.sum()),
            unit=unit,
            hashes=words.hashes[in_prose],
            number=words.number[in_prose],
            capital=words.capital[in_prose],
        )

    def rebuilt(self, kept: NDArray[np.bool_]) -> dict[tuple[int, int | None], str]:
        """Return each text with only the kept units, and all that stays."""
        stays = ~self.prose
        stays[self.prose] = kept
        edges = np.flatnonzero(np.diff(np.concatenate(([False], stays, [False])).astype(np.int8)))
        begins, ends = self.bounds[edges[0::2]], self.bounds[edges[1::2]]
        texts = {}
        for number, text in enumerate(self.texts):
            begin = int(self.offsets[number])
            end = begin + len(text.text)
            first = int(np.searchsorted(ends, begin, side="right"))
            last = int(np.searchsorted(begins, end, side="left"))
            slices = zip(begins[first:last].tolist(), ends[first:last].tolist(), strict=True)
            texts[text.message, text.part] = "".join(
                self.joined[max(a, begin) : min(b, end)] for a, b in slices
            )
        return texts


@dataclass(frozen=True, slots=True)
class UnitWords:
    """The words of all units, in order."""

    n_units: int
    unit: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    number: NDArray[np.bool_]
    capital: NDArray[np.bool_]

    def matrix(self) -> TermMatrix:
        """Count them. A capital says nothing where a unit begins with it."""
        name = self.capital.copy()
        name[1:] &= self.unit[1:] == self.unit[:-1]
        name[:1] = False
        return TermMatrix.of(self.hashes, name | self.number, self.unit, self.n_units)

    def repeated(self) -> NDArray[np.bool_]:
        """Return which units have exactly the words of an earlier one."""
        repeated = np.zeros(self.n_units, np.bool_)
        begin = np.flatnonzero(np.append(True, self.unit[1:] != self.unit[:-1])[: len(self.unit)])
        if len(begin):
            # Places count, so that the same words in another order are another unit.
            place = np.arange(len(self.unit)) - np.repeat(
                begin, np.diff(np.append(begin, len(self.unit)))
            )
            sums = np.add.reduceat(self.hashes * (2 * place.astype(np.uint64) + 1), begin)
            unit = self.unit[begin]
            repeated[unit] = True
            repeated[unit[np.unique(sums, return_index=True)[1]]] = False
        return repeated


def _prose(
    found: Sequence[Sequence[Block]],
    offsets: NDArray[np.int64],
    characters: Characters,
    min_prose_characters: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return begins and ends of the stretches that may be cut."""
    begins, ends = [], []
    for of_text, offset in zip(found, offsets.tolist(), strict=True):
        for number, block in enumerate(of_text):
            if block.content is not Content.PROSE:
                continue
            begin, end = offset + block.start, offset + block.end
            if number + 1 < len(of_text):
                end = _without_space(characters, begin, end)
            if end - begin >= min_prose_characters:
                begins.append(begin)
                ends.append(end)
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _without_space(characters: Characters, begin: int, end: int) -> int:
    """Leave white space to an atom that follows: a fence must begin its line."""
    solid = np.flatnonzero((characters.flags[begin:end] & SPACE) == 0)
    return begin + int(solid[-1]) + 1 if len(solid) else begin
