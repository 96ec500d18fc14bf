"""What every plan must hold, over random traffic, engines, targets and limits."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings

from fleetopt.errors import ConfigError
from fleetopt.planner.bins import EDGES_TOKENS
from fleetopt.planner.moments import TokenMoments
from fleetopt.planner.plan import (
    Admission,
    BaselineName,
    Binding,
    Infeasible,
    InfeasibleReason,
    Plan,
    PlanRequest,
    ReasonCode,
    loads,
    plan,
    plan_pinned,
    search,
)
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload
from tests.planner.examples import (
    H100,
    PAPER,
    PATIENT,
    Tokens,
    chat,
    code,
    long_context,
    request_for,
    requests,
    workloads,
)


def numbers(value: object) -> list[float]:
    """Every number in nested containers."""
    if isinstance(value, dict):
        return [n for inner in value.values() for n in numbers(inner)]
    if isinstance(value, list | tuple):
        return [n for inner in value for n in numbers(inner)]
    return [float(value)] if isinstance(value, int | float) else []


@settings(PATIENT, max_examples=150)
@given(workloads(), requests())
def test_every_plan_is_stable_and_meets_its_target(
    workload: Workload, request: PlanRequest
) -> None:
    found = plan(workload, request)
    if isinstance(found, Infeasible):
        assert found.message
        return
    assert all(math.isfinite(number) for number in numbers(asdict(found)))
    for pool in (found.short, found.long):
        if pool is None:
            continue
        assert request.min_replicas <= pool.replicas <= (request.max_replicas or math.inf)
        assert pool.max_num_seqs >= 1
        assert pool.utilization <= request.max_utilization * (1 + 1e-9)
        assert pool.slot_occupancy <= 1.0
        assert pool.ttft_violation_share <= 0.01
        if request.slo_ttft_p99.per_prompt_token_s == 0.0:
            assert pool.ttft_p99_s <= request.slo_ttft_p99.base_s * 1.001
    assert found.gpus == sum(
        pool.replicas * engine.gpus_per_replica
        for pool, engine in (
            (found.short, request.short_profile if found.long else request.long_profile),
            (found.long, request.long_profile),
        )
        if pool
    )
    assert 1.0 <= found.gamma <= request.gamma_max
    assert found.compress_up_to_tokens <= request.long_context_tokens
    assert found.tokens_after_per_s <= found.tokens_before_per_s * (1 + 1e-12)
    assert 0.0 <= found.compressed_share <= 1.0
    assert 0.0 <= found.unservable_share < 1.0


@settings(PATIENT, max_examples=150)
@given(workloads(), requests())
def test_co_design_costs_no_more_than_retrofit_and_retrofit_no_more_than_none(
    workload: Workload, request: PlanRequest
) -> None:
    found = plan(workload, request)
    if isinstance(found, Infeasible):
        return
    costs = {baseline.name: baseline for baseline in found.baselines}
    assert list(costs) == list(BaselineName)
    five = costs[BaselineName.CO_DESIGNED]
    four = costs[BaselineName.COMPRESSION_RETROFITTED]
    three = costs[BaselineName.TWO_POOLS_NO_COMPRESSION]
    assert five.minimised_per_h == pytest.approx(found.minimised_per_h)
    assert five.saving_ratio == 0.0
    assert four.feasible == three.feasible
    if three.feasible:
        tiny = 1e-9 * three.minimised_per_h
        assert five.minimised_per_h <= four.minimised_per_h + tiny
        assert four.minimised_per_h <= three.minimised_per_h + tiny
        assert four.short_replicas == three.short_replicas
        assert four.long_replicas <= three.long_replicas
    single = costs[BaselineName(f"one_pool_{request.admission}")]
    if single.feasible:
        assert found.minimised_per_h <= single.minimised_per_h * (1 + 1e-9)


@settings(PATIENT, max_examples=60)
@given(workloads(), requests())
def test_pinning_the_chosen_boundary_changes_nothing_and_another_costs_no_less(
    workload: Workload, request: PlanRequest
) -> None:
    found = plan(workload, request)
    if isinstance(found, Infeasible):
        return
    pinned = plan_pinned(workload, request, found.boundary_tokens)
    assert isinstance(pinned, Plan)
    assert pinned.minimised_per_h == pytest.approx(found.minimised_per_h)
    assert ReasonCode.BOUNDARY_PINNED in pinned.reasons
    other = plan_pinned(workload, request, int(EDGES_TOKENS[30]))
    if isinstance(other, Plan):
        assert other.boundary_tokens == EDGES_TOKENS[30]
        assert other.minimised_per_h >= found.minimised_per_h * (1 - 1e-9)


@settings(PATIENT, max_examples=60)
@given(workloads(), requests())
def test_loads_of_the_planned_fleet_are_its_utilization(
    workload: Workload, request: PlanRequest
) -> None:
    found = plan(workload, request)
    if isinstance(found, Infeasible):
        return
    fleet = (found.boundary_tokens, found.gamma, found.short_replicas, found.long_replicas)
    short, long = loads(workload, request, *fleet)
    assert short == pytest.approx(found.short.utilization)
    assert long == pytest.approx(found.long.utilization if found.long else 0.0)


class TestLoads:
    def test_more_traffic_than_planned_is_overload(self) -> None:
        workload = Workload.from_requests(*chat(2_000), 200.0)
        request = request_for(H100)
        short, long = loads(workload.scaled_to(2_000.0), request, 4_096, 1.0, 10, 5)
        assert short > 1.0
        assert long > 0.0

    def test_no_traffic_is_no_load(self) -> None:
        assert loads(Workload(TokenMoments.zero(), 0.0), request_for(H100), 4_096, 1.0, 3, 2) == (
            0.0,
            0.0,
        )

    def test_traffic_without_replicas_is_infinite_load(self) -> None:
        workload = Workload.from_requests(*long_context(2_000), 5.0)
        short, long = loads(workload, request_for(H100), 4_096, 1.0, 3, 0)
        assert 0.0 < short < math.inf
        assert long == math.inf

    def test_gamma_moves_load_from_long_to_short(self) -> None:
        workload = Workload.from_requests(*chat(2_000), 200.0)
        before = loads(workload, request_for(H100), 1_024, 1.0, 10, 10)
        after = loads(workload, request_for(H100, gamma_max=1.0), 1_024, 2.0, 10, 10)
        assert after[0] > before[0]
        assert after[1] < before[1]

    @pytest.mark.parametrize(
        ("fleet", "message"),
        [
            ((5_000, 1.0, 1, 1), "boundary_tokens"),
            ((65_536, 1.0, 1, 1), "boundary_tokens"),
            ((4_096, 0.5, 1, 1), "gamma"),
            ((4_096, math.nan, 1, 1), "gamma"),
            ((4_096, 1.0, -1, 1), "replicas"),
        ],
    )
    def test_a_fleet_out_of_range_is_refused(
        self, fleet: tuple[int, float, int, int], message: str
    ) -> None:
        workload = Workload.from_requests([100], [10], 1.0)
        with pytest.raises(ConfigError, match=message):
            loads(workload, request_for(H100), *fleet)


class TestOnePool:
    def test_it_is_reported_as_short_with_the_long_context(self) -> None:
        request = request_for(H100, "6s", gamma_max=1.0)
        found = plan(Workload.from_requests(*long_context(), 8.0), request)
        assert isinstance(found, Plan)
        assert found.boundary_tokens == found.short.context_tokens == 32_768
        assert (found.gamma, found.long, found.long_replicas) == (1.0, None, 0)
        assert found.reasons[0] is ReasonCode.SINGLE_POOL_SUFFICIENT
        assert found.marginal_gpus_below is None
        assert found.compressed_share == 0.0

    def test_it_can_be_asked_for(self) -> None:
        workload = Workload.from_requests(*chat(), 300.0)
        free = plan(workload, request_for(H100, "250ms+0.1ms/token"))
        pinned = plan_pinned(workload, request_for(H100, "250ms+0.1ms/token"), 32_768)
        assert isinstance(free, Plan)
        assert isinstance(pinned, Plan)
        assert free.long_replicas > 0
        assert pinned.long_replicas == 0
        assert pinned.minimised_per_h > free.minimised_per_h


class TestInfeasible:
    def test_no_requests(self) -> None:
        found = plan(Workload(TokenMoments.zero(), 0.0), request_for(H100))
        assert isinstance(found, Infeasible)
        assert found.reason is InfeasibleReason.NO_REQUESTS
        assert search(Workload.from_requests([10], [1], 1.0), request_for(H100)) is not None

    def test_nothing_fits_the_context(self) -> None:
        found = plan(Workload.from_requests([60_000], [10], 1.0), request_for(H100))
        assert isinstance(found, Infeasible)
        assert found.reason is InfeasibleReason.NOTHING_SERVABLE

    def test_the_context_exceeds_the_cache(self) -> None:
        small = replace(H100, kv_capacity_tokens=30_000)
        found = plan(Workload.from_requests([600], [10], 1.0), request_for(small))
        assert isinstance(found, Infeasible)
        assert found.reason is InfeasibleReason.CONTEXT_EXCEEDS_KV

    @pytest.mark.parametrize("target", ["2s", "60s"])
    def test_too_few_replicas_allowed(self, target: str) -> None:
        workload = Workload.from_requests(*chat(), 1_000.0)
        found = plan(workload, request_for(H100, target, max_replicas=5))
        assert isinstance(found, Infeasible)
        assert found.reason is InfeasibleReason.MAX_REPLICAS
        enough = plan(workload, request_for(H100, target, max_replicas=200))
        assert isinstance(enough, Plan)
        assert max(enough.short_replicas, enough.long_replicas) <= 200

    @pytest.mark.parametrize("slope", ["", "+0.05ms/token"])
    @pytest.mark.parametrize("traffic", [chat, code, long_context])
    def test_the_tightest_target_is_tight(
        self, slope: str, traffic: Callable[[], tuple[Tokens, Tokens]]
    ) -> None:
        workload = Workload.from_requests(*traffic(), 20.0)
        found = plan(workload, request_for(H100, f"1ms{slope}"))
        assert isinstance(found, Infeasible)
        assert found.reason is InfeasibleReason.SLO_UNREACHABLE
        tightest = found.tightest_slo
        assert tightest is not None
        assert str(tightest) in found.message
        reached = plan(workload, replace(request_for(H100), slo_ttft_p99=tightest))
        assert isinstance(reached, Plan)
        missed = replace(tightest, base_s=tightest.base_s * 0.9)
        assert isinstance(
            plan(workload, replace(request_for(H100), slo_ttft_p99=missed)), Infeasible
        )


class TestCompression:
    def workload(self, kind: int | None = None) -> Workload:
        """Chat traffic of one class."""
        prompt, completion = chat()
        classes = None if kind is None else np.full(prompt.size, kind)
        return Workload.from_requests(prompt, completion, 500.0, classes)

    def test_fixed_requests_are_never_compressed(self) -> None:
        found = plan(self.workload(1), request_for(H100, compressible_share=1.0))
        assert isinstance(found, Plan)
        assert found.compressed_share == 0.0
        assert found.tokens_after_per_s == found.tokens_before_per_s

    def test_the_prior_counts_for_unknown_ones_only(self) -> None:
        request = request_for(H100, admission=Admission.RESERVED)
        known = plan(self.workload(0), replace(request, compressible_share=0.0))
        certain = plan(self.workload(None), replace(request, compressible_share=1.0))
        never = plan(self.workload(None), replace(request, compressible_share=0.0))
        assert isinstance(known, Plan)
        assert isinstance(certain, Plan)
        assert isinstance(never, Plan)
        assert known.cost_usd_per_h == certain.cost_usd_per_h < never.cost_usd_per_h
        assert ReasonCode.COMPRESSION_PAYS in known.reasons
        assert ReasonCode.GAMMA_AT_LIMIT in known.reasons
        assert ReasonCode.COMPRESSION_NOT_WORTH_IT in never.reasons

    def test_a_high_price_keeps_prompts_whole(self) -> None:
        request = request_for(H100, admission=Admission.RESERVED)
        dear = plan(self.workload(), replace(request, compression_penalty_usd=1.0))
        cheap = plan(self.workload(), replace(request, compression_penalty_usd=0.0))
        assert isinstance(dear, Plan)
        assert isinstance(cheap, Plan)
        assert dear.compressed_per_s == 0.0
        assert cheap.compressed_per_s > 0.0
        assert cheap.tokens_after_per_s < cheap.tokens_before_per_s
        assert cheap.compression_usd_per_h == 0.0


def test_engines_and_their_flags_are_those_of_each_pool() -> None:
    cheap = replace(H100, name="cheap", kv_capacity_tokens=100_000, price_usd_per_gpu_h=0.3)
    request = replace(request_for(H100, admission=Admission.RESERVED), short_profile=cheap)
    found = plan(Workload.from_requests(*chat(), 200.0), request)
    assert isinstance(found, Plan)
    assert found.long is not None
    assert (found.short.profile, found.long.profile) == ("cheap", "h100")
    assert found.short.engine_flags == (
        f"--max-model-len={found.boundary_tokens}",
        f"--max-num-seqs={cheap.slots_reserved(found.boundary_tokens)}",
        "--max-num-batched-tokens=2048",
    )


def test_the_binding_constraint_is_named() -> None:
    workload = Workload.from_requests(*chat(), 200.0)
    loose = plan_pinned(workload, request_for(H100, "60s"), 32_768)
    tight = plan_pinned(workload, request_for(H100, "400ms+0.1ms/token"), 32_768)
    tiny = plan_pinned(workload.scaled_to(0.01), request_for(H100, min_replicas=2), 32_768)
    assert isinstance(loose, Plan)
    assert isinstance(tight, Plan)
    assert isinstance(tiny, Plan)
    assert loose.short.binding is Binding.UTILIZATION
    assert tight.short.binding is Binding.PREFILL_TTFT
    assert tiny.short.binding is Binding.MINIMUM
    assert ReasonCode.SLO_BINDS in tight.reasons


def test_unavailable_nodes_are_paid_for() -> None:
    workload = Workload.from_requests(*chat(), 1_000.0)
    all_up = plan_pinned(workload, request_for(H100), 32_768)
    some_down = plan_pinned(workload, request_for(H100, node_availability=0.9), 32_768)
    assert isinstance(all_up, Plan)
    assert isinstance(some_down, Plan)
    assert some_down.short_replicas == pytest.approx(all_up.short_replicas / 0.9, abs=1)
    assert some_down.short.utilization <= 0.85


def test_marginal_costs_bracket_the_chosen_boundary() -> None:
    found = plan(
        Workload.from_requests(*chat(), 1_000.0), request_for(PAPER, admission=Admission.RESERVED)
    )
    assert isinstance(found, Plan)
    assert found.marginal_gpus_below is not None
    assert found.marginal_gpus_above is not None
    assert found.marginal_gpus_below > -1.0
    assert found.marginal_gpus_above > -1.0


def test_requests_over_the_long_context_are_left_out_and_reported() -> None:
    workload = Workload.from_requests([1_000, 1_000, 1_000, 50_000], [10] * 4, 100.0)
    found = plan_pinned(workload, request_for(H100), 32_768)
    assert isinstance(found, Plan)
    assert found.unservable_share == pytest.approx(0.25)
    assert found.short.arrival_rate_per_s == pytest.approx(75.0)
    assert ReasonCode.REQUESTS_OVER_LONG_CONTEXT in found.reasons


def test_search_is_the_plan_without_its_figures() -> None:
    workload = Workload.from_requests(*chat(), 500.0)
    found = plan(workload, request_for(H100))
    assert isinstance(found, Plan)
    fleet = (found.boundary_tokens, found.gamma, found.short_replicas, found.long_replicas)
    assert search(workload, request_for(H100)) == fleet


def test_p99_is_exact_beside_rare_requests_that_take_far_longer() -> None:
    lengths = [200] * 9_999 + [120_000]
    workload = Workload.from_requests(lengths, [100] * len(lengths), 20.0)
    request = request_for(H100, "30s", min_replicas=20, max_replicas=20, gamma_max=1.0)
    request = replace(request, long_context_tokens=131_072, boundary_tokens=131_072)
    found = plan(workload, request)
    assert isinstance(found, Plan)
    p99 = found.short.ttft_p99_s
    assert isinstance(plan(workload, replace(request, slo_ttft_p99=TtftTarget(p99))), Plan)
    tighter = replace(request, slo_ttft_p99=TtftTarget(p99 * 0.999))
    assert isinstance(plan(workload, tighter), Infeasible)
