"""Results of simulations on disk, by what they depend on: the question and the simulation's source.

A changed planner finds what it asked before; a changed simulation finds nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / ".cache" / "validation"
_SOURCES: Final = (
    *sorted((ROOT / "fleetopt" / "planner" / "simulate").glob("*.py")),
    *sorted(
        ROOT / "fleetopt" / "planner" / name for name in ("band.py", "arrivals.py", "moments.py")
    ),
    ROOT / "validation" / "simulated.py",
    ROOT / "validation" / "streams.py",
    ROOT / "validation" / "traffic.py",
)

Result = TypeVar("Result")


def kept(question: Any, kind: type[Result], answer: Callable[[], Result]) -> Result:
    """The answer to a question (anything that JSON can hold), from disk if it was given before."""
    text = msgspec.json.encode([_source_hash(), kind.__name__, question], order="deterministic")
    path = FOLDER / f"{hashlib.sha256(text).hexdigest()}.json"
    if path.is_file():
        return msgspec.json.decode(path.read_bytes(), type=kind)
    found = answer()
    FOLDER.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    partial.write_bytes(msgspec.json.encode(asdict(found)))  # type: ignore[call-overload]
    partial.replace(path)
    return found


@cache
def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in _SOURCES:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
