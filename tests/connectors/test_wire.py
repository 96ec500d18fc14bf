"""Whatever a message holds, its good rows are decoded and its bad ones refused with a reason."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.connectors.columns import BYTES_UNKNOWN, CACHE_UNKNOWN, NOT_TRIED
from fleetopt.connectors.decode import Decoded, decode_message
from fleetopt.connectors.rows import columns_of_records
from fleetopt.connectors.wire import COLUMNS_VERSION, Rejection, RequestBatch, encode_batch
from fleetopt.planner.moments import Compressibility

ARRIVAL_S = 1.7e9
RECORD: dict[str, Any] = {
    "fleet": "qwen/h100:eu-é",
    "request_id": "r-1",
    "arrival_s": ARRIVAL_S,
    "prompt_tokens": 120,
    "completion_tokens": 30,
}
BATCH: dict[str, Any] = {
    "v": COLUMNS_VERSION,
    "fleet": "qwen/h100:eu-é",
    "ts": [ARRIVAL_S, ARRIVAL_S + 1, ARRIVAL_S + 2],
    "p": [100, 200, 300],
    "o": [10, 20, 30],
    "src": "gateway-1",
    "seq": 7,
}
HEARTBEAT = {"v": COLUMNS_VERSION, "fleet": "qwen", "until_s": ARRIVAL_S}


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


FORMATS = pytest.mark.parametrize(
    "encode", [as_json, msgspec.msgpack.encode], ids=["json", "msgpack"]
)
Encode = Callable[[Any], bytes]


def rows_accepted(decoded: Decoded) -> int:
    return len(decoded.records) + sum(len(batch.columns) for batch in decoded.batches)


def rows_rejected(decoded: Decoded) -> int:
    return sum(rejected.rows for rejected in decoded.rejected)


def reasons(decoded: Decoded) -> set[Rejection]:
    return {rejected.reason for rejected in decoded.rejected}


# What is accepted


@FORMATS
def test_a_record(encode: Encode) -> None:
    decoded = decode_message(encode(RECORD | {"status": "ok", "category": "rag", "new": [1]}))
    assert not decoded.rejected
    (record,) = decoded.records
    assert (record.fleet, record.prompt_tokens, record.category) == (RECORD["fleet"], 120, "rag")


@FORMATS
def test_an_array_of_records_and_batches(encode: Encode) -> None:
    decoded = decode_message(encode([RECORD, BATCH, RECORD]))
    assert (len(decoded.records), len(decoded.batches), decoded.rejected) == (2, 1, [])


@FORMATS
@pytest.mark.parametrize("version_first", [True, False])
def test_a_batch(encode: Encode, version_first: bool) -> None:
    fields = BATCH if version_first else dict(reversed(BATCH.items()))
    decoded = decode_message(encode(fields))
    assert not decoded.rejected
    (batch,) = decoded.batches
    assert (batch.fleet, batch.src, batch.seq) == (BATCH["fleet"], "gateway-1", 7)
    assert batch.columns.arrival_s.tolist() == BATCH["ts"]
    assert batch.columns.prompt_tokens.tolist() == BATCH["p"]
    assert batch.columns.completion_tokens.tolist() == BATCH["o"]
    assert set(batch.columns.compressibility) == {Compressibility.UNKNOWN}
    assert batch.columns.measured.all()


@FORMATS
def test_a_batch_says_what_is_compressible_compressed_and_unknown(encode: Encode) -> None:
    fields = BATCH | {"c": [0, 1, 2], "q": [150, 200, 300], "s": [0, 1, 0]}
    (batch,) = decode_message(encode(fields)).batches
    assert batch.columns.compressibility.tolist() == [0, 1, 2]
    assert batch.columns.prompt_tokens.tolist() == [150, 200, 300], "tokens before compression"
    assert batch.columns.measured.tolist() == [True, False, True]


@FORMATS
def test_null_cells_of_optional_columns_are_unknown(encode: Encode) -> None:
    fields = BATCH | {"c": [0, None, 2], "q": [150, None, 300], "s": [None, True, 0]}
    decoded = decode_message(encode(fields))
    assert not decoded.rejected
    columns = decoded.batches[0].columns
    assert columns.compressibility.tolist() == [0, 2, 2]
    assert columns.prompt_tokens.tolist() == [150, 200, 300]
    assert columns.measured.tolist() == [True, False, True]


def test_a_row_beside_a_damaged_one_keeps_what_it_says() -> None:
    fields = BATCH | {"p": [0, 200, -1], "o": [0, 20, 30], "c": [1, 0, 2], "q": [50, 250, 300]}
    for unknown, measured in ([0, 0, 0], [False, True]), ([0, 1, 0], [False, False]):
        (batch,) = decode_message(as_json(fields | {"s": unknown})).batches
        assert batch.columns.measured.tolist() == measured
        assert batch.columns.prompt_tokens.tolist() == [50, 250]
        assert batch.columns.completion_tokens.tolist() == [0, 20]
        assert batch.columns.compressibility.tolist() == [1, 0]


@FORMATS
def test_a_heartbeat(encode: Encode) -> None:
    decoded = decode_message(encode({"v": 1, "fleet": "f", "until_s": ARRIVAL_S}))
    assert not decoded.rejected
    (batch,) = decoded.batches
    assert (len(batch.columns), batch.until_s) == (0, ARRIVAL_S)


@FORMATS
def test_an_empty_array_and_an_empty_batch_hold_nothing(encode: Encode) -> None:
    assert decode_message(encode([])) == Decoded()
    empty = decode_message(encode(BATCH | {"ts": [], "p": [], "o": []}))
    assert (rows_accepted(empty), empty.rejected) == (0, [])


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\n\n"])
def test_json_lines(newline: bytes) -> None:
    lines = newline.join(map(as_json, [RECORD, BATCH, [RECORD, RECORD], RECORD]))
    for message in (lines, lines + newline):
        decoded = decode_message(message)
        assert (len(decoded.records), len(decoded.batches), decoded.rejected) == (4, 1, [])


@pytest.mark.parametrize("value", [RECORD, BATCH, [RECORD, RECORD]])
def test_json_over_several_lines(value: Any) -> None:
    decoded = decode_message(json.dumps(value, indent=2).encode())
    assert not decoded.rejected
    assert decoded.records or decoded.batches


def test_an_array_with_an_element_a_line() -> None:
    message = b"[" + b"\n,".join(map(as_json, [RECORD, RECORD, RECORD])) + b"]"
    assert len(decode_message(message).records) == 3


@pytest.mark.parametrize("lead", [b"\xef\xbb\xbf", b" \t\r\n", b"\xef\xbb\xbf\n"])
def test_a_byte_order_mark_and_leading_space_are_passed_over(lead: bytes) -> None:
    assert len(decode_message(lead + as_json(RECORD)).records) == 1
    assert len(decode_message(lead + as_json(RECORD) + b"\n" + as_json(RECORD)).records) == 2


@FORMATS
def test_a_record_that_has_a_field_v_is_a_record(encode: Encode) -> None:
    for fields in ({"v": 1} | RECORD, RECORD | {"v": "two"}):
        decoded = decode_message(encode(fields))
        assert (len(decoded.records), decoded.batches, decoded.rejected) == (1, [], [])


@pytest.mark.parametrize(
    ("fields", "measured"),
    [
        ({}, True),
        ({"status": "ok"}, True),
        ({"status": "error"}, False),
        ({"status": "rejected"}, False),
        ({"prompt_tokens": 0}, False),
        ({"completion_tokens": 0}, True),
    ],
)
def test_failed_requests_and_missing_usage_are_arrivals_of_unknown_length(
    fields: dict[str, Any], measured: bool
) -> None:
    decoded = decode_message(as_json(RECORD | fields))
    assert columns_of_records(decoded.records).measured.tolist() == [measured]
    row = RECORD | fields
    batch = {
        "v": 1,
        "fleet": "f",
        "ts": [row["arrival_s"]],
        "p": [row["prompt_tokens"]],
        "o": [row["completion_tokens"]],
        "s": [int(row.get("status", "ok") != "ok")],
    }
    assert decode_message(as_json(batch)).batches[0].columns.measured.tolist() == [measured]


def test_tokens_before_compression_are_what_a_record_counts_for() -> None:
    decoded = decode_message(as_json(RECORD | {"original_prompt_tokens": 500}))
    assert columns_of_records(decoded.records).prompt_tokens.tolist() == [500]


@pytest.mark.parametrize(
    ("fields", "cached"),
    [
        ({}, None),
        ({"cached_prompt_tokens": 0}, [0]),
        ({"cached_prompt_tokens": 7}, [7]),
        ({"cached_prompt_tokens": 7, "original_prompt_tokens": 10}, [7]),  # nothing was cut
        ({"cached_prompt_tokens": 7, "original_prompt_tokens": 500}, [CACHE_UNKNOWN]),
    ],
)
@FORMATS
def test_cached_tokens_of_a_compressed_prompt_say_nothing_of_the_whole_one(
    encode: Encode, fields: dict[str, Any], cached: list[int] | None
) -> None:
    row = RECORD | {"prompt_tokens": 10} | fields
    of_record = columns_of_records(decode_message(encode(row)).records).cached_tokens
    batch: dict[str, Any] = {"v": 1, "fleet": "f", "ts": [row["arrival_s"]], "p": [10], "o": [1]}
    if "cached_prompt_tokens" in row:
        batch["h"] = [row["cached_prompt_tokens"]]
    if "original_prompt_tokens" in row:
        batch["q"] = [row["original_prompt_tokens"]]
    bad = batch | {name: [*batch[name], -1] for name in batch if name not in ("v", "fleet")}
    whole, judged = (decode_message(encode(each)).batches[0].columns for each in (batch, bad))
    for found in (of_record, whole.cached_tokens, judged.cached_tokens):
        assert (None if found is None else found.tolist()) == cached


@FORMATS
def test_a_batch_may_know_the_cache_of_some_rows_only(encode: Encode) -> None:
    batch = {"v": 1, "fleet": "f", "ts": [1.5, 2.5], "p": [9, 9], "o": [1, 1], "h": [None, 4]}
    (decoded,) = decode_message(encode(batch)).batches
    assert decoded.columns.cached_tokens is not None
    assert decoded.columns.cached_tokens.tolist() == [CACHE_UNKNOWN, 4]


@FORMATS
def test_bytes_go_with_the_category_in_records_and_batches(encode: Encode) -> None:
    said = {"prompt_bytes": 400, "category": "code"}
    decoded = decode_message(encode([RECORD | said, RECORD, RECORD | {"category": "rag"}]))
    of_records = columns_of_records(decoded.records)
    batch = {"v": 1, "fleet": "f", "ts": [1.5] * 3, "p": [9] * 3, "o": [1] * 3}
    batch |= {"b": [400, None, None], "k": [2, 6, 1]}
    bad = batch | {"b": [400, None, -1]}
    whole, judged = (decode_message(encode(each)).batches[0].columns for each in (batch, bad))
    for found, rows in ((of_records, 3), (whole, 3), (judged, 2)):
        assert found.prompt_bytes is not None
        assert found.category is not None
        assert found.prompt_bytes.tolist() == [400, BYTES_UNKNOWN, BYTES_UNKNOWN][:rows]
        assert found.category.tolist() == [2, 6, 1][:rows]
    bare = decode_message(encode({name: batch[name] for name in batch if name != "k"})).batches[0]
    assert bare.columns.category is not None
    assert bare.columns.category.tolist() == [6, 6, 6]


@FORMATS
def test_outcomes_of_compression_go_with_the_tokens_sent(encode: Encode) -> None:
    done = {"compression": "compressed", "prompt_tokens": 60, "original_prompt_tokens": 90}
    late = {"compression": "deadline", "prompt_tokens": 9}
    decoded = decode_message(encode([RECORD | done, RECORD | late, RECORD | {"prompt_tokens": 8}]))
    of_records = columns_of_records(decoded.records)
    batch = {"v": 1, "fleet": "f", "ts": [1.5] * 3, "p": [60, 9, 8], "o": [1] * 3}
    batch |= {"q": [90, 9, 8], "r": [0, 2, None]}
    bad = batch | {"r": [0, 2, 7]}
    whole, judged = (decode_message(encode(each)).batches[0].columns for each in (batch, bad))
    for found, rows in ((of_records, 3), (whole, 3), (judged, 2)):
        assert found.compression is not None
        assert found.sent_prompt_tokens is not None
        assert found.compression.tolist() == [0, 2, NOT_TRIED][:rows]
        assert found.sent_prompt_tokens.tolist() == [60, 9, 8][:rows]
        assert found.prompt_tokens.tolist() == [90, 9, 8][:rows]


@FORMATS
def test_times_to_first_token_go_with_their_pool(encode: Encode) -> None:
    first: list[dict[str, Any]] = [
        {"ttft_s": 1.0, "pool": "long"},
        {"ttft_s": 0.5},
        {"pool": "short"},
        {},
    ]
    decoded = decode_message(encode([RECORD | one for one in first]))
    of_records = columns_of_records(decoded.records)
    batch: dict[str, Any] = {"v": 1, "fleet": "f", "ts": [1.5] * 4, "p": [9] * 4, "o": [1] * 4}
    batch |= {"t": [1.0, 0.5, None, None], "w": [1, None, 0, None]}
    bad = batch | {"w": [1, None, 0, 7]}
    whole, judged = (decode_message(encode(each)).batches[0].columns for each in (batch, bad))
    for found, rows in ((of_records, 4), (whole, 4), (judged, 3)):
        assert found.ttft_cell is not None
        assert found.ttft_cell.tolist() == [144, -1, -1, -1][:rows]
    silent = decode_message(encode(batch | {"w": None})).batches[0].columns
    assert silent.ttft_cell is None


def test_what_we_encode_we_decode() -> None:
    sent = RequestBatch(1, "f", [1.5, 2.5], [1, 2], [3, 4], c=[0, 1], src="s", seq=2, until_s=3.0)
    (batch,) = decode_message(encode_batch(sent)).batches
    assert (batch.fleet, batch.src, batch.seq, batch.until_s) == ("f", "s", 2, 3.0)
    assert batch.columns.arrival_s.tolist() == [1.5, 2.5]


# What is refused, and why


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Rejection.EMPTY),
        (b"", Rejection.EMPTY),
        (b" \r\n\t ", Rejection.EMPTY),
        (b"\xef\xbb\xbf ", Rejection.EMPTY),
        (b"x" * 1_000_000, Rejection.MALFORMED),
        (bytes(range(256)) * 4_000, Rejection.MALFORMED),
        (b"\xff\xfe" + json.dumps(RECORD).encode("utf-16-le"), Rejection.MALFORMED),
        (b"null", Rejection.MALFORMED),
        (b"12", Rejection.MALFORMED),
        (b"NaN", Rejection.MALFORMED),
        (b"{", Rejection.MALFORMED),
        (b"[", Rejection.MALFORMED),
        (as_json(RECORD)[:-1], Rejection.MALFORMED),
        (as_json(RECORD) * 2, Rejection.MALFORMED),
        (as_json([RECORD, RECORD])[:-3], Rejection.MALFORMED),
        (msgspec.msgpack.encode(RECORD)[:-1], Rejection.MALFORMED),
        (msgspec.msgpack.encode(RECORD) * 2, Rejection.MALFORMED),
        (msgspec.msgpack.encode([RECORD, RECORD])[:-3], Rejection.MALFORMED),
        (b"{}", Rejection.INVALID),
        (b"\x80", Rejection.INVALID),
        (b"[" * 100_000, Rejection.MALFORMED),
        (b'{"a":' * 100_000, Rejection.MALFORMED),
        (b"\x91" * 100_000, Rejection.MALFORMED),
        (b"\x81\xa1a" * 100_000, Rejection.MALFORMED),
        (as_json(RECORD).replace(b'"r-1"', b'"\\ud800"'), Rejection.MALFORMED),
        (as_json(RECORD).replace(b'"r-1"', b'"\xff"'), Rejection.MALFORMED),
        (msgspec.msgpack.encode(RECORD).replace(b"\xa3r-1", b"\xa3\xed\xa0\x80"), "malformed"),
        (msgspec.msgpack.encode({1: 2}), Rejection.INVALID),
        (b"\x81\x91\x01\x01", Rejection.INVALID),
    ],
)
def test_a_message_that_is_no_request_log(value: bytes | None, reason: Rejection) -> None:
    decoded = decode_message(value)
    assert rows_accepted(decoded) == 0
    assert reasons(decoded) == {reason}
    assert all(rejected.detail for rejected in decoded.rejected)


BAD_FIELDS: list[tuple[str, Any, Rejection]] = [
    ("prompt_tokens", -1, Rejection.OUT_OF_RANGE),
    ("prompt_tokens", 2**31, Rejection.OUT_OF_RANGE),
    ("prompt_tokens", 2**64 - 1, Rejection.OUT_OF_RANGE),
    ("prompt_tokens", "120", Rejection.INVALID),
    ("prompt_tokens", None, Rejection.INVALID),
    ("prompt_tokens", True, Rejection.INVALID),
    ("prompt_tokens", 12.5, Rejection.INVALID),
    ("prompt_tokens", [], Rejection.INVALID),
    ("completion_tokens", -1, Rejection.OUT_OF_RANGE),
    ("arrival_s", ARRIVAL_S * 1e3, Rejection.OUT_OF_RANGE),
    ("arrival_s", 0, Rejection.OUT_OF_RANGE),
    ("arrival_s", -ARRIVAL_S, Rejection.OUT_OF_RANGE),
    ("arrival_s", "2026-01-01T00:00:00Z", Rejection.INVALID),
    ("arrival_s", True, Rejection.INVALID),
    ("arrival_s", {}, Rejection.INVALID),
    ("fleet", "", Rejection.INVALID),
    ("fleet", "x" * 201, Rejection.INVALID),
    ("fleet", "a b", Rejection.INVALID),
    ("fleet", "a\n", Rejection.INVALID),
    ("fleet", "a{b", Rejection.INVALID),
    ("fleet", "a}b", Rejection.INVALID),
    ("fleet", "a\x00b", Rejection.INVALID),
    ("fleet", "a\x7fb", Rejection.INVALID),
    ("fleet", "a\x85b", Rejection.INVALID),
    ("fleet", "a\u2028b", Rejection.INVALID),
    ("fleet", 5, Rejection.INVALID),
    ("category", "poem", Rejection.INVALID),
    ("status", "fine", Rejection.INVALID),
    ("ttft_s", -0.1, Rejection.OUT_OF_RANGE),
]


@FORMATS
@pytest.mark.parametrize(("field", "value", "reason"), BAD_FIELDS)
def test_a_bad_field_refuses_its_record_alone(
    encode: Encode, field: str, value: Any, reason: Rejection
) -> None:
    bad = RECORD | {field: value}
    alone = decode_message(encode(bad))
    assert (rows_accepted(alone), reasons(alone)) == (0, {reason})
    among = decode_message(encode([RECORD, bad, RECORD]))
    assert (rows_accepted(among), rows_rejected(among), reasons(among)) == (2, 1, {reason})
    assert among.rejected[0].value == encode(bad), "the record as it was sent"
    lines = decode_message(b"\n".join(map(as_json, [RECORD, bad, RECORD])))
    assert (rows_accepted(lines), rows_rejected(lines)) == (2, 1)


BAD_CELLS: list[tuple[str, Any, Rejection]] = [
    ("ts", None, Rejection.INVALID),
    ("ts", "1.7e9", Rejection.INVALID),
    ("ts", True, Rejection.INVALID),
    ("ts", -1.0, Rejection.OUT_OF_RANGE),
    ("ts", 0, Rejection.OUT_OF_RANGE),
    ("ts", ARRIVAL_S * 1e3, Rejection.OUT_OF_RANGE),
    ("p", None, Rejection.INVALID),
    ("p", "5", Rejection.INVALID),
    ("p", True, Rejection.INVALID),
    ("p", 5.0, Rejection.INVALID),
    ("p", -1, Rejection.OUT_OF_RANGE),
    ("p", 2**31, Rejection.OUT_OF_RANGE),
    ("p", 2**64 - 1, Rejection.OUT_OF_RANGE),
    ("p", [[]], Rejection.INVALID),
    ("o", -1, Rejection.OUT_OF_RANGE),
    ("o", {}, Rejection.INVALID),
    ("c", 3, Rejection.OUT_OF_RANGE),
    ("c", -1, Rejection.OUT_OF_RANGE),
    ("c", 300, Rejection.OUT_OF_RANGE),
    ("c", 1.0, Rejection.INVALID),
    ("c", True, Rejection.INVALID),
    ("c", [], Rejection.INVALID),
    ("q", -1, Rejection.OUT_OF_RANGE),
    ("q", "5", Rejection.INVALID),
    ("s", 2, Rejection.OUT_OF_RANGE),
    ("s", -1, Rejection.OUT_OF_RANGE),
    ("s", "no", Rejection.INVALID),
    ("b", -1, Rejection.OUT_OF_RANGE),
    ("b", (1 << 40) + 1, Rejection.OUT_OF_RANGE),
    ("b", "5", Rejection.INVALID),
    ("k", 7, Rejection.OUT_OF_RANGE),
    ("k", "code", Rejection.INVALID),
    ("r", 3, Rejection.OUT_OF_RANGE),
    ("r", -1, Rejection.OUT_OF_RANGE),
    ("r", "failed", Rejection.INVALID),
]
FULL = BATCH | {"c": [0, 1, 2], "q": [100, 200, 300], "s": [0, 0, 0], "h": [0, None, 50]}
FULL |= {"b": [400, None, 0], "k": [0, 6, 5], "r": [0, None, 2]}


def with_cell(name: str, at: int, value: Any) -> dict[str, Any]:
    return FULL | {name: [value if row == at else cell for row, cell in enumerate(FULL[name])]}


@FORMATS
@pytest.mark.parametrize(("name", "value", "reason"), BAD_CELLS)
def test_a_bad_cell_refuses_its_row_alone(
    encode: Encode, name: str, value: Any, reason: Rejection
) -> None:
    decoded = decode_message(encode(with_cell(name, 1, value)))
    assert (rows_rejected(decoded), reasons(decoded)) == (1, {reason})
    assert f"row 1: {name}" in decoded.rejected[0].detail
    assert decoded.batches[0].columns.prompt_tokens.tolist() == [100, 300]
    assert decoded.batches[0].seq == 7


@pytest.mark.parametrize("cell", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_in_a_column(cell: float) -> None:
    packed = decode_message(msgspec.msgpack.encode(with_cell("ts", 1, cell)))
    assert (rows_accepted(packed), reasons(packed)) == (2, {Rejection.OUT_OF_RANGE})
    # Python writes NaN into JSON, which has none: the rows beside it are still read.
    written = decode_message(as_json(with_cell("ts", 1, cell)))
    assert (rows_accepted(written), reasons(written)) == (2, {Rejection.INVALID})


@pytest.mark.parametrize("cell", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_in_a_record(cell: float) -> None:
    records = [RECORD, RECORD | {"arrival_s": cell}, RECORD]
    packed = decode_message(msgspec.msgpack.encode(records))
    assert (rows_accepted(packed), reasons(packed)) == (2, {Rejection.OUT_OF_RANGE})
    for message in (as_json(records), b"\n".join(map(as_json, records))):
        decoded = decode_message(message)
        assert (rows_accepted(decoded), rows_rejected(decoded)) == (2, 1)


def test_json_that_holds_nan_and_is_malformed_otherwise_too() -> None:
    for message in (b'[NaN, {"a": ]', b"[NaN," + b"[" * 100_000, b'{"a": NaN, "b": "\\ud800"}'):
        assert rows_accepted(decode_message(message)) == 0
        assert rows_rejected(decode_message(message)) == 1


@pytest.mark.parametrize("digits", [30, 400, 6_000])
@pytest.mark.parametrize("name", ["ts", "p", "o"])
def test_integers_beyond_every_machine_type(name: str, digits: int) -> None:
    huge = b"1" + b"0" * digits
    message = as_json(with_cell(name, 1, 987654321)).replace(b"987654321", huge)
    decoded = decode_message(message)
    assert (rows_accepted(decoded), reasons(decoded)) == (2, {Rejection.OUT_OF_RANGE})
    field = {"ts": "arrival_s", "p": "prompt_tokens", "o": "completion_tokens"}[name]
    record = as_json(RECORD | {field: 987654321}).replace(b"987654321", huge)
    assert reasons(decode_message(record)) == {Rejection.OUT_OF_RANGE}


def test_a_sequence_number_fits_where_it_is_stored() -> None:
    for seq in (2**63, 10**400, -1):
        message = as_json(BATCH | {"seq": 987654321}).replace(b"987654321", str(seq).encode())
        decoded = decode_message(message)
        assert (rows_accepted(decoded), reasons(decoded)) == (0, {Rejection.OUT_OF_RANGE})


@FORMATS
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"v": 2}, Rejection.UNKNOWN_VERSION),
        ({"v": 2, "ts": {"delta": True}}, Rejection.UNKNOWN_VERSION),
        ({"v": 0}, Rejection.UNKNOWN_VERSION),
        ({"v": "1"}, Rejection.INVALID),
        ({"v": True}, Rejection.INVALID),
        ({"v": None}, Rejection.INVALID),
        ({"p": [1]}, Rejection.INVALID),
        ({"c": []}, Rejection.INVALID),
        ({"ts": 5}, Rejection.INVALID),
        ({"fleet": "a b"}, Rejection.INVALID),
        ({"src": 5}, Rejection.INVALID),
        ({"src": "x" * 201}, Rejection.INVALID),
        ({"seq": None}, Rejection.INVALID),
        ({"until_s": "now"}, Rejection.INVALID),
        ({"until_s": -1.0}, Rejection.OUT_OF_RANGE),
        ({"until_s": ARRIVAL_S * 1e3}, Rejection.OUT_OF_RANGE),
    ],
)
def test_a_batch_that_can_not_be_read_as_a_whole(
    encode: Encode, fields: dict[str, Any], reason: Rejection
) -> None:
    decoded = decode_message(encode(BATCH | fields))
    assert (rows_accepted(decoded), reasons(decoded)) == (0, {reason})
    among = decode_message(encode([RECORD, BATCH | fields]))
    assert (rows_accepted(among), reasons(among)) == (1, {reason})


def test_types_that_only_messagepack_has() -> None:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for cell in (moment, msgspec.msgpack.Ext(5, b"x"), b"bytes"):
        decoded = decode_message(msgspec.msgpack.encode(with_cell("ts", 1, cell)))
        assert (rows_accepted(decoded), reasons(decoded)) == (2, {Rejection.INVALID})


@pytest.mark.parametrize("damaged", [b'{"fleet": "f", "requ', b"garbage", b"[1, 2", b"\x01}"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_damaged_line_leaves_the_others(damaged: bytes, at: int) -> None:
    lines = [as_json(RECORD), as_json(RECORD)]
    lines.insert(at, damaged)
    decoded = decode_message(b"\n".join(lines))
    assert (len(decoded.records), rows_rejected(decoded)) == (2, 1)
    assert reasons(decoded) == {Rejection.MALFORMED}
    assert decoded.rejected[0].value == damaged


@FORMATS
def test_refused_rows_come_back_as_they_were_sent_and_can_be_mended(encode: Encode) -> None:
    decoded = decode_message(encode(FULL | {"p": [None, 200, -1]}))
    letters = {rejected.reason: rejected.value for rejected in decoded.rejected}
    assert set(letters) == {Rejection.INVALID, Rejection.OUT_OF_RANGE}
    decode = msgspec.json.decode if encode is as_json else msgspec.msgpack.decode
    letter = decode(letters[Rejection.OUT_OF_RANGE])
    assert (letter["ts"], letter["p"], letter["o"]) == ([ARRIVAL_S + 2], [-1], [30])
    mended = decode_message(encode(letter | {"p": [5]}))
    assert (rows_accepted(mended), mended.rejected) == (1, [])
    assert mended.batches[0].src == "", "so that it is not taken for the batch sent before"


@FORMATS
def test_rubbish_is_a_letter_a_reason_and_not_a_letter_a_row(encode: Encode) -> None:
    elements = [1, None, "x", {}, RECORD | {"prompt_tokens": -1}] * 1_000
    decoded = decode_message(encode(elements))
    assert (len(decoded.rejected), rows_rejected(decoded)) == (2, 5_000)
    batch = decode_message(encode(FULL | {"ts": [None] * 3}))
    assert (len(batch.rejected), rows_rejected(batch)) == (1, 3)
    again = decode_message(decoded.rejected[0].value)
    assert rows_rejected(again) == decoded.rejected[0].rows


def test_a_batch_whose_rows_can_not_be_told_counts_as_one() -> None:
    decoded = decode_message(as_json(BATCH | {"p": [1]}))
    assert (rows_accepted(decoded), rows_rejected(decoded)) == (0, 1)


# Laws


CELL = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
)
COLUMNS = ["ts", "p", "o", "c", "q", "s", "h", "b", "k", "r"]


@given(value=st.binary(max_size=200))
def test_no_bytes_raise(value: bytes) -> None:
    decoded = decode_message(value)
    assert rows_accepted(decoded) + rows_rejected(decoded) >= 0


@given(
    data=st.data(),
    value=st.sampled_from(
        [
            encode(value)
            for encode in (as_json, msgspec.msgpack.encode)
            for value in (
                RECORD,
                BATCH,
                FULL,
                [RECORD, BATCH],
                {"v": 1, "fleet": "f", "until_s": 5},
            )
        ]
        + [b"\n".join(map(as_json, [RECORD, BATCH, [RECORD]]))]
    ),
)
def test_no_damage_raises(data: st.DataObject, value: bytes) -> None:
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(at, min(len(damaged), at + 8)))
        damaged[at:end] = data.draw(st.binary(max_size=4))
    decoded = decode_message(bytes(damaged))
    for rejected in decoded.rejected:
        assert rejected.reason in Rejection
        assert rejected.rows >= 1
    for batch in decoded.batches:
        assert (batch.columns.prompt_tokens >= 0).all()
        assert (batch.columns.arrival_s > 0).all()


@FORMATS
@given(damage=st.lists(st.tuples(st.sampled_from(COLUMNS), st.integers(0, 2), CELL), max_size=6))
def test_every_row_of_a_batch_is_accepted_or_rejected(
    encode: Encode, damage: list[tuple[str, int, Any]]
) -> None:
    fields = {name: list(FULL[name]) for name in COLUMNS}
    for name, at, cell in damage:
        fields[name][at] = cell
    decoded = decode_message(encode(FULL | fields))
    assert rows_accepted(decoded) + rows_rejected(decoded) == 3
    untouched = 3 - len({at for _, at, _ in damage})
    assert rows_accepted(decoded) >= untouched


@FORMATS
@given(
    elements=st.lists(
        st.one_of(
            st.just(RECORD),
            st.builds(
                lambda name, cell: RECORD | {name: cell}, st.sampled_from(sorted(RECORD)), CELL
            ),
            CELL,
        ),
        max_size=8,
    )
)
def test_every_element_of_an_array_is_accepted_or_rejected(
    encode: Encode, elements: list[Any]
) -> None:
    decoded = decode_message(encode(elements))
    assert rows_accepted(decoded) + rows_rejected(decoded) == len(elements)
    assert rows_accepted(decoded) >= sum(element == RECORD for element in elements)
