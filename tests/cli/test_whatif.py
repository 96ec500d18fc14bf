"""`fleetopt whatif`: every combination is the plan that `fleetopt plan` finds for it."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

H100, H200 = "h100/qwen3-32b/tp2", "h200/qwen3-32b/tp2"
TARGET = "300ms+0.2ms/token"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    rows = "".join(
        f"{1_700_000_000 + at / 20},{300 + at * 7919 % 3_000 + (at % 9 == 0) * 9_000},"
        f"{50 + at % 200}\n"
        for at in range(3_000)
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    return path


@pytest.fixture
def cdf(tmp_path: Path) -> Path:
    path = tmp_path / "cdf.json"
    path.write_text("[[512, 0.4], [2048, 0.9], [32768, 1.0]]")
    return path


def rows_of(cli: Cli, *order: object) -> list[dict[str, Any]]:
    done = cli("whatif", *order, "--output", "json")
    assert (done.code, done.err) == (0, "")
    rows: list[dict[str, Any]] = json.loads(done.out)["rows"]
    return rows


def test_each_row_is_the_plan_of_its_combination(cli: Cli, trace: Path) -> None:
    rows = rows_of(cli, trace, "--arrival-rate", "30,200", "--slo-ttft-p99", TARGET,
                   "--profile", H100, "--profile", H200, "--gamma-max", "1,2")  # fmt: skip
    asked = [
        (row["arrival_rate_per_s"], row["short_profile"], row["long_profile"], row["gamma_max"])
        for row in rows
    ]
    assert asked == list(product([30, 200], [H100, H200], [H100, H200], [1, 2]))
    for row in (rows[0], rows[3], rows[-3], rows[-1]):
        plan = json.loads(
            cli("plan", trace, "--arrival-rate", row["arrival_rate_per_s"], "--slo-ttft-p99",
                row["slo_ttft_p99"], "--short-profile", row["short_profile"], "--long-profile",
                row["long_profile"], "--gamma-max", row["gamma_max"], "--output", "json").out
        )["plan"]  # fmt: skip
        for figure in ("boundary_tokens", "gamma", "short_replicas", "long_replicas", "gpus"):
            assert row[figure] == plan[figure]
        assert row["cost_usd_per_h"] == pytest.approx(plan["cost_usd_per_h"])
        assert row["short_ttft_p99_s"] == pytest.approx(plan["pools"]["short"]["ttft_p99_s"])
        long = plan["pools"]["long"]
        assert row["long_ttft_p99_s"] == (long and pytest.approx(long["ttft_p99_s"]))


def test_savings_and_the_cheapest_are_those_of_the_same_rate(cli: Cli, trace: Path) -> None:
    rows = rows_of(cli, trace, "--arrival-rate", "30", "--arrival-rate", "300",
                   "--slo-ttft-p99", "10ms," + TARGET + ",8s")  # fmt: skip
    for three in (rows[:3], rows[3:]):
        impossible, first, second = three
        assert (impossible["status"], impossible["saving_ratio"]) == ("infeasible", None)
        assert first["saving_ratio"] is None
        saved = 1 - second["cost_usd_per_h"] / first["cost_usd_per_h"]
        assert second["saving_ratio"] == pytest.approx(saved)
        assert [row["is_cheapest"] for row in three] == [False, saved <= 0, saved > 0]
    assert rows[5]["saving_ratio"] > 0


def test_sorted_the_cheapest_come_first_and_the_impossible_last(cli: Cli, trace: Path) -> None:
    order = [trace, "--slo-ttft-p99", f"{TARGET},10ms,8s", "--arrival-rate", "300,30"]
    given, ordered = rows_of(cli, *order), rows_of(cli, *order, "--sort")
    costs = [row["cost_usd_per_h"] for row in ordered]
    assert costs[-2:] == [None, None]
    assert costs[:-2] == sorted(costs[:-2])
    assert sorted(map(str, given)) == sorted(map(str, ordered))


def test_a_row_without_a_fleet_says_what_could_be_met(cli: Cli, trace: Path) -> None:
    order = [trace, "--slo-ttft-p99", "10ms,8s"]
    row = rows_of(cli, *order)[0]
    assert row["reason"] == "slo_unreachable"
    assert row["gpus"] is None
    tightest = row["tightest_slo_ttft_p99"]
    assert f"needs {tightest}" in cli("whatif", *order).out
    assert rows_of(cli, trace, "--slo-ttft-p99", tightest)[0]["status"] == "ok"


def test_further_targets_hold_for_all_rows(cli: Cli, trace: Path) -> None:
    order = [trace, "--arrival-rate", 30, "--slo-ttft-p99", "2s,8s", "--slo-itl-p99", "60ms"]
    assert {row["status"] for row in rows_of(cli, *order)} == {"ok"}
    assert "P99 between tokens at most 60ms" in cli("whatif", *order).out
    both = cli("whatif", *order[:-2], "--slo-itl-p99", "2ms,")
    assert both.code == 2
    none = cli("whatif", *order[:-2], "--slo-itl-p99", "2ms")
    assert none.code == 3
    assert "a token" in none.out


def test_exit_code_3_only_where_no_row_has_a_fleet(cli: Cli, trace: Path) -> None:
    assert cli("whatif", trace, "--slo-ttft-p99", "5ms,8s").code == 0
    none = cli("whatif", trace, "--slo-ttft-p99", "5ms,6ms")
    assert none.code == 3
    assert none.err == "error: infeasible: no combination has a fleet that meets its target\n"
    assert none.out.count("needs") == 2


def test_the_table_has_columns_for_what_varies_only(cli: Cli, trace: Path) -> None:
    done = cli("whatif", trace, "--slo-ttft-p99", f"{TARGET},8s", "--profile", H100)
    first, head = done.out.splitlines()[0], done.out.splitlines()[2]
    assert f"engine {H100}" in first
    assert "target" in head
    assert "engine" not in head
    assert done.out.count("*") == 2  # the cheapest, and what the mark means


def test_the_table_fits_a_narrow_terminal(cli: Cli, trace: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("fleetopt.cli.output.PLAIN_WIDTH", 80)
    order = [trace, "--profile", f"{H100},{H200}", "--slo-ttft-p99", f"{TARGET},8s"]
    out = cli("whatif", *order, "--gamma-max", "1,2").out
    assert "…" not in out
    for row in rows_of(cli, *order, "--gamma-max", "1,2"):
        assert f"{row['cost_usd_per_h']:,.2f}" in out


def test_a_cdf_has_no_rate_of_its_own(cli: Cli, cdf: Path) -> None:
    assert "add --arrival-rate PER_SECOND" in cli("whatif", cdf).err
    rows = rows_of(cli, cdf, "--arrival-rate", "10,100", "--slo-ttft-p99", "9s")
    assert rows[0]["cost_usd_per_h"] < rows[1]["cost_usd_per_h"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--arrival-rate", "9,x"], "--arrival-rate x: expected a number"),
        (["--arrival-rate", "9,,8"], "--arrival-rate '9,,8': a value is empty"),
        (["--arrival-rate", "9,0"], "--arrival-rate 0.0: expected a number above 0"),
        (["--arrival-rate", "nan"], "--arrival-rate nan: expected a number"),
        (["--arrival-rate", "9", "--gamma-max", "1,99"], "gamma_max is 99"),
        (["--arrival-rate", "9", "--slo-ttft-p99", "1s,fast"], "slo_ttft_p99 is 'fast'"),
        (["--arrival-rate", "9", "--profile", f"{H100},nope"], "no engine profile 'nope'"),
        (
            ["--arrival-rate", ",".join(str(rate) for rate in range(1, 68)),
             "--slo-ttft-p99", ",".join(f"{s}s" for s in range(1, 31))],
            "67 × 30 = 2,010 combinations; expected at most 2,000",
        ),
    ],
)  # fmt: skip
def test_wrong_values_are_one_line_and_exit_code_2(
    cli: Cli, cdf: Path, options: list[str], says: str
) -> None:
    done = cli("whatif", cdf, *options)
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert says in done.err


def test_an_engine_that_does_not_exist_is_named_with_its_option(cli: Cli, trace: Path) -> None:
    done = cli("whatif", trace, "--long-profile", "h100/none")
    assert done.code == 2
    assert "--long-profile: there is no engine profile 'h100/none'" in done.err
