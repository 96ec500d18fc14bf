"""The published fleet simulator beside FleetOpt: the same distributions, in turns, in one run.

`vllm-sr-sim` is a pre-release on PyPI. It is installed into an environment of its own, for this
benchmark only, and runs there as a process that is asked one thing at a time.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.rival import python_with
from fleetopt.config.profiles import load_profile
from fleetopt.planner.fixed import best
from fleetopt.planner.grid import build
from fleetopt.planner.plan import Admission, PlanRequest, search
from fleetopt.planner.simulate.compiled import IS_COMPILED
from fleetopt.planner.simulate.draw import poisson_stream
from fleetopt.planner.simulate.fleet import SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.simulation import simulate, simulate_slots
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

PACKAGE: Final = "vllm-sr-sim"
_PROCESS: Final = Path(__file__).resolve().parent / "peer_process.py"
_CONTEXT: Final = 65_536
_TARGET_S: Final = 2.0
_OUTPUT_SHARE: Final = 0.2  # what it takes every request to have
_STEPS_OF_GAMMA: Final = 21

BOUNDARIES: Final = {"azure": 4_096, "lmsys": 1_448, "agent_heavy": 8_192}
"""Distributions, and the boundary that the peer is given for each; ours are searched."""


class PeerError(RuntimeError):
    """The peer doesn't answer."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rates_per_s: tuple[float, ...] = (100.0, 1_000.0)
    rounds: int = 5
    searches_a_round: int = 100
    slot_requests: int = 50_000
    our_requests: int = 500_000 if IS_COMPILED else 50_000
    fleet_requests: int = 1_000


FULL: Final = Sizes()
QUICK: Final = Sizes((100.0,), 2, 20, 5_000, 20_000, 200)


@dataclass(frozen=True, slots=True)
class Duel:
    """Times of both for one thing, in turns; `theirs_units` and `ours_units` are done in each."""

    task: str
    distribution: str
    rate_per_s: float
    unit: str
    theirs_s: Sequence[float]
    ours_s: Sequence[float]
    theirs_units: int
    ours_units: int

    @property
    def ratio(self) -> float:
        """How many times as much we do in the same time, by the medians."""
        return (median(self.theirs_s) / self.theirs_units) / (median(self.ours_s) / self.ours_units)


class Peer:
    """The running process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, task: str, **case: Any) -> dict[str, Any]:
        """Have it do one thing, and return what it took."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"task": task, **case}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{PACKAGE} ended while it was asked for {task} of {case}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def started(python: Path) -> Iterator[Peer]:
    """Run the peer as long as it is asked."""
    with subprocess.Popen(
        [str(python), str(_PROCESS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Peer(process)
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait(timeout=60)


def measure(sizes: Sizes, tell: Callable[[str], None] = lambda _: None) -> tuple[str, list[Duel]]:
    """The peer's version, and every duel."""
    python = python_with("fleet_sim", "--pre", PACKAGE)
    tell(f"{PACKAGE} runs with {python}")
    with started(python) as peer:
        about = peer.ask("about")
        duels: list[Duel] = []
        for name, boundary in BOUNDARIES.items():
            workload = Workload.from_cdf(about["cdfs"][name], _OUTPUT_SHARE, 1.0)
            for rate_per_s in sizes.rates_per_s:
                tell(f"{name}, {rate_per_s:g}/s")
                duels += _duels(peer, name, boundary, workload.scaled_to(rate_per_s), sizes)
        return about["version"], duels


def _duels(
    peer: Peer, name: str, boundary_tokens: int, workload: Workload, sizes: Sizes
) -> Iterator[Duel]:
    asked = _question()
    fleet = _fleet(workload, asked, boundary_tokens)
    case = {
        "cdf": name,
        "rate_per_s": workload.arrival_rate_per_s,
        "boundary_tokens": boundary_tokens,
        "target_s": _TARGET_S,
        "long_context_tokens": _CONTEXT,
        "replicas": [pool.replicas for pool in fleet.pools],
    }
    stream = poisson_stream(workload, sizes.our_requests, seed=1)

    def ours_slots() -> None:
        simulate_slots(fleet, poisson_stream(workload, sizes.our_requests, seed=1))

    def duel(task: str, unit: str, run: Callable[[], object], units: int, times: int = 1) -> Duel:
        run()  # compiled, and warm
        rounds = [(peer.ask(task, **case), _times(run, times)) for _ in range(sizes.rounds)]
        answers = [answer for answer, _ in rounds]
        return Duel(
            task=task,
            distribution=name,
            rate_per_s=workload.arrival_rate_per_s,
            unit=unit,
            theirs_s=[answer["took_s"] for answer in answers],
            ours_s=[took for _, ours in rounds for took in ours],
            theirs_units=answers[0][unit],
            ours_units=units,
        )

    boundaries = _boundaries(workload, asked)
    cells = boundaries * _STEPS_OF_GAMMA
    yield duel("sweep", "cells", lambda: search(workload, asked), cells, sizes.searches_a_round)
    case["requests"] = sizes.slot_requests
    yield duel("slots", "requests", ours_slots, sizes.our_requests)
    case["requests"] = sizes.fleet_requests
    yield duel("fleet", "requests", lambda: simulate(fleet, stream), len(stream))


def _question() -> PlanRequest:
    engine = load_profile("a100/llama-3-70b/paper")
    return PlanRequest(
        engine,
        engine,
        _CONTEXT,
        TtftTarget(_TARGET_S),
        Admission.RESERVED,
        gamma_max=2.0 ** ((_STEPS_OF_GAMMA - 1) / 8),
    )


def _boundaries(workload: Workload, asked: PlanRequest) -> int:
    return build(workload, asked).rows - 1


def _fleet(workload: Workload, asked: PlanRequest, boundary_tokens: int) -> SimulatedFleet:
    """The cheapest fleet at this boundary without compression: both simulate this one."""
    found = best(workload, replace(asked, gamma_max=1.0), boundary_tokens)
    if found is None:
        raise PeerError(f"no fleet meets {_TARGET_S:g} s at a boundary of {boundary_tokens} tokens")
    engine = asked.long_profile
    sizes = (found.needed.short_replicas, found.needed.long_replicas)
    short, long = (
        SimulatedPool(
            name, engine, context, replicas, engine.slots_reserved(context), is_paged=False
        )
        for name, context, replicas in zip(
            ("short", "long"), (boundary_tokens, _CONTEXT), sizes, strict=True
        )
    )
    target = asked.slo_ttft_p99
    return SimulatedFleet(short, long, boundary_tokens, boundary_tokens, 0.0, target)


def _times(run: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times
