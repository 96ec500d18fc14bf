"""The requests of a trace as a replay wants them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetopt.connectors.traces import TraceReader, open_input
from fleetopt.connectors.wire import RequestLog
from fleetopt.pipeline.pacing import multiplied
from fleetopt.pipeline.replay import limited


class Source:
    """The requests to send, and what is to be said of the file afterwards."""

    def __init__(
        self, file: str, fleet: str | None, rate_multiplier: float, limit: int | None
    ) -> None:
        self._file, self._fleet = file, fleet
        self._rate_multiplier, self._limit = rate_multiplier, limit
        self.notes: list[str] = []

    def chunks(self) -> Iterator[list[RequestLog]]:
        """Yield the requests; what was wrong with rows is in `notes` afterwards."""
        with open_input(self._file) as opened:
            reader = TraceReader(opened, self._fleet)
            try:
                yield from limited(multiplied(reader, self._rate_multiplier), self._limit)
            finally:
                self.notes = reader.report.notes()

    def expected(self) -> int | None:
        """Return about how many requests will come; None where that can't be told beforehand."""
        path = Path(self._file)
        if not path.is_file() or path.suffix == ".gz":
            return None
        with path.open("rb") as lines:
            rows = sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b""))
        rows = int(rows * self._rate_multiplier)
        return rows if self._limit is None else min(rows, self._limit)
