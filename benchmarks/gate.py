"""How well the content gate tells prose from what must stay as it is.

`python -m benchmarks gate` classifies the half of the corpus that the gate wasn't tuned on;
`python -m benchmarks.gate` shows the other half.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console

from benchmarks.gate_corpus import Sample, samples
from benchmarks.report import Table
from fleetopt.compressor.blocks import Content, blocks
from fleetopt.compressor.gate import content_of


@dataclass(slots=True)
class Figures:
    """Counts of what was found, by what it was."""

    documents: dict[tuple[str, Content], Counter[Content]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """By kind of text and by what it mainly is."""
    characters: dict[Content, Counter[Content]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """Characters of lines whose content is known, by content."""
    characters_of: dict[tuple[str, Content], Counter[bool]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """By kind of text: right or wrong about being prose."""


def measure(corpus: Iterable[Sample]) -> Figures:
    """Classify every text and every line."""
    figures = Figures()
    for sample in corpus:
        if sample.lines is not None and sample.kind != "mixed":
            kind = (sample.kind, sample.content)
            figures.documents[kind][content_of(sample.text)] += 1
        if sample.lines is None:
            continue
        for content, found, size in zip(
            sample.lines, found_lines(sample.text), _sizes(sample.text), strict=False
        ):
            if size:
                figures.characters[content][found] += size
                wrong = (content is Content.PROSE) != (found is Content.PROSE)
                figures.characters_of[sample.kind, sample.content][wrong] += size
    return figures


def found_lines(text: str) -> list[Content]:
    """Return what the segmenter makes of each line."""
    found: list[Content] = []
    for block in blocks(text):
        found += [block.content] * text.count("\n", block.start, block.end)
    return [*found, Content.PROSE] if text.endswith("\n") else [*found, block.content]


def _sizes(text: str) -> list[int]:
    return [len(line.strip()) for line in text.split("\n")]


def document_table(figures: Figures) -> Table:
    """Return what texts were taken for, by kind."""
    contents = list(Content)
    rows = [
        (
            kind,
            str(content),
            str(counter.total() or ""),
            *(str(counter[found] or "") for found in contents),
            _share(wrong[True], wrong.total()),
        )
        for (kind, content), wrong in sorted(
            figures.characters_of.items(), key=lambda item: (item[0][1], item[0][0])
        )
        for counter in (figures.documents.get((kind, content), Counter()),)
    ]
    columns = ("texts", "are", "n", *map(str, contents), "lines on the wrong side")
    return Table("Whole texts, by what the gate takes them for", columns, rows)


def line_table(figures: Figures) -> Table:
    """Return what lines were taken for, by characters."""
    contents = list(Content)
    rows = [
        (
            str(content),
            f"{counter.total():,}",
            *(_share(counter[found], counter.total()) for found in contents),
        )
        for content, counter in sorted(figures.characters.items())
    ]
    columns = ("lines of", "characters", *map(str, contents))
    return Table("Lines, by what the segmenter takes them for", columns, rows)


def error_table(figures: Figures) -> Table:
    """Return both kinds of error, by text and by character."""
    texts = _errors((content, found) for (_, content), found in figures.documents.items())
    lines = _errors(figures.characters.items())
    titles = ("something else taken for prose", "prose taken for something else")
    rows = [(title, texts[n], lines[n]) for n, title in enumerate(titles)]
    return Table("The two errors", ("error", "of texts", "of characters in lines"), rows)


def _errors(counted: Iterable[tuple[Content, Counter[Content]]]) -> tuple[str, str]:
    wrong, total = [0, 0], [0, 0]
    for content, found in counted:
        side = int(content is Content.PROSE)
        total[side] += found.total()
        prose = found[Content.PROSE]
        wrong[side] += found.total() - prose if side else prose
    return _share(wrong[0], total[0]), _share(wrong[1], total[1])


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if part and whole else ""


def measure_half(*, tuning: bool) -> Figures:
    """Classify one half of the corpus."""
    return measure(sample for sample in samples() if sample.for_tuning == tuning)


def gate_tables(figures: Figures) -> list[Table]:
    """Return all tables."""
    return [error_table(figures), document_table(figures), line_table(figures)]


if __name__ == "__main__":
    for table in gate_tables(measure_half(tuning=True)):
        table.show(Console(width=150))
