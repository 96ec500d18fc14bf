"""`python -m benchmarks.paper_table`: the paper's own table, and its fleets simulated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from benchmarks.paper_model import (
    ENGINE,
    LONG_CONTEXT_TOKENS,
    OUTPUT_SHARE,
    RATE_PER_S,
    SEED,
    Case,
    PaperFleet,
    Points,
    paper_fleets,
    work_s,
)
from benchmarks.report import Table
from fleetopt.connectors.cdf import read_cdf
from fleetopt.planner.simulate.draw import poisson_stream
from fleetopt.planner.simulate.fleet import SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.outcome import PoolFigures
from fleetopt.planner.simulate.routing import route
from fleetopt.planner.simulate.simulation import simulate, slot_service_s
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

DATA: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "cdf"
REQUESTS: Final = 600_000
WARM_UP_SHARE: Final = 0.5

CASES: Final = (
    Case("Azure", "azure_cdf.json", 4_096, 1.0, {1.0: 0.387, 1.5: 0.676, 2.0: 0.824}),
    Case("agent-heavy", "agent_heavy_cdf.json", 8_192, 0.75, {1.0: 0.055, 1.5: 0.067}),
)
"""LMSYS-Chat (B = 1,536; 41.7 % by two pools) is left out: its CDF is not among the shared data."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A pool of such a fleet: what it is offered, and what a simulation makes of it."""

    fleet: PaperFleet
    own_load: float
    """By the paper's charge of I·L, but each request for itself: a compressed one has B tokens."""
    load: float
    """By ours: context-iterations as context grows."""
    figures: PoolFigures


def available() -> tuple[Case, ...]:
    """The cases whose CDF is there."""
    return tuple(case for case in CASES if (DATA / case.file).is_file())


def points_of(case: Case) -> Points:
    """The case's CDF of total tokens."""
    with (DATA / case.file).open("rb") as file:
        return read_cdf(file, case.file)


def try_fleet(fleet: PaperFleet, points: Points, requests: int = REQUESTS) -> list[Tried]:
    """Simulate both pools: Poisson arrivals, reserved slots, each request as long as it is."""
    case = fleet.case
    stream = poisson_stream(
        Workload.from_cdf(points, OUTPUT_SHARE, RATE_PER_S), requests, seed=SEED
    )
    boundary = case.boundary_tokens
    simulated = SimulatedFleet(
        _pool("short", boundary, fleet.short_gpus),
        _pool("long", LONG_CONTEXT_TOKENS, fleet.long_gpus),
        boundary,
        int(fleet.gamma * boundary),
        case.compressible_share,
        TtftTarget(0.5),
    )
    parts = route(simulated, stream, np.random.default_rng(0)).streams
    figures = simulate(simulated, stream, warm_up_share=WARM_UP_SHARE).pools
    return [
        Tried(fleet, _own_load(pool, part, stream), _load(pool, part, stream), one)
        for pool, part, one in zip(simulated.pools, parts, figures, strict=True)
    ]


def sizes_table(fleets: Sequence[PaperFleet], exact: Sequence[PaperFleet]) -> Table:
    """What the paper publishes beside what its model says, by 3,000 draws and by exact averages."""
    return Table(
        "The paper's table by the paper's model (1,000 requests/s)",
        (
            "workload",
            "γ",
            "one pool",
            "short + long",
            "saving",
            "published",
            "by exact averages",
            "saving",
        ),
        [
            (
                f"{one.case.name}, B {one.case.boundary_tokens:,}",
                f"{one.gamma:g}",
                f"{one.one_pool_gpus:,}",
                f"{one.short_gpus:,} + {one.long_gpus:,}",
                f"{one.saving:.1%}",
                f"{one.case.published_saving[one.gamma]:.1%}",
                f"{many.short_gpus:,} + {many.long_gpus:,} of {many.one_pool_gpus:,}",
                f"{many.saving:.1%}",
            )
            for one, many in zip(fleets, exact, strict=True)
        ],
    )


def tried_table(tried: Sequence[Tried]) -> Table:
    """What those fleets do."""
    return Table(
        "The paper's fleets, simulated",
        (
            "workload",
            "γ",
            "pool",
            "GPUs",
            "load by I·L",
            "load by ours",
            "simulated load",
            "P99 TTFT",
            "queue grows by, a request",
            "",
        ),
        [
            (
                f"{one.fleet.case.name}, B {one.fleet.case.boundary_tokens:,}",
                f"{one.fleet.gamma:g}",
                one.figures.name,
                f"{one.figures.replicas:,}",
                f"{one.own_load:.2f}",
                f"{one.load:.2f}",
                f"{one.figures.utilization:.2f}",
                "" if one.figures.ttft is None else f"{one.figures.ttft.p99_s:.2f} s",
                f"{one.figures.growth.share_of_arrivals:.1%}",
                "**diverges**" if one.figures.growth.is_diverging else "steady",
            )
            for one in tried
        ],
    )


def main() -> int:
    """Show both tables."""
    cases = available()
    if not cases:
        print(f"paper_table: no CDF in {DATA}", file=sys.stderr)
        return 1
    console = Console(width=130)
    for table in tables(cases):
        table.show(console)
    return 0


def tables(cases: Sequence[Case], requests: int = REQUESTS) -> list[Table]:
    """Both tables of these cases."""
    fleets, exact, tried = [], [], []
    for case in cases:
        points = points_of(case)
        fleets += paper_fleets(case, points)
        exact += paper_fleets(case, points, draws=None)
        for fleet in fleets:
            if fleet.case is case:
                tried += try_fleet(fleet, points, requests)
    return [sizes_table(fleets, exact), tried_table(tried)]


def _pool(name: str, context_tokens: int, replicas: int) -> SimulatedPool:
    slots = ENGINE.slots_reserved(context_tokens)
    return SimulatedPool(name, ENGINE, context_tokens, replicas, slots, is_paged=False)


def _own_load(pool: SimulatedPool, part: RequestStream, whole: RequestStream) -> float:
    tokens, prompt = part.total_tokens.astype(np.float64), part.prompt_tokens.astype(np.float64)
    total_s = float(work_s(tokens, prompt, pool.context_tokens).sum())
    return RATE_PER_S * total_s / len(whole) / pool.replicas


def _load(pool: SimulatedPool, part: RequestStream, whole: RequestStream) -> float:
    total_s = float(slot_service_s(pool, part).sum())
    return RATE_PER_S * total_s / len(whole) / (pool.replicas * pool.slots)


if __name__ == "__main__":
    sys.exit(main())
