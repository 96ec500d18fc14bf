"""Rows into columns: records and batches as arrays, and the damaged rows of a batch set aside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.codec import CELLS, NOT_DECODABLE, Codec, LooseBatch
from fleetopt.connectors.columns import (
    BYTES_UNKNOWN,
    CACHE_UNKNOWN,
    CATEGORY_COMPRESSIBILITY,
    COMPRESSION_OUTCOMES,
    NOT_TRIED,
    RequestColumns,
)
from fleetopt.connectors.wire import COLUMNS_VERSION, Rejected, Rejection, RequestBatch, RequestLog
from fleetopt.planner.bytes_per_token import CATEGORIES, UNKNOWN_CATEGORY
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.ttft_counts import POOLS, TTFT_UNKNOWN, ttft_cells

MAX_DETAIL: Final = 300
_MEASURED: Final = frozenset({None, "ok"})


class _Row(NamedTuple):
    arrival_s: float
    prompt_tokens: int
    completion_tokens: int
    compressibility: int
    measured: bool
    cached_tokens: int
    prompt_bytes: int
    category: int
    compression: int
    sent_prompt_tokens: int
    ttft_s: float | None
    pool: int | None


CATEGORY_CODES: Final[dict[str | None, int]] = {
    **{name: code for code, name in enumerate(CATEGORIES)},
    None: UNKNOWN_CATEGORY,
}


def columns_of_records(records: list[RequestLog]) -> RequestColumns:
    """Turn records of one fleet into columns."""
    columns = RequestColumns(
        np.array([record.arrival_s for record in records], dtype=np.float64),
        np.array(
            [
                record.prompt_tokens
                if record.original_prompt_tokens is None
                else record.original_prompt_tokens
                for record in records
            ],
            dtype=np.int64,
        ),
        np.array([record.completion_tokens for record in records], dtype=np.int64),
        np.array([CATEGORY_COMPRESSIBILITY[record.category] for record in records], dtype=np.int8),
        np.array(
            [record.prompt_tokens > 0 and record.status in _MEASURED for record in records],
            dtype=np.bool_,
        ),
        _cached_of_records(records),
        *_bytes_of_records(records),
        *_outcomes_of_records(records),
    )
    pools = [None if record.pool is None else POOLS.index(record.pool) for record in records]
    return replace(columns, ttft_cell=_ttfts([record.ttft_s for record in records], pools))


def _ttfts(
    ttft_s: Sequence[float | None] | None, pools: Sequence[int | None] | None
) -> NDArray[np.int16] | None:
    """Return the cells of observed times to first token; None where no log has both."""
    if ttft_s is None or pools is None:
        return None
    if all(one is None or pool is None for one, pool in zip(ttft_s, pools, strict=True)):
        return None
    return ttft_cells(
        [math.nan if one is None else one for one in ttft_s],
        [TTFT_UNKNOWN if pool is None else pool for pool in pools],
    )


def _outcomes_of_records(
    records: list[RequestLog],
) -> tuple[NDArray[np.int8], NDArray[np.int64]] | tuple[None, None]:
    """Return what compressions came to and the tokens sent; None where none was tried."""
    codes = [COMPRESSION_OUTCOMES[record.compression] for record in records]
    if all(code == NOT_TRIED for code in codes):
        return None, None
    sent_tokens = [record.prompt_tokens for record in records]
    return np.array(codes, dtype=np.int8), np.array(sent_tokens, dtype=np.int64)


def _bytes_of_records(
    records: list[RequestLog],
) -> tuple[NDArray[np.int64], NDArray[np.int8]] | tuple[None, None]:
    """Return the prompts' bytes and the categories; None where no record says how many bytes."""
    if all(record.prompt_bytes is None for record in records):
        return None, None
    return (
        np.array(
            [
                BYTES_UNKNOWN if record.prompt_bytes is None else record.prompt_bytes
                for record in records
            ],
            dtype=np.int64,
        ),
        np.array([CATEGORY_CODES[record.category] for record in records], dtype=np.int8),
    )


def _cached_of_records(records: list[RequestLog]) -> NDArray[np.int64] | None:
    """Return what was cached of each prompt; None where no record says it."""
    if all(record.cached_prompt_tokens is None for record in records):
        return None
    return np.array(
        [
            _cached(one.cached_prompt_tokens, one.prompt_tokens, one.original_prompt_tokens)
            for one in records
        ],
        dtype=np.int64,
    )


def _cached(cached: int | None, sent: int, original: int | None) -> int:
    """Return the cached tokens of a prompt as it was before compression, which broke its prefix."""
    return CACHE_UNKNOWN if cached is None or original not in (None, sent) else cached


def columns_of_batch(batch: RequestBatch) -> RequestColumns:
    """Turn a batch whose columns are equally long into columns."""
    sent_tokens = np.array(batch.p, dtype=np.int64)
    measured = sent_tokens > 0
    if batch.s is not None:
        measured &= np.array(batch.s, dtype=np.int64) == 0
    columns = RequestColumns(
        np.array(batch.ts, dtype=np.float64),
        sent_tokens if batch.q is None else np.array(batch.q, dtype=np.int64),
        np.array(batch.o, dtype=np.int64),
        np.full(len(batch.ts), Compressibility.UNKNOWN, dtype=np.int8)
        if batch.c is None
        else np.array(batch.c, dtype=np.int8),
        measured,
        None if batch.h is None else _cached_of_batch(batch.h, sent_tokens, batch.q),
        *_bytes_of_batch(batch),
        *_outcomes_of_batch(batch, sent_tokens),
    )
    return replace(columns, ttft_cell=_ttfts(batch.t, batch.w))


