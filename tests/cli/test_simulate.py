"""`fleetopt simulate`: a plan's fleet on a trace, and an exit code that says whether it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Cli

RATE = 40


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "t.csv"
    rng = np.random.default_rng(1)
    at = 1_700_000_000 + np.cumsum(rng.exponential(0.1, 3_000))
    prompt = np.minimum(rng.lognormal(6.8, 0.9, 3_000), 8_000).astype(int) + 1
    output = np.minimum(rng.lognormal(4.5, 0.6, 3_000), 800).astype(int) + 1
    rows = "".join(f"{a},{p},{o}\n" for a, p, o in zip(at, prompt, output, strict=True))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows + "never,1,1\n")
    return path


@pytest.fixture
def plan(cli: Cli, trace: Path, tmp_path: Path) -> Path:
    return planned(cli, trace, tmp_path / "plan.json", "--gamma-max", 1)


def planned(cli: Cli, trace: Path, path: Path, *options: object) -> Path:
    done = cli("plan", trace, "--arrival-rate", RATE, "--slo-ttft-p99", "2s",
               "--long-context", 16_384, *options, "--output", "json")  # fmt: skip
    assert done.code == 0, done.err
    path.write_text(done.out)
    return path


def result(cli: Cli, *order: object, code: int = 0) -> dict[str, Any]:
    done = cli("simulate", *order, "--requests", 4_000, "--output", "json")
    assert done.code == code, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_plan_holds_on_the_trace_it_was_made_for(cli: Cli, plan: Path, trace: Path) -> None:
    found = result(cli, plan, "--trace", trace)
    assert found["status"] == "stable"
    assert found["arrivals"] == "recorded"
    expected = json.loads(plan.read_text())["plan"]["pools"]
    assert set(found["pools"]) == {name for name, pool in expected.items() if pool}
    for name, pool in found["pools"].items():
        assert pool["replicas"] == expected[name]["replicas"]
        assert pool["slots"] == expected[name]["max_num_seqs"]
        assert pool["predicted"]["ttft_p99_s"] == expected[name]["ttft_p99_s"]
        assert pool["utilization"] == pytest.approx(expected[name]["utilization"], rel=0.2)
        assert 0 < pool["ttft"]["p50_s"] <= pool["ttft"]["p90_s"] <= pool["ttft"]["p99_s"]
        assert pool["ttft_violation_share"] <= 0.01
        assert not pool["growth"]["is_diverging"]
    rate = sum(pool["arrival_rate_per_s"] for pool in found["pools"].values())
    assert rate == pytest.approx(RATE, rel=0.1)
    assert any("line 3002" in note for note in found["notes"])


def test_three_times_the_rate_diverges_with_exit_code_1(cli: Cli, plan: Path, trace: Path) -> None:
    order = ["simulate", plan, "--trace", trace, "--requests", 8_000, "--rate", 3 * RATE]
    done = cli(*order, "--output", "json")
    assert done.code == 1
    assert json.loads(done.out)["status"] == "diverging"
    assert "error: diverging: the queue of the " in done.err
    slots = cli(*order, "--level", "slot", "--output", "json")
    assert slots.code == 1
    assert json.loads(slots.out)["status"] == "diverging"


def test_the_same_seed_says_the_same_and_another_does_not(
    cli: Cli, plan: Path, trace: Path
) -> None:
    order = [plan, "--trace", trace, "--arrivals", "poisson"]
    first = result(cli, *order, "--seed", 5)
    assert first == result(cli, *order, "--seed", 5)
    assert first["pools"] != result(cli, *order, "--seed", 6)["pools"]
    assert first["arrivals"] == "poisson"


def test_the_table_shows_the_prediction_beside(cli: Cli, plan: Path, trace: Path) -> None:
    done = cli("simulate", plan, "--trace", trace, "--requests", 4_000)
    assert done.code == 0
    pools = json.loads(plan.read_text())["plan"]["pools"]
    assert f"({100 * pools['short']['utilization']:.1f} %)" in done.out
    for title in ("P99 TTFT", "queue grows by", "over the target", "slots in use"):
        assert title in done.out
    assert "1 bad rows were left out" in done.err
    shown = cli("simulate", plan, "--trace", trace, "--requests", 4_000, "--level", "slot").out
    assert "wait for a slot" in shown


def test_compression_and_caching_are_simulated(cli: Cli, trace: Path, tmp_path: Path) -> None:
    plan = planned(cli, trace, tmp_path / "c.json", "--gamma-max", 2, "--boundary", 1_024)
    found = result(cli, plan, "--trace", trace)
    assert found["compressed_share"] > 0.05
    cached = result(cli, plan, "--trace", trace, "--cached-share", 0.9)
    for name in ("short", "long"):
        now, before = cached["pools"][name], found["pools"][name]
        assert now["utilization"] < before["utilization"]
        assert now["ttft"]["p50_s"] < before["ttft"]["p50_s"]


def test_work_aware_dispatch_does_no_harm(cli: Cli, plan: Path, trace: Path) -> None:
    order = [plan, "--trace", trace, "--rate", 1.2 * RATE]
    by_count = result(cli, *order)
    by_work = result(cli, *order, "--dispatch", "least_work")
    assert by_work["dispatch"] == "least_work"
    for name, pool in by_work["pools"].items():
        assert pool["ttft"]["p99_s"] <= 1.1 * by_count["pools"][name]["ttft"]["p99_s"]


def test_a_cdf_is_drawn_from(cli: Cli, plan: Path, tmp_path: Path) -> None:
    cdf = tmp_path / "cdf.json"
    cdf.write_text("[[512, 0.4], [2048, 0.9], [40000, 1.0]]")
    found = result(cli, plan, "--trace", cdf, "--output-share", 0.1, "--rate", 10)
    assert found["arrivals"] == "poisson"
    assert found["notes"] == []
    assert found["unservable_share"] == pytest.approx(0.1 * (40_000 - 16_384) / 37_952, abs=0.02)
    assumed = result(cli, plan, "--trace", cdf, "--rate", 10)
    assert assumed["notes"] == ["output share 0.2 assumed"]


def test_a_plan_comes_through_a_pipe(shell: Cli, plan: Path, trace: Path) -> None:
    done = shell("simulate", "-", "--trace", trace, "--requests", 2_000, stdin=plan.read_text())
    assert done.code == 0
    assert "P99 TTFT" in done.out


def test_an_infeasible_plan_is_nothing_to_simulate(cli: Cli, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text(cli("plan", trace, "--slo-ttft-p99", "1ms", "--output", "json").out)
    done = cli("simulate", path, "--trace", trace)
    assert done.code == 1
    assert "no fleet met the target" in done.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--rate", "-1"], 2, "--rate -1.0: expected a number above 0"),
        (["--requests", "5"], 2, "greater than or equal to 100"),
        (["--dispatch", "random"], 2, "least_work"),
        (["--output-share", "0.5"], 2, "--output-share is for a CDF"),
        (["--fleet", "nobody"], 0, ""),  # a CSV names no fleet
    ],
)
def test_wrong_options_are_one_clear_line(
    cli: Cli, plan: Path, trace: Path, options: list[str], code: int, message: str
) -> None:
    done = cli("simulate", plan, "--trace", trace, *options)
    assert done.code == code
    if message:
        assert message in done.err
        assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1, 1]]", "is no plan: "),
        ("{}", "is no plan: "),
        ("TIMESTAMP,", "is no plan: "),
    ],
)
def test_what_is_no_plan_is_said(
    cli: Cli, trace: Path, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    done = cli("simulate", path, "--trace", trace)
    assert done.code == 1
    assert message in done.err
    assert "fleetopt plan --output json" in done.err


def test_an_unknown_engine_is_said(cli: Cli, plan: Path, trace: Path) -> None:
    plan.write_text(plan.read_text().replace("h100/qwen3-32b/tp2", "mine/of/old"))
    done = cli("simulate", plan, "--trace", trace)
    assert done.code == 2
    assert "there is no engine profile 'mine/of/old'" in done.err


def test_both_from_standard_input_is_too_much(cli: Cli) -> None:
    done = cli("simulate", "-", "--trace", "-")
    assert done.code == 2
    assert "can't both be standard input" in done.err
