"""Runs inside sumy's own environment: a line of JSON in, a line with what it took out.

It imports nothing of FleetOpt. sumy gets the sentences that we cut, and splits words at white
space, so that what is timed is its ranking and not a tokenizer.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
from sumy.summarizers.lex_rank import LexRankSummarizer
from sumy.summarizers.text_rank import TextRankSummarizer

SUMMARIZERS = {"TextRank": TextRankSummarizer, "LexRank": LexRankSummarizer}


class Words:
    """What sumy asks of a tokenizer."""

    @staticmethod
    def to_words(sentence: str) -> tuple[str, ...]:
        """Split at white space, or into characters where there is none."""
        return tuple(sentence.split()) if " " in sentence.strip() else tuple(sentence)


def rank(case: dict[str, Any]) -> dict[str, Any]:
    """Keep so many of the units."""
    start = time.perf_counter()
    sentences = [Sentence(unit, Words) for unit in case["units"] if unit.strip()]
    document = ObjectDocumentModel([Paragraph(sentences)])
    kept = SUMMARIZERS[case["method"]]()(document, case["keep"])
    return {"took_s": time.perf_counter() - start, "kept": len(kept), "version": version("sumy")}


for line in sys.stdin:
    print(json.dumps(rank(json.loads(line))), flush=True)
