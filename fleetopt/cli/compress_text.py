"""What stays of a prompt and what goes, side by side on a terminal."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from fleetopt.cli.output import console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetopt.compressor.cut import Span
    from fleetopt.compressor.outcome import Compressed, Prompt


def describe_cut(outcome: Compressed, prompt: Prompt) -> None:
    """Print the prompt in two columns: kept in the left one, left out in the right one."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = console()
    for title, spans in texts_with_spans(outcome, prompt):
        shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
        shown.add_column("score", justify="right", no_wrap=True)
        shown.add_column("stays", ratio=1)
        shown.add_column("goes", ratio=1)
        for span, text in spans:
            score = "" if span.score is None else f"{span.score:.2f}"
            if span.kept:
                style = "green" if span.score is not None else "cyan"
                shown.add_row(score, Text(visible(text), style=style), "")
            else:
                shown.add_row(score, "", Text(visible(text), style="red"))
        out.print(shown)


def texts_with_spans(
    outcome: Compressed, prompt: Prompt
) -> Iterator[tuple[str, list[tuple[Span, str]]]]:
    """Yield each text that was looked at: a title, and its slices in order."""
    spans = outcome.cut.spans() if outcome.cut is not None else ()
    for (message, part), group in groupby(spans, key=lambda span: (span.message, span.part)):
        if isinstance(prompt, str):
            title, text = "text", prompt
        else:
            title = f"message {message} ({prompt[message]['role']})"
            content = prompt[message]["content"]
            text = content if part is None else content[part]["text"]
            title += "" if part is None else f", part {part}"
        yield title, [(span, text[span.begin : span.end]) for span in group]


def visible(text: str) -> str:
    """Return a slice without the white space around it, and without control characters."""
    return "".join(
        character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}"
        for character in text.strip().expandtabs(4).replace("\r\n", "\n")
    )
