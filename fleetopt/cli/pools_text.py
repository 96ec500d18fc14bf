"""Fleets of many pools in words and as JSON."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Final

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
from fleetopt.planner.many_pools import Cut, ManyPools, PoolChain, PoolCount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fleetopt.cli.traffic import Traffic
    from fleetopt.planner.engine import EngineProfile
    from fleetopt.planner.plan import PlanRequest, PoolPlan

_POOLS_ABREAST: Final = 4
_POOL_FIGURES: Final = (
    "replicas",
    "GPUs",
    "requests/s",
    "utilisation",
    "P99 TTFT",
    "size set by",
    "USD/h",
)


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
    for first in range(0, len(fleet.pools), _POOLS_ABREAST):
        out.print(_pools(fleet.pools[first : first + _POOLS_ABREAST], letters))
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
    """Return a table with a row a number of pools, each pool and each cut on a line of its own."""
    unit = found.minimised.per_h
    columns = ("split at", "replicas", "com-\npressed", "GPUs", unit, f"gain,\n{unit}", "gain")
    shown = table("pools", *columns)
    shown.collapse_padding = True  # for 80 columns
    for one in found.counts:
        fleet = one.found
        if not isinstance(fleet, PoolChain):
            shown.add_row(str(one.pools), "infeasible", *["–"] * (len(columns) - 1))
            continue
        gain = "–" if one.gain_per_h is None else cost(one.gain_per_h, found.minimised)
        shown.add_row(
            f"{one.pools}*" if fleet == found.worth else str(one.pools),
            "\n".join(_cut(cut) for cut in fleet.cuts) or "–",
            "\n".join(_replicas(pool, letters) for pool in fleet.pools),
            percent(fleet.compressed_share),
            tokens(fleet.gpus),
            cost(fleet.minimised_per_h, found.minimised),
            _unsigned_zero(gain),
            _unsigned_zero(percent(one.gain_ratio)),
        )
    return shown


def _cut(cut: Cut) -> str:
    """Return the boundary, and gamma where something is compressed over it."""
    at = tokens(cut.boundary_tokens)
    return f"{at} × {cut.gamma:.2f}" if cut.gamma > 1 else at


def _replicas(pool: PoolPlan, letters: dict[str, str]) -> str:
    count = tokens(pool.replicas)
    return count if len(letters) == 1 else f"{count} {letters[pool.profile]}"


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


def _pools(pools: Sequence[PoolPlan], letters: dict[str, str]) -> Table:
    """Return a table with a column a pool: four fit 80 columns."""
    shown = table("", *(pool.name for pool in pools))
    if len(letters) > 1:
        shown.add_row("engine", *(letters[pool.profile] for pool in pools))
    lengths = (f"{tokens(pool.min_tokens)}–{tokens(pool.context_tokens)}" for pool in pools)
    shown.add_row("tokens", *lengths)
    for name in _POOL_FIGURES:
        shown.add_row(name, *(FIGURES[name](pool) for pool in pools))
    return shown


def _without_fleet(found: ManyPools) -> list[str]:
    return [
        f"{_pools_in_words(one.pools)}: {one.found.message}"
        for one in found.counts
        if not isinstance(one.found, PoolChain)
    ]
