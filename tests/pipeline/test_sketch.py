"""A sketch is additive, survives its bytes, and answers as the requests themselves would."""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tdigest import TDigest as OracleDigest

from fleetopt.connectors.columns import RequestColumns
from fleetopt.connectors.sketch_store import sketch_epoch
from fleetopt.errors import InputError
from fleetopt.pipeline.sketch import CELLS, Sketch, cell_s, cells_in
from fleetopt.planner.bins import EDGES_TOKENS, bin_of
from fleetopt.planner.bytes_per_token import no_ratios
from fleetopt.planner.compression_outcomes import no_outcomes
from fleetopt.planner.moments import MOMENTS

SLICE_S = 60
FRACTIONS = (0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0)


def columns(
    prompt: NDArray[np.int64],
    completion: NDArray[np.int64],
    measured: NDArray[np.bool_] | None = None,
) -> RequestColumns:
    rows = len(prompt)
    return RequestColumns(
        np.zeros(rows),
        prompt.astype(np.int64),
        completion.astype(np.int64),
        (np.arange(rows) % 3).astype(np.int8),
        np.ones(rows, dtype=np.bool_) if measured is None else measured,
    )


def sketch_of(*batches: RequestColumns) -> Sketch:
    sketch = Sketch.for_slice(SLICE_S)
    for batch in batches:
        sketch.update(batch, np.arange(len(batch), dtype=np.int64) % SLICE_S)
    return sketch


