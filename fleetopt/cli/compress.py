"""`fleetopt compress`: fit one prompt into a budget, and show what was left out."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fleetopt.cli.options import check_input
from fleetopt.cli.output import ExitCode, print_error, print_json, print_note
from fleetopt.errors import InputError

if TYPE_CHECKING:
    from fleetopt.compressor.outcome import Compressed, Prompt, Unchanged


def compress(
    prompt: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The prompt: text, or JSON with chat messages (a list, or an object with "
            "`messages`); - for stdin.",
        ),
    ],
    budget: Annotated[
        int,
        typer.Option(metavar="TOKENS", min=1, help="Most tokens of the prompt, template included."),
    ],
    model: Annotated[str, typer.Option(help="Whose tokens count.")] = "Qwen/Qwen3-32B",
    tokenizer_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The engine, whose /tokenize counts. Default: bundled."),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(help="What is asked of it. Default: looked for in it."),
    ] = None,
    category: Annotated[
        Literal["prose", "rag", "chat", "code", "tool", "other"] | None,
        typer.Option(help="What the prompt is. Default: what it looks like."),
    ] = None,
    min_kept_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Where less of the prose would stay, all stays."),
    ] = 0.5,
    tool_results: Annotated[
        bool, typer.Option("--tool-results", help="Cut the results of tools too.")
    ] = False,
    weights: Annotated[
        Literal["default", "paper"], typer.Option(help="Scores: ours, or the paper's.")
    ] = "default",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what stays and what goes, side by side.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write what stays and what goes as a page."),
    ] = None,
    output: Annotated[
        Literal["text", "json"],
        typer.Option(help="The prompt alone, or everything about it."),
    ] = "text",
) -> None:
    """Fit a prompt into a budget of tokens by leaving out what it can best do without.

    Prints the prompt to standard output and a summary to standard error. Code, tables, JSON, system
    messages and the question stay as they are. See docs/compression.md.
    Exit code 3: it can't be made to fit, and is printed unchanged.

    \b
    Examples:
      fleetopt compress report.txt --budget 4000 --explain
      fleetopt compress report.txt --budget 4000 --question "What did the mill cost?" > short.txt
      fleetopt compress chat.json --budget 8000 --model meta-llama/Llama-3.1-8B-Instruct
      cat chat.json | fleetopt compress - --budget 8000 --output json
      fleetopt compress chat.json --budget 8000 --model my-model --tokenizer-url http://engine:8000
    """
    if html is not None:
        from fleetopt.cli.report import check_page

        check_page(html)
    from fleetopt.compressor.compress import compress as compress_prompt
    from fleetopt.compressor.options import CompressOptions
    from fleetopt.compressor.outcome import Compressed, Reason
    from fleetopt.connectors.token_counter import counter_for

    given = _read(check_input(prompt))
    outcome = compress_prompt(
        given,
        budget,
        counter_for(model, tokenizer_url),
        options=CompressOptions(
            category=category,
            question=question,
            min_kept_share=min_kept_share,
            compress_tool_results=tool_results,
            weights=weights,
        ),
        clock=time.perf_counter,
    )
    if output == "json":
        print_json(_json(outcome))
    elif explain:
        from fleetopt.cli.compress_text import describe_cut

        if isinstance(outcome, Compressed):
            describe_cut(outcome, given)
    else:
        _print_prompt(outcome.prompt if isinstance(outcome, Compressed) else given)
    if html is not None and isinstance(outcome, Compressed):
        from fleetopt.cli.compress_page import page_of
        from fleetopt.cli.report import write_page

        write_page(html, page_of(outcome, given, prompt))
        print_note(f"wrote {html}")
    if isinstance(outcome, Compressed):
        print_note(_summary(outcome))
    elif outcome.reason is Reason.FITS:
        print_note(f"unchanged: {outcome.detail}")
    else:
        print_error(f"unchanged ({outcome.reason}): {outcome.detail}")
        raise typer.Exit(ExitCode.INFEASIBLE)


def _read(path: str) -> Prompt:
    """Return the chat that a file holds, or else its text."""
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: byte {error.start} is not UTF-8; a prompt is text in UTF-8"
        ) from error
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict):
        value = value.get("messages")
    is_chat = isinstance(value, list) and value and all(_is_message(one) for one in value)
    return value if is_chat else text


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and "role" in value


def _print_prompt(prompt: Prompt) -> None:
    if isinstance(prompt, str):
        sys.stdout.write(prompt)
    else:
        print_json(prompt)


def _json(outcome: Compressed | Unchanged) -> dict[str, Any]:
    from fleetopt.compressor.outcome import Compressed

    stage_s = {stage.value: seconds for stage, seconds in outcome.stage_s.items()}
    if not isinstance(outcome, Compressed):
        return {
            "outcome": "unchanged",
            "reason": outcome.reason.value,
            "detail": outcome.detail,
            "tokens_before": outcome.tokens_before,
            "stage_s": stage_s,
        }
    return {
        "outcome": "compressed",
        "tokens_before": outcome.tokens_before,
        "tokens_after": outcome.tokens_after,
        "stage_s": stage_s,
        "prompt": outcome.prompt,
        "spans": [asdict(span) for span in outcome.cut.spans()] if outcome.cut else [],
    }


def _summary(outcome: Compressed) -> str:
    spent_ms = 1e3 * sum(outcome.stage_s.values())
    return (
        f"{outcome.tokens_before:,} tokens became {outcome.tokens_after:,} "
        f"({outcome.kept_share:.0%}) in {spent_ms:.1f} ms"
    )
