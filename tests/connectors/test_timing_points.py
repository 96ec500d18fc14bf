"""Timing files: grouped by engine, or refused with the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetopt.connectors.timing_points import read_timing_points
from fleetopt.errors import InputError
from fleetopt.planner.profile_fit import TimingKind, TimingPoint

HEADER = "gpu,model,tensor_parallel,kind,context_tokens,batch,milliseconds\n"
ROW = "h100,Qwen3-32B,2,decode,528,8,13.5\n"


def read(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    return [engine.name for engine in read_timing_points(data.splitlines(keepends=True), "t.csv")]


def test_rows_are_grouped_by_engine_whatever_the_order() -> None:
    text = HEADER + ROW + ROW.replace("h100", "a100") + ROW.replace(",2,decode", ",4,prefill") + ROW
    engines = read_timing_points(text.encode().splitlines(), "t.csv")
    assert [(engine.name, len(engine.points)) for engine in engines] == [
        ("h100/qwen3-32b/tp2", 2),
        ("a100/qwen3-32b/tp2", 1),
        ("h100/qwen3-32b/tp4", 1),
    ]
    assert engines[0].points[0] == TimingPoint(TimingKind.DECODE, 528, 8, 0.0135)
    assert engines[2].points[0].kind is TimingKind.PREFILL


def test_columns_go_by_name_and_spelling_does_not_split_an_engine() -> None:
    text = (
        "\ufeffmilliseconds, batch,note,context_tokens,kind,tensor_parallel,model,gpu\r\n"
        '13.5, 8,"quiet, idle",528,Decode,2,Qwen3-32B,H100\r\n'
        "14.5,16,,528,decode,2,qwen3-32b,h100\r\n"
    )
    (engine,) = read_timing_points(text.encode().splitlines(keepends=True), "t.csv")
    assert (engine.gpu, engine.model, engine.tensor_parallel) == ("h100", "Qwen3-32B", 2)
    assert [point.batch for point in engine.points] == [8, 16]


def test_a_name_has_no_white_space() -> None:
    assert read(HEADER + ROW.replace("Qwen3-32B", "Qwen3 32B")) == ["h100/qwen3-32b/tp2"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROW.replace("13.5", "0"), "line 3: milliseconds is '0'"),
        (ROW.replace("13.5", "nan"), "line 3: milliseconds is 'nan'"),
        (ROW.replace("13.5", "fast"), "line 3: milliseconds is 'fast'"),
        (ROW.replace(",13.5", ""), "line 3: milliseconds is empty"),
        (ROW.replace("528", "5e2"), "line 3: context_tokens is '5e2'"),
        (ROW.replace("528", "-1"), "line 3: context_tokens is '-1'"),
        (ROW.replace(",8,", ",0,"), "line 3: batch is '0'"),
        (ROW.replace("decode", "train"), "line 3: kind is 'train'; expected decode or prefill"),
        (ROW.replace(",2,", ",two,"), "line 3: tensor_parallel is 'two'"),
        (ROW.replace("h100", ""), "line 3: gpu is empty"),
        (ROW.replace("Qwen3-32B", "x" * 200_000), "line 3: field larger"),
    ],
)
def test_a_bad_row_is_named_by_its_line(row: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^t.csv: {message}"):
        read(HEADER + ROW + row + ROW)


def test_many_bad_rows_are_counted() -> None:
    with pytest.raises(InputError, match=r"line 2: .*line 6: .*; and 4 more$"):
        read(HEADER + ROW.replace("13.5", "x") * 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks gpu, model, tensor_parallel, kind"),
        (HEADER, "holds no rows"),
        (HEADER.replace("batch", "size") + ROW, "the header lacks batch"),
        (HEADER.encode() + b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_of_another_kind_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(text)


def test_the_published_timings_are_read_in_full(shared_data: Path) -> None:
    with (shared_data / "profiles" / "silicon_points.csv").open("rb") as lines:
        engines = read_timing_points(lines, "points")
    assert len(engines) == 32
    assert {len(engine.points) for engine in engines} == {15}
