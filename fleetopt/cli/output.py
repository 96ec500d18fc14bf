"""How every command speaks: results to standard output, the rest to standard error."""

from __future__ import annotations

import sys
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fleetopt.planner.cost import CostUnit

PLAIN_WIDTH: Final = 120
"""Columns where the output is no terminal, so that tables do not depend on who runs them."""


class ExitCode(IntEnum):
    """What a command returns."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INFEASIBLE = 3
    UNDECIDED = 4
    INTERRUPTED = 130
    TERMINATED = 143


class Output(StrEnum):
    """The form of results."""

    TABLE = "table"
    JSON = "json"


def console(file: TextIO | None = None) -> Console:
    """Return a console that colours only on a terminal and respects NO_COLOR."""
    from rich.console import Console

    file = file or sys.stdout
    width = None if file.isatty() else PLAIN_WIDTH
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def table(*columns: str, title: str | None = None) -> Table:
    """Return a table in the house style; columns after the first are numbers, to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", no_wrap=index > 0)
    return made


def print_json(value: Any) -> None:
    """Print a value as JSON; what is not finite becomes null, since JSON has no such numbers."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def print_error(message: str) -> None:
    """Print one line to standard error."""
    line = " ".join(message.split())
    mark = "error:"
    if sys.stderr.isatty() and not _no_color():
        mark = f"\x1b[1;31m{mark}\x1b[0m"
    sys.stderr.write(f"{mark} {line}\n")


def print_note(message: str) -> None:
    """Print a remark to standard error."""
    sys.stderr.write(f"note: {message}\n")


def _no_color() -> bool:
    import os

    return bool(os.environ.get("NO_COLOR"))


def usd(value: float) -> str:
    """Show dollars."""
    return f"{value:,.2f}"


def cost(value: float, unit: CostUnit, sign: str = "") -> str:
    """Show a cost without its unit; fleets' carbon may be grams, so it gets three digits."""
    from fleetopt.planner.cost import CostUnit

    if unit is CostUnit.USD or abs(value) >= 100.0:
        return f"{value:{sign},.2f}"
    return f"{value:{sign}.3g}"


def power(watts: float | None, *, is_upper_bound: bool = False) -> str:
    """Show a power; None is unknown, not zero."""
    if watts is None:
        return "unknown"
    shown = f"{watts / 1e3:,.2f} kW" if watts >= 1e3 else f"{watts:.0f} W"
    return f"≤ {shown}" if is_upper_bound else shown


def percent(share: float | None, digits: int = 1) -> str:
    """Show a share."""
    return "–" if share is None else f"{share * 100:.{digits}f} %"


def signed_percent(ratio: float) -> str:
    """Show a change."""
    rounded = round(100.0 * ratio, 1) + 0.0  # no minus before a zero
    return f"{rounded:+.1f} %" if rounded else "0.0 %"


def seconds(value: float | None) -> str:
    """Show a duration in the unit that reads best."""
    if value is None:
        return "–"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.0f} ms"


def tokens(value: int) -> str:
    """Show a count."""
    return f"{value:,}"


def replicas(count: int) -> str:
    """Show a number of replicas with its noun."""
    return f"{count:,} replica{'' if count == 1 else 's'}"
