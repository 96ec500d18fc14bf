"""Engine timings as CSV: rows grouped by engine, or every bad row with its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fleetopt.connectors.columns import MAX_TOKENS
from fleetopt.connectors.csv_table import positive_number, read_csv, read_csv_file, whole_number
from fleetopt.errors import InputError
from fleetopt.planner.profile_fit import TimingKind, TimingPoint

COLUMNS: Final = (
    "gpu", "model", "tensor_parallel", "kind", "context_tokens", "batch", "milliseconds",
)  # fmt: skip
_MAX_PARALLEL: Final = 1_024
_MAX_BATCH: Final = 1_000_000


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
    return _by_name(read_csv_file(path, COLUMNS, _engine))


def read_timing_points(lines: Iterable[bytes], source: str) -> list[TimedEngine]:
    """Return the engines of a CSV file in the order in which they first appear.

    InputError says which columns are missing, or which lines are wrong and why.
    """
    return _by_name(read_csv(lines, source, COLUMNS, _engine))


def _by_name(rows: Iterable[TimedEngine]) -> list[TimedEngine]:
    found: dict[str, list[TimedEngine]] = {}
    for engine in rows:
        found.setdefault(engine.name, []).append(engine)
    return [_together(engines) for engines in found.values()]


def _together(engines: list[TimedEngine]) -> TimedEngine:
    points = tuple(point for engine in engines for point in engine.points)
    return replace(engines[0], points=points)


def _engine(cells: Mapping[str, str]) -> TimedEngine:
    kind = cells["kind"].lower()
    if kind not in list(TimingKind):
        raise InputError(f"kind is {cells['kind']!r}; expected decode or prefill")
    point = TimingPoint(
        TimingKind(kind),
        whole_number(cells, "context_tokens", MAX_TOKENS),
        whole_number(cells, "batch", _MAX_BATCH),
        positive_number(cells, "milliseconds") / 1e3,
    )
    parallel = whole_number(cells, "tensor_parallel", _MAX_PARALLEL)
    return TimedEngine(cells["gpu"].lower(), cells["model"], parallel, (point,))
