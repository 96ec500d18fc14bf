"""The page's example runs as it is printed, and so do the docstrings' examples."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/planner.md"
MODULES = (
    "bins",
    "dispersion",
    "erlang",
    "many_pools",
    "moments",
    "plan",
    "target",
    "workload",
)


def test_the_pages_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert "two_pools_cheaper" in capsys.readouterr().out


@pytest.mark.parametrize("module", MODULES)
def test_the_docstrings_examples_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"fleetopt.planner.{module}"))
    assert outcome.failed == 0
