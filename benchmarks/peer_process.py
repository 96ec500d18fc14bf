"""Runs inside the peer's own environment: a line of JSON in, a line with what it took out.

It imports nothing of FleetOpt, and only here is `fleet_sim` imported.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fleet_sim
from fleet_sim import A100_80GB, FleetOptimizer
from fleet_sim.core.fleet import Fleet, FleetConfig, PoolConfig
from fleet_sim.workload.synthetic import CdfWorkload, PoissonWorkload

DATA = Path(fleet_sim.__file__).parent / "data"


def cdf(name: str) -> list[tuple[int, float]]:
    """Points of one of the distributions that come with it."""
    document = json.loads((DATA / f"{name}_cdf.json").read_text())
    points = document["cdf"] if isinstance(document, dict) else document
    return [(int(tokens), float(share)) for tokens, share in points]


def optimizer(case: dict[str, Any]) -> Any:
    """Its optimizer for one boundary."""
    return FleetOptimizer(
        A100_80GB,
        A100_80GB,
        B_short=case["boundary_tokens"],
        t_slo_ms=case["target_s"] * 1e3,
        long_max_ctx=case["long_context_tokens"],
    )


def about(_: dict[str, Any]) -> dict[str, Any]:
    """Say which version this is, and what its distributions are."""
    names = ("azure", "lmsys", "agent_heavy")
    return {"version": version("vllm-sr-sim"), "cdfs": {name: cdf(name) for name in names}}


def sweep(case: dict[str, Any]) -> dict[str, Any]:
    """Eleven γ at one boundary."""
    asked, points = optimizer(case), cdf(case["cdf"])
    start = time.perf_counter()
    found = asked.sweep_analytical(points, case["rate_per_s"])
    return {"took_s": time.perf_counter() - start, "cells": len(found)}


def slots(case: dict[str, Any]) -> dict[str, Any]:
    """Its verification: slots as servers. It counts requests and warm-up in each pool."""
    asked, points, count = optimizer(case), cdf(case["cdf"]), case["requests"]
    start = time.perf_counter()
    asked._run_des(points, case["rate_per_s"], 1.0, *case["replicas"], count)
    return {"took_s": time.perf_counter() - start, "requests": 2 * (count + count // 5)}


def fleet(case: dict[str, Any]) -> dict[str, Any]:
    """Its simulation of a fleet, GPU by GPU."""
    short, long = case["replicas"]
    pools = [
        PoolConfig("short", A100_80GB, short, case["boundary_tokens"]),
        PoolConfig("long", A100_80GB, long, case["long_context_tokens"]),
    ]
    lengths = CdfWorkload(cdf(case["cdf"]))
    arrivals = PoissonWorkload(case["rate_per_s"], lengths, n_requests=case["requests"]).generate()
    run = Fleet(FleetConfig(pools, "LengthRouter", {"threshold": case["boundary_tokens"]}))
    start = time.perf_counter()
    run.run(arrivals)
    return {"took_s": time.perf_counter() - start, "requests": case["requests"]}


TASKS = {task.__name__: task for task in (about, sweep, slots, fleet)}

if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(TASKS[asked["task"]](asked)), flush=True)
