"""A measured grid as files: runs as CSV, classes as TOML, and a prior's predictions as CSV."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.csv_table import positive_number, read_csv_file, whole_number
from fleetopt.errors import ConfigError, InputError
from fleetopt.planner.sieve.grid import Configuration, Grid, Point, RequestClass
from fleetopt.planner.sieve.prior import Prior
from fleetopt.planner.sieve.table import Table

Array = NDArray[np.float64]

RUN_COLUMNS: Final = (
    "class", "configuration", "gpus", "load", "offered_per_s", "repeat",
    "throughput_per_s", "completion_p99_s", "cost_gpu_s",
)  # fmt: skip
PRIOR_COLUMNS: Final = (
    "class", "configuration", "load", "speed", "throughput_per_s", "completion_p99_s",
)  # fmt: skip
_CLASS_KEYS: Final = ("demand_per_gpu_s", "demand_per_s", "slo_completion_p99_s")
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Run:
    request_class: str
    configuration: str
    gpus: int
    load: int
    repeat: int
    figures: tuple[float, float, float, float]  # offered, throughput, P99, cost


def read_table(runs_csv: str, classes_toml: str, budget: int) -> Table:
    """Return a grid whose every run has been made.

    Parameters
    ----------
    runs_csv : str
        A file of `RUN_COLUMNS`, a row for every class, configuration, load and repeat.
    classes_toml : str
        A file with a table `[classes.NAME]` for each class: `slo_completion_p99_s`, and either
        `demand_per_s` or `demand_per_gpu_s`.
    budget : int
        GPUs of the fleet, which `demand_per_gpu_s` is multiplied with.

    Raises
    ------
    InputError
        If a file can't be read, a row is bad, missing or there twice, or rows don't agree.
    """
    rows = read_csv_file(runs_csv, RUN_COLUMNS, _run)
    classes = list(dict.fromkeys(row.request_class for row in rows))
    configurations = list(dict.fromkeys(row.configuration for row in rows))
    shape = (
        len(classes),
        len(configurations),
        max(row.load for row in rows),
        max(row.repeat for row in rows),
    )
    figures = np.full((4, *shape), np.nan)
    for row in rows:
        cell = (
            classes.index(row.request_class),
            configurations.index(row.configuration),
            row.load - 1,
            row.repeat - 1,
        )
        if not np.isnan(figures[0][cell]):
            raise InputError(f"{runs_csv}: {_name(row)} is there twice")
        figures[(slice(None), *cell)] = row.figures
    absent = np.argwhere(np.isnan(figures[0]))
    if absent.size:
        one, other, load, repeat = absent[0]
        raise InputError(
            f"{runs_csv}: {len(absent)} runs are missing, such as {classes[one]} on "
            f"{configurations[other]}, load {load + 1}, repeat {repeat + 1}"
        )
    offered, throughput, p99, cost = figures
    if np.any(offered != offered[..., :1]):
        raise InputError(f"{runs_csv}: offered_per_s differs between repeats of a load")
    try:
        grid = Grid(
            _classes(classes_toml, classes, budget),
            tuple(Configuration(name, _gpus(rows, name, runs_csv)) for name in configurations),
            offered[..., 0],
            cost.mean(axis=3),
            repeats=shape[3],
        )
        return Table(grid, throughput, p99)
    except ConfigError as error:
        raise InputError(f"{runs_csv}: {error}") from error


def read_prior(path: str, grid: Grid) -> Prior:
    """Return predictions for a grid from a CSV file of `PRIOR_COLUMNS`.

    Raises
    ------
    InputError
        If the file can't be read, a row is bad or for no cell of the grid, or one is missing.
    """
    rows = read_csv_file(path, PRIOR_COLUMNS, lambda cells: _prediction(cells, grid))
    speeds = sorted({speed for _, speed, _ in rows})
    figures = np.full((2, *grid.shape, len(speeds)), np.nan)
    for point, speed, predicted in rows:
        figures[(slice(None), *point, speeds.index(speed))] = predicted
    absent = np.argwhere(np.isnan(figures[0]))
    if absent.size:
        *cell, speed = absent[0]
        raise InputError(
            f"{path}: {len(absent)} predictions are missing, such as "
            f"{grid.label(Point(*map(int, cell)))} at speed {speeds[speed]:g}"
        )
    try:
        return Prior(np.array(speeds), *figures)
    except ConfigError as error:
        raise InputError(f"{path}: {error}") from error


def _run(cells: Mapping[str, str]) -> _Run:
    return _Run(
        cells["class"],
        cells["configuration"],
        whole_number(cells, "gpus", _MOST),
        whole_number(cells, "load", _MOST),
        whole_number(cells, "repeat", _MOST),
        (
            positive_number(cells, "offered_per_s"),
            _not_negative(cells, "throughput_per_s"),
            positive_number(cells, "completion_p99_s", may_be_infinite=True),
            positive_number(cells, "cost_gpu_s"),
        ),
    )


def _not_negative(cells: Mapping[str, str], column: str) -> float:
    text = cells[column]
    return 0.0 if text.strip("0") in ("", ".") else positive_number(cells, column)


def _prediction(cells: Mapping[str, str], grid: Grid) -> tuple[Point, float, tuple[float, float]]:
    point = Point(
        _position(cells, "class", [one.name for one in grid.classes]),
        _position(cells, "configuration", [one.name for one in grid.configurations]),
        whole_number(cells, "load", grid.shape[2]) - 1,
    )
    speed = positive_number(cells, "speed")
    p99_s = positive_number(cells, "completion_p99_s", may_be_infinite=True)
    return point, speed, (_not_negative(cells, "throughput_per_s"), p99_s)


def _position(cells: Mapping[str, str], column: str, names: Sequence[str]) -> int:
    if cells[column] not in names:
        raise InputError(f"{column} is {cells[column]!r}; expected one of {', '.join(names)}")
    return names.index(cells[column])


def _gpus(rows: Sequence[_Run], configuration: str, source: str) -> int:
    found = {row.gpus for row in rows if row.configuration == configuration}
    if len(found) > 1:
        raise InputError(f"{source}: gpus of {configuration} are {sorted(found)}; expected one")
    return found.pop()


def _name(row: _Run) -> str:
    return f"{row.request_class} on {row.configuration}, load {row.load}, repeat {row.repeat}"


def _classes(path: str, names: Sequence[str], budget: int) -> tuple[RequestClass, ...]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error
    tables = document.get("classes")
    if not isinstance(tables, dict):
        raise InputError(f"{path} has no table [classes.NAME]; expected one for {names[0]}")
    missing = [name for name in names if not isinstance(tables.get(name), dict)]
    if missing:
        raise InputError(f"{path}: the table [classes.{missing[0]}] is missing")
    return tuple(_class(path, name, tables[name], budget) for name in names)


def _class(path: str, name: str, values: Mapping[str, Any], budget: int) -> RequestClass:
    where = f"{path}: classes.{name}"
    for key, value in values.items():
        if key not in _CLASS_KEYS:
            raise InputError(f"{where}.{key} is unknown; expected {', '.join(_CLASS_KEYS)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{where}.{key} is {value!r}; expected a number > 0")
    if "slo_completion_p99_s" not in values:
        raise InputError(f"{where}.slo_completion_p99_s is missing")
    if ("demand_per_s" in values) == ("demand_per_gpu_s" in values):
        raise InputError(f"{where}: expected either demand_per_s or demand_per_gpu_s")
    demand = values.get("demand_per_s", budget * values.get("demand_per_gpu_s", 0.0))
    try:
        return RequestClass(name, float(demand), float(values["slo_completion_p99_s"]))
    except ConfigError as error:
        raise InputError(f"{path}: {error}") from error
