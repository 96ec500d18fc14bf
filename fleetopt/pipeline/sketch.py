"""What is remembered of the requests that arrived in one slice of time. Pure.

A sketch is additive: token moments and counts merge exactly, the digests within their error.
Owns its bytes too, so that a slice can be kept outside the process.
"""

from __future__ import annotations

import math
import zlib
from typing import Final

import msgspec
import numpy as np
from fastdigest import TDigest
from numpy.typing import NDArray

from fleetopt.connectors.columns import CACHE_UNKNOWN, RequestColumns
from fleetopt.connectors.sketch_store import LAYOUT_VERSION
from fleetopt.errors import InputError
from fleetopt.planner.bins import EDGES_TOKENS, bin_holding
from fleetopt.planner.bytes_per_token import RatioCounts, no_ratios, ratio_counts
from fleetopt.planner.compression_outcomes import (
    OUTCOME_SUMS,
    OutcomeCounts,
    no_outcomes,
    outcome_counts,
)
from fleetopt.planner.moments import MOMENTS, TokenMoments
from fleetopt.planner.ttft_counts import TtftCounts, no_ttfts, ttft_counts

CENTROIDS: Final = 100
CELLS: Final = 60
"""Arrival counts are kept per second, or per 1/60 of a slice longer than a minute."""

_CHECKSUM_BYTES: Final = 4


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    version: int
    arrivals: bytes  # uint32, one a cell
    moment_rows: bytes  # uint16, indices of the rows of moments that are not all zero
    moments: bytes  # float64, those rows
    total_tokens: bytes
    prompt_tokens: bytes
    cache_known: int = 0  # absent in older versions, which are told apart by their number
    ratio_cells: bytes = b""  # uint16, indices of the counts of bytes per token that are not 0
    ratio_counts: bytes = b""  # uint32, those counts
    outcome_rows: bytes = b""  # uint16, indices of the rows of outcomes that are not all zero
    outcomes: bytes = b""  # int64, those rows
    ttft_cells: bytes = b""  # uint16, indices of the counts of times to first token that are not 0
    ttft_counts: bytes = b""  # int64, those counts


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


def cell_s(slice_s: int) -> float:
    """Return the resolution of a slice's arrival counts in seconds."""
    return max(1.0, slice_s / CELLS)


def cells_in(slice_s: int) -> int:
    """Return how many arrival counts a slice has."""
    return min(slice_s, CELLS)


