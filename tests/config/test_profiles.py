"""The catalogue: what ships is valid and agrees with its source; what a user adds is checked."""

import json
from pathlib import Path

import pytest

from fleetopt.config.profiles import load_catalogue, load_profile
from fleetopt.errors import ConfigError

SILICON = Path(__file__).parents[3] / "shared/data/profiles/silicon_profiles.json"

OWN = """
[gpus.h100]
price_usd_per_gpu_h = 1.5

[profiles."mi300x/qwen3-32b/tp1"]
gpu = "mi300x"
model = "Qwen3-32B"
gpus_per_replica = 1
base_iteration_s = 0.02
per_context_token_s = 4e-8
prefill_token_s = 5e-5
kv_capacity_tokens = 500000
price_usd_per_gpu_h = 2.5
"""


def test_the_papers_profile_has_the_papers_slots() -> None:
    paper = load_profile("a100/llama-3-70b/paper")
    assert paper.price_usd_per_replica_h == 2.21
    assert [paper.slots_reserved(tokens) for tokens in (8192, 65536, 1536)] == [128, 16, 682]


def test_every_shipped_profile_names_its_source_and_has_a_price() -> None:
    catalogue = load_catalogue()
    assert len(catalogue) == 28
    assert all(profile.source and profile.price_usd_per_gpu_h > 0 for profile in catalogue.values())
    assert all(name == name.lower() == profile.name for name, profile in catalogue.items())


@pytest.mark.shared_data
@pytest.mark.skipif(not SILICON.exists(), reason="../shared/data is not here")
def test_the_silicon_profiles_are_the_fitted_ones() -> None:
    catalogue = load_catalogue()
    for fitted in json.loads(SILICON.read_text())["profiles"]:
        name = f"{fitted['gpu']}/{fitted['model'].lower()}/tp{fitted['tensor_parallel']}"
        shipped = catalogue[name]
        assert shipped.gpus_per_replica == fitted["tensor_parallel"]
        assert shipped.prefill_chunk_tokens == 2048
        for field in (
            "base_iteration_s",
            "per_sequence_s",
            "per_context_token_s",
            "prefill_token_s",
            "prefill_token_context_s",
            "kv_capacity_tokens",
        ):
            assert getattr(shipped, field) == fitted[field], (name, field)


def test_an_own_file_adds_profiles_and_sets_prices(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(OWN)
    catalogue = load_catalogue(file)
    assert catalogue["mi300x/qwen3-32b/tp1"].price_usd_per_gpu_h == 2.5
    assert catalogue["h100/qwen3-32b/tp2"].price_usd_per_replica_h == 3.0
    assert load_profile("mi300x/qwen3-32b/tp1", file) == catalogue["mi300x/qwen3-32b/tp1"]
    assert load_catalogue()["h100/qwen3-32b/tp2"].price_usd_per_gpu_h != 1.5


def test_power_is_the_gpus_unless_the_profile_has_its_own(tmp_path: Path) -> None:
    shipped = load_catalogue()
    assert shipped["h100/qwen3-32b/tp2"].max_power_w == 700.0
    assert all(profile.idle_power_w is None for profile in shipped.values())
    assert all(profile.carbon_g_per_kwh is None for profile in shipped.values())
    file = tmp_path / "own.toml"
    file.write_text(
        "[gpus.h100]\nidle_power_w = 80.0\n[gpus.mi300x]\nmax_power_w = 750.0\n"
        "carbon_g_per_kwh = 50.0\n" + OWN.split("\n\n", 1)[1] + "max_power_w = 500.0\n"
    )
    catalogue = load_catalogue(file)
    h100, own = catalogue["h100/qwen3-32b/tp2"], catalogue["mi300x/qwen3-32b/tp1"]
    assert (h100.idle_power_w, h100.max_power_w) == (80.0, 700.0)
    assert h100.price_usd_per_gpu_h == shipped["h100/qwen3-32b/tp2"].price_usd_per_gpu_h
    assert (own.idle_power_w, own.max_power_w, own.carbon_g_per_kwh) == (None, 500.0, 50.0)


def test_an_unknown_profile_lists_close_names() -> None:
    with pytest.raises(ConfigError, match="h100/qwen3-32b/tp2"):
        load_profile("H100/Qwen-32B/tp2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profiles.x", "own.toml"),
        (OWN.replace("gpus_per_replica = 1", "gpus = 1"), "gpus"),
        (OWN.replace("= 0.02", "= -0.02"), "mi300x/qwen3-32b/tp1.base_iteration_s is -0.02"),
        (OWN.replace("= 0.02", "= nan"), "base_iteration_s is nan"),
        (OWN.replace("= 500000", "= 0"), "kv_capacity_tokens is 0"),
        (
            OWN.replace("500000", '"many"'),
            r"own.toml: profiles.mi300x/qwen3-32b/tp1.kv_capacity_tokens is 'many'; expected `int`",
        ),
        (
            OWN.replace("base_iteration_s = 0.02", ""),
            r"own.toml: profiles.mi300x/qwen3-32b/tp1: .*missing required field `base_iteration_s`",
        ),
        (OWN + "speed = 3\n", r"profiles.mi300x/qwen3-32b/tp1: .*unknown field `speed`"),
        (
            "[gpus.h100]\nprice_usd_per_gpu_h = nan",
            r"own.toml: gpus.h100.price_usd_per_gpu_h is nan",
        ),
        (
            "[gpus.h100]\nmax_power_w = -1",
            r"own.toml: gpus.h100.max_power_w is -1.0; expected a fin",
        ),
        ("[gpu.h100]\nprice_usd_per_gpu_h = 1", r"own.toml: .*unknown field `gpu`"),
        (OWN.replace("price_usd_per_gpu_h = 2.5", ""), "no price_usd_per_gpu_h"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_catalogue(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_catalogue(tmp_path / "absent.toml")
