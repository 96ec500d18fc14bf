"""Trace files: what they hold, what is wrong with them, and what never gets lost."""

from __future__ import annotations

import gzip
import io
import random
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.connectors.trace_formats import (
    MOONCAKE_EPOCH_S,
    InputFormat,
    detect_format,
    epoch_s,
)
from fleetopt.connectors.traces import SHOWN_BAD_ROWS, TraceReader, open_input
from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def read(path: Path, fleet: str | None = None) -> tuple[list[RequestLog], TraceReader]:
    with open_input(str(path)) as opened:
        reader = TraceReader(opened, fleet)
        return reader.records(), reader


def csv_file(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "trace.data"  # the name says nothing
    path.write_text(HEADER + body)
    return path


def test_csv_times_without_a_zone_are_utc_with_their_fraction(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "2023-11-16 18:15:46.6805900,374,44\n")
    (record,), reader = read(path)
    assert record == RequestLog("default", "2", record.arrival_s, 374, 44)
    assert abs(record.arrival_s - 1700158546.68059) < 1e-6
    assert reader.report.format is InputFormat.CSV


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("2023-11-16 18:15:46.6805900", 1700158546.68059),
        ("2023-11-16T18:15:46Z", 1700158546.0),
        ("2023-11-16 19:15:46+01:00", 1700158546.0),
        ("1700158546.25", 1700158546.25),
    ],
)
def test_times_are_read_in_every_usual_form(text: str, expected_s: float) -> None:
    assert epoch_s(text) == pytest.approx(expected_s, abs=1e-6)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("yesterday,1,2", "TIMESTAMP 'yesterday' is neither"),
        ("2023-11-16 18:15:46,many,2", "Expected `int`, got `str` - at ContextTokens 'many'"),
        ("2023-11-16 18:15:46,,2", "at ContextTokens ''"),
        ("2023-11-16 18:15:46,-3,2", "Expected `int` >= 0 - at ContextTokens '-3'"),
        ("2023-11-16 18:15:46,3,99999999999", "at GeneratedTokens '99999999999'"),
        ("2023-11-16 18:15:46,3.5,2", "at ContextTokens '3.5'"),
        ("nan,3,2", "at TIMESTAMP 'nan'"),
        ("2023-11-16 18:15:46,3", "2 cells, the header has more"),
    ],
)
def test_a_bad_row_is_reported_with_its_line_and_takes_no_other_with_it(
    tmp_path: Path, row: str, reason: str
) -> None:
    good = "2023-11-16 18:15:46,3,2\n"
    records, reader = read(csv_file(tmp_path, f"{good}{row}\n{good}"))
    assert [record.request_id for record in records] == ["2", "4"]
    (bad,) = reader.report.first_bad
    assert bad.line == 3
    assert reason in bad.reason
    assert reader.report.bad_rows == 1
    assert any("line 3" in note for note in reader.report.notes())


def test_a_stray_quote_does_not_swallow_the_lines_after_it(tmp_path: Path) -> None:
    good = '2023-11-16 18:15:46,"3",2\n'
    records, reader = read(csv_file(tmp_path, good + '"oops,1,2\n' + good))
    assert len(records) == 2
    assert reader.report.bad_rows == 1


def test_bad_rows_are_all_counted_and_the_first_few_shown(tmp_path: Path) -> None:
    body = "2023-11-16 18:15:46,3,2\n" + "bad,1,2\n" * 40
    _, reader = read(csv_file(tmp_path, body))
    assert reader.report.bad_rows == 40
    assert len(reader.report.first_bad) == SHOWN_BAD_ROWS
    assert "and 35 more" in reader.report.notes()[-1]


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "\ufeffid,generatedtokens,Timestamp,CONTEXTTOKENS\r\n7,2,1700158546,3\r\n", "utf-8"
    )
    (record,), _ = read(path)
    assert (record.prompt_tokens, record.completion_tokens) == (3, 2)


def test_a_header_without_a_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens\n1700158546,3\n")
    with pytest.raises(InputError, match="lacks GeneratedTokens"):
        read(path)


def test_nothing_usable_is_an_error_with_the_first_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of 2 rows is usable; line 2: .*'bad'"):
        read(csv_file(tmp_path, "bad,1,2\nworse,1,2\n"))
    with pytest.raises(InputError, match="holds no requests"):
        read(csv_file(tmp_path, ""))


def test_native_records_keep_their_fields_and_fleets(tmp_path: Path) -> None:
    path = tmp_path / "t"
    written = [
        RequestLog("a", "1", 1e9, 10, 2, category="code", status="ok"),
        RequestLog("b", "2", 1e9 + 1, 20, 3, original_prompt_tokens=40),
    ]
    lines = msgspec.json.Encoder().encode_lines(written)
    path.write_bytes(lines + b'\n{"fleet":"a"}\nnot json\n')
    records, reader = read(path)
    assert records == written
    assert reader.report.fleets == {"a", "b"}
    assert [bad.line for bad in reader.report.first_bad] == [4, 5]
    renamed, _ = read(path, fleet="c")
    assert {record.fleet for record in renamed} == {"c"}


