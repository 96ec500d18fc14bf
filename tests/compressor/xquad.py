"""Paragraphs and questions of XQuAD, from the shared data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, and (question, answer in the paragraph's own words) pairs."""

    text: str
    questions: tuple[tuple[str, str], ...]


def paragraphs(shared_data: Path, language: str) -> list[Paragraph]:
    """Read all paragraphs of a language (`en` or `zh`)."""
    document = json.loads((shared_data / "xquad" / f"xquad.{language}.json").read_text("utf-8"))
    return [
        Paragraph(
            paragraph["context"],
            tuple((asked["question"], asked["answers"][0]["text"]) for asked in paragraph["qas"]),
        )
        for article in document["data"]
        for paragraph in article["paragraphs"]
    ]
