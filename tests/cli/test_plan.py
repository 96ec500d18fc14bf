"""`fleetopt plan`: a table or JSON, and an exit code that says whether there is a fleet."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fleetopt.planner.outcome import BaselineName, Binding, ReasonCode
from tests.cli.conftest import Cli

PAPER = ["--profile", "a100/llama-3-70b/paper", "--long-context", "65536"]


@pytest.fixture
def cdf(tmp_path: Path) -> Path:
    path = tmp_path / "cdf.json"
    path.write_text("[[512, 0.4], [2048, 0.9], [32768, 1.0]]")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    rows = "".join(
        f"{1_700_000_000 + at / 20},{300 + at * 7919 % 3_000},{50 + at % 200}\n"
        for at in range(3_000)
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows + "never,1,1\n")
    return path


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, float) else []


def test_json_has_the_plan_its_pools_and_every_baseline(cli: Cli, cdf: Path) -> None:
    done = cli("plan", cdf, "--arrival-rate", 500, "--output-share", 0.1,
               "--slo-ttft-p99", "60s", *PAPER, "--admission", "reserved", "--output", "json",
               )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert result["status"] == "ok"
    plan = result["plan"]
    pools = plan["pools"]
    assert plan["short_replicas"] == pools["short"]["replicas"] > 0
    assert plan["long_replicas"] == pools["long"]["replicas"] > 0
    assert plan["gpus"] == pools["short"]["gpus"] + pools["long"]["gpus"]
    assert plan["cost_usd_per_h"] == pytest.approx(
        pools["short"]["cost_usd_per_h"]
        + pools["long"]["cost_usd_per_h"]
        + plan["compression_usd_per_h"]
    )
    assert plan["gamma"] >= 1
    assert pools["short"]["context_tokens"] == plan["boundary_tokens"]
    assert pools["long"]["context_tokens"] == 65_536
    assert pools["long"]["engine_flags"][0] == "--max-model-len=65536"
    for pool in pools.values():
        assert 0 < pool["utilization"] <= 0.85
        assert pool["ttft_p99_s"] <= 60
    assert [baseline["name"] for baseline in result["baselines"]] == list(BaselineName)
    for baseline in result["baselines"]:
        assert baseline["cost_usd_per_h"] > 0
        assert baseline["saving_ratio"] == pytest.approx(
            1 - plan["cost_usd_per_h"] / baseline["cost_usd_per_h"]
        )
    assert all(map(math.isfinite, numbers(result)))
    assert result["request"]["admission"] == "reserved"
    assert result["traffic"]["arrival_rate_per_s"] == 500


def test_one_pool_has_no_long_one(cli: Cli, cdf: Path) -> None:
    done = cli("plan", cdf, "--arrival-rate", 1, "--boundary", 65536, *PAPER,
               "--slo-ttft-p99", "60s", "--output", "json")  # fmt: skip
    plan = json.loads(done.out)["plan"]
    assert plan["pools"]["long"] is None
    assert plan["long_replicas"] == 0
    assert plan["boundary_tokens"] == 65_536


def test_infeasible_is_exit_code_3_with_what_can_be_reached(cli: Cli, cdf: Path) -> None:
    order = ["plan", cdf, "--arrival-rate", 10, *PAPER, "--slo-ttft-p99", "10ms"]
    done = cli(*order)
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("error: infeasible: ")
    assert done.err.count("\n") == 1
    result_of = cli(*order, "--output", "json")
    assert (result_of.code, result_of.err) == (3, "")
    result = json.loads(result_of.out)
    assert result["status"] == "infeasible"
    assert "plan" not in result
    tightest = result["infeasible"]["tightest_slo_ttft_p99"]
    assert cli(*order[:-1], tightest).code == 0


def test_targets_end_to_end_and_between_tokens(cli: Cli, trace: Path) -> None:
    order = ["plan", trace, "--arrival-rate", 400, "--slo-ttft-p99", "2s"]
    further = ["--slo-e2e-p99", "3s+40ms/token", "--slo-itl-p99", "60ms"]
    result = json.loads(cli(*order, *further, "--output", "json").out)
    asked = result["request"]
    assert (asked["slo_e2e_p99"], asked["slo_itl_p99_s"]) == ("3s+40ms/token", 0.06)
    pools = [pool for pool in result["plan"]["pools"].values() if pool]
    assert all(0.0 < pool["itl_p99_s"] <= 0.06 * 1.001 for pool in pools)
    assert "between_tokens" in {pool["binding"] for pool in pools}
    table = cli(*order, *further).out
    assert "P99 end to end at most 3s+40ms/token, P99 between tokens at most 60ms" in table
    assert "The P99 target between tokens sets a pool's size." in table
    without = json.loads(cli(*order, "--output", "json").out)
    assert without["request"]["slo_itl_p99_s"] is None
    assert without["plan"]["gpus"] < result["plan"]["gpus"]


@pytest.mark.parametrize(
    ("option", "value", "field"),
    [
        ("--slo-e2e-p99", "500ms", "tightest_slo_e2e_p99"),
        ("--slo-itl-p99", "2ms", "tightest_slo_itl_p99_s"),
    ],
)
def test_each_further_target_says_what_can_be_reached(
    cli: Cli, trace: Path, option: str, value: str, field: str
) -> None:
    order = ["plan", trace, "--arrival-rate", 40, "--slo-ttft-p99", "9s"]
    done = cli(*order, option, value, "--output", "json")
    assert done.code == 3
    tightest = json.loads(done.out)["infeasible"][field]
    eased = tightest if isinstance(tightest, str) else f"{tightest}s"
    assert cli(*order, option, eased).code == 0


def test_a_trace_brings_its_own_rate_and_its_bad_rows_are_said(cli: Cli, trace: Path) -> None:
    result = json.loads(cli("plan", trace, "--slo-ttft-p99", "2s", "--output", "json").out)
    traffic = result["traffic"]
    assert traffic["requests"] == 3_000
    assert traffic["bad_rows"] == 1
    assert traffic["measured_arrivals"]["mean_per_s"] == pytest.approx(20, rel=0.01)
    assert traffic["arrival_rate_per_s"] == traffic["measured_arrivals"]["planned_per_s"]
    scales = traffic["measured_arrivals"]["dispersion_by_scale"]
    assert {tuple(one) for one in scales} == {("window_s", "z")}
    assert "line 3002: TIMESTAMP 'never'" in traffic["notes"][1]
    table = cli("plan", trace, "--slo-ttft-p99", "2s").out
    assert "1 bad rows were left out" in table
    assert "line 3002" in table


def test_the_table_says_the_same_as_the_json(cli: Cli, trace: Path) -> None:
    order = ["plan", trace, "--arrival-rate", 400, "--slo-ttft-p99", "300ms+0.2ms/token"]
    plan = json.loads(cli(*order, "--output", "json").out)["plan"]
    table = cli(*order).out
    for figure in (plan["boundary_tokens"], plan["short_replicas"], plan["gpus"]):
        assert f"{figure:,}" in table
    assert f"{plan['cost_usd_per_h']:,.2f} USD/h" in table
    for title in ("Why", "Engines", "Assumed", "compared with"):
        assert title in table


def test_the_pools_labels_share_out_every_length(cli: Cli, trace: Path) -> None:
    order = ["plan", trace, "--slo-ttft-p99", "5s", "--boundary", "2048"]
    pools = json.loads(cli(*order, "--output", "json").out)["plan"]["pools"]
    assert pools["short"]["context_length_range"] == "0-2048"
    assert pools["long"]["context_length_range"] == "2049-32768"
    table = cli(*order).out
    assert "--max-model-len=2048" in table
    assert "label llm-d.ai/context-length-range=2049-32768" in table
    one = json.loads(cli(*order, "--boundary", "32768", "--output", "json").out)["plan"]["pools"]
    assert one["short"]["context_length_range"] == "0-32768"


def test_every_code_has_words() -> None:
    from fleetopt.cli.plan_text import BASELINES, BINDINGS, REASONS

    assert set(REASONS) == set(ReasonCode)
    assert set(BASELINES) == set(BaselineName)
    assert set(BINDINGS) == set(Binding)


def test_an_assumed_output_share_is_said(cli: Cli, cdf: Path) -> None:
    order = ["plan", cdf, "--arrival-rate", 10, "--slo-ttft-p99", "9s"]
    assert "output share 0.2" in cli(*order).out
    assert "output share" not in cli(*order, "--output-share", "0.2").out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "is a CDF, which has no rate: add --arrival-rate PER_SECOND"),
        (["--arrival-rate", "0"], "--arrival-rate 0.0: expected a number above 0"),
        (["--arrival-rate", "nan"], "--arrival-rate nan"),
        (["--arrival-rate", "1e300"], "--arrival-rate 1e+300: expected a number above 0, up to"),
        (["--arrival-rate", "9", "--node-availability", "1e-300"], "fleet.node_availability"),
        (["--arrival-rate", "9", "--config", "/proc/self/mem"], "can't read /proc/self/mem"),
        (["--arrival-rate", "9", "--slo-ttft-p99", "fast"], "slo_ttft_p99 is 'fast'; expected"),
        (["--arrival-rate", "9", "--profile", "nope"], "no engine profile 'nope'"),
        (["--arrival-rate", "9", "--boundary", "2000"], "not a bin edge; the nearest are"),
        (["--arrival-rate", "9", "--max-utilization", "2"], "fleet.max_utilization"),
        (["--arrival-rate", "9", "--output-share", "2"], "--output-share"),
        (["--arrival-rate", "9", "--admission", "all"], "--admission"),
        (["--arrival-rate", "9", "--profiles", "no.toml"], "no.toml"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(
    cli: Cli, cdf: Path, options: list[str], says: str
) -> None:
    done = cli("plan", cdf, *options)
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert says in done.err


def test_a_trace_needs_no_output_share(cli: Cli, trace: Path) -> None:
    done = cli("plan", trace, "--output-share", "0.2")
    assert done.code == 2
    assert "--output-share is for a CDF" in done.err


def test_a_damaged_cdf_is_one_line_with_its_place(cli: Cli, cdf: Path) -> None:
    cdf.write_text("[[512, 0.4], [256, 1.0]]")
    done = cli("plan", cdf, "--arrival-rate", 5)
    assert done.code == 1
    assert "$[1][0] is 256, after 512" in done.err


@pytest.mark.parametrize("stray_s", ["5", "99999999999"])
def test_a_stray_time_does_not_thin_the_rates(cli: Cli, trace: Path, stray_s: str) -> None:
    trace.write_text(trace.read_text() + f"{stray_s},100,10\n")
    done = cli("plan", trace, "--slo-ttft-p99", "5s")
    assert done.code == 1
    assert "more than 100" in done.err
    assert "is a time stamp wrong?" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_pipe_is_a_file(cli: Cli, trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.write_bytes(trace.read_bytes()))
    writer.start()
    done = cli("plan", pipe, "--slo-ttft-p99", "5s")
    writer.join()
    assert done.code == 0


def test_fleets_of_a_trace_are_planned_one_at_a_time(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = (
        '{"fleet":"%s","request_id":"1","arrival_s":%d,"prompt_tokens":500,"completion_tokens":9}\n'
    )
    path.write_text("".join(line % ("ab"[at % 3 == 0], 10**9 + at) for at in range(300)))
    both = cli("plan", path)
    assert both.code == 2
    assert "requests of 2 fleets (a, b): choose one with --fleet" in both.err
    one = cli("plan", path, "--fleet", "a", "--output", "json")
    assert json.loads(one.out)["traffic"]["requests"] == 200
    assert "no requests of fleet c, only of a, b" in cli("plan", path, "--fleet", "c").err


def test_settings_hold_until_an_option_says_otherwise(
    cli: Cli, trace: Path, tmp_path: Path
) -> None:
    config = tmp_path / "f.yaml"
    config.write_text(
        "fleet: {slo_ttft_p99: 5s, gamma_max: 1.5, short_profile: h100/qwen3-32b/tp4}\n"
        "fleets: {chat: {slo_ttft_p99: 6s}}\n"
    )

    def request(*options: str) -> dict[str, Any]:
        done = cli("plan", trace, "--config", config, "--output", "json", *options)
        found: dict[str, Any] = json.loads(done.out)["request"]
        return found

    plain = request()
    assert (plain["slo_ttft_p99"], plain["gamma_max"]) == ("5s", 1.5)
    assert plain["short_profile"] == "h100/qwen3-32b/tp4"
    assert request("--fleet", "chat")["slo_ttft_p99"] == "6s"
    assert request("--fleet", "chat", "--slo-ttft-p99", "7s")["slo_ttft_p99"] == "7s"
    named = request("--profile", "h100/qwen3-32b/tp8")
    assert named["short_profile"] == named["long_profile"] == "h100/qwen3-32b/tp8"


def test_requests_without_tokens_count_as_arrivals_only(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{10**9 + at},{0 if at % 4 == 0 else 800},20\n" for at in range(600))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    traffic = json.loads(cli("plan", path, "--output", "json").out)["traffic"]
    assert (traffic["requests"], traffic["unmeasured_requests"]) == (600, 150)
    assert traffic["measured_arrivals"]["mean_per_s"] == pytest.approx(1.0)
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1000000000,0,0\n")
    assert "no request says how many tokens" in cli("plan", path).err


def test_mean_peak_and_planned_rate_are_printed_with_the_method(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "rising.csv"
    per_minute = [60 + 4 * at for at in range(50)] + [1]
    rows = "".join(
        f"{10**9 + minute * 60 + at * 60 / count:.3f},800,20\n"
        for minute, count in enumerate(per_minute)
        for at in range(count)
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    traffic = json.loads(cli("plan", path, "--output", "json").out)["traffic"]
    measured = traffic["measured_arrivals"]
    assert measured["mean_per_s"] < measured["peak_per_s"] < measured["planned_per_s"]
    assert traffic["arrival_rate_per_s"] == measured["planned_per_s"]
    forecast = measured["forecast"]
    assert (forecast["method"], forecast["reason"]) == ("damped_trend", "backtest")
    assert (forecast["horizon_s"], forecast["quantile"]) == (600.0, 0.95)
    losses = {one["method"]: one["loss_per_s"] for one in forecast["candidates"]}
    assert losses["damped_trend"] < losses["recent_level"]
    shown = cli("plan", path).out
    assert f"planned {measured['planned_per_s']:,.4g}/s by a damped trend" in shown
    assert "next 10 minutes with 95% probability" in shown
    given = cli("plan", path, "--arrival-rate", 3).out
    assert f"peak {measured['peak_per_s']:.3g}/s, planned 3/s as given" in given


def test_a_trace_is_planned_for_at_least_its_own_peak(cli: Cli, shared_data: Path) -> None:
    path = shared_data / "traces" / "azure_llm_2023_conv.csv"
    measured = json.loads(cli("plan", path, "--slo-ttft-p99", "2s", "--output", "json").out)[
        "traffic"
    ]["measured_arrivals"]
    assert measured["forecast"]["reason"] == "history_needs_more"
    assert measured["mean_per_s"] < measured["planned_per_s"] < measured["peak_per_s"]


def test_the_reference_row_of_the_issue(cli: Cli, shared_data: Path) -> None:
    done = cli("plan", shared_data / "cdf" / "azure_cdf.json", "--arrival-rate", "1000",
               "--slo-ttft-p99", "60s", *PAPER, "--admission", "reserved", "--output-share", "0.2",
               "--gamma-max", "2", "--compressible-share", "0.75", "--compression-penalty", "0",
               "--output", "json")  # fmt: skip
    result = json.loads(done.out)
    assert result["plan"]["gpus"] == pytest.approx(103, abs=2)
    gpus = {baseline["name"]: baseline["gpus"] for baseline in result["baselines"]}
    assert gpus["one_pool_reserved"] == pytest.approx(282, abs=1)
    assert gpus["two_pools_no_compression"] == pytest.approx(113, abs=2)


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """Requests whose gateway logged what was cached, but for every fourth."""
    path = tmp_path / "t.jsonl"
    with path.open("w") as file:
        for at in range(2_000):
            row = {
                "fleet": "f",
                "request_id": str(at),
                "arrival_s": 1_700_000_000 + at / 20,
                "prompt_tokens": 4_000,
                "completion_tokens": 20,
            }
            cached = {} if at % 4 == 0 else {"cached_prompt_tokens": 2_000}
            file.write(json.dumps(row | cached) + "\n")
    return path


def test_what_was_logged_as_cached_is_not_paid_for(cli: Cli, logged: Path) -> None:
    order = ["plan", logged, "--arrival-rate", 200, "--slo-ttft-p99", "60s"]
    warm = json.loads(cli(*order, "--output", "json").out)
    cold = json.loads(cli(*order, "--cached-share", 0, "--output", "json").out)
    assert warm["traffic"]["cached_prompt_share"] == 0.375
    assert warm["traffic"]["cache_known_share"] == 0.75
    assert cold["traffic"]["cached_prompt_share"] == 0.0
    assert warm["plan"]["cost_usd_per_h"] < cold["plan"]["cost_usd_per_h"]
    assert "of prompt tokens" not in cli(*order, "--cached-share", 0).out
    text = cli(*order).out
    assert "37.5 % of prompt tokens come from the prefix cache" in text
    assert "known of 75.0 % of requests" in text
    explained = json.loads(cli(*order, "--explain", "--output", "json").out)["explanation"]
    assert {"cached_share", "arrival_rate_per_s"} <= {
        one["premise"] for one in explained["sensitivities"]
    }
    assert "cached prompt tokens" in cli(*order, "--explain").out


def test_a_cached_share_is_a_premise_for_what_does_not_say_it(cli: Cli, cdf: Path) -> None:
    order = ["--arrival-rate", 500, "--output-share", 0.05, "--slo-ttft-p99", "60s"]
    costs = []
    for command, at in (("plan", "plan"), ("whatif", "rows")):
        for more in ([], ["--cached-share", 0.5]):
            done = cli(command, cdf, *order, *more, "--output", "json")
            assert done.code == 0
            result = json.loads(done.out)
            found = result[at][0] if at == "rows" else result[at]
            costs.append(found["cost_usd_per_h"])
            assumed = " ".join(result["traffic"]["assumptions"])
            assert ("50 % of every prompt" in assumed) == bool(more)
    assert costs[:2] == costs[2:]
    assert costs[1] < costs[0]
    assert cli("plan", cdf, *order, "--cached-share", 1.5).code == 2
