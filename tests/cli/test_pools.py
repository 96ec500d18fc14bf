"""`fleetopt plan --pools N`: one row a number of pools, and what each further one gains."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_plan import numbers

H100, H200 = "h100/qwen3-32b/tp2", "h200/qwen3-32b/tp2"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    rows = "".join(
        f"{1_700_000_000 + at / 20},{60 + at * 7919 % 700 * (1 + at % 11)},{50 + at % 200}\n"
        for at in range(3_000)
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    return path


def planned(cli: Cli, *order: object) -> dict[str, Any]:
    done = cli("plan", *order, "--output", "json")
    assert (done.code, done.err) == (0, "")
    result: dict[str, Any] = json.loads(done.out)
    assert all(map(math.isfinite, numbers(result)))
    return result


def options(trace: Path, *more: object) -> list[object]:
    return [trace, "--arrival-rate", 400, "--slo-ttft-p99", "300ms+0.2ms/token", *more]


def test_json_has_a_fleet_for_every_number_of_pools(cli: Cli, trace: Path) -> None:
    result = planned(cli, *options(trace, "--pools", 4))
    many = result["many_pools"]
    assert [one["pools"] for one in many["fleets"]] == [1, 2, 3, 4]
    assert result["status"] == "ok"
    assert result["traffic"]["arrival_rate_per_s"] == 400
    lowest = [one["at_most_per_h"] for one in many["fleets"]]
    assert lowest == sorted(lowest, reverse=True)
    for one in many["fleets"]:
        fleet = one["fleet"]
        assert len(fleet["boundaries_tokens"]) == one["pools"] - 1
        assert fleet["boundaries_tokens"] == sorted(fleet["boundaries_tokens"])
        assert fleet["gpus"] == sum(pool["gpus"] for pool in fleet["pools"])
        assert fleet["cost_usd_per_h"] == pytest.approx(
            sum(pool["cost_usd_per_h"] for pool in fleet["pools"]) + fleet["compression_usd_per_h"]
        )
        ends = [*fleet["boundaries_tokens"], 32_768]
        starts = [0, *(edge + 1 for edge in fleet["boundaries_tokens"])]
        assert [pool["context_length_range"] for pool in fleet["pools"]] == [
            f"{start}-{end}" for start, end in zip(starts, ends, strict=True)
        ]
        assert [pool["engine_flags"][0] for pool in fleet["pools"]] == [
            f"--max-model-len={end}" for end in ends
        ]
    for before, one in zip(lowest, many["fleets"][1:], strict=False):
        gain = before - one["fleet"]["minimised_per_h"]
        assert one["gain_per_h"] == pytest.approx(gain, abs=1e-6)
        assert one["gain_ratio"] == pytest.approx(gain / before, abs=1e-9)
    assert many["fleets"][0]["gain_per_h"] is None


def test_two_pools_are_the_plan(cli: Cli, trace: Path) -> None:
    plan = planned(cli, *options(trace))["plan"]
    many = planned(cli, *options(trace, "--pools", 2))["many_pools"]
    assert many["fleets"][1]["at_most_per_h"] == pytest.approx(plan["cost_usd_per_h"])


def test_the_table_says_the_same_as_the_json(cli: Cli, trace: Path) -> None:
    order = options(trace, "--pools", 3)
    many = planned(cli, *order)["many_pools"]
    done = cli("plan", *order)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    for one in many["fleets"]:
        fleet = one["fleet"]
        mark = "*" if one["pools"] == many["worth_pools"] else " "
        (at,) = (at for at, line in enumerate(lines) if line.startswith(f"  {one['pools']}{mark}"))
        row = lines[at : at + one["pools"]]
        for pool, line in zip(fleet["pools"], row, strict=True):
            assert f" {pool['replicas']} " in line
        for cut, line in zip(fleet["cuts"], row, strict=False):
            assert f" {cut['boundary_tokens']:,} " in line
            assert (f"× {cut['gamma']:.2f} " in line) == (cut["gamma"] > 1)
        assert f" {fleet['minimised_per_h']:,.2f} " in row[0]
        if one["gain_ratio"] is not None:
            gain = f"{one['gain_ratio'] * 100:.1f} %".replace("-0.0 ", "0.0 ")
            assert row[0].rstrip().endswith(gain)
    assert "Worth it: " in done.out
    worth = many["fleets"][many["worth_pools"] - 1]["fleet"]["pools"]
    assert f"label llm-d.ai/context-length-range={worth[-1]['context_length_range']}" in done.out


def test_each_pool_gets_the_cheapest_of_several_engines(cli: Cli, trace: Path) -> None:
    both = planned(cli, *options(trace, "--pools", 3, "--profile", f"{H100},{H200}"))["many_pools"]
    assert both["profiles_to_choose_from"] == [H100, H200]
    for engine in (H100, H200):
        alone = planned(cli, *options(trace, "--pools", 3, "--profile", engine))["many_pools"]
        for one, other in zip(both["fleets"], alone["fleets"], strict=True):
            assert one["fleet"]["minimised_per_h"] <= other["fleet"]["minimised_per_h"] + 1e-6
    cheap = ["--gpu-price", "h200=0.5", "--profile", f"{H100},{H200}"]
    fleets = planned(cli, *options(trace, "--pools", 2, *cheap))["many_pools"]["fleets"]
    assert {pool["profile"] for one in fleets for pool in one["fleet"]["pools"]} == {H200}
    mixed = ["--short-profile", H200, "--long-profile", H100]
    fleet = planned(cli, *options(trace, "--pools", 3, *mixed))["many_pools"]["fleets"][2]["fleet"]
    assert [pool["profile"] for pool in fleet["pools"]] == [H200, H200, H100]
    table = cli("plan", *options(trace, "--pools", 3, *mixed)).out
    letter_of = {
        name: line.split()[1].rstrip(":")
        for line in table.splitlines()
        for name in (H100, H200)
        if line.startswith("Engine ") and line.endswith(name)
    }
    assert sorted(letter_of.values()) == ["A", "B"]
    assert f" {fleet['pools'][2]['replicas']} {letter_of[H100]} " in table
    assert f" {fleet['pools'][0]['replicas']} {letter_of[H200]} " in table


def test_the_tables_fit_80_columns(shell: Cli, trace: Path) -> None:
    done = shell(
        "plan", *options(trace, "--pools", 6, "--profile", f"{H100},{H200}"), "--max-replicas", 900
    )
    assert done.code == 0
    tables = done.out[done.out.index("  pools") : done.out.index("Engines")]
    assert max(len(line.rstrip()) for line in tables.splitlines()) <= 80


def test_no_fleet_at_all_is_exit_code_3(cli: Cli, trace: Path) -> None:
    order = ["plan", trace, "--pools", 3, "--slo-ttft-p99", "20ms"]
    done = cli(*order)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: infeasible: ")
    assert done.err.count("\n") == 1
    result = json.loads(cli(*order, "--output", "json").out)
    assert result["status"] == "infeasible"
    assert "many_pools" not in result
    assert cli(*order[:-1], result["infeasible"]["tightest_slo_ttft_p99"]).code == 0


def test_a_number_of_pools_without_fleet_is_a_row(cli: Cli, trace: Path) -> None:
    order = [trace, "--arrival-rate", 400, "--slo-ttft-p99", "60s", "--gamma-max", 1]
    single = planned(cli, *order, "--pools", 1)["many_pools"]["fleets"][0]["fleet"]
    most = math.ceil(single["pools"][0]["replicas"] * 0.4)
    limited = [*order, "--pools", 4, "--max-replicas", most]
    fleets = planned(cli, *limited)["many_pools"]["fleets"]
    assert [one["status"] for one in fleets[:2]] == ["infeasible", "infeasible"]
    assert fleets[-1]["status"] == "ok"
    assert fleets[0]["at_most_per_h"] is None
    assert fleets[0]["infeasible"]["reason"] == "max_replicas"
    table = cli("plan", *limited).out
    assert "infeasible" in table
    assert f"one pool: {fleets[0]['infeasible']['message']}" in table


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--pools", "0"], "--pools"),
        (["--pools", "17"], "--pools"),
        (["--pools", "3", "--boundary", "2048"], "leave --boundary out"),
        (["--pools", "3", "--explain"], "--explain is for a plan of up to two pools"),
        (["--pools", "3", "--validate"], "--validate is for a plan of up to two pools"),
        (["--pools", "3", "--profile", f"{H100},"], "a value is empty"),
        (["--pools", "3", "--profile", f"{H100},nope"], "--profile: there is no engine"),
        (["--profile", f"{H100},{H200}"], "several engines are for --pools"),
        (
            ["--pools", "3", "--profile", f"{H100},{H200}", "--long-profile", H100],
            "leave --short-profile and --long-profile out",
        ),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(
    cli: Cli, trace: Path, given: list[str], says: str
) -> None:
    done = cli("plan", trace, *given)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert says in done.err
