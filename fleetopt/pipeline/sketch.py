"""What is remembered of the requests that arrived in one slice of time. Pure.

A sketch is additive: token moments and counts merge exactly, the digests within their error.
Owns its bytes too, so that a slice can be kept outside the process.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from fastdigest import TDigest
from numpy.typing import NDArray

from fleetopt.connectors.columns import RequestColumns
from fleetopt.errors import InputError
from fleetopt.planner.workload import TokenMoments

CENTROIDS: Final = 100
CELLS: Final = 60
"""Arrival counts are kept per second, or per 1/60 of a slice longer than a minute."""

_VERSION: Final = 1


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    version: int
    arrivals: bytes  # uint32, one a cell
    moment_rows: bytes  # uint16, indices of the rows of moments that are not all zero
    moments: bytes  # float64, those rows
    total_tokens: bytes
    prompt_tokens: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


def cell_s(slice_s: int) -> float:
    """Return the resolution of a slice's arrival counts in seconds."""
    return max(1.0, slice_s / CELLS)


class Sketch:
    """Requests of one slice: moments, arrival counts, digests of total and prompt tokens."""

    __slots__ = ("arrivals", "moments", "prompt_tokens", "total_tokens")

    def __init__(self, cells: int) -> None:
        self.arrivals: NDArray[np.uint32] = np.zeros(cells, dtype=np.uint32)
        self.moments = TokenMoments.zero()
        self.total_tokens = TDigest(max_centroids=CENTROIDS)
        self.prompt_tokens = TDigest(max_centroids=CENTROIDS)

    @classmethod
    def for_slice(cls, slice_s: int) -> Sketch:
        """Return an empty sketch with cells for a slice of this length."""
        return cls(int(-(-slice_s // cell_s(slice_s))))

    @property
    def arrival_count(self) -> int:
        """Requests that arrived, whether their tokens are known or not."""
        return int(self.arrivals.sum())

    @property
    def measured_count(self) -> int:
        """Requests whose tokens are known."""
        return int(self.moments.count)

    def update(self, columns: RequestColumns, cells: NDArray[np.int64]) -> None:
        """Add requests; `cells` gives each one's arrival cell within the slice."""
        self.arrivals += np.bincount(cells, minlength=len(self.arrivals)).astype(np.uint32)
        if not columns.measured.all():
            columns = columns.take(columns.measured)
        if not len(columns):
            return
        self.moments = self.moments + TokenMoments.from_requests(
            columns.prompt_tokens, columns.completion_tokens, columns.compressibility
        )
        total_tokens = columns.prompt_tokens + columns.completion_tokens
        # fastdigest reads a list of floats 3 times as fast as an array.
        self.total_tokens.batch_update(total_tokens.astype(np.float64).tolist())
        self.prompt_tokens.batch_update(columns.prompt_tokens.astype(np.float64).tolist())

    def merge(self, other: Sketch) -> None:
        """Add another sketch of the same slice (or of the same slice length)."""
        self.arrivals += other.arrivals
        self.moments = self.moments + other.moments
        self.total_tokens.merge_inplace(other.total_tokens)
        self.prompt_tokens.merge_inplace(other.prompt_tokens)

    def quantile(self, fraction: float) -> float | None:
        """Return a quantile of total tokens, None where nothing is measured."""
        if self.total_tokens.is_empty():
            return None
        return float(self.total_tokens.quantile(fraction))

    def cdf(self, total_tokens: float) -> float | None:
        """Return the share of requests of at most so many tokens, None where none is measured."""
        if self.total_tokens.is_empty():
            return None
        return float(self.total_tokens.cdf(total_tokens))

    def to_bytes(self) -> bytes:
        """Return the sketch as bytes; rows of moments that are zero take none."""
        rows = self.moments.values.reshape(-1, self.moments.values.shape[-1])
        filled = np.flatnonzero(rows[:, 0])
        return _encoder.encode(
            _Stored(
                _VERSION,
                self.arrivals.tobytes(),
                filled.astype(np.uint16).tobytes(),
                rows[filled].tobytes(),
                self.total_tokens.to_bytes(),
                self.prompt_tokens.to_bytes(),
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Sketch:
        """Read what `to_bytes` wrote; raises InputError for anything else."""
        try:
            stored = _decoder.decode(data)
            if stored.version != _VERSION:
                raise InputError(
                    f"a sketch of version {stored.version}, this program reads {_VERSION}: "
                    "update FleetOpt, or delete the stored sketches to rebuild them from the log"
                )
            arrivals = np.frombuffer(stored.arrivals, dtype=np.uint32)
            sketch = cls(len(arrivals))
            sketch.arrivals += arrivals
            values = TokenMoments.zero().values.copy()
            rows = values.reshape(-1, values.shape[-1])
            filled = np.frombuffer(stored.moment_rows, dtype=np.uint16)
            rows[filled] = np.frombuffer(stored.moments).reshape(len(filled), -1)
            sketch.moments = TokenMoments(values)
            sketch.total_tokens = TDigest.from_bytes(stored.total_tokens)
            sketch.prompt_tokens = TDigest.from_bytes(stored.prompt_tokens)
        except (msgspec.DecodeError, ValueError, IndexError) as error:
            raise InputError(f"not a stored sketch: {error}") from error
        return sketch
