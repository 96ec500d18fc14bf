"""A plan as `fleetopt plan --output json` wrote it: the fleet to simulate, and its predictions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from fleetopt.config.profiles import load_profile
from fleetopt.errors import InputError
from fleetopt.planner.availability import replicas_up
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.request import Admission
from fleetopt.planner.simulate.fleet import SimulatedFleet, SimulatedPool
from fleetopt.planner.target import TtftTarget


class PlannedPool(msgspec.Struct, frozen=True):
    """A pool of the file: its settings and what was predicted of it."""

    name: str
    profile: str
    context_tokens: int
    replicas: int
    max_num_seqs: int
    max_num_batched_tokens: int
    utilization: float
    slot_occupancy: float
    mean_iteration_s: float
    ttft_p99_s: float
    ttft_violation_share: float
    e2e_p99_s: float | None = None
    itl_p99_s: float | None = None


class _Pools(msgspec.Struct, frozen=True):
    short: PlannedPool
    long: PlannedPool | None


class _Plan(msgspec.Struct, frozen=True):
    boundary_tokens: int
    compress_up_to_tokens: int
    pools: _Pools


class _Request(msgspec.Struct, frozen=True):
    slo_ttft_p99: str
    admission: Admission
    compressible_share: float
    node_availability: float


class _Traffic(msgspec.Struct, frozen=True):
    arrival_rate_per_s: float


class _File(msgspec.Struct, frozen=True):
    status: Literal["ok", "infeasible"]
    request: _Request
    traffic: _Traffic
    plan: _Plan | None = None


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What a plan's file says of a simulation."""

    fleet: SimulatedFleet
    arrival_rate_per_s: float
    predicted: tuple[PlannedPool, ...]  # one for each of the fleet's pools


def read_plan(path: str, catalogue: Mapping[str, EngineProfile]) -> PlanFile:
    """Read a plan from a file, or from standard input (`-`).

    Raises
    ------
    InputError
        If the file holds no plan.
    ConfigError
        If it names an engine that the catalogue doesn't have.
    """
    source = "standard input" if path == "-" else path
    try:
        text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        file = msgspec.json.decode(text, type=_File)
    except OSError as error:
        raise InputError(f"can't read {source}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise InputError(
            f"{source} is no plan: {error}; expected what `fleetopt plan --output json` prints"
        ) from error
    if file.plan is None:
        raise InputError(
            f"{source} has no plan: no fleet met the target; there is none to simulate"
        )
    plan, asked = file.plan, file.request
    predicted = tuple(pool for pool in (plan.pools.short, plan.pools.long) if pool)
    pools = [_pool(pool, asked, catalogue) for pool in predicted]
    fleet = SimulatedFleet(
        short=pools[0],
        long=pools[1] if len(pools) > 1 else None,
        boundary_tokens=plan.boundary_tokens,
        compress_up_to_tokens=max(plan.compress_up_to_tokens, plan.boundary_tokens),
        compressible_share=asked.compressible_share,
        target=TtftTarget.parse(asked.slo_ttft_p99),
    )
    return PlanFile(fleet, file.traffic.arrival_rate_per_s, predicted)


def _pool(
    planned: PlannedPool, asked: _Request, catalogue: Mapping[str, EngineProfile]
) -> SimulatedPool:
    profile = load_profile(planned.profile, catalogue)
    return SimulatedPool(
        name=planned.name,
        profile=replace(profile, prefill_chunk_tokens=planned.max_num_batched_tokens),
        context_tokens=planned.context_tokens,
        replicas=int(replicas_up(planned.replicas, asked.node_availability)),
        slots=planned.max_num_seqs,
        is_paged=asked.admission is Admission.STATISTICAL,
    )
