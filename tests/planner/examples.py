"""Engines and traffic that the planner's tests share."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleetopt.planner.cost import CostUnit
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

PAPER = EngineProfile(
    "paper", "a100", "llama", 1, 8e-3, 0.0, 0.65e-3 / 8192, 0.0, 0.0, 512, 1_048_576, 2.21
)
H100 = EngineProfile(
    "h100", "h100", "qwen", 2, 13.43e-3, 25.8e-6, 42.2e-9, 46.9e-6, 2.56e-9, 2048, 284_000, 3.0
)

Tokens = NDArray[np.int64]

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Properties are about the planner, not about how busy the machine is."""


def lognormal(
    seed: int, count: int, median: tuple[float, float], sigma: tuple[float, float], most: int
) -> tuple[Tokens, Tokens]:
    """Prompt and completion tokens, at least 1 each and together at most `most`."""
    rng = np.random.default_rng(seed)
    prompt = rng.lognormal(np.log(median[0]), sigma[0], count).astype(np.int64) + 1
    completion = rng.lognormal(np.log(median[1]), sigma[1], count).astype(np.int64) + 1
    completion = np.minimum(completion, most // 2)
    return np.minimum(prompt, most - completion), completion


def chat(count: int = 20_000) -> tuple[Tokens, Tokens]:
    """Short prompts, a few hundred tokens out."""
    return lognormal(1, count, (900.0, 180.0), (0.8, 0.7), 16_384)


def code(count: int = 20_000) -> tuple[Tokens, Tokens]:
    """Longer prompts, a line or two out."""
    return lognormal(2, count, (1_500.0, 20.0), (0.9, 0.8), 16_384)


def long_context(count: int = 20_000) -> tuple[Tokens, Tokens]:
    """Long conversations with a mean prompt of 8,600 tokens."""
    return lognormal(3, count, (5_900.0, 200.0), (1.15, 0.8), 32_768)


def request_for(engine: EngineProfile, target: str = "60s", **changes: object) -> PlanRequest:
    """Both pools on one engine, 32,768 tokens of context."""
    fields: dict[str, object] = {"long_context_tokens": 32_768, **changes}
    slo = TtftTarget.parse(target)
    return PlanRequest(engine, engine, slo_ttft_p99=slo, **fields)  # type: ignore[arg-type]


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Mixtures of a few lognormal archetypes, of any compressibility, up to 65,536 tokens."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    prompt, completion = [], []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 400))
        i = rng.lognormal(np.log(draw(st.floats(20, 20_000))), draw(st.floats(0.05, 1.5)), count)
        o = rng.lognormal(np.log(draw(st.floats(1, 1_500))), draw(st.floats(0.05, 1.5)), count)
        prompt.append(np.minimum(i, 60_000).astype(np.int64))
        completion.append(np.minimum(o, 5_000).astype(np.int64))
    i, o = np.concatenate(prompt), np.concatenate(completion)
    classes = rng.integers(0, 3, i.size)
    rate = draw(st.floats(0.01, 3_000.0))
    dispersion = draw(st.sampled_from([1.0, 1.0, 4.0, 60.0]))
    cached = draw(st.sampled_from([None, None, 0.3, 1.0]))
    if cached is not None:  # some prompts are found in the cache to different lengths, some not
        cached = (i * rng.choice([0.0, 0.5 * cached, cached], i.size)).astype(np.int64)
    return Workload.from_requests(i, o, rate, classes, dispersion, cached_tokens=cached)


@st.composite
def engines(draw: st.DrawFn) -> EngineProfile:
    """Profiles around those of real GPUs, prefill free or not, idle power known or not."""
    free = draw(st.booleans())
    max_power_w = draw(st.floats(200.0, 1_200.0))
    return EngineProfile(
        name="drawn",
        gpu="gpu",
        model="model",
        gpus_per_replica=draw(st.sampled_from([1, 2, 4])),
        base_iteration_s=draw(st.floats(2e-3, 4e-2)),
        per_sequence_s=draw(st.floats(0.0, 8e-5)),
        per_context_token_s=draw(st.floats(5e-9, 2e-7)),
        prefill_token_s=0.0 if free else draw(st.floats(6e-6, 2e-4)),
        prefill_token_context_s=0.0 if free else draw(st.floats(0.0, 1e-8)),
        prefill_chunk_tokens=draw(st.sampled_from([512, 2048, 8192])),
        kv_capacity_tokens=draw(st.integers(70_000, 2_000_000)),
        price_usd_per_gpu_h=draw(st.floats(0.5, 10.0)),
        idle_power_w=draw(st.one_of(st.none(), st.floats(20.0, max_power_w))),
        max_power_w=max_power_w,
        carbon_g_per_kwh=draw(st.floats(10.0, 900.0)),
    )


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Targets from loose to tight, constant and length-aware, either admission."""
    engine = draw(engines())
    other = draw(st.one_of(st.just(engine), engines()))
    return PlanRequest(
        short_profile=other,
        long_profile=engine,
        long_context_tokens=draw(st.sampled_from([8_192, 32_768, 40_960, 65_536])),
        slo_ttft_p99=TtftTarget(
            draw(st.sampled_from([0.3, 1.0, 5.0, 60.0])), draw(st.sampled_from([0.0, 2e-4, 1e-3]))
        ),
        admission=draw(st.sampled_from(Admission)),
        max_utilization=draw(st.floats(0.5, 0.95)),
        gamma_max=draw(st.sampled_from([1.0, 1.5, 2.0, 4.0])),
        compressible_share=round(draw(st.floats(0.0, 1.0)), 6),
        compression_penalty_usd=draw(st.sampled_from([0.0, 1e-6, 1e-4])),
        min_replicas=draw(st.sampled_from([1, 1, 3])),
        max_replicas=draw(st.sampled_from([None, None, 3, 50])),
        node_availability=draw(st.sampled_from([1.0, 0.97])),
        minimise=draw(st.sampled_from(CostUnit)),
    )
