"""Trace files of any size: opened, told apart by their content, read in chunks of records.

Owns files, standard input, gzip, the count of bad rows and the order of arrivals.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from fleetopt.connectors.trace_formats import (
    DEFAULT_FLEET,
    ROW_READERS,
    BadRow,
    InputFormat,
    detect_format,
)
from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError

STDIN: Final = "-"
CHUNK_ROWS: Final = 8_192
REORDER_ROWS: Final = 65_536
"""Rows held back to put arrivals in order: logs are written at completion, minutes apart."""

SHOWN_BAD_ROWS: Final = 5
_HEAD_LINES, _HEAD_LINE_BYTES = 50, 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(slots=True)
class TraceReport:
    """What a trace held, filled while it is read."""

    source: str
    format: InputFormat
    rows: int = 0
    bad_rows: int = 0
    first_bad: list[BadRow] = field(default_factory=list)
    unsorted_rows: int = 0
    fleets: set[str] = field(default_factory=set)

    def notes(self) -> list[str]:
        """Say in words what is worth knowing about the rows."""
        notes = []
        if self.bad_rows:
            notes.append(f"{self.bad_rows} bad rows were left out")
            notes += [f"line {row.line}: {row.reason}" for row in self.first_bad]
            if self.bad_rows > len(self.first_bad):
                notes.append(f"and {self.bad_rows - len(self.first_bad)} more")
        if self.unsorted_rows:
            notes.append(f"{self.unsorted_rows} rows were not in order of arrival: sorted")
        return notes


@dataclass(frozen=True, slots=True)
class OpenInput:
    """A file or standard input whose format is known; `lines` can be walked once."""

    source: str
    format: InputFormat
    lines: Iterator[bytes]


@contextmanager
def open_input(path: str) -> Iterator[OpenInput]:
    """Open a file, gzip or not, or standard input (`-`), and tell its format by its content."""
    source = "standard input" if path == STDIN else path
    with ExitStack() as stack:
        try:
            raw: IO[bytes] = (
                sys.stdin.buffer if path == STDIN else stack.enter_context(Path(path).open("rb"))
            )
            unzipped = stack.enter_context(_unzipped(raw))  # reads the first bytes
        except OSError as error:
            raise InputError(f"can't read {source}: {error.strerror}") from error
        lines = _lines(unzipped, source)
        head: list[bytes] = []
        for line in lines:
            head.append(line)
            if len(head) >= _HEAD_LINES:
                break
        try:
            found = detect_format([line[:_HEAD_LINE_BYTES] for line in head])
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        yield OpenInput(source, found, chain(head, lines))


@contextmanager
def _unzipped(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    peek = getattr(raw, "peek", None)
    if peek is None or not peek(2).startswith(_GZIP_MAGIC):
        yield raw
        return
    with gzip.open(raw) as unzipped:
        yield cast(IO[bytes], unzipped)


def _lines(file: IO[bytes], source: str) -> Iterator[bytes]:
    try:
        yield from file
    except (OSError, EOFError, zlib.error) as error:  # a damaged gzip file raises all three
        raise InputError(f"can't read {source} to its end: {error}") from error


class TraceReader:
    """The records of a trace in order of arrival, in chunks; `report` is complete at the end."""

    def __init__(self, opened: OpenInput, fleet: str | None = None) -> None:
        """Read `opened`; `fleet` names the fleet of every record, whatever the trace says."""
        reader = ROW_READERS.get(opened.format)
        if reader is None:
            raise InputError(
                f"{opened.source} is a CDF, which has no arrivals: only `fleetopt plan` takes one"
            )
        self.report = TraceReport(opened.source, opened.format)
        self._fleet = fleet
        self._rows = reader(opened.lines, fleet or DEFAULT_FLEET)

    def __iter__(self) -> Iterator[list[RequestLog]]:
        """Yield chunks; InputError at the end if no row was usable."""
        held: list[RequestLog] = []
        newest_s = 0.0
        for chunk in self._chunks():
            for record in chunk:
                if record.arrival_s < newest_s:
                    self.report.unsorted_rows += 1
                else:
                    newest_s = record.arrival_s
            held += chunk
            held.sort(key=_arrival)
            if len(held) > REORDER_ROWS:
                ready, held = held[:-REORDER_ROWS], held[-REORDER_ROWS:]
                yield from _split(ready)
        if not self.report.rows:
            raise InputError(_nothing_usable(self.report))
        yield from _split(held)

    def records(self) -> list[RequestLog]:
        """Return all records in order of arrival."""
        records = list(chain.from_iterable(self))
        records.sort(key=_arrival)
        return records

    def _chunks(self) -> Iterator[list[RequestLog]]:
        chunk: list[RequestLog] = []
        for row in self._rows:
            if isinstance(row, BadRow):
                self._note_bad(row)
                continue
            chunk.append(row if self._fleet is None else _of_fleet(row, self._fleet))
            if len(chunk) >= CHUNK_ROWS:
                yield self._count(chunk)
                chunk = []
        yield self._count(chunk)

    def _count(self, chunk: list[RequestLog]) -> list[RequestLog]:
        self.report.rows += len(chunk)
        self.report.fleets.update({record.fleet for record in chunk})
        return chunk

    def _note_bad(self, row: BadRow) -> None:
        self.report.bad_rows += 1
        if len(self.report.first_bad) < SHOWN_BAD_ROWS:
            self.report.first_bad.append(row)


def _arrival(record: RequestLog) -> float:
    return record.arrival_s


def _of_fleet(record: RequestLog, fleet: str) -> RequestLog:
    return record if record.fleet == fleet else msgspec.structs.replace(record, fleet=fleet)


def _split(records: list[RequestLog]) -> Iterable[list[RequestLog]]:
    for start in range(0, len(records), CHUNK_ROWS):
        yield records[start : start + CHUNK_ROWS]


def _nothing_usable(report: TraceReport) -> str:
    if not report.first_bad:
        return f"{report.source} holds no requests"
    first = report.first_bad[0]
    return (
        f"{report.source}: none of {report.bad_rows} rows is usable; "
        f"line {first.line}: {first.reason}"
    )
