"""Settings: every key described, the example complete, the sources in order, mistakes named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import fleetopt.config
from fleetopt.config.settings import Settings, load_settings
from fleetopt.errors import ConfigError

EXAMPLE = Path(fleetopt.config.__file__).parent / "example.yaml"


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}", field
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{prefix}{name}.")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("FLEETOPT_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleetopt.yaml"


def test_every_key_has_a_description() -> None:
    bare = [path for path, field in fields(Settings) if not (field.description or "").strip()]
    assert not bare


def test_the_example_names_every_key_and_gives_its_default() -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    expected = Settings().model_dump(mode="json")
    assert document == expected


def test_the_example_explains_every_key() -> None:
    keys = [
        line for line in EXAMPLE.read_text().splitlines() if line.startswith("  ") and ":" in line
    ]
    assert keys
    assert all("  # " in line for line in keys)


def test_arguments_win_over_variables_over_the_file_over_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("kafka: {topic: in-file, group: in-file, partitions: 3}\n")
    monkeypatch.setenv("FLEETOPT_KAFKA__TOPIC", "in-variable")
    monkeypatch.setenv("FLEETOPT_KAFKA__GROUP", "in-variable")
    kafka = load_settings(file, kafka={"topic": "argument"}).kafka
    assert (kafka.topic, kafka.group, kafka.partitions) == ("argument", "in-variable", 3)
    assert kafka.retention_s == Settings().kafka.retention_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka: {partitions: 0}", r"kafka\.partitions: .*greater than or equal to 1, got 0"),
        ("kafka: {partitions: many}", r"kafka\.partitions: .*valid integer.*got 'many'"),
        ("kafka: {topics: x}", r"kafka\.topics: no such setting"),
        ("kafak: {}", r"kafak: no such setting"),
        ("window: 3", r"window: expected settings by name, got 3"),
        ("fleets: {a: 3}", r"fleets\.a: expected settings by name, got 3"),
        ("fleet: {admission: hopeful}", r"fleet\.admission: .*'statistical' or 'reserved'"),
        ("ingest: {flush_interval_s: .inf}", r"ingest\.flush_interval_s: .*finite.*got inf"),
        ("window: {allowed_lateness_s: .nan}", r"window\.allowed_lateness_s: .*got nan"),
        ("fleets: {a: {gamma_max: 0}}", r"fleets\.a\.gamma_max: .*got 0"),
        ("fleets: {a: {gama: 0}}", r"fleets\.a\.gama: no such setting"),
        ("fleet: {prices_usd_per_gpu_h: {h100: 0}}", r"prices_usd_per_gpu_h\.h100: .*got 0"),
        ("fleet: {carbon_g_per_kwh: -3}", r"carbon_g_per_kwh\.default: .*got -3"),
        ("fleet: {carbon_g_per_kwh: .nan}", r"carbon_g_per_kwh\.default: .*got nan"),
        ("fleet: {minimise: water}", r"fleet\.minimise: .*got 'water'"),
        ("- 1", r"not a YAML mapping of settings"),
        ("a: [", r"not a YAML mapping of settings"),
    ],
)
def test_a_mistake_is_one_error_with_file_and_path(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"(?s){file}.*{message}"):
        load_settings(file)


def test_a_variable_is_named_by_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETOPT_WINDOW__SLICES", "1")
    with pytest.raises(ConfigError, match=r"window\.slices: .*got '1'"):
        load_settings()


def test_a_wrong_setting_is_put_down_to_where_it_came_from(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("fleet: {gamma_max: 2}\n")
    with pytest.raises(ConfigError, match=r"^fleet\.gamma_max: .*got 99"):
        load_settings(file, fleet={"gamma_max": 99})
    monkeypatch.setenv("FLEETOPT_FLEET__GAMMA_MAX", "9")
    with pytest.raises(ConfigError, match=r"^FLEETOPT_FLEET__GAMMA_MAX: fleet\.gamma_max: .*'9'"):
        load_settings(file)
    monkeypatch.setenv("FLEETOPT_FLEET__GAMMA_MAX", "3")
    file.write_text("fleet: {gamma_max: 2, min_replicas: 0}\n")
    with pytest.raises(ConfigError, match=rf"^{file}: fleet\.min_replicas: .*got 0"):
        load_settings(file)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("FLEETOPT_FLEET", "x", r"^FLEETOPT_FLEET is 'x'; expected a JSON object, or a variable"),
        ("fleetopt_fleet", "", r"^fleetopt_fleet is ''; expected a JSON object"),
        ("FLEETOPT_FLEETS", '{"a":', r"of its settings: FLEETOPT_FLEETS__CHAT__PROFILE$"),
        ("FLEETOPT_FLEET", "3", r"^FLEETOPT_FLEET: fleet: expected settings by name, got 3"),
        ("FLEETOPT_FLEETS__a", "x", r"^FLEETOPT_FLEETS__a: fleets\.a: expected settings by name"),
        ("FLEETOPT_FLEET__NOPE", "1", r"^FLEETOPT_FLEET__NOPE: fleet\.nope: no such setting"),
        ("FLEETOPT_FLEETS__a__gamma_max", "99", r"fleets\.a\.gamma_max: .*got '99'"),
    ],
)
def test_a_variable_that_is_wrong_is_named_with_what_it_held(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, message: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=message):
        load_settings()


def test_only_retention_may_be_without_end(file: Path) -> None:
    file.write_text("kafka: {retention_s: .inf}")
    assert load_settings(file).kafka.retention_s == float("inf")


def test_a_file_that_is_not_there_is_an_error(file: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load_settings(file)


def test_an_empty_file_changes_nothing(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert load_settings(file).model_dump() == Settings().model_dump()


def test_a_fleet_has_the_base_with_its_own_overrides(file: Path) -> None:
    file.write_text(
        "fleet: {gamma_max: 1.5, min_replicas: 2}\nfleets: {a: {min_replicas: 4}, b: {}}\n"
    )
    settings = load_settings(file)
    assert settings.for_fleet("a").min_replicas == 4
    assert settings.for_fleet("a").gamma_max == 1.5
    assert settings.for_fleet("b") == settings.for_fleet("other") == settings.fleet


def test_a_figure_by_gpu_may_be_a_number_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("fleet: {carbon_g_per_kwh: 350, prices_usd_per_gpu_h: {h100: 2.1, a100: 1.2}}")
    fleet = load_settings(file).fleet
    assert fleet.carbon_g_per_kwh == {"default": 350.0}
    assert fleet.prices_usd_per_gpu_h == {"h100": 2.1, "a100": 1.2}
    monkeypatch.setenv("FLEETOPT_FLEET__CARBON_G_PER_KWH", "40")
    monkeypatch.setenv("FLEETOPT_FLEET__PRICES_USD_PER_GPU_H", '{"h100": 0.9}')
    fleet = load_settings(file).fleet
    assert fleet.carbon_g_per_kwh == {"default": 40.0}
    assert fleet.prices_usd_per_gpu_h == {"h100": 0.9, "a100": 1.2}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("rediss://user:hunter2@host:6379/0", "rediss://***@host:6379/0"),
        ("redis://:a@b:c/d@host/0", "redis://***@host/0"),
        ("redis://host/0?password=hunter2&protocol=3", "redis://host/0?password=***&protocol=3"),
        ("host:6379", "host:6379"),
    ],
)
def test_a_redis_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert load_settings(redis={"url": url}).redis.shown_url == shown


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(load_settings().kafka, "topic", "other")  # noqa: B010


def test_a_fleets_figures_by_gpu_add_to_those_of_the_base(file: Path) -> None:
    file.write_text(
        "fleet: {prices_usd_per_gpu_h: {h100: 2.0, a100: 1.0}, carbon_g_per_kwh: {h100: 300}}\n"
        "fleets: {chat: {prices_usd_per_gpu_h: {h100: 1.5}, carbon_g_per_kwh: 40}}\n"
    )
    chat = load_settings(file).for_fleet("chat")
    assert chat.prices_usd_per_gpu_h == {"h100": 1.5, "a100": 1.0}
    assert chat.carbon_g_per_kwh == {"h100": 300.0, "default": 40.0}
    assert load_settings(file).fleet.prices_usd_per_gpu_h == {"h100": 2.0, "a100": 1.0}
