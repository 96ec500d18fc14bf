"""What was kept and what was left out, slice by slice: for explanations, not for the hot path."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.document import Document


@dataclass(frozen=True, slots=True)
class Span:
    """A slice of one text of the prompt, in code points."""

    # Index of the message and of its content part; 0 and None for a plain text.
    message: int
    part: int | None
    begin: int
    end: int
    kept: bool
    # None for protected text: it always stays, whatever it is worth.
    score: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A document and which of its units were kept."""

    document: Document
    kept: NDArray[np.bool_]
    scores: NDArray[np.float64]

    def spans(self) -> tuple[Span, ...]:
        """Return every slice of every text that was looked at, in order."""
        document = self.document
        unit = np.cumsum(document.prose) - 1
        spans = []
        for text, offset in zip(document.texts, document.offsets.tolist(), strict=True):
            end_of_text = offset + len(text.text)
            first = int(np.searchsorted(document.bounds, offset, side="right")) - 1
            last = int(np.searchsorted(document.bounds, end_of_text, side="left"))
            for number in range(first, last):
                begin = max(int(document.bounds[number]), offset)
                end = min(int(document.bounds[number + 1]), end_of_text)
                prose = bool(document.prose[number])
                spans.append(
                    Span(
                        message=text.message,
                        part=text.part,
                        begin=begin - offset,
                        end=end - offset,
                        kept=not prose or bool(self.kept[unit[number]]),
                        score=float(self.scores[unit[number]]) if prose else None,
                    )
                )
        return tuple(span for span in spans if span.begin < span.end)