class Sketch:
    """Requests of one slice: moments, arrivals, digests, bytes per token, outcomes, TTFTs."""

    __slots__ = (
        "arrivals",
        "cache_known_count",
        "moments",
        "outcomes",
        "prompt_tokens",
        "ratios",
        "total_tokens",
        "ttfts",
    )

    def __init__(self, cells: int) -> None:
        self.arrivals: NDArray[np.uint32] = np.zeros(cells, dtype=np.uint32)
        self.moments = TokenMoments.zero()
        self.cache_known_count = 0
        """Requests whose log says how much of the prompt was cached; the others count as none."""
        self.ratios: RatioCounts | None = None
        """Bytes per prompt token; None where no log says how many bytes its prompt had."""
        self.outcomes: OutcomeCounts | None = None
        """What compressions came to; None where no log says that one was tried."""
        self.ttfts: TtftCounts | None = None
        """Observed times to first token; None where no log says both the time and the pool."""
        self.total_tokens = TDigest(max_centroids=CENTROIDS)
        self.prompt_tokens = TDigest(max_centroids=CENTROIDS)

    @classmethod
    def for_slice(cls, slice_s: int) -> Sketch:
        """Return an empty sketch with cells for a slice of this length."""
        return cls(cells_in(slice_s))

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
        cached = columns.cached_tokens
        if cached is not None:
            self.cache_known_count += int((cached != CACHE_UNKNOWN).sum())
            cached = np.maximum(cached, 0)
        self.moments = self.moments + TokenMoments.from_requests(
            columns.prompt_tokens, columns.completion_tokens, columns.compressibility, cached
        )
        if columns.prompt_bytes is not None and columns.category is not None:
            self._add_ratios(
                ratio_counts(columns.prompt_bytes, columns.prompt_tokens, columns.category)
            )
        if columns.compression is not None and columns.sent_prompt_tokens is not None:
            self._add_outcomes(
                outcome_counts(
                    columns.compression,
                    columns.prompt_tokens,
                    columns.sent_prompt_tokens,
                    columns.completion_tokens,
                    columns.compressibility,
                )
            )
        if columns.ttft_cell is not None:
            self._add_ttfts(ttft_counts(columns.ttft_cell))
        total_tokens = columns.prompt_tokens + columns.completion_tokens
        # fastdigest reads a list of floats 3 times as fast as an array.
        self.total_tokens.batch_update(total_tokens.astype(np.float64).tolist())
        self.prompt_tokens.batch_update(columns.prompt_tokens.astype(np.float64).tolist())

    def merge(self, other: Sketch) -> None:
        """Add another sketch of the same slice (or of the same slice length)."""
        if len(self.arrivals) != len(other.arrivals):
            raise InputError(
                f"sketches of {len(self.arrivals)} and {len(other.arrivals)} arrival cells are of "
                "slices of different length: delete the stored sketches to rebuild them"
            )
        self.arrivals += other.arrivals
        self.moments = self.moments + other.moments
        self.cache_known_count += other.cache_known_count
        if other.ratios is not None:
            self._add_ratios(other.ratios)
        if other.outcomes is not None:
            self._add_outcomes(other.outcomes)
        if other.ttfts is not None:
            self._add_ttfts(other.ttfts)
        self.total_tokens.merge_inplace(other.total_tokens)
        self.prompt_tokens.merge_inplace(other.prompt_tokens)

    def _add_ratios(self, counts: RatioCounts) -> None:
        if counts.any():
            self.ratios = counts if self.ratios is None else self.ratios + counts

    def _add_outcomes(self, counts: OutcomeCounts) -> None:
        if counts.any():
            self.outcomes = counts if self.outcomes is None else self.outcomes + counts

    def _add_ttfts(self, counts: TtftCounts) -> None:
        if counts.any():
            self.ttfts = counts if self.ttfts is None else self.ttfts + counts

    def quantile(self, fraction: float) -> float | None:
        """Return total tokens that this share of requests does not exceed.

        The digest's answer, kept within the length bin that holds the request of that rank: of
        few distinct values a digest may answer anything between two of them.

        Parameters
        ----------
        fraction : float
            0 to 1.

        Returns
        -------
        float or None
            Tokens; None where nothing is measured.

        Raises
        ------
        InputError
            If the fraction is not in 0…1.
        """
        if not 0.0 <= fraction <= 1.0:
            raise InputError(f"a quantile of {fraction}; expected 0 to 1")
        counts = np.cumsum(self.moments.count_per_bin)
        if not counts[-1]:
            return None
        rank = max(1, math.ceil(fraction * counts[-1]))
        holding = int(np.searchsorted(counts, rank))
        low = float(EDGES_TOKENS[holding - 1] + 1) if holding else 0.0
        high = float(EDGES_TOKENS[holding]) if holding < EDGES_TOKENS.size else math.inf
        return min(max(float(self.total_tokens.quantile(fraction)), low), high)

    def cdf(self, total_tokens: float) -> float | None:
        """Return the share of requests of at most so many tokens, None where none is measured.

        Exact on the edges of the length bins, and the digest's answer between them.
        """
        counts = np.cumsum(self.moments.count_per_bin)
        if not counts[-1]:
            return None
        if total_tokens < 0:
            return 0.0
        whole_tokens = math.floor(min(total_tokens, 2.0**53))
        holding = bin_holding(whole_tokens)
        is_edge = holding < EDGES_TOKENS.size and EDGES_TOKENS[holding] == whole_tokens
        high = float(counts[holding] / counts[-1])
        low = high if is_edge else float(counts[holding - 1] / counts[-1]) if holding else 0.0
        # Lengths are whole: half a token up, the digest counts those at `whole_tokens` too.
        return min(max(float(self.total_tokens.cdf(whole_tokens + 0.5)), low), high)

    def to_bytes(self) -> bytes:
        """Return the sketch as bytes; rows of moments that are zero take none."""
        rows = self.moments.values.reshape(-1, MOMENTS)
        filled = np.flatnonzero(rows[:, 0])
        ratios = (no_ratios() if self.ratios is None else self.ratios).reshape(-1)
        seen = np.flatnonzero(ratios)
        outcomes = no_outcomes() if self.outcomes is None else self.outcomes
        outcomes = outcomes.reshape(-1, OUTCOME_SUMS)
        tried = np.flatnonzero(outcomes.any(axis=1))
        ttfts = (no_ttfts() if self.ttfts is None else self.ttfts).reshape(-1)
        timed = np.flatnonzero(ttfts)
        stored = _encoder.encode(
            _Stored(
                LAYOUT_VERSION,
                self.arrivals.tobytes(),
                filled.astype(np.uint16).tobytes(),
                rows[filled].tobytes(),
                self.total_tokens.to_bytes(),
                self.prompt_tokens.to_bytes(),
                self.cache_known_count,
                seen.astype(np.uint16).tobytes(),
                ratios[seen].tobytes(),
                tried.astype(np.uint16).tobytes(),
                outcomes[tried].tobytes(),
                timed.astype(np.uint16).tobytes(),
                ttfts[timed].tobytes(),
            )
        )
        return _checksum(stored) + stored

    @classmethod
    def from_bytes(cls, data: bytes) -> Sketch:
        """Read what `to_bytes` wrote; raises InputError for anything else."""
        if data[:_CHECKSUM_BYTES] != _checksum(data[_CHECKSUM_BYTES:]):
            raise InputError(
                f"{len(data)} bytes that are no stored sketch, or a damaged one: delete the "
                "stored sketches to rebuild them from the log"
            )
        try:
            stored = _decoder.decode(data[_CHECKSUM_BYTES:])
            if stored.version != LAYOUT_VERSION:
                raise InputError(
                    f"a sketch of version {stored.version}, this program reads {LAYOUT_VERSION}: "
                    "update FleetOpt, or delete the stored sketches to rebuild them from the log"
                )
            arrivals = np.frombuffer(stored.arrivals, dtype=np.uint32)
            sketch = cls(len(arrivals))
            sketch.arrivals += arrivals
            values = TokenMoments.zero().values.copy()
            filled = np.frombuffer(stored.moment_rows, dtype=np.uint16)
            moments = np.frombuffer(stored.moments).reshape(len(filled), MOMENTS)
            values.reshape(-1, MOMENTS)[filled] = moments
            sketch.moments = TokenMoments(values)
            sketch.cache_known_count = stored.cache_known
            if stored.ratio_cells:
                counts = no_ratios()
                seen = np.frombuffer(stored.ratio_cells, dtype=np.uint16)
                counts.reshape(-1)[seen] = np.frombuffer(stored.ratio_counts, dtype=np.uint32)
                sketch.ratios = counts
            if stored.outcome_rows:
                outcomes = no_outcomes()
                tried = np.frombuffer(stored.outcome_rows, dtype=np.uint16)
                sums = np.frombuffer(stored.outcomes, dtype=np.int64)
                outcomes.reshape(-1, OUTCOME_SUMS)[tried] = sums.reshape(len(tried), OUTCOME_SUMS)
                sketch.outcomes = outcomes
            if stored.ttft_cells:
                ttfts = no_ttfts()
                timed = np.frombuffer(stored.ttft_cells, dtype=np.uint16)
                ttfts.reshape(-1)[timed] = np.frombuffer(stored.ttft_counts, dtype=np.int64)
                sketch.ttfts = ttfts
            sketch.total_tokens = TDigest.from_bytes(stored.total_tokens)
            sketch.prompt_tokens = TDigest.from_bytes(stored.prompt_tokens)
        except (msgspec.DecodeError, ValueError, IndexError) as error:
            raise InputError(f"not a stored sketch: {error}") from error
        return sketch


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")
