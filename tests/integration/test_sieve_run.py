"""Profiling sessions with a real command: decisions, interruptions, failures, profiles."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fleetopt.config.profile_toml import ProfileEntry, profiles_toml
from fleetopt.config.profiles import load_catalogue
from fleetopt.config.sieve_problem import read_problem
from fleetopt.connectors.benchmark_result import parse_result
from fleetopt.connectors.sieve_journal import read_runs
from fleetopt.planner.sieve.allocation import allocate, allocation_of
from fleetopt.planner.sieve.evidence import Evidence
from fleetopt.planner.sieve.grid import Run
from fleetopt.planner.sieve.predict import at_speed
from tests.conftest import PROJECT
from tests.sieve_bench import LENGTHS, bench

ENGINES = {f"tp{tp}": f"h200/qwen3-32b/tp{tp}" for tp in (1, 2, 4)}
SLOWER = 1.25


def write_problem(folder: Path, **changes: Any) -> Path:
    """A problem whose profiles say that engines are slower than they are."""
    entries = {}
    for name, profile in ENGINES.items():
        engine = replace(at_speed(load_catalogue()[profile], 1.0 / SLOWER), name=f"guess/{name}")
        entries[engine.name] = ProfileEntry(engine, True)
    (folder / "guess.toml").write_text(profiles_toml(entries))
    problem: dict[str, Any] = {
        "gpus": 16,
        "classes": {
            name: {
                "demand_per_s": demand,
                "slo_completion_p99_s": slo_s,
                "prompt_tokens": LENGTHS[name][0],
                "completion_tokens": LENGTHS[name][1],
            }
            for name, demand, slo_s in (("chat", 60.0, 14.0), ("code", 40.0, 6.0))
        },
        "configurations": {
            name: {"gpus": int(name[2:]), "profile": f"guess/{name}"} for name in ENGINES
        },
        "loads": [0.4, 0.7, 1.0, 1.3],
        "run_s": 60,
        "command": f"{sys.executable} -m tests.sieve_bench h200/qwen3-32b/{{configuration}} "
        "{class} {rate} {repeat} {output}",
    } | changes
    path = folder / "problem.yaml"
    path.write_text(yaml.safe_dump(problem))
    return path


def sieve(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `fleetopt sieve`."""
    return subprocess.run(
        [sys.executable, "-m", "fleetopt", "sieve", *map(str, words)],
        cwd=PROJECT,
        text=True,
        capture_output=True,
        timeout=170,
        check=False,
        **options,
    )


def sequence(folder: Path) -> list[tuple[str, str, float]]:
    """The runs that were made, in order."""
    runs, _ = read_runs(folder / "runs.jsonl")
    return [(one.request_class, one.configuration, one.offered_per_s) for one in runs]