def _outcomes_of_batch(
    batch: RequestBatch, sent_tokens: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.int64]] | tuple[None, None]:
    if batch.r is None:
        return None, None
    codes = [NOT_TRIED if code is None else code for code in batch.r]
    return np.array(codes, dtype=np.int8), sent_tokens


def _bytes_of_batch(
    batch: RequestBatch,
) -> tuple[NDArray[np.int64], NDArray[np.int8]] | tuple[None, None]:
    if batch.b is None:
        return None, None
    sizes = batch.b
    if None in sizes:
        sizes = [BYTES_UNKNOWN if one is None else one for one in sizes]
    codes = [UNKNOWN_CATEGORY] * len(sizes) if batch.k is None else batch.k
    return np.array(sizes, dtype=np.int64), np.array(codes, dtype=np.int8)


def _cached_of_batch(
    cached: list[int | None], sent_tokens: NDArray[np.int64], original: list[int] | None
) -> NDArray[np.int64]:
    if None in cached:
        cached = [CACHE_UNKNOWN if one is None else one for one in cached]
    found = np.array(cached, dtype=np.int64)
    if original is not None:
        found[sent_tokens != np.array(original, dtype=np.int64)] = CACHE_UNKNOWN
    return found


def lengths(batch: RequestBatch | LooseBatch) -> list[int]:
    """Return the different lengths of a batch's columns, shortest first."""
    columns: tuple[Sequence[Any] | None, ...]
    columns = (batch.ts, batch.p, batch.o, batch.c, batch.q, batch.s, batch.h, batch.b, batch.k)
    columns += (batch.r, batch.t, batch.w)
    return sorted({len(column) for column in columns if column is not None})


def judge(batch: LooseBatch, codec: Codec) -> tuple[RequestColumns, list[Rejected]]:
    """Return the rows that hold, and the others as smaller batches, one a reason."""
    good: list[_Row] = []
    refused: dict[Rejection, tuple[str, list[int]]] = {}
    for at in range(len(batch.ts)):
        row = _row(batch, at, codec)
        if isinstance(row, _Row):
            good.append(row)
        else:
            reason, detail = row
            refused.setdefault(reason, (f"row {at}: {detail}", []))[1].append(at)
    columns = _columns_of_rows(
        good,
        has_cached=batch.h is not None,
        has_bytes=batch.b is not None,
        has_outcomes=batch.r is not None,
    )
    return columns, [
        Rejected(
            reason, more(detail, len(rows)), codec.encode(_as_sent(batch, rows)), rows=len(rows)
        )
        for reason, (detail, rows) in refused.items()
    ]


def reason_of(error: Exception) -> Rejection:
    """Return the reason for which a decoder refused."""
    if not isinstance(error, msgspec.ValidationError):
        return Rejection.MALFORMED
    text = str(error)
    too_large = "out of range" in text
    bounded = text.startswith("Expected `") and (" <" in text or " >" in text)
    if too_large or (bounded and "of length" not in text):
        return Rejection.OUT_OF_RANGE
    return Rejection.INVALID


def more(detail: str, rows: int) -> str:
    """Return the first row's detail, saying how many others there are."""
    return detail if rows == 1 else f"{detail}; and {rows - 1} more"


def _row(batch: LooseBatch, at: int, codec: Codec) -> _Row | tuple[Rejection, str]:
    """Return a row, or why it doesn't hold."""
    cells: dict[str, Any] = {}
    for name, decode in codec.cells.items():
        column = getattr(batch, name)
        try:
            cells[name] = None if column is None else decode(column[at])
        except NOT_DECODABLE as error:
            return reason_of(error), f"{name}: {str(error)[:MAX_DETAIL]}"
    return _Row(
        cells["ts"],
        cells["p"] if cells["q"] is None else cells["q"],
        cells["o"],
        Compressibility.UNKNOWN if cells["c"] is None else cells["c"],
        cells["p"] > 0 and not cells["s"],
        _cached(cells["h"], cells["p"], cells["q"]),
        BYTES_UNKNOWN if cells["b"] is None else cells["b"],
        UNKNOWN_CATEGORY if cells["k"] is None else cells["k"],
        NOT_TRIED if cells["r"] is None else cells["r"],
        cells["p"],
        cells["t"],
        cells["w"],
    )


def _as_sent(batch: LooseBatch, rows: list[int]) -> dict[str, Any]:
    """Return rows as a batch of their own, without its place in the source's sequence."""
    columns = {name: getattr(batch, name) for name in CELLS}
    return {
        "v": COLUMNS_VERSION,
        "fleet": batch.fleet,
        **{name: [column[at] for at in rows] for name, column in columns.items() if column},
    }


def _columns_of_rows(
    rows: list[_Row], *, has_cached: bool, has_bytes: bool, has_outcomes: bool
) -> RequestColumns:
    return RequestColumns(
        np.array([row.arrival_s for row in rows], dtype=np.float64),
        np.array([row.prompt_tokens for row in rows], dtype=np.int64),
        np.array([row.completion_tokens for row in rows], dtype=np.int64),
        np.array([row.compressibility for row in rows], dtype=np.int8),
        np.array([row.measured for row in rows], dtype=np.bool_),
        np.array([row.cached_tokens for row in rows], dtype=np.int64) if has_cached else None,
        np.array([row.prompt_bytes for row in rows], dtype=np.int64) if has_bytes else None,
        np.array([row.category for row in rows], dtype=np.int8) if has_bytes else None,
        np.array([row.compression for row in rows], dtype=np.int8) if has_outcomes else None,
        np.array([row.sent_prompt_tokens for row in rows], dtype=np.int64)
        if has_outcomes
        else None,
        _ttfts([row.ttft_s for row in rows], [row.pool for row in rows]),
    )
