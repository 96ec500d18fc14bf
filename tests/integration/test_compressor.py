"""The whole compressor against a real broker: what it answers, refuses, skips and says."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.compression_client import Sent
from fleetopt.connectors.compression_wire import encode_request
from fleetopt.connectors.dead_letter import dead_letter_topic
from fleetopt.pipeline.child import free_port
from fleetopt.pipeline.embedded import EmbeddedBroker
from tests.compressor_process import (
    LONG_S,
    CompressorPlace,
    compressor,
    lines,
    place_on,
    requests,
    stop,
    wait_for_line,
    wait_until_reading,
)
from tests.integration.conftest import Kafka


@pytest.fixture
def place(kafka: Kafka, topic: str) -> CompressorPlace:
    return place_on(kafka, topic)


@pytest.fixture
def embedded_place(embedded_broker: EmbeddedBroker, topic: str) -> CompressorPlace:
    return place_on(embedded_broker, topic)


def outcomes(sent: list[Sent]) -> Counter[str]:
    """Count the answers by outcome or reason; `none` where there is none."""
    return Counter((one.reply.reason or one.reply.outcome) if one.reply else "none" for one in sent)


async def dead_letters(place: CompressorPlace, expected: int) -> list[dict[str, str]]:
    consumer = AIOKafkaConsumer(
        dead_letter_topic(place.name),
        bootstrap_servers=place.bootstrap_servers,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        letters: list[dict[str, str]] = []
        end_s = time.monotonic() + LONG_S
        while len(letters) < expected and time.monotonic() < end_s:
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                letters += [
                    {name: value.decode() for name, value in message.headers}
                    for message in messages
                ]
        return letters
    finally:
        await consumer.stop()


def test_prompts_come_back_and_nothing_bad_stops_it(place: CompressorPlace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    good = requests(20)
    chats = [
        msgspec.structs.replace(
            one,
            prompt=[
                {"role": "user", "content": one.prompt},
                {"role": "user", "content": "Which station was warm?"},
            ],
        )
        for one in requests(5, seed=2)
    ]
    whole = requests(3, seed=3, budget_tokens=10**6)
    bad = [b"{not json", b"\x80", msgspec.json.encode({"v": 1, "request_id": "x"})]

    async def talk() -> tuple[list[Sent], list[Sent], list[dict[str, str]]]:
        async with place.client as client:
            answered = [await client.send(one, LONG_S) for one in (*good, *chats, *whole)]
            refused = []
            for number, value in enumerate(bad):
                one = requests(1, request_id=f"bad-{number}")[0]
                sent = Sent(one, time.monotonic(), time.monotonic() + LONG_S)
                client.sent[one.request_id] = sent
                await client.send_bytes(one.request_id, value, LONG_S)
                refused.append(sent)
            await client.settled([*answered, *refused])
            return answered, refused, await dead_letters(place, len(bad))

    with compressor(place, log) as process:
        wait_until_reading(log)
        answered, refused, letters = asyncio.run(talk())
        assert stop(process) == 0
    assert outcomes(answered) == {"compressed": 25, "fits": 3}, log.read_text()[-3000:]
    assert outcomes(refused) == {"invalid_prompt": 3}
    assert {letter["reason"] for letter in letters} == {"malformed", "invalid"}
    for one in answered[:25]:
        assert one.reply is not None
        assert one.reply.tokens_after is not None
        assert one.reply.tokens_after <= one.request.budget_tokens
        assert one.replies == 1
    for one in answered[20:25]:
        assert one.reply is not None
        assert isinstance(one.reply.prompt, list)
        assert one.reply.prompt[1] == one.request.prompt[1]
    said = wait_for_line(log, "compressor stopped")
    assert (said["requests"], said["compressed"], said["unchanged"], said["rejected"]) == (
        31,
        25,
        {"fits": 3, "invalid_prompt": 3},
        3,
    )
    assert (said["unsent"], said["expired"], said["waiting"], said["working"]) == (0, 0, 0, 0)


def test_headers_decide_who_is_answered_and_when(
    embedded_place: CompressorPlace, tmp_path: Path
) -> None:
    place, log = embedded_place, tmp_path / "log"
    value = encode_request(requests(1)[0])
    reply_topic = ("reply-topic", place.reply_topic.encode())
    in_time = ("deadline", str(time.time() + LONG_S).encode())
    cases: list[tuple[str, bytes, list[tuple[str, bytes]]]] = [
        ("answered", value, [reply_topic, in_time, ("traceparent", b"00-\xff-01")]),
        ("as-json", encode_request(requests(1)[0], as_json=True), [reply_topic]),
        ("expired", value, [reply_topic, ("deadline", b"1.5")]),
        ("to-nobody", value, [in_time]),
        ("elsewhere", value, [("reply-topic", place.name.encode()), in_time]),
        ("no-such-partition", value, [reply_topic, ("reply-partition", b"77")]),
    ]

    async def talk() -> list[tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]]:
        producer = AIOKafkaProducer(bootstrap_servers=place.bootstrap_servers)
        consumer = AIOKafkaConsumer(
            place.reply_topic,
            bootstrap_servers=place.bootstrap_servers,
            auto_offset_reset="earliest",
        )
        async with place.client, producer, consumer:
            for key, sent, headers in cases:
                await producer.send_and_wait(
                    place.name, value=sent, key=key.encode(), headers=headers
                )
            end_s = time.monotonic() + LONG_S
            found: list[tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]] = []
            while len(found) < 2 and time.monotonic() < end_s:
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    found += [(one.key, one.value, one.headers) for one in messages]
            await dead_letters(place, 2)
            return found

    with compressor(place, log) as process:
        wait_until_reading(log)
        answers = {key: (value, headers) for key, value, headers in asyncio.run(talk())}
        assert stop(process) == 0
    assert set(answers) == {b"answered", b"as-json"}
    assert answers[b"answered"][1] == (("traceparent", b"00-\xff-01"),)
    assert msgspec.json.decode(answers[b"as-json"][0])["outcome"] == "compressed"
    said = wait_for_line(log, "compressor stopped")
    # A slow machine may have the group rebalance, and what had no committed answer is read again.
    assert said["expired"] >= 1
    assert said["rejected"] >= 2
    assert said["unsent"] >= 1
    assert said["compressed"] >= 2


def test_overload_is_answered_and_nothing_is_lost(
    embedded_place: CompressorPlace, tmp_path: Path
) -> None:
    place, log = embedded_place, tmp_path / "log"
    flood = requests(600, paragraphs=40)

    async def talk() -> list[Sent]:
        async with place.client as client:
            sent = await client.pace(flood, 2_000, 0.5)
            await client.settled(sent, grace_s=5.0)
            return sent

    with compressor(place, log, FLEETOPT_COMPRESSOR__QUEUE_LIMIT="8") as process:
        wait_until_reading(log)
        found = outcomes(asyncio.run(talk()))
        assert stop(process) == 0
    said = wait_for_line(log, "compressor stopped")
    assert said["requests"] == 600
    assert said["compressed"] + sum(said["unchanged"].values()) + said["expired"] == 600
    assert said["unsent"] == 0
    assert found["none"] == said["expired"]
    assert found["compressed"] > 0
    assert found["overloaded"] > 0
    assert set(found) <= {"compressed", "overloaded", "deadline", "none"}


def test_told_to_stop_it_answers_what_it_has_read(
    embedded_place: CompressorPlace, tmp_path: Path
) -> None:
    place, log = embedded_place, tmp_path / "log"
    many = requests(60)

    async def talk() -> tuple[list[Sent], int]:
        async with place.client as client:
            sent = await client.pace(many, 1_000, LONG_S)
            while not any(one.reply for one in sent):
                await asyncio.sleep(0.01)
            code = await asyncio.to_thread(stop, process)
            await asyncio.sleep(1.0)  # what was sent is on its way to us
            return sent, code

    with compressor(place, log) as process:
        wait_until_reading(log)
        sent, code = asyncio.run(talk())
    assert code == 0
    said = wait_for_line(log, "compressor stopped")
    answered = sum(one.reply is not None for one in sent)
    assert answered == said["requests"] == said["compressed"], log.read_text()[-3000:]
    with compressor(place, log) as process:  # the next one begins where this one ended
        wait_until_reading(log, 2)
        time.sleep(2.0)
        assert stop(process) == 0
    assert wait_for_line(log, "compressor stopped", 2)["requests"] == 60 - answered


def test_metrics_are_served_where_a_port_is_given(
    embedded_place: CompressorPlace, tmp_path: Path
) -> None:
    place, log, port = embedded_place, tmp_path / "log", free_port()

    async def talk() -> list[Sent]:
        async with place.client as client:
            sent = [await client.send(one, LONG_S) for one in requests(3)]
            await client.settled(sent)
            return sent

    with compressor(place, log, FLEETOPT_COMPRESSOR__WEB_PORT=str(port)) as process:
        wait_until_reading(log)
        asyncio.run(talk())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            kind, text = answer.headers["Content-Type"], answer.read().decode()
        assert stop(process) == 0
    assert kind.startswith("text/plain")
    assert 'fleetopt_compressor_outcomes_total{outcome="compressed",reason=""} 3.0' in text
    assert "fleetopt_compressor_processes 2.0" in text
    assert 'fleetopt_compressor_stage_seconds_count{stage="select"} 3.0' in text


def test_a_model_that_nothing_counts_ends_it_with_a_line(
    embedded_place: CompressorPlace, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    unknown = '{"theirs": {"tokenizer": "nobody-knows-it"}}'
    with compressor(embedded_place, log, FLEETOPT_COMPRESSOR__MODELS=unknown) as process:
        assert process.wait(timeout=LONG_S) == 2
    assert "compressor.models.theirs: " in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not lines(log, "compression processes are up")
