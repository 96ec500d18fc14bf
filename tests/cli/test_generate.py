"""`fleetopt generate`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from fleetopt.cli.generate import DEFAULT_START_S, ArchetypeName
from fleetopt.connectors.trace_formats import MOONCAKE_EPOCH_S
from fleetopt.connectors.traces import TraceReader, open_input
from fleetopt.connectors.wire import RequestLog
from fleetopt.pipeline.generator import Archetype
from tests.cli.conftest import Cli

ORDER = ["--rate", "20", "--duration", "30", "--archetype", "concentrated-below"]


def records(path: Path) -> list[RequestLog]:
    with open_input(str(path)) as opened:
        return TraceReader(opened).records()


def test_the_names_are_the_generators() -> None:
    assert set(get_args(ArchetypeName)) == {archetype.value for archetype in Archetype}
    assert DEFAULT_START_S == MOONCAKE_EPOCH_S


def test_what_is_written_can_be_read(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    done = cli("generate", *ORDER, "--fleet", "x", "--start", "1e9", "--to", path)
    assert (done.code, done.out) == (0, "")
    made = records(path)
    assert 400 < len(made) < 800
    assert {record.fleet for record in made} == {"x"}
    assert 1e9 <= made[0].arrival_s <= made[-1].arrival_s < 1e9 + 30


def test_the_same_seed_makes_the_same_file(cli: Cli, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        cli("generate", *ORDER, "--seed", seed, "--to", tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()


def test_the_shift_changes_the_kinds(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shift = ["--shift-to", "concentrated-above", "--shift-at", "15", "--transition", "0"]
    cli("generate", *ORDER, *shift, "--to", path)
    made = records(path)
    before = [r.category for r in made if r.arrival_s < DEFAULT_START_S + 15]
    after = [r.category for r in made if r.arrival_s >= DEFAULT_START_S + 15]
    assert "tool" not in before
    assert after.count("tool") > len(after) / 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--shift-at", "3"], "--shift-at needs --shift-to"),
        (["--rate", "-1"], "--rate"),
        (["--dispersion", "0.5"], "--dispersion"),
        (["--fleet", "two words"], "two words"),
        (["--start", "-5"], "--start"),
        (["--rate", "nan"], "--rate"),
        (["--rate", "1e300"], "--rate"),
    ],
)
def test_wrong_orders_are_refused(cli: Cli, options: list[str], says: str) -> None:
    done = cli("generate", *ORDER, *options)
    assert done.code == 2
    assert says in done.err
    assert done.out == ""


def test_a_file_that_cant_be_written_is_said(cli: Cli, tmp_path: Path) -> None:
    done = cli("generate", *ORDER, "--to", tmp_path / "missing" / "t")
    assert done.code == 1
    assert done.err.startswith("error: can't write ")