def of_lengths(lengths: list[int]) -> RequestColumns:
    total = np.array(lengths, dtype=np.int64)
    return columns(total // 2, total - total // 2)


def exact_quantile(lengths: NDArray[np.int64], fraction: float) -> int:
    """The smallest length that at least this share of requests does not exceed."""
    return int(np.sort(lengths)[max(1, math.ceil(fraction * len(lengths))) - 1])


def trace(path: Path) -> RequestColumns:
    with path.open() as lines:
        rows = [(int(row[1]), int(row[2])) for row in list(csv.reader(lines))[1:]]
    tokens = np.array(rows, dtype=np.int64)
    return columns(tokens[:, 0], tokens[:, 1])


@pytest.fixture(params=["azure_llm_2023_conv.csv", "azure_llm_2023_code.csv"])
def real(request: pytest.FixtureRequest, shared_data: Path) -> RequestColumns:
    """A real trace's lengths."""
    return trace(shared_data / "traces" / request.param)


lengths_lists = st.lists(
    st.one_of(st.integers(1, 200), st.integers(1, 2_000_000), st.sampled_from([64, 65, 1024])),
    min_size=1,
    max_size=60,
)


# Addition


@given(lengths=st.lists(lengths_lists, min_size=1, max_size=5))
def test_merging_is_concatenation(lengths: list[list[int]]) -> None:
    merged = Sketch.for_slice(SLICE_S)
    for part in lengths:
        merged.merge(sketch_of(of_lengths(part)))
    whole = sketch_of(*map(of_lengths, lengths))
    assert merged.moments == whole.moments
    assert merged.arrivals.tolist() == whole.arrivals.tolist()
    total = np.array([length for part in lengths for length in part])
    assert merged.measured_count == merged.arrival_count == len(total)
    assert merged.total_tokens.mass() == merged.prompt_tokens.mass() == len(total)
    assert merged.prompt_tokens.sum() == pytest.approx(float((total // 2).sum()))
    for fraction in FRACTIONS:
        found = merged.quantile(fraction)
        assert found is not None
        exact = exact_quantile(total, fraction)
        assert bin_of(np.array([math.ceil(found)])) == bin_of(np.array([exact]))


def test_merging_real_slices_keeps_the_digest_within_its_error(real: RequestColumns) -> None:
    merged = Sketch.for_slice(SLICE_S)
    for start in range(0, len(real), 300):
        merged.merge(sketch_of(real.take(slice(start, start + 300))))
    total = real.prompt_tokens + real.completion_tokens
    for fraction in FRACTIONS:
        value = merged.quantile(fraction)
        assert value is not None
        below, upto = (total < value).mean(), (total <= value).mean()
        assert below - 0.01 <= fraction <= upto + 0.01


def test_requests_of_unknown_length_arrive_but_are_not_measured() -> None:
    sketch = sketch_of(columns(np.array([100, 0]), np.array([10, 0]), np.array([True, False])))
    assert (sketch.arrival_count, sketch.measured_count) == (2, 1)
    assert sketch.quantile(0.0) == sketch.quantile(1.0) == 110


def test_sketches_of_slices_of_different_length_are_not_merged() -> None:
    with pytest.raises(InputError, match="different length"):
        Sketch.for_slice(60).merge(Sketch.for_slice(30))


# Answers


def test_nothing_measured_has_no_quantile_and_no_cdf() -> None:
    for sketch in (
        Sketch.for_slice(SLICE_S),
        sketch_of(columns(np.array([0]), np.array([0]), np.array([False]))),
    ):
        assert sketch.quantile(0.5) is None
        assert sketch.cdf(1e9) is None


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
def test_a_quantile_outside_0_to_1_is_an_error(fraction: float) -> None:
    with pytest.raises(InputError, match="expected 0 to 1"):
        sketch_of(of_lengths([5])).quantile(fraction)


def test_real_lengths_as_numpy_and_as_an_independent_digest(real: RequestColumns) -> None:
    sketch = sketch_of(*(real.take(slice(at, at + 250)) for at in range(0, len(real), 250)))
    total = real.prompt_tokens + real.completion_tokens
    oracle = OracleDigest()
    sample = total[::10]
    oracle.batch_update(sample.tolist())
    sampled = sketch_of(real.take(slice(None, None, 10)))
    for fraction in FRACTIONS[1:-1]:
        value = sketch.quantile(fraction)
        assert value is not None
        rank = ((total < value).mean() + (total <= value).mean()) / 2
        spread = (total == round(value)).mean() / 2
        assert rank == pytest.approx(fraction, abs=0.01 + spread)
    for tokens in (100, 500, 1_000, 2_000, 4_000, 8_000):
        share = sketch.cdf(tokens)
        assert share == pytest.approx((total <= tokens).mean(), abs=0.01)
        assert sampled.cdf(tokens) == pytest.approx(oracle.cdf(tokens), abs=0.02)
    for percent in (10, 50, 90, 99):
        assert sampled.quantile(percent / 100) == pytest.approx(oracle.percentile(percent), rel=0.1)


@pytest.mark.parametrize(
    "counts",
    [
        {7: 1000},
        {100: 500, 10_000: 500},
        {100: 990, 10_000: 10},
        {1: 300, 2: 300, 3: 300},
        {100: 499, 4_000: 2, 100_000: 499},
        {5_000_000: 10, 64: 1},
    ],
)
def test_few_distinct_values(counts: dict[int, int]) -> None:
    """ClickHouse issue 22408: a digest alone answers 5,050 where there are 100 and 10,000."""
    lengths = np.repeat(list(counts), list(counts.values()))
    np.random.default_rng(1).shuffle(lengths)
    sketch = sketch_of(*(of_lengths(part.tolist()) for part in np.array_split(lengths, 7)))
    for fraction in FRACTIONS:
        exact = exact_quantile(lengths, fraction)
        found = sketch.quantile(fraction)
        assert found is not None
        assert bin_of(np.array([math.ceil(found)])) == bin_of(np.array([exact]))
    for tokens in (0, *counts, *(2 * tokens for tokens in counts)):
        assert sketch.cdf(tokens) == pytest.approx((lengths <= tokens).mean(), abs=0.05)


@given(lengths=lengths_lists)
def test_quantiles_and_cdf_never_fall_and_edges_are_exact(lengths: list[int]) -> None:
    sketch = sketch_of(of_lengths(lengths))
    quantiles = np.array([sketch.quantile(fraction) for fraction in FRACTIONS], dtype=np.float64)
    assert (np.diff(quantiles) >= -1e-9 * quantiles[1:]).all()
    shares = np.array([sketch.cdf(tokens) for tokens in range(300)], dtype=np.float64)
    assert (np.diff(shares) >= -1e-9).all()
    assert sketch.cdf(-1) == 0.0
    assert sketch.cdf(math.inf) == 1.0
    total = np.array(lengths)
    for edge in EDGES_TOKENS[::7]:
        assert sketch.cdf(edge) == (total <= edge).mean()


# Bytes


@given(lengths=st.lists(lengths_lists, max_size=3), asked=st.booleans())
def test_bytes_give_the_same_sketch_back(lengths: list[list[int]], asked: bool) -> None:
    sketch = sketch_of(*map(of_lengths, lengths))
    if asked:
        sketch.quantile(0.5)
        sketch.cdf(100)
    data = sketch.to_bytes()
    again = Sketch.from_bytes(data)
    assert again.to_bytes() == data
    assert again.moments == sketch.moments
    assert again.arrivals.tolist() == sketch.arrivals.tolist()
    more = of_lengths([5, 5_000, 77])
    for each in (sketch, again):
        each.update(more, np.zeros(3, dtype=np.int64))
    assert again.to_bytes() == sketch.to_bytes(), "and it goes on in the same way"


def test_reading_changes_nothing() -> None:
    sketch = sketch_of(of_lengths(list(range(1, 500))))
    other = sketch_of(of_lengths([1, 2, 3]))
    before, other_before = sketch.to_bytes(), other.to_bytes()
    reads: list[Callable[[], object]] = [
        lambda: sketch.quantile(0.5),
        lambda: sketch.cdf(100),
        lambda: (sketch.arrival_count, sketch.measured_count),
        sketch.to_bytes,
        lambda: Sketch.for_slice(SLICE_S).merge(sketch),
    ]
    for read in reads:
        read()
        assert sketch.to_bytes() == before
    sketch.merge(other)
    assert other.to_bytes() == other_before


def test_an_idle_slice_takes_few_bytes() -> None:
    assert len(Sketch.for_slice(SLICE_S).to_bytes()) < 600


@given(data=st.data())
def test_damaged_bytes_are_an_input_error(data: st.DataObject) -> None:
    stored = bytearray(sketch_of(of_lengths(list(range(1, 300)))).to_bytes())
    at = data.draw(st.integers(0, len(stored) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "insert"]))
    if kind == "cut":
        del stored[at:]
    elif kind == "flip":
        stored[at] ^= data.draw(st.integers(1, 255))
    else:
        stored[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    with pytest.raises(InputError):
        Sketch.from_bytes(bytes(stored))


@given(payload=st.binary(max_size=200))
def test_foreign_bytes_are_an_input_error_even_with_a_right_checksum(payload: bytes) -> None:
    for data in (payload, zlib.crc32(payload).to_bytes(4, "little") + payload):
        with pytest.raises(InputError):
            Sketch.from_bytes(data)


@pytest.mark.parametrize("version", [1, 2, 9])
def test_a_sketch_of_another_version_says_so(version: int) -> None:
    fields = msgspec.msgpack.decode(sketch_of(of_lengths([70, 700])).to_bytes()[4:])
    fields[0] = version
    if version == 1:  # six moments a row, and no count of known caches
        rows = np.frombuffer(fields[3]).reshape(-1, 8)[:, :6]
        fields = [*fields[:3], rows.tobytes(), *fields[4:6]]
    if version == 2:  # no bytes per token
        fields = fields[:7]
    payload = msgspec.msgpack.encode(fields)
    with pytest.raises(InputError, match=f"version {version}"):
        Sketch.from_bytes(zlib.crc32(payload).to_bytes(4, "little") + payload)


def test_another_layout_has_another_version_and_other_keys() -> None:
    fields = msgspec.msgpack.decode(Sketch.for_slice(SLICE_S).to_bytes()[4:])
    assert (len(fields), MOMENTS) == (13, 8), "raise LAYOUT_VERSION with any change of the bytes"
    assert (fields[0], sketch_epoch("id", 60)) == (4, "id:60s:v4")


def test_cached_tokens_are_kept_and_unknown_ones_are_counted_apart() -> None:
    tokens = np.array([100, 200, 300, 400])
    told = replace(columns(tokens, tokens), cached_tokens=np.array([50, -1, 0, 400]))
    sketch = sketch_of(told, columns(tokens, tokens))
    assert (sketch.cache_known_count, sketch.measured_count) == (3, 8)
    assert sketch.moments.cached_share == (50 + 399) / 2_000
    sketch.merge(sketch_of(told))
    again = Sketch.from_bytes(sketch.to_bytes())
    assert again.cache_known_count == 6
    assert again.moments == sketch.moments
    unmeasured = replace(told, measured=np.zeros(4, dtype=np.bool_))
    assert sketch_of(unmeasured).cache_known_count == 0


def test_first_tokens_are_kept_by_pool_and_merge_exactly() -> None:
    tokens = np.array([100, 200, 300, 400])
    told = replace(columns(tokens, tokens), ttft_cell=np.array([-1, 3, 3, 144], dtype=np.int16))
    sketch = sketch_of(told, columns(tokens, tokens))
    assert sketch.ttfts is not None
    assert (sketch.ttfts[0, 3], sketch.ttfts[1, 48], sketch.ttfts.sum()) == (2, 1, 3)
    sketch.merge(sketch_of(told))
    again = Sketch.from_bytes(sketch.to_bytes())
    assert again.ttfts is not None
    assert again.ttfts.sum() == 6
    assert sketch_of(columns(tokens, tokens)).ttfts is None
    unmeasured = replace(told, measured=np.zeros(4, dtype=np.bool_))
    assert sketch_of(unmeasured).ttfts is None


def with_bytes(tokens: list[int], sizes: list[int], codes: list[int]) -> RequestColumns:
    told = {"prompt_bytes": np.array(sizes), "category": np.array(codes, dtype=np.int8)}
    prompt = np.array(tokens, dtype=np.int64)
    return replace(columns(prompt, prompt), **told)


def test_bytes_per_token_are_kept_by_category() -> None:
    told = with_bytes([100, 100, 0, 100], [400, -1, 50, 300], [0, 0, 0, 6])
    sketch = sketch_of(told, of_lengths([70, 700]))
    assert sketch.ratios is not None
    assert sketch.ratios.sum(axis=1).tolist() == [1, 0, 0, 0, 0, 0, 1]
    assert sketch_of(of_lengths([70, 700])).ratios is None
    unmeasured = replace(told, measured=np.zeros(4, dtype=np.bool_))
    assert sketch_of(unmeasured).ratios is None


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 9_000), st.integers(-1, 90_000), st.integers(0, 6)), max_size=40
    ),
    cut=st.integers(0, 40),
)
def test_bytes_per_token_merge_exactly_and_survive_their_bytes(
    rows: list[tuple[int, int, int]], cut: int
) -> None:
    def of(some: list[tuple[int, int, int]]) -> Sketch:
        tokens, sizes, codes = (list(column) for column in zip(*some, strict=True))
        return sketch_of(with_bytes(tokens, sizes, codes))

    whole = of(rows) if rows else Sketch.for_slice(SLICE_S)
    merged = Sketch.for_slice(SLICE_S)
    for some in (rows[cut:], rows[:cut]):
        if some:
            merged.merge(Sketch.from_bytes(of(some).to_bytes()))
    expected = no_ratios() if whole.ratios is None else whole.ratios
    found = no_ratios() if merged.ratios is None else merged.ratios
    np.testing.assert_array_equal(found, expected)
    again = Sketch.from_bytes(whole.to_bytes())
    assert again.to_bytes() == whole.to_bytes()


