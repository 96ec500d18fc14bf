"""Traffic, engines and windows that the replanner's tests share."""

from __future__ import annotations

from functools import cache

import numpy as np

from fleetopt.planner.effects import (
    Effect,
    Event,
    Observed,
    Publish,
    RaiseAlert,
    ResolveAlert,
    Trigger,
)
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.plan import Admission, PlanRequest, Workload
from fleetopt.planner.recommendation import Evidence, Recommendation
from fleetopt.planner.replanner import ReplanConfig, ReplannerState, step
from fleetopt.planner.target import TtftTarget

SLICE_S = 60.0
START_S = 1_700_000_000.0

ENGINE = EngineProfile(
    name="a100/llama/paper",
    gpu="a100",
    model="llama",
    gpus_per_replica=1,
    base_iteration_s=8e-3,
    per_sequence_s=0.0,
    per_context_token_s=8e-8,
    prefill_token_s=0.0,
    prefill_token_context_s=0.0,
    prefill_chunk_tokens=512,
    kv_capacity_tokens=2**20,
    price_usd_per_gpu_h=2.21,
)
REQUEST = PlanRequest(
    short_profile=ENGINE,
    long_profile=ENGINE,
    long_context_tokens=65_536,
    slo_ttft_p99=TtftTarget(60.0),
    admission=Admission.RESERVED,
)
CONFIG = ReplanConfig(fleet="chat", request=REQUEST)


@cache
def requests(median_tokens: int, count: int = 4_000) -> Workload:
    """Log-normal total tokens around a median, four fifths of them prompt."""
    random = np.random.default_rng(median_tokens)
    total = np.clip(random.lognormal(np.log(median_tokens), 1.0, count), 10, 60_000).astype(int)
    prompt = total * 4 // 5
    return Workload.from_requests(prompt, total - prompt, 100.0)


def short_traffic(rate_per_s: float = 100.0) -> Workload:
    """Traffic that wants a low boundary."""
    return requests(800).scaled_to(rate_per_s)


def long_traffic(rate_per_s: float = 100.0) -> Workload:
    """Traffic that wants a high boundary: the low one has a regret far over the limit."""
    return requests(5_000).scaled_to(rate_per_s)


NO_TRAFFIC = Workload.from_requests([], [], 0.0)


def window(index: int, workload: Workload | None = None, samples: int | None = None) -> Evidence:
    """The window of an hour that ends with slice `index`."""
    to_s = START_S + index * SLICE_S
    rate = 1.0 if workload is None else workload.arrival_rate_per_s
    if samples is None:
        samples = 0 if workload is None else workload.sample_count
    return Evidence(
        window_from_s=to_s - 60 * SLICE_S,
        window_to_s=to_s,
        sample_count=samples,
        measured_slices=60,
        window_slices=60,
        planned_arrival_rate_per_s=rate,
        mean_arrival_rate_per_s=rate,
        peak_arrival_rate_per_s=rate,
    )


def observed(
    workload: Workload,
    index: int,
    trigger: Trigger = Trigger.INTERVAL,
    samples: int | None = None,
) -> Observed:
    """A workload seen at the close of slice `index`."""
    return Observed(workload, window(index, workload, samples), trigger)


class Fleet:
    """A replanner with its state and all that it has said."""

    def __init__(self, config: ReplanConfig = CONFIG) -> None:
        self.config = config
        self.state = ReplannerState()
        self.effects: tuple[Effect, ...] = ()

    @property
    def last(self) -> Recommendation:
        assert self.state.last is not None
        return self.state.last

    @property
    def counts(self) -> tuple[int | None, int | None]:
        return self.last.short_replicas, self.last.long_replicas

    def see(
        self,
        workload: Workload,
        index: int,
        trigger: Trigger = Trigger.INTERVAL,
        samples: int | None = None,
    ) -> Recommendation | None:
        """Step; what was published, if anything."""
        return self.take(observed(workload, index, trigger, samples), START_S + index * SLICE_S)

    def take(self, event: Event, now_s: float) -> Recommendation | None:
        self.state, self.effects = step(self.state, event, now_s, self.config)
        return next((e.recommendation for e in self.effects if isinstance(e, Publish)), None)

    @property
    def raised(self) -> list[RaiseAlert]:
        return [effect for effect in self.effects if isinstance(effect, RaiseAlert)]

    @property
    def resolved(self) -> list[ResolveAlert]:
        return [effect for effect in self.effects if isinstance(effect, ResolveAlert)]
