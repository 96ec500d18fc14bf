"""What holds for every command: help, exit codes, errors of one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fleetopt.cli import app
from fleetopt.errors import ConfigError, FleetOptError, InputError, ServiceError
from tests.cli.conftest import Cli, clean_environment

COMMANDS = [
    ["plan"],
    ["whatif"],
    ["compress"],
    ["compressor"],
    ["simulate"],
    ["worker"],
    ["replay"],
    ["generate"],
    ["watch"],
    ["up"],
    ["demo"],
    ["profile", "fit"],
    ["profile", "from-hardware"],
    ["profile", "import-aiconfigurator"],
    ["profile", "list"],
    ["profile", "show"],
    ["profiles"],
    ["sieve", "compare"],
    ["sieve", "example"],
    ["sieve", "run"],
    ["sieve", "status"],
    ["config", "check"],
    ["config", "show"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert f"  fleetopt {' '.join(command)}" in result.output


def test_every_command_is_listed_here() -> None:
    root = typer.main.get_command(app)
    listed = [
        [name, *([child] if child else [])]
        for name, command in root.commands.items()  # type: ignore[attr-defined]
        for child in (getattr(command, "commands", None) or [""])
    ]
    assert sorted(listed) == sorted(COMMANDS)


def test_help_does_not_wait_for_heavy_imports() -> None:
    code = (
        "import sys\nfrom fleetopt.cli import main\nmain(['plan', '--help'])\n"
        "print(sorted({'numpy', 'scipy', 'faust', 'aiokafka', 'redis', 'pydantic_settings'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["plan"], "missing argument 'FILE'"),
        (["replay", "x.csv", "--nope"], "no such option: --nope"),
        (["bogus"], "no such command 'bogus'"),
        (["plan", "no-such-file.csv"], "no-such-file.csv: there is no such file"),
        (["replay", "."], ".: is a folder"),
        (["generate", "--archetype", "flat"], "'flat' is not one of 'concentrated-below'"),
        (["watch", "--count", "0"], "--count"),
        (["watch", "--config", "no-such.yaml"], "no configuration file no-such.yaml"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(cli: Cli, args: list[str], says: str) -> None:
    done = cli(*args)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert says in done.err


@pytest.mark.parametrize("args", [[], ["config"]])
def test_no_command_shows_the_commands(cli: Cli, args: list[str]) -> None:
    done = cli(*args)
    assert done.code == 2
    assert "Commands:" in done.err


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out.startswith("fleetopt 0.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a b"), 2),
        (InputError("a b"), 1),
        (ServiceError("a\nb"), 1),
        (FleetOptError("a b"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("fleetopt.config.settings.load_settings", fail)
    done = cli("config", "check")
    assert done.code == code
    assert done.err == ("" if code == 130 else "error: a b\n")


def test_a_closed_pipe_ends_quietly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetopt", "generate", "--archetype", "dispersed",
         "--duration", "5000", "--rate", "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(30) == 1
    assert errors == b""


def run_in_shell(redirection: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m fleetopt profiles {redirection}"
    return subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        env=clean_environment(**variables),
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_is_one_line() -> None:
    done = run_in_shell("> /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("error: No space left on device")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&-"])
def test_streams_may_be_closed(redirection: str) -> None:
    done = run_in_shell(redirection)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_terminal_of_ascii_only_loses_characters_not_the_result() -> None:
    done = run_in_shell("", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "h100/qwen3-32b/tp2" in done.stdout


def test_nothing_is_coloured_where_there_is_no_terminal(shell: Cli) -> None:
    done = shell("config", "show")
    assert done.code == 0
    assert "\x1b" not in done.out + shell("plan").err
