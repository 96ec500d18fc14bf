"""`fleetopt profile`: from timings or figures to a file that a plan is made with at once."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from itertools import product
from pathlib import Path

import pytest

from fleetopt.config.profiles import load_catalogue, load_profile
from tests.cli.conftest import Cli

NAME = "mi300x/qwen3-32b/tp2"
W, H, K, P, C = 0.0134, 2.6e-5, 4.2e-8, 4.7e-5, 2.6e-9
HEADER = "gpu,model,tensor_parallel,kind,context_tokens,batch,milliseconds"


def points(slower: float = 1.0, engine: str = "MI300X,Qwen3-32B,2") -> str:
    rows = [
        f"{engine},decode,{context},{k},{1e3 * slower * (W + k * (H + K * context))}"
        for context, k in product((528, 8208), (1, 32, 128))
    ] + [
        f"{engine},prefill,{n},1,{1e3 * slower * (0.006 + P * n + C * n * n / 2)}"
        for n in (512, 2048, 8192)
    ]
    return "\n".join(rows) + "\n"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    path.write_text(f"{HEADER}\n{points()}")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    rows = "".join(
        f"{1_700_000_000 + at / 20},{300 + at * 7919 % 3_000},{50 + at % 200}\n"
        for at in range(3_000)
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    return path


def test_a_fitted_file_is_planned_with_at_once(cli: Cli, csv: Path, trace: Path) -> None:
    own = csv.with_suffix(".toml")
    fitted = cli("profile", "fit", csv, "--kv-capacity", 500_000, "--price", 2.5, "-o", own)
    assert (fitted.code, fitted.out) == (0, "")
    assert f"1 profile written to {own}" in fitted.err
    done = cli("plan", trace, "--profiles", own, "--profile", NAME, "--arrival-rate", 400,
               "--slo-ttft-p99", "2s", "--output", "json")  # fmt: skip
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["request"]["short_profile"] == NAME
    assert load_profile(NAME, own).base_iteration_s == pytest.approx(W, rel=1e-5)
    plan = result["plan"]
    assert plan["cost_usd_per_h"] == pytest.approx(
        plan["gpus"] * 2.5 + plan["compression_usd_per_h"]
    )


def test_measurements_of_ones_own_override_the_catalogue(
    cli: Cli, tmp_path: Path, trace: Path
) -> None:
    """The same engine measured at half the speed takes about twice the GPUs."""
    csv, own = tmp_path / "slow.csv", tmp_path / "slow.toml"
    csv.write_text(f"{HEADER}\n{points(2.0, 'h100,Qwen3-32B,2')}")
    done = cli("profile", "fit", csv, "-o", own)
    assert "KV capacity is the catalogue's for 1 of 1" in done.err
    command = ("plan", trace, "--profile", "h100/qwen3-32b/tp2", "--arrival-rate", 400,
               "--slo-ttft-p99", "10s", "--output", "json")  # fmt: skip
    gpus = [
        json.loads(cli(*command, *more).out)["plan"]["gpus"] for more in ((), ("--profiles", own))
    ]
    assert 1.8 * gpus[0] < gpus[1] < 2.2 * gpus[0]


def test_every_form_says_the_same(cli: Cli, csv: Path) -> None:
    command = ("profile", "fit", csv, "--kv-capacity", f"{NAME}=500000", "--price", "mi300x=2.5")
    (told,) = json.loads(cli(*command, "--output", "json").out)
    entry = tomllib.loads(cli(*command, "--output", "toml").out)["profiles"][NAME]
    shown = cli(*command).out
    assert told["name"] == NAME
    assert told["kv_capacity_tokens"] == entry["kv_capacity_tokens"] == 500_000
    for field, truth in (
        ("base_iteration_s", W),
        ("per_sequence_s", H),
        ("per_context_token_s", K),
        ("prefill_token_s", P),
        ("prefill_token_context_s", C),
    ):
        assert told[field]["value"] == pytest.approx(truth)
        assert 0 <= told[field]["standard_error"] < 1e-6 * truth
        assert entry[field] == pytest.approx(truth, rel=1e-5)
    assert told["decode_max_relative_error"] < 1e-9
    assert entry["price_usd_per_gpu_h"] == 2.5
    assert NAME in shown
    assert "13.4 ±0%" in shown


def test_what_timings_do_not_tell_is_null_or_asked_for(cli: Cli, csv: Path) -> None:
    (told,) = json.loads(cli("profile", "fit", csv, "--output", "json").out)
    assert told["kv_capacity_tokens"] is None
    lacking = cli("profile", "fit", csv, "--output", "toml")
    assert (lacking.code, lacking.out) == (2, "")
    assert f"{NAME}: timings don't tell its KV capacity; give --kv-capacity" in lacking.err
    unpriced = cli("profile", "fit", csv, "--output", "toml", "--kv-capacity", 500_000)
    assert unpriced.code == 2
    assert "no price of mi300x ships with FleetOpt; give --price" in unpriced.err


def test_engines_can_be_chosen(cli: Cli, tmp_path: Path) -> None:
    csv = tmp_path / "two.csv"
    csv.write_text(f"{HEADER}\n{points()}{points(1.0, 'h100,Qwen3-32B,2')}")
    told = json.loads(cli("profile", "fit", csv, "--only", "H100/*", "--output", "json").out)
    assert [engine["name"] for engine in told] == ["h100/qwen3-32b/tp2"]
    none = cli("profile", "fit", csv, "--only", "b200/*")
    assert none.code == 2
    assert f"fits no engine; there are {NAME}, h100/qwen3-32b/tp2" in none.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kv-capacity", "many"], "--kv-capacity 'many': expected a number > 0"),
        (["--price", "mi300x=-1"], "--price 'mi300x=-1': expected a number > 0"),
        (["--prefill-chunk", "0"], "prefill-chunk"),
    ],
)
def test_wrong_options_are_usage_errors(
    cli: Cli, csv: Path, arguments: list[str], message: str
) -> None:
    done = cli("profile", "fit", csv, *arguments)
    assert done.code == 2
    assert message in done.err


def test_a_missing_kind_of_timing_is_named_with_its_engine(cli: Cli, csv: Path) -> None:
    lines = csv.read_text().splitlines()
    csv.write_text("\n".join(line for line in lines if "prefill" not in line))
    done = cli("profile", "fit", csv)
    assert done.code == 1
    assert f"{NAME}: too few timings: there are no prefill timings" in done.err


def test_bad_rows_and_files_are_one_line(cli: Cli, csv: Path, tmp_path: Path) -> None:
    csv.write_text(csv.read_text().replace(",1,", ",one,", 1))
    bad = cli("profile", "fit", csv)
    assert bad.code == 1
    assert "line 2: batch is 'one'" in bad.err
    assert cli("profile", "fit", tmp_path / "none.csv").code == 2
    csv.write_text(f"{HEADER}\n{points()}")
    unwritable = cli("profile", "fit", csv, "--kv-capacity", 1, "--price", 1, "-o", tmp_path)
    assert unwritable.code == 2
    assert f"can't write {tmp_path}" in unwritable.err


def test_standard_input_is_read(shell: Cli) -> None:
    done = shell("profile", "fit", "-", "--output", "json", stdin=f"{HEADER}\n{points()}")
    assert json.loads(done.out)[0]["name"] == NAME


def test_an_estimate_is_planned_with_at_once(cli: Cli, tmp_path: Path, trace: Path) -> None:
    own = tmp_path / "estimate.toml"
    done = cli(
        "profile", "from-hardware", "--gpu", "L40S", "--memory-gb", 48,
        "--bandwidth-gb-per-s", 864, "--tflops", 181, "--link-gb-per-s", 32,
        "--model", "llama-3.1-8b", "--price", 0.9, "-o", own,
    )  # fmt: skip
    assert done.code == 0, done.err
    profile = load_profile("l40s/llama-3.1-8b/tp1", own)
    assert profile.price_usd_per_gpu_h == 0.9
    assert 16.06 / 864 < profile.base_iteration_s < 2 * 16.06 / 864
    plan = cli("plan", trace, "--profiles", own, "--profile", profile.name, "--arrival-rate", 50,
               "--slo-ttft-p99", "5s")  # fmt: skip
    assert plan.code == 0


def test_figures_given_replace_those_that_ship(cli: Cli) -> None:
    command = ("profile", "from-hardware", "--gpu", "h100", "--model", "Qwen3-32B", "--tp", 2)
    plain = json.loads(cli(*command, "--output", "json").out)
    quicker = json.loads(cli(*command, "--tflops", 2 * 989.4, "--output", "json").out)
    assert plain["model"] == "Qwen3-32B"
    assert plain["price_usd_per_gpu_h"] == load_catalogue()[plain["name"]].price_usd_per_gpu_h
    assert quicker["prefill_token_context_s"] == pytest.approx(plain["prefill_token_context_s"] / 2)
    assert quicker["base_iteration_s"] == plain["base_iteration_s"]
    assert "284,118 tokens" in cli(*command).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "tpu", "--model", "qwen3-32b"], "no figures of tpu ship.*--memory-gb, --band"),
        (["--gpu", "h100", "--model", "gpt"], "no figures of gpt ship.*--weights-gb, --parameters"),
        (["--gpu", "h100", "--model", "llama-3.1-70b"], "it fits 3 GPUs or more"),
        (["--gpu", "h100", "--model", "qwen3-32b", "--tflops", "0"], "flops_per_s is 0"),
    ],
)
def test_what_can_not_be_estimated_is_said(cli: Cli, arguments: list[str], message: str) -> None:
    done = cli("profile", "from-hardware", *arguments)
    assert done.code == 2
    assert re.search(message, done.err), done.err


def test_a_profile_shown_as_toml_loads_as_itself(cli: Cli, tmp_path: Path) -> None:
    own = tmp_path / "copy.toml"
    for name, shipped in load_catalogue().items():
        assert cli("profile", "show", name, "-o", own).code == 0
        assert load_profile(name, own) == shipped
    assert "13.43 ms" in cli("profile", "show", "h100/qwen3-32b/tp2").out
    assert cli("profile", "show", "h100/nothing").code == 2


def test_list_is_the_profiles_command(cli: Cli) -> None:
    assert cli("profile", "list").out == cli("profiles").out
    assert cli("profile").code == 2


def test_an_import_without_the_package_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator", None)
    done = cli("profile", "import-aiconfigurator", "--gpu", "h100", "--model", "Qwen/Qwen3-32B")
    assert done.code == 2
    assert "aiconfigurator is not installed" in done.err