def test_mooncake_milliseconds_start_at_a_fixed_time(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
        '{"timestamp": 3052, "input_length": 7322, "output_length": 490}\n'
        '{"timestamp": 4000, "input_length": -1, "output_length": 490}\n'
    )
    records, reader = read(path)
    assert [record.arrival_s - MOONCAKE_EPOCH_S for record in records] == pytest.approx([0, 3.052])
    assert [record.prompt_tokens for record in records] == [6758, 7322]
    assert reader.report.format is InputFormat.MOONCAKE
    assert reader.report.bad_rows == 1


def test_gzip_is_recognised_by_content(tmp_path: Path) -> None:
    plain = csv_file(tmp_path, "1700158546,3,2\n" * 100)
    zipped = tmp_path / "zipped"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert read(zipped)[0] == read(plain)[0]


def test_a_gzip_file_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    plain = csv_file(
        tmp_path, "".join(f"17001585{at % 90 + 10},{at * 7919 % 5000},2\n" for at in range(9000))
    )
    cut = tmp_path / "cut"
    data = gzip.compress(plain.read_bytes())
    cut.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="to its end"):
        read(cut)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux's /proc")
def test_a_file_that_fails_at_its_first_byte_is_an_error() -> None:
    with pytest.raises(InputError, match="can't read /proc/self/mem"), open_input("/proc/self/mem"):
        pass


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO((HEADER + "1700158546,3,2\n").encode()))
    monkeypatch.setattr(sys, "stdin", text)
    with open_input("-") as opened:
        reader = TraceReader(opened)
        assert len(reader.records()) == 1
        assert reader.report.source == "standard input"


def test_arrivals_out_of_order_are_sorted_and_counted(tmp_path: Path) -> None:
    times = list(range(1_700_000_000, 1_700_000_500))
    random.Random(1).shuffle(times)
    records, reader = read(csv_file(tmp_path, "".join(f"{time},3,2\n" for time in times)))
    assert [record.arrival_s for record in records] == sorted(times)
    newest, expected = 0, 0
    for time in times:
        expected += time < newest
        newest = max(newest, time)
    assert reader.report.unsorted_rows == expected
    assert any("not in order" in note for note in reader.report.notes())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[1, 1.0]]", InputFormat.CDF),
        ('{\n  "cdf": [\n [1, 1.0]]}', InputFormat.CDF),
        ('{"cdf": [[1, 1.0]]}', InputFormat.CDF),
        ("\n\n" + HEADER, InputFormat.CSV),
        ('{"broken\n{"fleet":"a","arrival_s":1,"prompt_tokens":1}', InputFormat.NATIVE),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1}', InputFormat.MOONCAKE),
    ],
)
def test_formats_are_told_by_content(text: str, expected: InputFormat) -> None:
    assert detect_format([line.encode() for line in text.splitlines(keepends=True)]) is expected


@pytest.mark.parametrize("text", ["", "\n \n", "PNG\x00\x01", "{}", '{"a": 1}', "a,b,c\n1,2,3"])
def test_anything_else_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InputError, match="expected a CSV with the header TIMESTAMP"):
        detect_format([line.encode() for line in text.splitlines(keepends=True)])


def test_a_cdf_has_no_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("[[1, 1.0]]")
    with open_input(str(path)) as opened, pytest.raises(InputError, match="only `fleetopt plan`"):
        TraceReader(opened)


@given(
    st.lists(
        st.tuples(
            st.floats(1, 1e10, allow_nan=False), st.integers(0, 1 << 30), st.integers(0, 1 << 30)
        ),
        min_size=1,
        max_size=50,
    )
)
def test_what_is_written_natively_is_read_back(rows: list[tuple[float, int, int]]) -> None:
    written = [RequestLog("f", str(at), *row) for at, row in enumerate(rows)]
    data = msgspec.json.Encoder().encode_lines(written)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with open_input("-") as opened:
            read_back = TraceReader(opened).records()
    assert read_back == sorted(written, key=lambda record: record.arrival_s)


@pytest.mark.parametrize(
    ("name", "rows"), [("azure_llm_2023_conv.csv", 19_366), ("azure_llm_2023_code.csv", 8_819)]
)
def test_the_azure_traces_are_read_whole(shared_data: Path, name: str, rows: int) -> None:
    records, reader = read(shared_data / "traces" / name)
    assert len(records) == reader.report.rows == rows
    assert reader.report.bad_rows == reader.report.unsorted_rows == 0
