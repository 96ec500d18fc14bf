"""Tables of figures: on the terminal, and between their markers in docs/.

Every table carries the machine and the versions that it was measured on, so that a page whose
tables were written on different days says so.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table as RichTable

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
COMPRESSION_PAGE: Final = PAGE.with_name("compression.md")
SIEVE_PAGE: Final = PAGE.with_name("sieve.md")
_PROGRAM: Final = ("fleetopt", "benchmarks", "validation", "pyproject.toml")
_VERSIONS: Final = (
    "aiokafka",
    "faust-streaming",
    "fastdigest",
    "msgspec",
    "numpy",
    "scipy",
    "statsmodels",
    "tdigest",
)


class PageError(Exception):
    """The page has no place for a table."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title; the first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table in Markdown, numbers to the right."""
        rule = ["---", *("--:" for _ in self.columns[1:])]
        lines = (self.columns, rule, *self.rows)
        return f"**{self.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def show(self, console: Console) -> None:
        """Print the table."""
        table = RichTable(title=self.title, title_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and with what the figures were measured."""

    cpu: str
    cores: int
    system: str
    python: str
    versions: dict[str, str]
    commit: str
    measured_at: str

    @classmethod
    def this(cls, packages: Sequence[str] = _VERSIONS) -> Machine:
        """Describe the machine and the versions at hand."""
        return cls(
            cpu=_cpu(),
            cores=os.cpu_count() or 1,
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            versions={name: version(name) for name in packages},
            commit=_commit(),
            measured_at=datetime.now(UTC).isoformat(timespec="minutes"),
        )

    def sentence(self) -> str:
        """Say it in one line of the page."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return (
            f"Measured {self.measured_at[:10]} at commit {self.commit} on {self.cpu}, "
            f"{self.cores} cores, {self.system}, Python {self.python}; {versions}."
        )


def page_of(name: str) -> Path:
    """Return the page that shows a benchmark's tables."""
    if name == "sieve":
        return SIEVE_PAGE
    return COMPRESSION_PAGE if name.startswith(("compression", "gate")) else PAGE


def write(name: str, tables: Sequence[Table], machine: Machine, page: Path = PAGE) -> None:
    """Put the tables between the page's markers for `name`, in place of what is there."""
    put(
        name,
        "\n\n".join([*(table.markdown() for table in tables), f"*{machine.sentence()}*"]),
        page,
    )


def put(name: str, body: str, page: Path = PAGE) -> None:
    """Put Markdown between the page's markers for `name`, in place of what is there."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    text = page.read_text()
    head, found_begin, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found_begin and found_end):
        raise PageError(f"{page} has no place for the tables: expected {begin} and then {end}")
    page.write_text(f"{head}{begin}\n\n{body}\n\n{end}{tail}")


def _cpu() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Return the checkout's commit, marked where the program's files differ from it."""
    folder = PAGE.parent.parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *_PROGRAM)
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
