"""docker-compose.yml and Dockerfile, held against the Compose format and against our own code.

No Docker engine is needed, so what only an engine can show (that the images exist) is not tested.
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from pydantic import BaseModel

from fleetopt.config.settings import Settings, load_settings
from scripts.apache_kafka import KAFKA_VERSION

PROJECT = Path(__file__).resolve().parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
DOCKERFILE = (PROJECT / "Dockerfile").read_text()


@pytest.fixture(params=list(OURS))
def ours(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each service that runs our own image."""
    return OURS[request.param]


def check_format(compose: dict[str, Any]) -> None:
    """Raise ValueError unless this is a Compose file.

    Takes the parsed file, since YAML's merge keys are resolved by the reader, as Compose does.
    """
    from compose_spec import PyCompose

    PyCompose.from_json(json.dumps(compose))


def volumes(service: dict[str, Any]) -> dict[str, str]:
    """Return source by target of the short form `source:target[:mode]`."""
    return {v.split(":")[1]: v.split(":")[0] for v in service.get("volumes", [])}


class TestFormat:
    def test_it_is_a_valid_compose_file(self) -> None:
        check_format(COMPOSE)

    def test_a_wrong_file_would_be_found(self) -> None:
        broken = json.loads(json.dumps(COMPOSE))
        broken["services"]["worker"]["depends_on"]["kafka"]["condition"] = "service_ready"
        with pytest.raises(ValueError, match="service_ready"):
            check_format(broken)

    def test_dependencies_are_services_and_health_is_asked_of_those_that_have_it(self) -> None:
        for name, service in SERVICES.items():
            for other, how in service.get("depends_on", {}).items():
                assert other in SERVICES, f"{name} depends on {other}"
                if how["condition"] == "service_healthy":
                    assert "healthcheck" in SERVICES[other]

    def test_named_volumes_are_declared_and_all_declared_are_used(self) -> None:
        named = {v for service in SERVICES.values() for v in volumes(service).values()}
        assert {v for v in named if not v.startswith(".")} == set(COMPOSE["volumes"])
        for path in (v for v in named if v.startswith(".")):
            assert (PROJECT / path).exists()

    def test_images_are_pinned(self) -> None:
        for name, service in SERVICES.items():
            assert re.search(r":(\d+\.\d+|local$)", service["image"]), name

    def test_the_broker_is_the_version_that_the_tests_run(self) -> None:
        assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


class TestAgainstTheCode:
    def test_commands_and_their_options_exist(self, ours: dict[str, Any], tmp_path: Path) -> None:
        from fleetopt.cli import app

        (tmp_path / "traffic.jsonl").touch()
        # What lies on a volume in the container lies in a folder here.
        name, *arguments = [word.replace("/traces", str(tmp_path)) for word in ours["command"]]
        group: Any = typer.main.get_command(app)
        # Parses and checks the arguments without running the command.
        with group.commands[name].make_context(name, arguments):
            pass
        with pytest.raises(Exception, match="no-such-option"):
            group.commands[name].make_context(name, [*arguments, "--no-such-option"])

    def test_the_trace_is_read_where_it_was_written(self) -> None:
        written, read = SERVICES["trace"], SERVICES["replay"]
        shared = set(volumes(written).values()) & set(volumes(read).values())
        assert shared
        paths = [
            set(re.findall(r"(?<![\w.])/[\w./-]+", " ".join(service["command"])))
            for service in (written, read)
        ]
        assert paths[0] == paths[1] != set()
        for target in volumes(written):
            assert all(path.startswith(target + "/") for path in paths[0])

    def test_variables_are_settings_with_values_that_are_accepted(
        self, ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable, value in ours["environment"].items():
            model: type[BaseModel] = Settings
            *sections, key = variable.removeprefix("FLEETOPT_").lower().split("__")
            for section in sections:
                inner = model.model_fields[section].annotation
                assert isinstance(inner, type)
                assert issubclass(inner, BaseModel)
                model = inner
            assert variable.startswith("FLEETOPT_")
            assert key in model.model_fields, variable
            monkeypatch.setenv(variable, value)
        settings = load_settings()
        assert settings.kafka.bootstrap_servers == "kafka:19092"
        assert settings.redis.url == "redis://redis:6379/0"

    def test_containers_reach_kafka_at_the_address_that_it_advertises(
        self, ours: dict[str, Any]
    ) -> None:
        environment = SERVICES["kafka"]["environment"]
        advertised = environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
        assert (
            f"INTERNAL://{ours['environment']['FLEETOPT_KAFKA__BOOTSTRAP_SERVERS']}" in advertised
        )

    def test_this_machine_reaches_both_at_the_default_addresses(self) -> None:
        settings = load_settings()
        kafka_port = settings.kafka.bootstrap_servers.rpartition(":")[2]
        assert SERVICES["kafka"]["ports"] == [f"127.0.0.1:{kafka_port}:{kafka_port}"]
        listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
        assert f"EXTERNAL://localhost:{kafka_port}" in listeners
        redis_port = re.search(r":(\d+)/", settings.redis.url)
        assert redis_port is not None
        assert SERVICES["redis"]["ports"] == [f"127.0.0.1:{redis_port[1]}:6379"]

    def test_redis_keeps_what_it_has_and_evicts_nothing(self) -> None:
        command = " ".join(SERVICES["redis"]["command"])
        assert "--appendonly yes" in command
        assert "--maxmemory-policy noeviction" in command
        assert "/data" in volumes(SERVICES["redis"])


class TestImage:
    def test_what_is_copied_exists_and_is_not_ignored(self) -> None:
        sources = [
            source
            for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
            for source in line.split()[:-1]
        ]
        assert sources
        rules = (PROJECT / ".dockerignore").read_text().splitlines()
        rules = [rule for rule in rules if rule and not rule.startswith("#")]
        for source in sources:
            assert (PROJECT / source).exists(), source
            assert not _ignored(source.rstrip("/"), rules), source
        assert _ignored(".venv", rules)
        assert _ignored("tests", rules)

    def test_all_that_the_wheel_needs_is_copied(self) -> None:
        project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
        needed = {project["project"]["readme"], *project["project"]["license-files"]}
        needed |= set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
        copied = re.findall(r"[\w./]+", " ".join(re.findall(r"COPY (.+)", DOCKERFILE)))
        assert needed <= {name.rstrip("/") for name in copied}

    def test_it_does_not_run_as_root(self) -> None:
        users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
        assert users
        assert users[-1] not in {"root", "0", "0:0"}

    def test_its_entry_point_is_our_command_on_a_python_that_we_support(self) -> None:
        project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        entry = json.loads(re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)[0])
        assert entry[0] in project["scripts"]
        least = tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
        for version in re.findall(r"^FROM python:(\d+\.\d+)-slim", DOCKERFILE, re.MULTILINE):
            assert tuple(map(int, version.split("."))) >= least

    def test_it_works_where_compose_lets_it_write(self) -> None:
        folder = re.findall(r"^WORKDIR (\S+)$", DOCKERFILE, re.MULTILINE)[-1]
        for service in OURS.values():
            assert not service["read_only"] or folder in service["tmpfs"]

    def test_it_carries_no_tools_of_development(self) -> None:
        assert "dev" not in re.findall(r"\[([\w,]+)\]", DOCKERFILE)


def _ignored(path: str, rules: list[str]) -> bool:
    """Apply .dockerignore's rules: the last one that matches decides."""
    ignored = False
    for rule in rules:
        pattern = rule.removeprefix("!").rstrip("/")
        if fnmatch.fnmatch(path, pattern):
            ignored = not rule.startswith("!")
    return ignored
