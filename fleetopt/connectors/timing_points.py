"""Engine timings as CSV: rows grouped by engine, or every bad row with its line.

A file of measurements is small and made by hand: one bad row stops it, since a fit that left out
a point would look just as good.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fleetopt.connectors.columns import MAX_TOKENS
from fleetopt.connectors.traces import STDIN
from fleetopt.errors import InputError
from fleetopt.planner.profile_fit import TimingKind, TimingPoint

COLUMNS: Final = (
    "gpu", "model", "tensor_parallel", "kind", "context_tokens", "batch", "milliseconds",
)  # fmt: skip
_MAX_PARALLEL: Final = 1_024
_MAX_BATCH: Final = 1_000_000
_SHOWN_BAD_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class TimedEngine:
    """The timings of one engine: a model on one kind of GPU at one tensor parallel degree."""

    gpu: str
    model: str
    tensor_parallel: int
    points: tuple[TimingPoint, ...]

    @property
    def name(self) -> str:
        """The engine's name in the catalogue, such as h100/qwen3-32b/tp2."""
        return profile_name(self.gpu, self.model, self.tensor_parallel)


def profile_name(gpu: str, model: str, tensor_parallel: int) -> str:
    """Return the name that the catalogue gives an engine."""
    words = f"{gpu}/{model}/tp{tensor_parallel}".lower().split()
    return "-".join(words)


def read_timing_file(path: str) -> list[TimedEngine]:
    """Return the engines of a CSV file, or of standard input (`-`)."""
    if path == STDIN:
        return read_timing_points(sys.stdin.buffer, "standard input")
    try:
        with Path(path).open("rb") as lines:
            return read_timing_points(lines, path)
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from error


def read_timing_points(lines: Iterable[bytes], source: str) -> list[TimedEngine]:
    """Return the engines of a CSV file in the order in which they first appear.

    InputError says which columns are missing, or which lines are wrong and why.
    """
    try:
        text = [line.decode("utf-8") for line in lines]
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not UTF-8 text: {error}") from error
    if text:
        text[0] = text[0].removeprefix("\ufeff")
    rows = csv.DictReader(text, skipinitialspace=True)
    _check_header([name.strip() for name in rows.fieldnames or ()], source)
    found: dict[str, list[TimedEngine]] = {}
    bad: list[str] = []
    try:
        for row in rows:
            cells = {(key or "").strip(): value for key, value in row.items()}
            try:
                engine = _engine(cells)
            except InputError as error:
                bad.append(f"line {rows.line_num}: {error}")
            else:
                found.setdefault(engine.name, []).append(engine)
    except csv.Error as error:
        bad.append(f"line {rows.reader.line_num}: {error}")
    if bad:
        more = f"; and {len(bad) - _SHOWN_BAD_ROWS} more" if len(bad) > _SHOWN_BAD_ROWS else ""
        raise InputError(f"{source}: {'; '.join(bad[:_SHOWN_BAD_ROWS])}{more}")
    if not found:
        raise InputError(f"{source} holds no timings; expected rows of {','.join(COLUMNS)}")
    return [_together(engines) for engines in found.values()]


def _together(engines: list[TimedEngine]) -> TimedEngine:
    points = tuple(point for engine in engines for point in engine.points)
    return replace(engines[0], points=points)


def _check_header(names: list[str], source: str) -> None:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise InputError(
            f"{source}: the header lacks {', '.join(missing)}; expected {','.join(COLUMNS)}"
        )


def _engine(cells: Mapping[str, str | list[str] | None]) -> TimedEngine:
    named = {column: _cell(cells, column) for column in COLUMNS}
    kind = named["kind"].lower()
    if kind not in list(TimingKind):
        raise InputError(f"kind is {named['kind']!r}; expected decode or prefill")
    point = TimingPoint(
        TimingKind(kind),
        _count(named, "context_tokens", MAX_TOKENS),
        _count(named, "batch", _MAX_BATCH),
        _milliseconds(named["milliseconds"]) / 1e3,
    )
    parallel = _count(named, "tensor_parallel", _MAX_PARALLEL)
    return TimedEngine(named["gpu"].lower(), named["model"], parallel, (point,))


def _cell(cells: Mapping[str, str | list[str] | None], column: str) -> str:
    value = cells.get(column)
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        raise InputError(f"{column} is empty")
    return text


def _count(cells: Mapping[str, str], column: str, largest: int) -> int:
    text = cells[column]
    # int() alone would take 1_000 and digits of other scripts.
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
    if not 1 <= value <= largest:
        raise InputError(f"{column} is {text!r}; expected a whole number from 1 to {largest}")
    return value


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        raise InputError(f"milliseconds is {text!r}; expected a number > 0")
    return value
