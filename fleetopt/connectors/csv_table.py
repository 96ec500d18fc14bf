"""A small CSV file made by hand or by a tool: every row as a value, or every bad row with its line.

One bad row stops the file: what is made of a table with a row left out would look just as good.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from fleetopt.connectors.traces import STDIN
from fleetopt.errors import InputError

Row = TypeVar("Row")
_SHOWN_BAD_ROWS: Final = 5
_LONGEST_COUNT: Final = 11


def read_csv_file(
    path: str, columns: Sequence[str], parse: Callable[[Mapping[str, str]], Row]
) -> list[Row]:
    """Return the rows of a CSV file, or of standard input (`-`); arguments as of `read_csv`."""
    if path == STDIN:
        return read_csv(sys.stdin.buffer, "standard input", columns, parse)
    try:
        with Path(path).open("rb") as lines:
            return read_csv(lines, path, columns, parse)
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from error


def read_csv(
    lines: Iterable[bytes],
    source: str,
    columns: Sequence[str],
    parse: Callable[[Mapping[str, str]], Row],
) -> list[Row]:
    """Return what `parse` makes of each row; it gets the cells of `columns`, none of them empty.

    Columns may come in any order, and others beside them. InputError says which columns are
    missing, or which lines are wrong and why.
    """
    try:
        text = [line.decode("utf-8") for line in lines]
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not UTF-8 text: {error}") from error
    if text:
        text[0] = text[0].removeprefix("\ufeff")
    rows = csv.DictReader(text, skipinitialspace=True)
    _check_header([name.strip() for name in rows.fieldnames or ()], columns, source)
    found: list[Row] = []
    bad: list[str] = []
    try:
        for row in rows:
            cells = {(key or "").strip(): value for key, value in row.items()}
            try:
                found.append(parse({column: _cell(cells, column) for column in columns}))
            except InputError as error:
                bad.append(f"line {rows.line_num}: {error}")
    except csv.Error as error:
        bad.append(f"line {rows.reader.line_num}: {error}")
    if bad:
        more = f"; and {len(bad) - _SHOWN_BAD_ROWS} more" if len(bad) > _SHOWN_BAD_ROWS else ""
        raise InputError(f"{source}: {'; '.join(bad[:_SHOWN_BAD_ROWS])}{more}")
    if not found:
        raise InputError(f"{source} holds no rows; expected rows of {','.join(columns)}")
    return found


def whole_number(cells: Mapping[str, str], column: str, largest: int) -> int:
    """Return a cell as a whole number from 1 to `largest`."""
    text = cells[column]
    # int() alone would take 1_000 and digits of other scripts.
    is_short = len(text) <= _LONGEST_COUNT
    value = int(text) if text.isascii() and text.isdigit() and is_short else 0
    if not 1 <= value <= largest:
        raise InputError(f"{column} is {text!r}; expected a whole number from 1 to {largest}")
    return value


def positive_number(
    cells: Mapping[str, str], column: str, *, may_be_infinite: bool = False
) -> float:
    """Return a cell as a number above 0."""
    text = cells[column]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    is_number = value == math.inf if may_be_infinite else False
    if not (is_number or (math.isfinite(value) and value > 0.0)):
        also = " or inf" if may_be_infinite else ""
        raise InputError(f"{column} is {text!r}; expected a number > 0{also}")
    return value


def _check_header(names: Sequence[str], columns: Sequence[str], source: str) -> None:
    missing = [name for name in columns if name not in names]
    if missing:
        raise InputError(
            f"{source}: the header lacks {', '.join(missing)}; expected {','.join(columns)}"
        )


def _cell(cells: Mapping[str, str | list[str] | None], column: str) -> str:
    value = cells.get(column)
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        raise InputError(f"{column} is empty")
    return text
