"""Prices, power and carbon on the command line: what is minimised, and what is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

H100, A100 = "h100/qwen3-32b/tp2", "a100/qwen3-32b/tp2"
OWN = """
[profiles."mine/qwen3-32b/tp1"]
gpu = "mine"
model = "Qwen3-32B"
gpus_per_replica = 1
base_iteration_s = 0.02
per_context_token_s = 4e-8
prefill_token_s = 5e-5
kv_capacity_tokens = 500000
price_usd_per_gpu_h = 2.5
"""


@pytest.fixture
def cdf(tmp_path: Path) -> Path:
    path = tmp_path / "cdf.json"
    path.write_text("[[512, 0.4], [2048, 0.9], [32768, 1.0]]")
    return path


def order(cdf: Path, *more: object) -> list[object]:
    return [cdf, "--arrival-rate", "60", "--slo-ttft-p99", "12s", *more]


def json_of(cli: Cli, command: str, *given: object) -> dict[str, Any]:
    done = cli(command, *given, "--output", "json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def cheapest(cli: Cli, cdf: Path, *more: object) -> str:
    rows = json_of(cli, "whatif", *order(cdf, "--profile", f"{H100},{A100}", "--sort", *more))[
        "rows"
    ]
    least: str = rows[0]["long_profile"]
    figures = [row["minimised_per_h"] for row in rows if row["status"] == "ok"]
    assert len(figures) == 4
    assert figures == sorted(figures)
    return least


def test_a_spot_price_flips_the_choice_of_gpu(cli: Cli, cdf: Path) -> None:
    listed = cheapest(cli, cdf)
    assert cheapest(cli, cdf, "--gpu-price", "a100=0.2") == A100
    assert cheapest(cli, cdf, "--gpu-price", "h100=0.2") == H100
    assert listed in (A100, H100)


def test_a_cleaner_grid_flips_the_choice_of_gpu(cli: Cli, cdf: Path) -> None:
    carbon = ("--minimise", "carbon", "--carbon-intensity")
    assert cheapest(cli, cdf, *carbon, "700,a100=20") == A100
    assert cheapest(cli, cdf, *carbon, "700", "--carbon-intensity", "h100=20") == H100


def test_a_plan_costs_what_the_given_price_says(cli: Cli, cdf: Path) -> None:
    found = json_of(cli, "plan", *order(cdf, "--gpu-price", "1.25"))
    plan = found["plan"]
    assert plan["gpu_cost_usd_per_h"] == pytest.approx(plan["gpus"] * 1.25)
    assert found["request"]["prices_usd_per_gpu_h"] == {"h100": 1.25}


def test_power_and_carbon_are_told_as_what_they_are(cli: Cli, cdf: Path) -> None:
    given = order(cdf, "--minimise", "carbon", "--carbon-intensity", "350")
    plan = json_of(cli, "plan", *given)["plan"]
    assert plan["minimised"] == "carbon"
    # The catalogue knows the most that a GPU draws, and not what it draws idle.
    assert plan["power_is_upper_bound"]
    assert plan["power_w"] == pytest.approx(plan["gpus"] * 700)
    assert plan["carbon_kg_per_h"] == pytest.approx(plan["power_w"] / 1000 * 0.35)
    tokens_per_joule = plan["tokens_after_per_s"] / plan["power_w"]
    assert plan["tokens_per_joule"] == pytest.approx(tokens_per_joule)
    said = cli("plan", *given).out
    assert f"at least {tokens_per_joule:.3g} tokens/J" in said
    assert f"least carbon: {plan['minimised_per_h']:.3g} kgCO2e/h" in said
    assert "idle power is unknown" in said
    explained = cli("plan", *given, "--explain").out
    assert "kgCO2e/h" in explained
    assert "USD/h, on average" not in explained


def test_unknown_power_is_said_and_never_a_number(cli: Cli, cdf: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(OWN)
    given = order(cdf, "--profiles", own, "--profile", "mine/qwen3-32b/tp1")
    plan = json_of(cli, "plan", *given)["plan"]
    unknown = ("power_w", "carbon_kg_per_h", "tokens_per_joule")
    assert [plan[name] for name in unknown] == [None] * 3
    said = cli("plan", *given).out
    power = [line.split() for line in said.splitlines() if line.strip().startswith("power ")]
    assert power == [["power"] + ["unknown"] * (1 + (plan["pools"]["long"] is not None))]
    assert "unknown: mine/qwen3-32b/tp1 has no max_power_w" in said
    assert "kgCO2e" not in said
    assert "tokens/J" not in said
    rows = json_of(cli, "whatif", *given)["rows"]
    assert [rows[0][name] for name in unknown] == [None] * 3


def test_own_power_is_shown_with_its_idle_part(cli: Cli, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(OWN + "idle_power_w = 90.0\nmax_power_w = 600.0\n")
    show = ("profile", "show", "mine/qwen3-32b/tp1", "--profiles", own)
    assert "90 W idle to 600 W" in cli(*show).out
    written = tmp_path / "written.toml"
    assert cli(*show, "-o", written).code == 0
    again = cli("profile", "show", "mine/qwen3-32b/tp1", "--profiles", written).out
    assert again == cli(*show).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gpu-price", "h1000=2"), "prices_usd_per_gpu_h.h1000: no engine profile runs on"),
        (("--carbon-intensity", "se=20"), "carbon_g_per_kwh.se: no engine profile runs on"),
        (("--minimise", "carbon"), "h100/qwen3-32b/tp2.carbon_g_per_kwh is unknown"),
        (("--gpu-price", "h100=0"), "--gpu-price 'h100=0': expected a number > 0"),
        (("--gpu-price", "h100=-1"), "--gpu-price 'h100=-1': expected a number > 0"),
        (("--carbon-intensity", "nan"), "--carbon-intensity 'nan': expected a number > 0"),
        (("--gpu-price", "h100=1,"), "--gpu-price '': expected a number > 0"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "whatif"])
def test_a_wrong_price_or_grid_is_one_clear_error(
    cli: Cli, cdf: Path, command: str, options: tuple[str, ...], said: str
) -> None:
    done = cli(command, *order(cdf, *options))
    assert done.code in (1, 2)
    assert done.out == ""
    assert said in " ".join(done.err.split())


def test_carbon_of_an_engine_without_power_is_refused(cli: Cli, cdf: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(OWN)
    done = cli("plan", *order(cdf, "--profiles", own, "--profile", "mine/qwen3-32b/tp1",
                              "--minimise", "carbon", "--carbon-intensity", "350"))  # fmt: skip
    assert done.code != 0
    assert "mine/qwen3-32b/tp1.max_power_w is unknown" in done.err
