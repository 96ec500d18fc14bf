"""What planning from a sketch costs: the planner's fleets beside those of brute force.

The planner sees the sums per length bin and boundaries on bin edges; brute force sees every
request and every boundary. Both let load alone decide (a target of a minute).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.brute_force import BruteForce
from fleetopt.config.profiles import load_profile
from fleetopt.planner.fixed import best
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.plan import Admission, PlanRequest
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

Tokens = NDArray[np.int64]

SHARED_DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "data"
RATES_PER_S: Final = (100.0, 1_000.0, 10_000.0)
GAMMAS_MAX: Final = (1.0, 2.0)
PROFILES: Final = {
    "a100/llama-3-70b/paper": 65_536,
    "h100/qwen3-32b/tp2": 32_768,
    "h200/llama-3.1-70b/tp4": 32_768,
    "h100/llama-3.1-8b/tp1": 32_768,
}
"""Engines and their long contexts."""

_CDF_OUTPUT_SHARE: Final = 0.2
_CDF_SAMPLES: Final = 50_000


@dataclass(frozen=True, slots=True)
class Requests:
    """Lengths of requests, and whether they may be compressed."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    classes: Tokens

    @classmethod
    def unknown(cls, prompt_tokens: Tokens, completion_tokens: Tokens) -> Requests:
        """Requests whose class nobody knows."""
        classes = np.full(prompt_tokens.size, int(Compressibility.UNKNOWN))
        return cls(prompt_tokens, completion_tokens, classes)

    def workload(self, rate_per_s: float) -> Workload:
        """What a sketch keeps of them."""
        return Workload.from_requests(
            self.prompt_tokens, self.completion_tokens, rate_per_s, self.classes
        )

    def brute_force(self, asked: PlanRequest) -> BruteForce:
        """Every fleet for them."""
        share = np.array([1.0, 0.0, asked.compressible_share])[self.classes]
        return BruteForce(self.prompt_tokens, self.completion_tokens, asked, share)


@dataclass(frozen=True, slots=True)
class Regret:
    """One question, answered by the planner and by brute force."""

    profile: str
    workload: str
    admission: str
    gamma_max: float
    rate_per_s: float
    planned_usd_per_h: float
    """The planner's fleet at the planner's price."""
    priced_usd_per_h: float
    """The planner's boundary and γ, priced request by request."""
    least_usd_per_h: float
    """The cheapest fleet of brute force."""
    replica_usd_per_h: float
    boundary_tokens: int
    least_boundary_tokens: int

    @property
    def planned_ratio(self) -> float:
        """What the planner's fleet costs more than the cheapest, as a share of that."""
        return self.planned_usd_per_h / self.least_usd_per_h - 1.0

    @property
    def choice_ratio(self) -> float:
        """The part of it that is the choice of boundary and γ: the rest is caution in pricing."""
        return self.priced_usd_per_h / self.least_usd_per_h - 1.0

    @property
    def replicas(self) -> float:
        """The same in replicas."""
        return (self.planned_usd_per_h - self.least_usd_per_h) / self.replica_usd_per_h

    def exceeds(self, ratio: float) -> bool:
        """More than this share, and more than the one replica that rounding is worth."""
        return self.planned_ratio > ratio and self.replicas > 1.01


def chat(count: int = 20_000) -> Requests:
    """Short prompts, a few hundred tokens out."""
    return Requests.unknown(*_lognormal(1, count, (900.0, 180.0), (0.8, 0.7), 16_384))


def code(count: int = 20_000) -> Requests:
    """Longer prompts, a line or two out."""
    return Requests.unknown(*_lognormal(2, count, (1_500.0, 20.0), (0.9, 0.8), 16_384))


def long_context(count: int = 20_000) -> Requests:
    """Long conversations."""
    return Requests.unknown(*_lognormal(3, count, (5_900.0, 200.0), (1.15, 0.8), 32_768))


def mixed(count: int = 20_000) -> Requests:
    """Chat and long conversations half and half, a third of each class."""
    one, other = chat(count // 2), long_context(count // 2)
    prompt = np.concatenate([one.prompt_tokens, other.prompt_tokens])
    completion = np.concatenate([one.completion_tokens, other.completion_tokens])
    classes = np.random.default_rng(4).integers(0, len(Compressibility), prompt.size)
    return Requests(prompt, completion, classes)


def from_trace(name: str) -> Requests:
    """All requests of one of the Azure traces."""
    file = SHARED_DATA / f"traces/azure_llm_2023_{name}.csv"
    rows = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(1, 2), dtype=np.int64)
    return Requests.unknown(rows[:, 0], rows[:, 1])