@given(
    rows=st.lists(
        st.tuples(
            st.integers(1, 90_000), st.integers(1, 9_000), st.integers(-1, 2), st.integers(0, 2)
        ),
        max_size=40,
    ),
    cut=st.integers(0, 40),
)
def test_outcomes_of_compression_merge_exactly_and_survive_their_bytes(
    rows: list[tuple[int, int, int, int]], cut: int
) -> None:
    def of(some: list[tuple[int, int, int, int]]) -> Sketch:
        before, after, code, kind = (np.array(column) for column in zip(*some, strict=True))
        told = {"compression": code.astype(np.int8), "sent_prompt_tokens": after}
        told |= {"compressibility": kind.astype(np.int8)}
        return sketch_of(replace(columns(before, np.ones_like(before)), **told))

    merged = Sketch.for_slice(SLICE_S)
    for some in (rows[cut:], rows[:cut]):
        if some:
            merged.merge(Sketch.from_bytes(of(some).to_bytes()))
    found = no_outcomes() if merged.outcomes is None else merged.outcomes
    tried = [row for row in rows if row[2] >= 0 and row[3] != 1]
    done = [row for row in tried if row[2] == 0]
    assert found.sum(axis=(0, 1)).tolist() == [
        *(sum(row[2] == code for row in tried) for code in range(3)),
        sum(row[0] for row in done),
        sum(row[1] for row in done),
    ]
    for row in tried:
        assert found[row[3] // 2, int(bin_of(np.array([row[0] + 1]))[0]), row[2]] > 0
    if rows:
        whole = of(rows)
        np.testing.assert_array_equal(
            found, no_outcomes() if whole.outcomes is None else whole.outcomes
        )
        assert Sketch.from_bytes(whole.to_bytes()).to_bytes() == whole.to_bytes()


# Cells


@pytest.mark.parametrize("slice_s", [1, 7, 59, 60, 61, 64, 100, 3_599, 3_600])
def test_cells_cover_their_slice(slice_s: int) -> None:
    assert cells_in(slice_s) <= CELLS
    assert len(Sketch.for_slice(slice_s).arrivals) == cells_in(slice_s)
    assert cells_in(slice_s) * cell_s(slice_s) == pytest.approx(slice_s)
