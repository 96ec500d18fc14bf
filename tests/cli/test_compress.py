"""`fleetopt compress`: a prompt in, one that fits out, or the reason why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

STORY = (
    "The river rose in the night. Nobody in the valley had seen it so high. The bridge at the mill "
    "was shut by noon, and two barns were lost. The miller counted 212 sacks of wheat. "
)
TEXT = "".join(f"{STORY}That was day {day}. " for day in range(40))


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "story.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def chat_file(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    question = {"role": "user", "content": "How many sacks were there on day 7?"}
    path.write_text(json.dumps({"messages": [{"role": "user", "content": TEXT}, question]}))
    return path


def test_text_in_text_out(cli: Cli, text_file: Path) -> None:
    done = cli("compress", text_file, "--budget", 1_400)
    assert done.code == 0
    assert 0 < len(done.out) < len(TEXT)
    assert "tokens became" in done.err


def test_chat_in_chat_out(cli: Cli, chat_file: Path) -> None:
    done = cli("compress", chat_file, "--budget", 1_400)
    messages = json.loads(done.out)
    assert [one["role"] for one in messages] == ["user", "user"]
    assert messages[1]["content"].startswith("How many sacks")
    assert "day 7." in messages[0]["content"]


def test_json_has_everything(cli: Cli, chat_file: Path) -> None:
    done = cli("compress", chat_file, "--budget", 1_400, "--output", "json")
    told = json.loads(done.out)
    assert told["outcome"] == "compressed"
    assert told["tokens_after"] <= 1_400 < told["tokens_before"]
    kept = "".join(TEXT[one["begin"] : one["end"]] for one in told["spans"] if one["kept"])
    assert kept == told["prompt"][0]["content"]
    assert set(told["stage_s"]) == {"count", "split", "score", "select"}


def test_explained_side_by_side(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "cut.html"
    question = ("--question", "What happened on day 12?")
    done = cli("compress", text_file, "--budget", 1_400, "--explain", "--html", page, *question)
    assert "stays" in done.out
    assert "goes" in done.out
    assert "That was day 12." in done.out
    html = page.read_text()
    assert "That was day 12." in html
    assert "http" not in html.replace("http-equiv", "")


def test_html_is_escaped(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(TEXT + "It said <script>alert(1)</script> on the door. " * 5)
    page = tmp_path / "x.html"
    assert cli("compress", path, "--budget", 1_400, "--html", page).code == 0
    assert "<script>" not in page.read_text()


def test_what_fits_is_printed_as_it_is(cli: Cli, text_file: Path) -> None:
    done = cli("compress", text_file, "--budget", 100_000)
    assert (done.code, done.out) == (0, TEXT)
    assert "fit the budget" in done.err


def test_what_cannot_fit_is_printed_as_it_is_with_the_reason(cli: Cli, text_file: Path) -> None:
    done = cli("compress", text_file, "--budget", 100)
    assert (done.code, done.out) == (3, TEXT)
    assert "unchanged (keeps_too_little)" in done.err
    told = json.loads(cli("compress", text_file, "--budget", 100, "--output", "json").out)
    assert (told["outcome"], told["reason"]) == ("unchanged", "keeps_too_little")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--budget", "0"), "budget"),
        (("--budget", "1400", "--model", "nobody/knows"), "no bundled tokenizer"),
        (("--budget", "1400", "--html", "/no/such/folder/x.html"), "there is no folder"),
    ],
)
def test_wrong_usage(cli: Cli, text_file: Path, arguments: tuple[str, ...], said: str) -> None:
    done = cli("compress", text_file, *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_file_that_is_no_text(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\xff\xfe\x00")
    done = cli("compress", path, "--budget", 10)
    assert done.code == 1
    assert "byte 0 is not UTF-8" in done.err


def test_json_that_is_no_chat_is_a_text(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    rows = [{"id": at, "name": f"row {at}", "size": 2 * at} for at in range(500)]
    path.write_text(json.dumps(rows))
    done = cli("compress", path, "--budget", 1_000)
    assert done.code == 3
    assert "its content is" in done.err
