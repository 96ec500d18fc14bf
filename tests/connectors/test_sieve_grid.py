"""Measured grids as files: whole ones, and each thing that may be wrong with one."""

from pathlib import Path

import numpy as np
import pytest

from fleetopt.connectors.sieve_grid import PRIOR_COLUMNS, RUN_COLUMNS, read_prior, read_table
from fleetopt.errors import InputError
from tests.conftest import PROJECT

GRIDS = PROJECT / "benchmarks" / "sieve" / "grids"
RUNS = [
    "chat,tp1,1,1,0.5,1,0.5,10,60",
    "chat,tp1,1,1,0.5,2,0.49,12,62",
    "chat,tp1,1,2,1.0,1,0.9,inf,60",
    "chat,tp1,1,2,1.0,2,0,40,60",
]
CLASSES = "[classes.chat]\ndemand_per_s = 3.0\nslo_completion_p99_s = 30\n"


def written(folder: Path, runs: list[str], classes: str = CLASSES) -> tuple[str, str]:
    """Both files of a grid."""
    csv, toml = folder / "grid.csv", folder / "grid.toml"
    csv.write_text("\n".join([",".join(RUN_COLUMNS), *runs]) + "\n")
    toml.write_text(classes)
    return str(csv), str(toml)


def test_a_grid_is_read_as_it_is(tmp_path: Path) -> None:
    table = read_table(*written(tmp_path, RUNS), 8)
    assert table.grid.shape == (1, 1, 2)
    assert table.grid.repeats == 2
    assert table.grid.cost_gpu_s[0, 0].tolist() == [61.0, 60.0]
    assert table.completion_p99_s[0, 0, 1].tolist() == [np.inf, 40.0]
    assert table.usable_per_s[0, 0] == pytest.approx(0.495)
    assert table.grid.classes[0].demand_per_s == 3.0


def test_demand_may_grow_with_the_fleet(tmp_path: Path) -> None:
    files = written(tmp_path, RUNS, CLASSES.replace("demand_per_s", "demand_per_gpu_s"))
    assert read_table(*files, 8).grid.classes[0].demand_per_s == 24.0


@pytest.mark.parametrize(
    ("runs", "classes", "said"),
    [
        (RUNS[:3], CLASSES, "1 runs are missing.*load 2, repeat 2"),
        ([*RUNS, RUNS[0]], CLASSES, "there twice"),
        ([*RUNS[:3], RUNS[3].replace("tp1,1", "tp1,2")], CLASSES, "gpus of tp1"),
        ([*RUNS[:3], RUNS[3].replace(",1.0,", ",1.1,")], CLASSES, "differs between repeats"),
        ([one.replace(",1.0,", ",0.5,") for one in RUNS], CLASSES, "rise"),
        ([*RUNS[:3], RUNS[3].replace("40", "-1")], CLASSES, "line 5.*completion_p99_s"),
        ([*RUNS[:3], RUNS[3].replace("40", "nan")], CLASSES, "line 5.*completion_p99_s"),
        (RUNS, "", "no table"),
        (RUNS, "[classes.code]\n", "classes.chat.* is missing"),
        (RUNS, CLASSES + "x = 1\n", "classes.chat.x is unknown"),
        (RUNS, "[classes.chat]\nslo_completion_p99_s = 30\n", "either"),
        (RUNS, "[classes.chat]\ndemand_per_s = 1\n", "slo_completion_p99_s is missing"),
        (RUNS, CLASSES.replace("30", "'x'"), "slo_completion_p99_s is 'x'"),
        (RUNS, CLASSES.replace("3.0", "-1"), "demand_per_s"),
        (RUNS, "[", "not TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, runs: list[str], classes: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_table(*written(tmp_path, runs, classes), 8)


@pytest.mark.parametrize("name", ["h100-qwen3-32b", "h200-llama-3.1-70b"])
def test_the_reference_grids_are_whole_and_their_priors_hold_the_truth(name: str) -> None:
    table = read_table(str(GRIDS / f"{name}.csv"), str(GRIDS / f"{name}.toml"), 16)
    prior = read_prior(str(GRIDS / f"{name}.prior.csv"), table.grid)
    p99 = table.completion_p99_s.mean(axis=3)
    low = prior.completion_p99_s[..., -1] / prior.shape_error
    high = prior.completion_p99_s[..., 0] * prior.shape_error
    assert np.mean((low <= p99) & (p99 <= high)) > 0.95


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("chat,tp1,1,1.0,0.5,9", "2 predictions are missing"),
        ("code,tp1,1,1.0,0.5,9", "class is 'code'"),
        ("chat,tp1,3,1.0,0.5,9", "load is '3'"),
        ("chat,tp1,1,0,0.5,9", "speed"),
    ],
)
def test_a_prior_for_another_grid_is_refused(tmp_path: Path, row: str, said: str) -> None:
    grid = read_table(*written(tmp_path, RUNS), 8).grid
    path = tmp_path / "prior.csv"
    path.write_text("\n".join([",".join(PRIOR_COLUMNS), row, "chat,tp1,1,2.0,0.5,5"][:3]) + "\n")

    with pytest.raises(InputError, match=said):
        read_prior(str(path), grid)