def test_a_session_decides_as_all_runs_would_and_leaves_profiles(tmp_path: Path) -> None:
    path = write_problem(tmp_path)
    guess, measured = tmp_path / "guess.toml", tmp_path / "measured.toml"
    done = sieve("run", path, "--profiles", guess, "--write-profiles", measured, "--output", "json")
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(done.stdout)
    assert found["is_certain"]
    problem = read_problem(path, load_catalogue(guess))
    grid = problem.sieve.grid
    everything = Evidence.none(grid)
    for point in grid.points():
        for repeat in range(1, grid.repeats + 1):
            result = bench(
                ENGINES[grid.configurations[point.configuration].name],
                grid.classes[point.request_class].name,
                float(grid.offered_per_s[point]),
                repeat,
            )
            run = parse_result(json.dumps(result), "bench")
            everything = everything.plus(
                Run(point, run.throughput_per_s, run.completion_p99_s, 1.0)
            )
    truth = replace(problem.sieve, prior=None).state(everything).usable_per_s.low
    oracle = allocate(truth, grid, problem.sieve.budget)
    replicas = [list(row.values()) for row in found["allocation"]["replicas"].values()]
    chosen = allocation_of(np.array(replicas), truth, grid)
    assert chosen.min_fulfilment >= oracle.min_fulfilment - 0.1
    assert found["runs"] < grid.offered_per_s.size
    assert found["cost_gpu_s"] > 0.0
    profiles = load_catalogue(measured)
    names = [name for name in profiles if name.startswith("measured/")]
    assert names
    for name in names:
        silicon = load_catalogue()[ENGINES[name.removeprefix("measured/")]]
        ratio = profiles[name].base_iteration_s / silicon.base_iteration_s
        assert 0.75 < ratio < 1.2  # 1.25 as guessed
    cdf = tmp_path / "cdf.json"
    cdf.write_text(json.dumps([[1_000, 0.5], [4_000, 1.0]]))
    plan = subprocess.run(
        [
            sys.executable, "-m", "fleetopt", "plan", str(cdf), "--profiles", str(measured),
            "--profile", names[0], "--arrival-rate", "5", "--output-share", "0.2",
            "--slo-ttft-p99", "5s",
        ],
        cwd=PROJECT, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert plan.returncode in (0, 3), plan.stderr


@pytest.mark.parametrize("after", [1, 3])
def test_a_killed_session_goes_on_with_the_same_runs(tmp_path: Path, after: int) -> None:
    changes = {"tolerance": 0.0, "repeats": 1}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    guess = whole / "guess.toml"
    options = ("--profiles", guess, "--max-runs", "5")
    assert sieve("run", write_problem(whole, **changes), *options).returncode in (0, 3, 4)
    path = write_problem(killed, **changes)
    state = path.with_suffix(".sieve")
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetopt", "sieve", "run", str(path), "--profiles", str(guess)],
        cwd=PROJECT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline_s = time.monotonic() + 120.0
        while len(read_runs(state / "runs.jsonl")[0]) < after:
            assert time.monotonic() < deadline_s
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with (state / "runs.jsonl").open("ab") as journal:
        journal.write(b'{"request_class": "chat", "conf')
    left = 5 - len(sequence(state))
    again = sieve("run", path, "--profiles", guess, "--max-runs", str(max(left, 0)))
    assert again.returncode in (0, 3, 4), again.stderr
    assert "ended within a run" in again.stderr
    assert sequence(state)[:5] == sequence(whole / "problem.sieve")[:5]


def test_a_command_that_fails_stops_the_session_or_counts_as_late(tmp_path: Path) -> None:
    path = write_problem(tmp_path, command=f"{sys.executable} -c 'raise SystemExit(\"no GPU\")'")
    guess = tmp_path / "guess.toml"
    options = ("--profiles", guess, "--attempts", "2", "--max-runs", "1")
    stopped = sieve("run", path, *options)
    assert stopped.returncode == 1
    assert "failed 2 times" in stopped.stderr
    assert "no GPU" in stopped.stderr
    assert sequence(path.with_suffix(".sieve")) == []
    late = sieve("run", path, *options, "--on-failure", "late", "--output", "json")
    assert late.returncode in (0, 3, 4)
    assert json.loads(late.stdout)["failed_runs"] == 1


def test_two_sessions_dont_share_a_folder(tmp_path: Path) -> None:
    path = write_problem(tmp_path, command="sleep 30")
    guess = tmp_path / "guess.toml"
    words = [sys.executable, "-m", "fleetopt", "sieve", "run", str(path), "--profiles", str(guess)]
    first = subprocess.Popen(words, cwd=PROJECT, stderr=subprocess.PIPE, text=True)
    try:
        assert first.stderr is not None
        assert "run 1" in first.stderr.readline()
        second = sieve("run", path, "--profiles", guess)
        assert second.returncode == 1
        assert "another session" in second.stderr
    finally:
        first.terminate()
        first.communicate(timeout=30)
    assert first.returncode == 143


def test_what_would_run_is_said_and_not_run(tmp_path: Path) -> None:
    path = write_problem(tmp_path, command="bench --of '{class}' --rate {rate} -o {output}")
    guess = tmp_path / "guess.toml"
    shown = sieve("run", path, "--profiles", guess, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "bench --of" in shown.stdout
    assert "RESULT.json" in shown.stdout
    status = sieve("status", path, "--profiles", guess, "--output", "json")
    assert json.loads(status.stdout)["runs"] == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [("bench {nope}", "{rate}"), ("bench 'x", "quotation"), ("bench {0}", "unknown")],
)
def test_a_bad_command_is_refused_before_anything_runs(
    tmp_path: Path, command: str, said: str
) -> None:
    path = write_problem(tmp_path)
    refused = sieve("run", path, "--profiles", tmp_path / "guess.toml", "--command", command)
    assert refused.returncode == 2
    assert said in refused.stderr
