"""The commands together, and what an error becomes: one line and an exit code."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

import typer

from fleetopt.cli import (
    compress,
    compressor,
    config,
    demo,
    generate,
    plan,
    profile,
    profiles,
    replay,
    sieve,
    simulate,
    up,
    watch,
    whatif,
    worker,
)
from fleetopt.cli.options import help_if_alone
from fleetopt.cli.output import ExitCode, print_error
from fleetopt.errors import ConfigError, FleetOptError

app = typer.Typer(
    name="fleetopt",
    help="Replan an LLM inference fleet from its live traffic.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 no fleet meets the SLO.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"fleetopt {version_of('fleetopt')}")
        raise typer.Exit
    help_if_alone(context)


app.command("plan")(plan.plan)
app.command("whatif")(whatif.whatif)
app.command("simulate")(simulate.simulate)
app.command("compress")(compress.compress)
app.command("worker")(worker.worker)
app.command("compressor")(compressor.compressor)
app.command("replay")(replay.replay)
app.command("generate")(generate.generate)
app.command("watch")(watch.watch)
app.command("up")(up.up)
app.command("demo")(demo.demo)
app.command("profiles")(profiles.profiles)
app.add_typer(config.app, name="config")
app.add_typer(profile.app, name="profile")
app.add_typer(sieve.app, name="sieve")


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    _open_streams()
    command = typer.main.get_command(app)
    try:
        code = command.main(args=argv, prog_name="fleetopt", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        print_error(_usage(error))
        return ExitCode.USAGE
    except ConfigError as error:
        print_error(str(error))
        return ExitCode.USAGE
    except FleetOptError as error:
        print_error(str(error))
        return ExitCode.FAILED
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain again when it flushes.
        _drop_output()
        return ExitCode.FAILED
    except OSError as error:  # such as a disk that is full
        _drop_output()
        print_error(f"{error.strerror or error}: nothing is complete that was written so far")
        return ExitCode.FAILED
    except SystemExit as stop:  # a pipe that was closed while a command ran
        return stop.code if isinstance(stop.code, int) else ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE


def _open_streams() -> None:
    """Let every stream be written to: closed ones, and those that lack our characters."""
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Send what is still to be flushed nowhere, since flushing it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: typer.TyperException) -> str:
    message = (
        " ".join(error.format_message().split())
        .rstrip(".")
        .replace("Value error, ", "")
        .removeprefix("Invalid value: ")
    )
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "fleetopt"
    return f"{message[:1].lower()}{message[1:]}; `{where} --help` shows what is accepted"
