"""`fleetopt plan --explain`: the plan as it is without, and what it depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetopt.planner.explain import Premise
from tests.cli.conftest import Cli

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


def result(cli: Cli, *order: object) -> dict[str, Any]:
    done = cli("plan", *order, "--output", "json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_the_json_has_the_whole_curve_and_the_same_plan(cli: Cli, trace: Path) -> None:
    order = [trace, "--arrival-rate", "60", "--slo-ttft-p99", TARGET]
    plain, explained = result(cli, *order), result(cli, *order, "--explain")
    why = explained.pop("explanation")
    assert explained == plain
    plan = plain["plan"]
    costs = {one["boundary_tokens"]: one["cost_per_h"] for one in why["curve"]}
    assert len(costs) + len(why["infeasible_boundaries_tokens"]) == 73  # edges up to 32,768
    assert min(costs.values()) == pytest.approx(plan["cost_usd_per_h"])
    assert costs[plan["boundary_tokens"]] == pytest.approx(plan["cost_usd_per_h"])
    assert {one["premise"] for one in why["sensitivities"]} == set(Premise) - {
        Premise.CACHED_SHARE,  # the trace says nothing of a cache
        Premise.E2E_BASE,  # and there are no such targets
        Premise.GAP,
    }
    assert why["is_flat"] == (why["flat_to_tokens"] >= 2 * why["flat_from_tokens"])
    assert [pool["name"] for pool in why["pools"]] == ["short", "long"]


def test_the_table_comes_after_the_plan_and_shows_its_place(cli: Cli, trace: Path) -> None:
    order = [trace, "--arrival-rate", "60", "--slo-ttft-p99", TARGET]
    plain, explained = cli("plan", *order).out, cli("plan", *order, "--explain").out
    assert explained.startswith(plain)
    said = explained.removeprefix(plain)
    found = result(cli, *order, "--explain")
    plan, why = found["plan"], found["explanation"]
    marked = [line for line in said.splitlines() if "◄" in line]
    assert len(marked) == 1
    assert f"{plan['boundary_tokens']:,}" in marked[0]
    assert f"{plan['cost_usd_per_h']:,.2f}" in marked[0]
    assert 10 <= sum("█" in line for line in said.splitlines()) <= 13
    assert ("flat:" if why["is_flat"] else "sharp:") in said
    for one in why["sensitivities"]:
        assert f"{one['cost_per_h']:,.2f}" in said
    assert f"{why['ten_ms_of_slo_per_h']:,.2f} USD/h" in said
    for pool in why["pools"]:
        assert f"alone asks for {pool['load_replicas']}" in said


def test_one_pool_is_explained_as_one(cli: Cli, trace: Path) -> None:
    order = [trace, "--slo-ttft-p99", "8s", "--explain"]
    assert result(cli, *order)["plan"]["long_replicas"] == 0
    said = cli("plan", *order).out
    assert "one pool: load sets it to" in said
    assert "no two pools cost within 3 % of the lowest" in said
    assert "-0.0 %" not in said


def test_a_pinned_boundary_is_told_what_moving_it_saves(cli: Cli, trace: Path) -> None:
    order = [trace, "--arrival-rate", "60", "--slo-ttft-p99", TARGET]
    free = result(cli, *order)["plan"]
    pinned = [*order, "--boundary", "64", "--explain"]
    saved = result(cli, *pinned)["plan"]["cost_usd_per_h"] - free["cost_usd_per_h"]
    assert saved > 1
    at = f"{free['boundary_tokens']:,}"
    assert f"at {at} instead it would cost {saved:,.2f} USD/h less" in cli("plan", *pinned).out


def test_a_target_that_no_fleet_meets_has_nothing_to_explain(cli: Cli, trace: Path) -> None:
    done = cli("plan", trace, "--slo-ttft-p99", "5ms", "--explain", "--output", "json")
    assert done.code == 3
    assert "explanation" not in json.loads(done.out)
