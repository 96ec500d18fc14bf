"""What each further pool gains on the recorded traces, as `fleetopt plan --pools 4` finds it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from benchmarks.forecast import TRACES
from fleetopt.cli.traffic import read_traffic
from fleetopt.config.profiles import load_profile
from fleetopt.errors import InputError
from fleetopt.planner.forecast.outcome import ForecastConfig
from fleetopt.planner.many_pools import PoolChain, many_pools
from fleetopt.planner.outcome import Infeasible
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

MOST_POOLS: Final = 4
ENGINE: Final = "h100/qwen3-32b/tp2"
CONTEXT_TOKENS: Final = 32_768
CHOICE: Final = tuple(
    f"{gpu}/qwen3-32b/tp{gpus}" for gpu, gpus in product(("h100", "h200"), (1, 2, 4))
)
"""Engines that each pool may choose from, where it may."""

_SLICE_S: Final = 60.0
_CONSTANT: Final = "2s"
_AWARE: Final = "300ms+0.2ms/token"


@dataclass(frozen=True, slots=True)
class Case:
    """One question: traffic, rate, target, and what fleets may do."""

    trace: str
    rate_per_s: float
    target: str
    gamma_max: float
    admission: Admission = Admission.STATISTICAL
    engines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What a table calls it."""
        words = [f"{self.trace} {self.rate_per_s:,.0f}/s, {self.target}, γ ≤ {self.gamma_max:g}"]
        words += ["reserved slots"] * (self.admission is Admission.RESERVED)
        words += [f"{len(self.engines)} engines"] * bool(self.engines)
        return ", ".join(words)


CASES: Final = (
    Case("chat", 200.0, _CONSTANT, 1.0, Admission.RESERVED),
    Case("chat", 200.0, _CONSTANT, 1.0),
    Case("chat", 200.0, _AWARE, 1.0),
    Case("code", 200.0, _AWARE, 1.0),
    Case("chat", 200.0, _AWARE, 2.0),
    Case("chat", 1_000.0, _AWARE, 2.0),
    Case("code", 200.0, _AWARE, 2.0),
    Case("code", 200.0, _AWARE, 2.0, engines=CHOICE),
)
_FILES: Final = {"chat": "azure_llm_2023_conv.csv", "code": "azure_llm_2023_code.csv"}


@dataclass(frozen=True, slots=True)
class Gain:
    """The cheapest fleet of so many pools; None and 0 where there is none."""

    pools: int
    cost_usd_per_h: float | None
    gain_ratio: float | None
    compressed_share: float


@dataclass(frozen=True, slots=True)
class Gains:
    """What one question comes to, and how long it took."""

    name: str
    gains: tuple[Gain, ...]
    worth_pools: int
    wall_s: float


def measure(quick: bool = False) -> Sequence[Gains]:
    """All questions; none where the traces are not at hand."""
    return list(_measure(quick)) if TRACES.is_dir() else []


def _measure(quick: bool) -> Iterator[Gains]:
    for case in CASES[: 2 if quick else None]:
        yield gains_of(case, _workload(case))


def gains_of(case: Case, workload: Workload) -> Gains:
    """Find the fleets of one case."""
    engine = load_profile(ENGINE)
    asked = PlanRequest(
        engine,
        engine,
        CONTEXT_TOKENS,
        TtftTarget.parse(case.target),
        case.admission,
        gamma_max=case.gamma_max,
    )
    began_s = time.perf_counter()
    found = many_pools(workload, asked, MOST_POOLS, [load_profile(name) for name in case.engines])
    wall_s = time.perf_counter() - began_s
    if isinstance(found, Infeasible):
        raise InputError(f"{case.name}: {found.message}")
    gains = []
    for one in found.counts:
        fleet = one.found if isinstance(one.found, PoolChain) else None
        gains.append(
            Gain(
                one.pools,
                fleet.cost_usd_per_h if fleet else None,
                one.gain_ratio,
                fleet.compressed_share if fleet else 0.0,
            )
        )
    return Gains(case.name, tuple(gains), len(found.worth.pools), wall_s)


def _workload(case: Case) -> Workload:
    return read_traffic(
        str(TRACES / _FILES[case.trace]),
        fleet=None,
        arrival_rates_per_s=(case.rate_per_s,),
        output_share=None,
        slice_s=_SLICE_S,
        forecast=ForecastConfig(),
    ).workload
