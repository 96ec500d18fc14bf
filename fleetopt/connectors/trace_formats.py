"""The formats of trace files: lines of bytes → request records, or the reason why a line is bad.

Owns how a format is told from its first lines, and how one line of it is read. Knows no file and
no order. Every format ends in `RequestLog`, so one schema judges all of them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError

DEFAULT_FLEET: Final = "default"
"""The fleet of traces that name none."""

MOONCAKE_EPOCH_S: Final = 946_684_800.0
"""2000-01-01T00:00Z: where Mooncake's relative time stamps begin; whole minutes and hours fit."""

CSV_TIME, CSV_PROMPT, CSV_COMPLETION = "timestamp", "contexttokens", "generatedtokens"
_CSV_COLUMNS: Final = {
    CSV_TIME: "TIMESTAMP",
    CSV_PROMPT: "ContextTokens",
    CSV_COMPLETION: "GeneratedTokens",
}
_EXPECTED: Final = (
    "expected a CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens, "
    "JSON Lines of request records (fleet, request_id, arrival_s, prompt_tokens, "
    "completion_tokens), or Mooncake's JSON Lines (timestamp, input_length, output_length)"
)


class InputFormat(StrEnum):
    """What a file holds."""

    CSV = "csv"
    NATIVE = "jsonl"
    MOONCAKE = "mooncake"
    CDF = "cdf"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that holds no usable request."""

    line: int
    reason: str


RowReader = Callable[[Iterable[bytes], str], Iterator[RequestLog | BadRow]]


class _MooncakeRow(msgspec.Struct, frozen=True, gc=False):
    timestamp: float  # ms since the trace's begin
    input_length: int
    output_length: int


_decode_native = msgspec.json.Decoder(RequestLog).decode
_decode_mooncake = msgspec.json.Decoder(_MooncakeRow).decode


def detect_format(head: list[bytes]) -> InputFormat:
    """Tell a file's format from its first lines; InputError if they fit none."""
    lines = [line.removeprefix(b"\xef\xbb\xbf").strip() for line in head]
    lines = [line for line in lines if line]
    if not lines:
        raise InputError(f"the input is empty: {_EXPECTED}")
    if lines[0].startswith(b"["):
        return InputFormat.CDF
    if lines[0].startswith(b"{"):
        return _detect_json(lines)
    if CSV_TIME in _cells(lines[0].decode(errors="replace").split(",")):
        return InputFormat.CSV
    for line in lines[1:]:  # the first lines may be damaged
        if line.startswith(b"{"):
            return _detect_json(lines)
    raise InputError(f"not a trace, its first line is {_shown(lines[0])}: {_EXPECTED}")


def _detect_json(lines: list[bytes]) -> InputFormat:
    for line in lines:
        try:
            keys = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if not isinstance(keys, dict):
            continue
        if "cdf" in keys:
            return InputFormat.CDF
        if "input_length" in keys:
            return InputFormat.MOONCAKE
        if "prompt_tokens" in keys or "arrival_s" in keys:
            return InputFormat.NATIVE
    if b'"cdf"' in b"\n".join(lines[:20]):
        return InputFormat.CDF
    raise InputError(f"not a trace, its first line is {_shown(lines[0])}: {_EXPECTED}")


def read_csv(lines: Iterable[bytes], fleet: str) -> Iterator[RequestLog | BadRow]:
    """Read `TIMESTAMP,ContextTokens,GeneratedTokens`; a time without a zone is UTC."""
    # No quoting: a stray quote mark must not swallow the lines after it.
    rows = csv.reader(
        (line.decode(errors="replace") for line in lines), quoting=csv.QUOTE_NONE, strict=True
    )
    columns: dict[str, int] | None = None
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadRow(rows.line_num, str(error))
            continue
        if not cells or cells == [""]:
            continue
        if columns is None:
            columns = _csv_header(cells)
        else:
            yield _csv_row(cells, columns, rows.line_num, fleet)


def _cells(cells: list[str]) -> list[str]:
    return [cell.strip(' \t"').casefold() for cell in cells]


def _csv_header(cells: list[str]) -> dict[str, int]:
    names = _cells([cells[0].removeprefix("\ufeff"), *cells[1:]])
    missing = [shown for name, shown in _CSV_COLUMNS.items() if name not in names]
    if missing:
        raise InputError(f"the CSV header lacks {', '.join(missing)}: {','.join(cells)}")
    return {name: names.index(name) for name in _CSV_COLUMNS}


def _csv_row(
    cells: list[str], columns: dict[str, int], line: int, fleet: str
) -> RequestLog | BadRow:
    try:
        time, prompt, completion = (cells[at].strip(' \t"') for at in columns.values())
    except IndexError:
        return BadRow(line, f"{len(cells)} cells, the header has more: {','.join(cells)[:80]!r}")
    try:
        arrival_s = epoch_s(time)
    except ValueError:
        return BadRow(line, f"TIMESTAMP {time!r} is neither an ISO 8601 time nor epoch seconds")
    try:
        return _record(fleet, line, arrival_s, prompt, completion)
    except msgspec.ValidationError as error:
        reason = str(error)
        for path, name, cell in (
            ("`$.arrival_s`", "TIMESTAMP", time),
            ("`$.prompt_tokens`", "ContextTokens", prompt),
            ("`$.completion_tokens`", "GeneratedTokens", completion),
        ):
            reason = reason.replace(path, f"{name} {cell!r}")
        return BadRow(line, reason)


def epoch_s(text: str) -> float:
    """Return the epoch seconds of an ISO 8601 time (no zone: UTC) or of a number."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return float(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def read_native(lines: Iterable[bytes], fleet: str) -> Iterator[RequestLog | BadRow]:
    """Read JSON Lines of `RequestLog`; each record names its own fleet."""
    del fleet
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            yield _decode_native(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield BadRow(number, _json_reason(error, line))


def read_mooncake(lines: Iterable[bytes], fleet: str) -> Iterator[RequestLog | BadRow]:
    """Read Mooncake's JSON Lines: `timestamp` in ms from the begin, two lengths in tokens."""
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            row = _decode_mooncake(line)
            yield _record(
                fleet,
                number,
                MOONCAKE_EPOCH_S + row.timestamp / 1e3,
                row.input_length,
                row.output_length,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield BadRow(number, _json_reason(error, line))


def _record(
    fleet: str, line: int, arrival_s: float, prompt_tokens: Any, completion_tokens: Any
) -> RequestLog:
    fields = {
        "fleet": fleet,
        "request_id": str(line),
        "arrival_s": arrival_s,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
    }
    return msgspec.convert(fields, RequestLog, strict=False)


def _json_reason(error: Exception, line: bytes) -> str:
    if isinstance(error, msgspec.ValidationError):
        return str(error)
    return f"not JSON: {error}: {_shown(line)}"


def _shown(line: bytes) -> str:
    return repr(line.strip()[:60].decode(errors="replace"))


ROW_READERS: Final[dict[InputFormat, RowReader]] = {
    InputFormat.CSV: read_csv,
    InputFormat.NATIVE: read_native,
    InputFormat.MOONCAKE: read_mooncake,
}