def from_cdf(name: str) -> Requests:
    """Evenly spaced quantiles of a distribution of total tokens, a fifth of each as output."""
    document = json.loads((SHARED_DATA / f"cdf/{name}_cdf.json").read_text())
    points = np.array(document["cdf"] if isinstance(document, dict) else document, dtype=float)
    tokens, shares = np.vstack([[0.0, 0.0], points]).T
    at = (np.arange(_CDF_SAMPLES) + 0.5) / _CDF_SAMPLES
    length = np.ceil(np.interp(at, shares, tokens)).astype(np.int64)
    completion = np.maximum((length * _CDF_OUTPUT_SHARE).astype(np.int64), 1)
    return Requests.unknown(length - completion, completion)


GENERATED: Final[dict[str, Callable[[], Requests]]] = {
    "generated chat": chat,
    "generated code": code,
    "generated long": long_context,
    "generated mix": mixed,
}
SHARED: Final[dict[str, Callable[[], Requests]]] = {
    "azure chat trace": lambda: from_trace("conv"),
    "azure code trace": lambda: from_trace("code"),
    "azure cdf": lambda: from_cdf("azure"),
    "agent-heavy cdf": lambda: from_cdf("agent_heavy"),
}


def question(
    profile: str, admission: Admission = Admission.STATISTICAL, gamma_max: float = 2.0
) -> PlanRequest:
    """Both pools on one engine, a target that load alone decides, everything else as it ships."""
    engine = load_profile(profile)
    return PlanRequest(
        engine, engine, PROFILES[profile], TtftTarget(60.0), admission, gamma_max=gamma_max
    )


def compare(workload: str, requests: Requests, asked: PlanRequest) -> list[Regret]:
    """Ask both, at every rate."""
    force = requests.brute_force(asked)
    return [_compare(workload, requests, force, rate_per_s) for rate_per_s in RATES_PER_S]


def _compare(workload: str, requests: Requests, force: BruteForce, rate_per_s: float) -> Regret:
    asked = force.asked
    planned = best(requests.workload(rate_per_s), asked, None)
    if planned is None:
        raise RuntimeError(f"no fleet serves {workload} within a minute on {asked.long_profile}")
    _, least = force.cheapest(rate_per_s)
    _, priced = force.cost_at(planned.boundary_tokens, planned.gamma, rate_per_s)
    return Regret(
        profile=asked.long_profile.name,
        workload=workload,
        admission=asked.admission.value,
        gamma_max=asked.gamma_max,
        rate_per_s=rate_per_s,
        planned_usd_per_h=planned.cost_per_h,
        priced_usd_per_h=priced,
        least_usd_per_h=least.cost_usd_per_h,
        replica_usd_per_h=asked.long_profile.price_usd_per_replica_h,
        boundary_tokens=planned.boundary_tokens,
        least_boundary_tokens=least.boundary_tokens,
    )


def measure(quick: bool = False) -> Sequence[Regret]:
    """All questions; those of the shared data only where it is present."""
    return list(_measure(quick))


def _measure(quick: bool) -> Iterator[Regret]:
    sources = {**(SHARED if SHARED_DATA.is_dir() else {}), **GENERATED}
    for name, source in sources.items():
        requests = source()
        profiles = list(PROFILES)[: 1 if quick else None]
        for profile, admission, gamma_max in product(profiles, Admission, GAMMAS_MAX):
            yield from compare(name, requests, question(profile, admission, gamma_max))


def _lognormal(
    seed: int, count: int, median: tuple[float, float], sigma: tuple[float, float], most: int
) -> tuple[Tokens, Tokens]:
    rng = np.random.default_rng(seed)
    prompt = rng.lognormal(np.log(median[0]), sigma[0], count).astype(np.int64) + 1
    completion = rng.lognormal(np.log(median[1]), sigma[1], count).astype(np.int64) + 1
    completion = np.minimum(completion, most // 2)
    return np.minimum(prompt, most - completion), completion
