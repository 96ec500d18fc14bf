"""Messages of a request log as tests write them: every shape, and how many rows each holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st

START_S = 1_700_000_000.0
FLEETS = ("chat", "code/h100:eu-é")


@dataclass(frozen=True)
class LogMessage:
    """A Kafka record, as far as folding is concerned; `rows` is what the test knows of it."""

    offset: int
    value: bytes | None
    timestamp: int = 0
    rows: int = 1


def record(arrival_s: float, fleet: str = FLEETS[0], **fields: Any) -> dict[str, Any]:
    """Return a request's record, `arrival_s` counted from START_S."""
    return {
        "fleet": fleet,
        "request_id": "r",
        "arrival_s": START_S + arrival_s,
        "prompt_tokens": 100 + int(arrival_s),
        "completion_tokens": 10,
    } | fields


def batch(arrivals_s: list[float], fleet: str = FLEETS[0], **fields: Any) -> dict[str, Any]:
    """Return a columnar batch of requests, arrivals counted from START_S."""
    return {
        "v": 1,
        "fleet": fleet,
        "ts": [START_S + arrival_s for arrival_s in arrivals_s],
        "p": [100 + int(arrival_s) for arrival_s in arrivals_s],
        "o": [10] * len(arrivals_s),
    } | fields


def as_json(value: Any) -> bytes:
    """Encode as JSON."""
    return json.dumps(value).encode()


def as_msgpack(value: Any) -> bytes:
    """Encode as MessagePack."""
    return msgspec.msgpack.encode(value)


def log_of(*values: bytes | None, timestamp_s: float | None = None) -> list[LogMessage]:
    """Return a log that holds these values, written at `timestamp_s` after START_S."""
    timestamp = 0 if timestamp_s is None else round((START_S + timestamp_s) * 1e3)
    return [LogMessage(offset, value, timestamp) for offset, value in enumerate(values)]


def logs(max_messages: int = 12) -> st.SearchStrategy[list[LogMessage]]:
    """Logs of all shapes: good, bad and late rows, batches sent twice, heartbeats, rubbish."""
    arrival = st.one_of(st.floats(0.0, 200.0), st.sampled_from([0.0, 10.0, 20.0, 100.0]))
    fleet = st.sampled_from(FLEETS)
    encode = st.sampled_from([as_json, as_msgpack])
    good = st.builds(record, arrival, fleet)
    bad = st.builds(lambda each: each | {"prompt_tokens": -1}, good)
    failed = st.builds(lambda each: each | {"status": "error"}, good)
    told = st.builds(
        lambda each, size, category: each | {"prompt_bytes": size, "category": category},
        good,
        st.integers(0, 2_000),
        st.sampled_from(["prose", "code", None]),
    )
    tried = st.builds(
        lambda each, outcome: each | {"compression": outcome, "original_prompt_tokens": 9_000},
        good,
        st.sampled_from(["compressed", "content", "deadline", "fits"]),
    )
    one = st.one_of(good, told, tried, failed, bad)
    arrivals = st.lists(arrival, max_size=6)
    sent_once = st.builds(batch, arrivals, fleet)
    sized = st.builds(
        lambda rows, name: batch(
            rows, name, b=[None, 500, 2][: len(rows)], k=[0, 2, 6][: len(rows)]
        ),
        st.lists(arrival, max_size=3),
        fleet,
    )
    numbered = st.builds(
        lambda rows, name, src, seq: batch(rows, name, src=src, seq=seq),
        arrivals,
        fleet,
        st.sampled_from(["a", "b"]),
        st.integers(0, 4),
    )
    damaged = st.builds(lambda rows, name: batch([*rows, -START_S], name), arrivals, fleet)
    heartbeat = st.builds(
        lambda until_s, name: {"v": 1, "fleet": name, "until_s": START_S + until_s}, arrival, fleet
    )
    promising = st.builds(
        lambda each, until_s: each | {"until_s": START_S + until_s}, sent_once, arrival
    )
    batches = st.one_of(sent_once, sized, numbered, damaged, promising, heartbeat)
    mixed = st.lists(st.one_of(one, batches), max_size=5)
    value = st.one_of(
        st.builds(lambda each, dump: (dump(each), 1), one, encode),
        st.builds(lambda each, dump: (dump(each), len(each.get("ts", []))), batches, encode),
        st.builds(lambda each, dump: (dump(each), _rows(each)), mixed, encode),
        st.builds(
            lambda each: (b"\r\n".join(map(as_json, each)), _rows(each)),
            st.lists(st.one_of(one, batches), min_size=2, max_size=5),
        ),
        st.sampled_from(
            [(None, 1), (b"", 1), (b"rubbish", 1), (b'{"fleet": ', 1), (b"\x93\x01", 1)]
        ),
    )
    return st.lists(value, max_size=max_messages).map(
        lambda values: [
            LogMessage(offset, message, rows=rows) for offset, (message, rows) in enumerate(values)
        ]
    )


def _rows(elements: list[dict[str, Any]]) -> int:
    return sum(len(each["ts"]) if "ts" in each else int("until_s" not in each) for each in elements)
