"""What is validated: which engine serves which traffic, at what rate and target."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fleetopt.config.profiles import load_profile
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.target import TtftTarget
from validation import traffic

PAPER: Final = "a100/llama-3-70b/paper"
QWEN: Final = "h100/qwen3-32b/tp2"
H100_70B: Final = "h100/llama-3.1-70b/tp4"
H200_70B: Final = "h200/llama-3.1-70b/tp4"
SMALL: Final = "h100/llama-3.1-8b/tp1"
SILICON: Final = (QWEN, H100_70B, H200_70B, SMALL)
RATES_PER_S: Final = (10.0, 100.0, 1_000.0, 10_000.0)
_PAPER_CONTEXT_TOKENS: Final = 65_536
_CONTEXT_TOKENS: Final = 32_768

TARGETS: Final[dict[str, tuple[str, str]]] = {
    "chat": ("1s", "250ms+0.1ms/token"),
    "code": ("2s", "250ms+0.15ms/token"),
    "azure_cdf": ("2s", "300ms+0.2ms/token"),
    "agent_heavy": ("6s", "500ms+0.3ms/token"),
    "long_context": ("6s", "300ms+0.2ms/token"),
    "short_chat": ("500ms", "200ms+0.2ms/token"),
    "agentic": ("6s", "300ms+0.2ms/token"),
    "retrieval": ("2s", "300ms+0.2ms/token"),
    "reasoning": ("500ms", "250ms+0.2ms/token"),
}
"""A constant target and a length-aware one that silicon can meet."""


class Arrivals(StrEnum):
    """When requests come."""

    POISSON = "poisson"
    TENANTS = "tenants"
    """Copies of the trace with arrivals as recorded, each at a moment of its own."""


@dataclass(frozen=True, slots=True)
class Row:
    """One plan to be made and tried."""

    engine: str
    traffic: str
    arrivals: Arrivals
    rate_per_s: float
    target: str
    admission: Admission = Admission.STATISTICAL

    @property
    def name(self) -> str:
        """What `--rows` looks at."""
        words = (self.engine, self.traffic, self.arrivals, f"{self.rate_per_s:g}/s", self.target)
        return " ".join((*words, self.admission))

    def request(self) -> PlanRequest:
        """What the planner is asked."""
        engine = load_profile(self.engine)
        context = _PAPER_CONTEXT_TOKENS if self.engine == PAPER else _CONTEXT_TOKENS
        return PlanRequest(
            engine, engine, context, TtftTarget.parse(self.target), admission=self.admission
        )


def design() -> tuple[Row, ...]:
    """Every traffic at every rate on the paper's engine and on one of silicon's, and more.

    Constant and length-aware targets take turns, and so do silicon's engines; each of these has
    chat and code in any case. Traces come with their own arrivals too.
    """
    known = set(traffic.names())
    rows: dict[str, Row] = {}

    def add(
        engine: str,
        name: str,
        rate: float,
        aware: int,
        arrivals: Arrivals = Arrivals.POISSON,
        admission: Admission = Admission.STATISTICAL,
    ) -> None:
        if name in known:
            row = Row(engine, name, arrivals, rate, TARGETS[name][aware % 2], admission)
            rows.setdefault(row.name, row)

    for number, name in enumerate(TARGETS):
        for power, rate in enumerate(RATES_PER_S):
            add(PAPER, name, rate, number + power)
            add(SILICON[(number + power) % len(SILICON)], name, rate, number + power + 1)
    for number, engine in enumerate(SILICON):
        for power, rate in enumerate((100.0, 1_000.0)):
            add(engine, "chat", rate, number + power)
            add(engine, "code", rate, number + power + 1)
    for rate in (100.0, 1_000.0):
        for name in TARGETS:
            add(QWEN, name, rate, 0)
            add(QWEN, name, rate, 1)
    for name in ("chat", "azure_cdf", "long_context"):
        add(PAPER, name, 1_000.0, 0, admission=Admission.RESERVED)
        add(QWEN, name, 100.0, 1, admission=Admission.RESERVED)
    for power, rate in enumerate(RATES_PER_S):
        for number, name in enumerate(traffic.TRACES):
            add(PAPER, name, rate, power + number, Arrivals.TENANTS)
            add(QWEN, name, rate, power + number, Arrivals.TENANTS)
            add(SILICON[1 + (power + number) % 3], name, rate, power, Arrivals.TENANTS)
    return tuple(rows.values())


def quick_design() -> tuple[Row, ...]:
    """One row for each traffic, and one with arrivals as recorded for each trace."""
    rows = []
    for number, name in enumerate(traffic.names()):
        engine = PAPER if number % 3 == 0 else SILICON[number % len(SILICON)]
        rows.append(Row(engine, name, Arrivals.POISSON, 100.0, TARGETS[name][number % 2]))
    rows += [
        Row(QWEN, name, Arrivals.TENANTS, 100.0, TARGETS[name][0])
        for name in traffic.names()
        if name in traffic.TRACES
    ]
    return tuple(rows)
