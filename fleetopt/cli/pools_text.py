"""Fleets of many pools in words and as JSON."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import msgspec

from fleetopt.cli.output import console, cost, percent, table, tokens
from fleetopt.cli.plan_text import (
    FIGURES,
    assumed,
    bullets,
    describe_question,
    engine_lines,
    infeasible_json,
    left_out,
    request_json,
    traffic_json,
)
from fleetopt.planner.many_pools import ManyPools, PoolChain, PoolCount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fleetopt.cli.traffic import Traffic
    from fleetopt.planner.engine import EngineProfile
    from fleetopt.planner.plan import PlanRequest

_POOL_FIGURES = ("replicas", "GPUs", "requests/s", "load", "P99 TTFT", "size set by", "USD/h")


def many_json(
    found: ManyPools, traffic: Traffic, request: PlanRequest, choice: Sequence[EngineProfile]
) -> dict[str, Any]:
    """Return what `--output json` prints: finite numbers, units in the names."""
    return {
        "status": "ok",
        "traffic": traffic_json(traffic),
        "request": request_json(request),
        "many_pools": {
            "minimised": found.minimised,
            "profiles_to_choose_from": [engine.name for engine in choice],
            "worth_pools": len(found.worth.pools),
            "worth_gain_ratio": found.worth_gain_ratio,
            "unservable_share": found.unservable_share,
            "fleets": [_count_json(found, one) for one in found.counts],
        },
    }


def _count_json(found: ManyPools, one: PoolCount) -> dict[str, Any]:
    fleet = one.found
    result: dict[str, Any] = {
        "pools": one.pools,
        "status": "ok" if isinstance(fleet, PoolChain) else "infeasible",
        "at_most_per_h": found.at_most_per_h(one.pools),
        "gain_per_h": one.gain_per_h,
        "gain_ratio": one.gain_ratio,
    }
    if not isinstance(fleet, PoolChain):
        return result | {"infeasible": infeasible_json(fleet)}
    pools = [
        {
            **msgspec.to_builtins(pool),
            "engine_flags": list(pool.engine_flags),
            "context_length_range": pool.context_length_range,
        }
        for pool in fleet.pools
    ]
    figures = {
        "boundaries_tokens": [cut.boundary_tokens for cut in fleet.cuts],
        "gpus": fleet.gpus,
        "cost_usd_per_h": fleet.cost_usd_per_h,
    }
    return result | {"fleet": figures | msgspec.to_builtins(fleet) | {"pools": pools}}


def describe(found: ManyPools, traffic: Traffic, request: PlanRequest) -> None:
    """Print what each further pool gains, and the fleet that is worth it, for a reader."""
    out, fleet = console(), found.worth
    describe_question(out, "Fleets", traffic, request)
    letters = _letters(found)
    for profile, letter in letters.items():
        name = "Engine" if len(letters) == 1 else f"Engine {letter}"
        out.print(f"{name}: {profile}", soft_wrap=True)
    out.print(_counts(found, letters))
    out.print(f"  {_worth(found)}\n", style="bold", soft_wrap=True)
    out.print(_pools(fleet, letters))
    bullets(out, "Engines", engine_lines(fleet.pools))
    bullets(out, "No fleet", _without_fleet(found))
    bullets(out, "Assumed", assumed(traffic, request))
    bullets(out, "Left out", left_out(found.unservable_share, traffic))


def _letters(found: ManyPools) -> dict[str, str]:
    """A letter for each engine that some fleet has: names are too long for a table."""
    fleets = [one.found for one in found.counts if isinstance(one.found, PoolChain)]
    names = dict.fromkeys(pool.profile for fleet in fleets for pool in fleet.pools)
    return {
        name: ascii_uppercase[at] if at < len(ascii_uppercase) else str(at)
        for at, name in enumerate(names)
    }


def _counts(found: ManyPools, letters: dict[str, str]) -> Table:
    unit = found.minimised.per_h
    engines = ["engines"] if len(letters) > 1 else []
    columns = ("split at", "gamma", "replicas", *engines, "compressed", "GPUs", unit)
    shown = table("pools", *columns, f"gain, {unit}", "gain")
    for column in shown.columns[1 : len(columns) - 2]:
        column.no_wrap = False
    for one in found.counts:
        fleet = one.found
        mark = "*" if fleet == found.worth else ""
        if not isinstance(fleet, PoolChain):
            shown.add_row(str(one.pools), "infeasible", *["–"] * len(columns))
            continue
        chosen = [" + ".join(letters[pool.profile] for pool in fleet.pools)] if engines else []
        shown.add_row(
            f"{one.pools}{mark}",
            ", ".join(tokens(cut.boundary_tokens) for cut in fleet.cuts) or "–",
            ", ".join(f"{cut.gamma:.2f}" for cut in fleet.cuts) or "–",
            " + ".join(tokens(pool.replicas) for pool in fleet.pools),
            *chosen,
            percent(fleet.compressed_share),
            tokens(fleet.gpus),
            cost(fleet.minimised_per_h, found.minimised),
            "–"
            if one.gain_per_h is None
            else _unsigned_zero(cost(one.gain_per_h, found.minimised)),
            _unsigned_zero(percent(one.gain_ratio)),
        )
    return shown


def _unsigned_zero(text: str) -> str:
    """Return the text without the sign of a loss too small to be shown."""
    return text if any(digit in text for digit in "123456789") else text.lstrip("-")


def _worth(found: ManyPools) -> str:
    pools, most = len(found.worth.pools), len(found.counts)
    what = f"Worth it: {_pools_in_words(pools)}"
    least = percent(found.worth_gain_ratio, 0)
    if pools == most:
        return f"{what}, the most that were compared: a further one may gain {least} too."
    return f"{what}. No further pool gains {least} of the cost."


def _pools_in_words(pools: int) -> str:
    return "one pool" if pools == 1 else f"{pools} pools"


def _pools(fleet: PoolChain, letters: dict[str, str]) -> Table:
    """Return a table with a row a pool."""
    engines = ["engine"] if len(letters) > 1 else []
    shown = table("", "tokens", *engines, *_POOL_FIGURES)
    for pool in fleet.pools:
        shown.add_row(
            pool.name,
            f"{tokens(pool.min_tokens)} – {tokens(pool.context_tokens)}",
            *([letters[pool.profile]] if engines else []),
            *(FIGURES[name](pool) for name in _POOL_FIGURES),
        )
    return shown


def _without_fleet(found: ManyPools) -> list[str]:
    return [
        f"{_pools_in_words(one.pools)}: {one.found.message}"
        for one in found.counts
        if not isinstance(one.found, PoolChain)
    ]
