"""`fleetopt plan --pools N`: the cheapest fleets of one to N pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fleetopt.cli.output import ExitCode, Output, print_error, print_json
from fleetopt.cli.plan_options import engines_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleetopt.cli.traffic import Traffic
    from fleetopt.planner.engine import EngineProfile
    from fleetopt.planner.plan import PlanRequest


def pool_engines(options: Mapping[str, Any]) -> list[str]:
    """Return the names that `--profile` gives; refuse what does not go together with `--pools`."""
    given = options["profile"]
    names = [] if given is None else list(dict.fromkeys(part.strip() for part in given.split(",")))
    if options["pools"] is None:
        if len(names) > 1:
            raise typer.BadParameter(
                f"--profile {given}: several engines are for --pools, and for `fleetopt whatif`"
            )
        return names
    if options["boundary"] is not None:
        raise typer.BadParameter("--pools chooses all boundaries: leave --boundary out")
    for option in ("explain", "html", "validate"):
        if options.get(option):
            raise typer.BadParameter(
                f"--{option} is for a plan of up to two pools: leave --pools out"
            )
    if not all(names):
        raise typer.BadParameter(
            f"--profile {given!r}: a value is empty; expected values with commas between"
        )
    if len(names) > 1 and (options["short_profile"] or options["long_profile"]):
        raise typer.BadParameter(
            f"--profile {given} leaves each pool its choice: leave --short-profile and "
            "--long-profile out"
        )
    return names


def pool_profiles(
    names: Sequence[str], catalogue: Mapping[str, EngineProfile]
) -> list[EngineProfile]:
    """Return the engines that each pool chooses from; none where there is no choice."""
    return engines_named("--profile", names, catalogue) if len(names) > 1 else []


def compare_pools(
    traffic: Traffic,
    request: PlanRequest,
    most_pools: int,
    choice: Sequence[EngineProfile],
    output: Output,
) -> None:
    """Find and print the cheapest fleet of each number of pools."""
    from fleetopt.cli.plan_text import as_json, describe_infeasible
    from fleetopt.cli.pools_text import describe, many_json
    from fleetopt.planner.many_pools import many_pools
    from fleetopt.planner.plan import Infeasible

    found = many_pools(traffic.workload, request, most_pools, choice)
    if isinstance(found, Infeasible):
        if output is Output.JSON:
            print_json(as_json(found, traffic, request))
        else:
            print_error(describe_infeasible(found))
        raise typer.Exit(ExitCode.INFEASIBLE)
    if output is Output.JSON:
        print_json(many_json(found, traffic, request, choice))
    else:
        describe(found, traffic, request)
