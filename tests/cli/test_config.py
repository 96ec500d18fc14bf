"""`fleetopt config` and `fleetopt profiles`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetopt.config.profiles import load_catalogue
from fleetopt.config.settings import Settings
from tests.cli.conftest import Cli


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "f.yaml"


def test_a_good_file_is_ok(cli: Cli, file: Path) -> None:
    file.write_text("kafka: {topic: t, partitions: 8}\nfleets: {a: {gamma_max: 1}}\n")
    done = cli("config", "check", file)
    assert done.code == 0
    assert done.out.startswith(f"{file}: OK; 2 settings differ from their defaults, 1 fleets")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kafka: {partitions: 0}", "kafka.partitions"),
        ("fleet: {profile: nope}", "fleet.profile: there is no engine profile 'nope'"),
        ("fleet: {slo_ttft_p99: soon}", "fleet.slo_ttft_p99 is 'soon'"),
        ("fleets: {a: {slo_ttft_p99: soon}}", "fleets.a.slo_ttft_p99 is 'soon'"),
        (
            "fleets: {a: {long_profile: nope}}",
            "fleets.a.long_profile: there is no engine profile 'nope'",
        ),
        ("profiles: no.toml", "no.toml"),
        ("fleet: {max_replicas: 1, min_replicas: 2}", "fleet.max_replicas is 1; expected ≥ min"),
        (
            "fleet: {max_replicas: 9}\nfleets: {a: {min_replicas: 10}}",
            "fleets.a.max_replicas is 9; expected ≥ min_replicas=10",
        ),
        ("fleet: {minimise: carbon, profile: a100/llama-3-70b/paper}", "fleet: a100/llama-3-70b"),
    ],
)
def test_what_a_worker_would_refuse_is_found(cli: Cli, file: Path, text: str, says: str) -> None:
    file.write_text(text)
    done = cli("config", "check", file)
    assert done.code == 2
    assert says in done.err
    assert done.err.count("\n") == 1


def test_show_says_where_each_setting_comes_from(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("kafka: {topic: mine}\n")
    monkeypatch.setenv("FLEETOPT_KAFKA__GROUP", "ours")
    lines = {
        line.split()[0]: line.split()[1:] for line in cli("config", "show", file).out.splitlines()
        if line.strip()
    }  # fmt: skip
    assert lines["kafka.topic"][0] == "mine"
    assert lines["kafka.group"] == ["ours", "FLEETOPT_KAFKA__GROUP"]
    assert lines["kafka.partitions"] == ["8", "default"]


def test_show_as_json_is_every_setting(cli: Cli) -> None:
    shown = json.loads(cli("config", "show", "--output", "json").out)
    assert shown == Settings().model_dump(mode="json")


def test_a_password_is_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETOPT_REDIS__URL", "rediss://user:hunter2@host:6379/0")
    for options in ([], ["--output", "json"]):
        done = cli("config", "show", *options)
        assert "hunter2" not in done.out
        assert "host:6379/0" in done.out


def test_profiles_are_listed(cli: Cli) -> None:
    catalogue = load_catalogue()
    table = cli("profiles").out
    listed = json.loads(cli("profiles", "--output", "json").out)
    assert [profile["name"] for profile in listed] == list(catalogue)
    assert all(name in table for name in catalogue)


def test_a_variable_that_is_no_setting_is_remarked_on(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETOPT_FLEET_GAMMA_MAX", "1")
    done = cli("config", "check")
    assert done.code == 0
    assert "FLEETOPT_FLEET_GAMMA_MAX is no setting and plays no part" in done.err
    assert "did you mean FLEETOPT_FLEET__GAMMA_MAX?" in done.err


def test_an_engines_key_is_not_shown(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "fleetopt.yaml"
    file.write_text(
        "compressor: {models: {mine: {endpoint: 'http://gpu:8000', api_key: s3cret}}}\n"
    )
    for arguments in ([], ["--output", "json"]):
        done = cli("config", "show", str(file), *arguments)
        assert "http://gpu:8000" in done.out
        assert "s3cret" not in done.out
