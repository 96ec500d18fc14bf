"""`fleetopt replay` into a real broker: what is sent, what is said, what it returns."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fleetopt.cli.output import Output
from fleetopt.cli.replay import report_sent
from fleetopt.connectors.decode import decode_message
from fleetopt.connectors.producer import Sent
from fleetopt.connectors.topics import ensure_topic
from fleetopt.pipeline.embedded import EmbeddedBroker
from fleetopt.pipeline.replay import Replayed
from tests.cli.conftest import Cli, clean_environment
from tests.connectors.test_producer import consume

PARTITIONS = 8


@pytest.fixture
def variables(embedded_broker: EmbeddedBroker, topic: str) -> dict[str, str]:
    return {
        "FLEETOPT_KAFKA__BOOTSTRAP_SERVERS": embedded_broker.bootstrap_servers,
        "FLEETOPT_KAFKA__TOPIC": topic,
    }


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    rows = "".join(f"{1_700_000_000 + at / 10},{100 + at},{at % 7 + 1}\n" for at in range(600))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    return path


def received(variables: dict[str, str]) -> tuple[Counter[tuple[int, int]], list[float], set[str]]:
    """Return lengths, promises and fleets of all that the topic holds."""
    found = asyncio.run(
        consume(
            variables["FLEETOPT_KAFKA__BOOTSTRAP_SERVERS"],
            variables["FLEETOPT_KAFKA__TOPIC"],
            PARTITIONS,
        )
    )
    lengths: Counter[tuple[int, int]] = Counter()
    promises = []
    fleets = set()
    for messages in found.values():
        for message in messages:
            decoded = decode_message(message.value)
            assert not decoded.rejected
            for record in decoded.records:
                lengths[record.prompt_tokens, record.completion_tokens] += 1
                fleets.add(record.fleet)
            for batch in decoded.batches:
                pairs = zip(
                    batch.columns.prompt_tokens.tolist(),
                    batch.columns.completion_tokens.tolist(),
                    strict=True,
                )
                lengths.update(pairs)
                fleets.add(batch.fleet)
                if batch.until_s is not None:
                    promises.append(batch.until_s)
    return lengths, promises, fleets


@pytest.mark.parametrize("shape", ["batch", "record"])
def test_every_request_is_sent_once(
    shell: Cli, variables: dict[str, str], trace: Path, shape: str
) -> None:
    done = shell(
        "replay", trace, "--speed", "max", "--message-shape", shape, "--output", "json", **variables
    )
    assert done.code == 0
    assert done.err == ""
    report = json.loads(done.out)
    assert report["records_sent"] == 600
    assert report["records_refused"] == report["messages_refused"] == 0
    assert report["first_arrival_s"] == 1_700_000_000
    lengths, promises, fleets = received(variables)
    assert lengths == Counter((100 + at, at % 7 + 1) for at in range(600))
    assert fleets == {"default"}
    # The last arrival is 59.9 s after 20 s past a minute: in the second slice.
    assert promises == [1_700_000_100]


def test_the_rate_multiplier_keeps_the_lengths(
    shell: Cli, variables: dict[str, str], trace: Path
) -> None:
    done = shell(
        "replay", trace, "--speed", "max", "--rate-multiplier", "2.5", "--fleet", "x", **variables
    )
    assert done.code == 0
    assert done.out.startswith("sent 1,500 requests in ")
    lengths, _, fleets = received(variables)
    assert fleets == {"x"}
    assert lengths.total() == 1_500
    assert set(lengths.values()) == {2, 3}
    assert len(lengths) == 600


def test_speed_and_present_time_go_together(
    shell: Cli, variables: dict[str, str], trace: Path
) -> None:
    started_s = time.time()
    done = shell("replay", trace, "--speed", "60", "--output", "json", **variables)
    report = json.loads(done.out)
    assert report["records_sent"] == 600
    assert report["took_s"] >= 0.9  # 59.9 s of trace, 60 times as fast
    assert started_s < report["first_arrival_s"] < report["last_arrival_s"] < time.time()
    assert report["last_arrival_s"] - report["first_arrival_s"] == pytest.approx(59.9 / 60, 1e-3)


def test_a_generated_stream_is_read_from_standard_input(
    shell: Cli, variables: dict[str, str]
) -> None:
    made = shell("generate", "--archetype", "dispersed", "--duration", "20", "--fleet", "g").out
    done = shell("replay", "-", "--speed", "max", "--limit", "500", stdin=made, **variables)
    assert done.code == 0, done.err
    lengths, _, fleets = received(variables)
    assert lengths.total() == 500
    assert fleets == {"g"}


def test_bad_rows_are_said_and_the_others_sent(
    shell: Cli, variables: dict[str, str], trace: Path
) -> None:
    trace.write_text(trace.read_text() + "never,1,1\n")
    done = shell("replay", trace, "--speed", "max", **variables)
    assert done.code == 0
    assert "sent 600 requests" in done.out
    assert "note: 1 bad rows were left out" in done.err
    assert "note: line 602: TIMESTAMP 'never' is neither" in done.err


def test_an_absent_broker_is_one_line_and_exit_code_1(shell: Cli, trace: Path) -> None:
    done = shell("replay", trace, "--bootstrap-servers", "127.0.0.1:1", "--speed", "max")
    assert done.code == 1
    assert done.err.startswith("error: Kafka at 127.0.0.1:1 does not answer")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--speed", "fast"], "speed 'fast'; expected a number above 0, such as 1 or 10, or max"),
        (["--rate-multiplier", "0"], "--rate-multiplier 0.0: expected a number above 0"),
        (["--fleet", "a b"], "--fleet 'a b'"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_wrong_options_are_refused(cli: Cli, trace: Path, options: list[str], says: str) -> None:
    done = cli("replay", trace, *options)
    assert done.code == 2
    assert says in done.err


def test_an_unusable_file_is_one_line_and_exit_code_1(
    shell: Cli, variables: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    path.write_text("hello\n")
    done = shell("replay", path, "--speed", "max", **variables)
    assert done.code == 1
    assert done.err.startswith(f"error: {path}: not a trace")
    assert done.err.count("\n") == 1


def test_an_interrupt_ends_it_with_130(variables: dict[str, str], trace: Path) -> None:
    bootstrap, topic = variables.values()
    asyncio.run(ensure_topic(bootstrap, topic, PARTITIONS, 86_400))
    header, first, *_, last = trace.read_text().splitlines()
    trace.write_text("\n".join([header, first, last.replace("17000000", "17000900")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetopt", "replay", str(trace), "--speed", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(**variables),
        text=True,
    )
    deadline_s = time.monotonic() + 30
    while not received(variables)[0] and time.monotonic() < deadline_s:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == ""
    assert "Traceback" not in out


def test_the_azure_trace_is_sent_whole(
    shell: Cli, variables: dict[str, str], shared_data: Path
) -> None:
    path = shared_data / "traces" / "azure_llm_2023_conv.csv"
    done = shell("replay", path, "--speed", "max", "--output", "json", **variables)
    assert json.loads(done.out)["records_sent"] == 19_366
    assert received(variables)[0].total() == 19_366


def test_offline_prints_the_recommendations(shell: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{1_700_000_040 + at / 10},{100 + at % 900},20\n" for at in range(3_000))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    done = shell("replay", path, "--offline", "--output", "json", FLEETOPT_FLEET__SLO_TTFT_P99="2s")
    assert done.code == 0
    assert "counted 3,000 requests, 0 late, without Kafka and Redis" in done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["revision"] for one in found] == list(range(1, len(found) + 1))
    assert found[-1]["evidence"]["sample_count"] == 3_000
    table = shell("replay", path, "--offline", "--speed", "max", FLEETOPT_FLEET__SLO_TTFT_P99="2s")
    assert "default  revision 1  ok: " in table.out
    infeasible = shell("replay", path, "--offline", FLEETOPT_FLEET__SLO_TTFT_P99="1ms")
    assert infeasible.code == 3
    assert "infeasible: " in infeasible.out


def test_what_the_broker_refused_is_said_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    sent = Sent(messages=3, records=700, refused_messages=1, refused_records=50)
    sent.first_refusal = "too large"
    assert report_sent(Replayed(750, 1e9, 2e9), sent, 1.0, Output.TABLE) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("sent 700 requests in 3 messages")
    assert captured.err == (
        "error: the broker refused 50 requests in 1 messages, first: too large\n"
    )
