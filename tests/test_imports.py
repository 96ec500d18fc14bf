"""Imports go down only, and the core does no I/O: the contracts in pyproject.toml hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports


def test_the_contracts_of_the_layers_are_kept(
    monkeypatch: pytest.MonkeyPatch, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    status = lint_imports(no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_a_breach_would_be_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, project: Path
) -> None:
    wrong = (project / "pyproject.toml").read_text()
    layers = ["fleetopt.errors", "fleetopt.planner | fleetopt.compressor", "fleetopt.config"]
    start = wrong.index("[[tool.importlinter.contracts]]")
    names = "".join(f'    "{layer}",\n' for layer in layers)
    upside_down = (
        f'[[tool.importlinter.contracts]]\nname = "x"\ntype = "layers"\nlayers = [\n{names}]\n'
    )
    config = tmp_path / "pyproject.toml"
    config.write_text(wrong[:start] + upside_down)
    monkeypatch.chdir(project)
    assert lint_imports(config_filename=str(config), no_cache=True) != EXIT_STATUS_SUCCESS
