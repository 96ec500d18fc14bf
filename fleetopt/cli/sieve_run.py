"""`fleetopt sieve run`: benchmarks of one's own, as few as the fleet decision needs."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetopt.cli.options import OutputOption
from fleetopt.cli.output import ExitCode, Output, print_json, print_note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetopt.config.sieve_problem import Problem
    from fleetopt.pipeline.sieve_session import Session
    from fleetopt.planner.sieve.sieve import State

_STATE = ".sieve"
_LIMIT_PER_RUN = 5.0

ProblemArgument = Annotated[
    Path, typer.Argument(metavar="PROBLEM.yaml", help="`fleetopt sieve example` prints one.")
]
StateOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where runs are kept. Default: PROBLEM.sieve beside it."),
]
ProfilesOption = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="Engine profiles of your own.")
]


def example() -> None:
    """Print a problem file to start from.

    \b
    Examples:
      fleetopt sieve example > problem.yaml
    """
    from fleetopt.config.sieve_problem import EXAMPLE

    typer.echo(EXAMPLE, nl=False)


def run(
    problem: ProblemArgument,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="The benchmark, in place of the file's: {class} {configuration} {gpus} {tp} "
            "{rate} {requests} {duration_s} {repeat} {output}.",
        ),
    ] = None,
    state: StateOption = None,
    profiles: ProfilesOption = None,
    write_to: Annotated[
        Path | None,
        typer.Option(
            "--write-profiles", metavar="FILE.toml", help="Write the engine profiles as measured."
        ),
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, help="Of a run that fails.")] = 3,
    limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Longest time of a run. Default: five times run_s."),
    ] = None,
    on_failure: Annotated[
        str,
        typer.Option(
            metavar="stop|late",
            help="Whether a run that fails every time ends the session, or counts as too late.",
        ),
    ] = "stop",
    max_runs: Annotated[
        int | None, typer.Option(min=0, help="Stop after so many runs; go on another time.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run next, and run nothing.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Profile engines with a benchmark of your own until the fleet decision is certain.

    The command is run once for each measurement, without a shell; its result is the JSON of
    `vllm bench serve --save-result`, GuideLLM or AIPerf, or an object with throughput_per_s and
    completion_p99_s, in {output} or on standard output. Every run is on disk before the next is
    chosen: end it whenever you like, and run the same command again to go on.

    \b
    Examples:
      fleetopt sieve example > problem.yaml
      fleetopt sieve run problem.yaml --dry-run
      fleetopt sieve run problem.yaml --command './bench.sh {class} {tp} {rate} {output}'
      fleetopt sieve run problem.yaml --write-profiles measured.toml
      fleetopt plan trace.csv --profiles measured.toml --profile measured/tp2
    """
    from fleetopt.connectors.bench_command import check_template
    from fleetopt.connectors.sieve_journal import Journal
    from fleetopt.pipeline.sieve_session import OnFailure, Session

    if on_failure not in list(OnFailure):
        raise typer.BadParameter(f"--on-failure {on_failure}: expected stop or late")
    asked = _problem(problem, profiles, command)
    folder = state or problem.with_suffix(_STATE)
    with _ended_by_sigterm(), Journal(folder) as journal:
        session = Session(
            asked,
            journal,
            attempts,
            limit or _LIMIT_PER_RUN * asked.run_s,
            OnFailure(on_failure),
            print_note,
        )
        for point in asked.sieve.grid.points()[:: asked.sieve.grid.shape[2]]:
            template, values = session.command(point)
            check_template(template, values)
        _say_what_was_there(session)
        if dry_run:
            _show_next(session, output)
            return
        found = _measure(session, max_runs)
        if write_to is not None:
            _write_profiles(session, write_to)
        _show(session, found, output)
    raise typer.Exit(_exit_code(session, found))


