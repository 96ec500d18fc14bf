"""Options that the commands about engine profiles share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetopt.cli.profile_text import ProfileOutput

ChunkOption = Annotated[
    int,
    typer.Option(
        "--prefill-chunk",
        metavar="TOKENS",
        min=1,
        help="Prefill tokens an iteration takes at most: vLLM's --max-num-batched-tokens.",
    ),
]
TensorParallelOption = Annotated[
    int, typer.Option("--tp", metavar="N", min=1, help="Tensor parallel degree: GPUs of a replica.")
]
FormOption = Annotated[
    ProfileOutput | None,
    typer.Option("--output", help="Form of the result. Default: table; toml with -o."),
]
FileOption = Annotated[
    Path | None, typer.Option("-o", metavar="FILE", help="Write to this file; it is replaced.")
]
PriceOption = Annotated[
    float | None,
    typer.Option(metavar="USD", help="Price of a GPU hour. Default: the catalogue's."),
]


def form_of(output: ProfileOutput | None, write_to: Path | None) -> ProfileOutput:
    """Return the form that was asked for; a file is TOML unless something else is said."""
    if output is not None:
        return output
    return ProfileOutput.TABLE if write_to is None else ProfileOutput.TOML
