"""Every command line in the help, docs/cli.md and the README is one that the commands accept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fleetopt.cli import app

ROOT: Any = typer.main.get_command(app)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def examples_in(text: str) -> list[str]:
    joined = text.replace("\\\n", " ")
    lines = re.findall(r"^\s*(?:[A-Z_]+=\S+ )*(fleetopt .*)$", joined, re.MULTILINE)
    return [part for line in lines for part in re.findall(r"fleetopt [^|>#]*", line)]


def documented() -> list[str]:
    found = [line for _, command in commands(ROOT) for line in examples_in(command.help)]
    blocks = re.findall(r"```sh\n(.*?)```", Path("docs/cli.md").read_text(), re.DOTALL)
    found += [line for block in blocks for line in examples_in(block)]
    return found + examples_in(Path("README.md").read_text())


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    monkeypatch.chdir(project)


def test_every_example_is_accepted() -> None:
    lines = documented()
    assert len(lines) > 30
    by_path = dict(commands(ROOT))
    for line in lines:
        words = shlex.split(line)[1:]
        path = next(tuple(words[:length]) for length in (2, 1) if tuple(words[:length]) in by_path)
        # Parses the options and fails on one that does not exist; runs nothing.
        by_path[path].make_context(" ".join(path), words[len(path) :])


def test_every_command_is_documented() -> None:
    text = Path("docs/cli.md").read_text()
    for path, _ in commands(ROOT):
        assert f"fleetopt {' '.join(path)}" in text


def test_every_option_of_replay_is_explained() -> None:
    text = Path("docs/cli.md").read_text()
    shared = {"--config", "--output", "--help", "--fleet", "--limit", "--bootstrap-servers"}
    replay = dict(commands(ROOT))[("replay",)]
    options = {name for param in replay.params for name in param.opts if name.startswith("--")}
    assert all(f"`{name}" in text for name in options - shared)
