"""The page's example runs as it is printed."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/planner.md"


def test_the_pages_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert "two_pools_cheaper" in capsys.readouterr().out
