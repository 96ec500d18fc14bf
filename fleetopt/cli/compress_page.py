"""What stays of a prompt and what goes, as one self-contained page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from fleetopt.cli.compress_text import texts_with_spans

if TYPE_CHECKING:
    from fleetopt.compressor.outcome import Compressed, Prompt

TEMPLATE: Final = "compress.html.j2"


def page_of(outcome: Compressed, prompt: Prompt, source: str) -> str:
    """Return the page; `source` is where the prompt came from."""
    environment = Environment(
        loader=PackageLoader("fleetopt.cli"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(
        source="standard input" if source == "-" else source,
        tokens_before=outcome.tokens_before,
        tokens_after=outcome.tokens_after,
        kept_share=outcome.kept_share,
        texts=list(texts_with_spans(outcome, prompt)),
    )