def status(
    problem: ProblemArgument,
    state: StateOption = None,
    profiles: ProfilesOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what the runs so far decide, without running anything.

    \b
    Examples:
      fleetopt sieve status problem.yaml
      fleetopt sieve status problem.yaml --output json
    """
    from fleetopt.connectors.sieve_journal import FILE, Journal, read_runs
    from fleetopt.pipeline.sieve_session import Session

    asked = _problem(problem, profiles, "-")
    folder = state or problem.with_suffix(_STATE)
    journal = Journal(folder)
    journal.runs, _ = read_runs(folder / FILE)
    session = Session(asked, journal)
    found = session.state
    _show(session, found, output)
    raise typer.Exit(_exit_code(session, found))


def _problem(path: Path, profiles: Path | None, command: str | None) -> Problem:
    from fleetopt.config.profiles import load_catalogue
    from fleetopt.config.sieve_problem import read_problem

    return read_problem(path, load_catalogue(profiles), command)


def _say_what_was_there(session: Session) -> None:
    journal = session.journal
    if journal.torn_bytes:
        print_note(f"{journal.path} ended within a run, which is made again")
    if journal.runs:
        print_note(f"{len(journal.runs)} runs are there already")
    if session.foreign:
        first = session.foreign[0]
        print_note(
            f"{len(session.foreign)} of them have no place in this problem and are left out, such "
            f"as {first.request_class} on {first.configuration} at {first.offered_per_s:g} req/s"
        )


def _measure(session: Session, max_runs: int | None) -> State:
    """Measure until it is certain, nothing is left or it has been enough."""
    from fleetopt.cli.sieve_session_text import progress_line

    made = 0
    while True:
        state = session.state
        point = session.next_run(state)
        if point is None or (max_runs is not None and made >= max_runs):
            return state
        sys.stderr.write(progress_line(session, state, point) + "\n")
        sys.stderr.flush()
        session.measure(point)
        made += 1


def _show_next(session: Session, output: Output) -> None:
    from fleetopt.connectors.bench_command import OUTPUT, filled

    state = session.state
    point = session.next_run(state)
    if point is None:
        command, label = None, None
    else:
        template, values = session.command(point)
        command = filled(template, {**values, OUTPUT: "RESULT.json"})
        label = session.problem.sieve.grid.label(point)
    if output is Output.JSON:
        print_json({"next": label, "command": command, "gap": state.decision.gap})
    elif command is None:
        typer.echo("Nothing: the decision is certain, or all runs are made.")
    else:
        import shlex

        typer.echo(f"{label}:\n  {shlex.join(command)}")


def _show(session: Session, state: State, output: Output) -> None:
    from fleetopt.cli.sieve_session_text import session_json, show_session

    if output is Output.JSON:
        print_json(session_json(session, state))
    else:
        show_session(session, state)


def _exit_code(session: Session, state: State) -> ExitCode:
    from fleetopt.planner.sieve.decision import Verdict

    if state.decision.verdict is Verdict.INFEASIBLE:
        return ExitCode.INFEASIBLE
    is_certain = session.problem.sieve.is_certain(state)
    return ExitCode.DONE if is_certain else ExitCode.UNDECIDED


def _write_profiles(session: Session, path: Path) -> None:
    from dataclasses import replace

    from fleetopt.cli.report import write_page
    from fleetopt.config.profile_toml import ProfileEntry, profiles_toml

    entries, without = {}, []
    for name, measured in session.measured_profiles().items():
        if measured is None:
            without.append(name)
        else:
            full = f"measured/{name}"
            profile = replace(measured.profile, name=full)
            entries[full] = ProfileEntry(profile, True, f"{measured.runs} runs")
    if without:
        print_note(
            f"no profile of {', '.join(without)}: that takes a run that kept up, of a class whose "
            "lengths the problem gives"
        )
    if not entries and not without:
        print_note(f"{path} is not written: no configuration of the problem names a profile")
    if entries:
        write_page(path, profiles_toml(entries))
        print_note(f"wrote {path}")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a run's command too, as Ctrl-C does."""

    def end(*_: Any) -> None:
        raise SystemExit(ExitCode.TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
