"""Fleets of many pools: against plans, against every set of boundaries, against their requests."""

import math
from bisect import bisect_left
from dataclasses import asdict, replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetopt.errors import ConfigError
from fleetopt.planner.bins import EDGES_TOKENS
from fleetopt.planner.cost import rate
from fleetopt.planner.cuts import cuts
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.many_pools import ManyPools, PoolChain, many_pools
from fleetopt.planner.moments import TokenMoments
from fleetopt.planner.plan import Infeasible, InfeasibleReason, Plan, PlanRequest, plan
from fleetopt.planner.pool import Pools, least_replicas, violation_share
from fleetopt.planner.request import Admission
from fleetopt.planner.service import ITERATIONS, PROMPT, PROMPT_SQ, REQUESTS
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.ttft import Bursts
from fleetopt.planner.workload import Workload
from tests.planner.examples import (
    H100,
    PAPER,
    PATIENT,
    chat,
    engines,
    lognormal,
    long_context,
    request_for,
    requests,
    workloads,
)
from tests.planner.test_plan import numbers
from tests.planner.test_search import compress_each

H200 = replace(H100, name="h200", base_iteration_s=9e-3, price_usd_per_gpu_h=4.2)
LENGTH_AWARE = "300ms+0.2ms/token"


def found_for(
    workload: Workload, request: PlanRequest, most: int = 4, engines: tuple[EngineProfile, ...] = ()
) -> ManyPools:
    found = many_pools(workload, request, most, engines)
    assert isinstance(found, ManyPools)
    return found


def fleets(found: ManyPools) -> list[PoolChain]:
    return [one.found for one in found.counts if isinstance(one.found, PoolChain)]


class TestAgainstPlans:
    @settings(PATIENT, max_examples=60)
    @given(workloads(), requests())
    def test_up_to_two_pools_are_what_plan_finds(
        self, workload: Workload, request: PlanRequest
    ) -> None:
        found = many_pools(workload, request, 2)
        planned = plan(workload, request)
        if isinstance(planned, Infeasible):
            assert found == planned
            return
        assert isinstance(found, ManyPools)
        assert found.at_most_per_h(2) == pytest.approx(planned.minimised_per_h, rel=1e-8)
        one = plan(workload, replace(request, boundary_tokens=request.long_context_tokens))
        assert isinstance(one, Plan) == isinstance(found.counts[0].found, PoolChain)
        if isinstance(one, Plan):
            single = found.counts[0].found
            assert isinstance(single, PoolChain)
            assert single.minimised_per_h == pytest.approx(one.minimised_per_h)
            assert replace(single.pools[0], name="short") == one.short

    def test_two_pools_have_the_plans_figures(self) -> None:
        workload = Workload.from_requests(*long_context(), 24.0)
        request = replace(request_for(H100, LENGTH_AWARE), short_profile=H200)
        planned = plan(workload, request)
        assert isinstance(planned, Plan)
        assert planned.long
        two = found_for(workload, request).counts[1].found
        assert isinstance(two, PoolChain)
        assert two.cuts[0].boundary_tokens == planned.boundary_tokens
        assert two.cuts[0].gamma == planned.gamma
        assert two.cuts[0].compress_up_to_tokens == planned.compress_up_to_tokens
        assert two.compressed_share == pytest.approx(planned.compressed_share)
        names = ({"name": "short"}, {"name": "long"})
        both = (asdict(pool) | name for pool, name in zip(two.pools, names, strict=True))
        for mine, theirs in zip(both, (planned.short, planned.long), strict=True):
            assert mine == pytest.approx(asdict(theirs))


class TestAgainstBruteForce:
    @settings(PATIENT, max_examples=15)
    @given(st.data())
    def test_no_set_of_boundaries_and_bands_is_cheaper(self, data: st.DataObject) -> None:
        workload, request, choice = data.draw(small_cases())
        found = many_pools(workload, request, 4, choice)
        lowest = [brute_force(workload, request, choice, pools) for pools in range(1, 5)]
        if isinstance(found, Infeasible):
            assert all(map(math.isinf, lowest))
            return
        costs = [one.cost_per_h for one in found.counts]
        assert costs == pytest.approx(lowest, rel=1e-8)

    @pytest.mark.parametrize("target", ["60s", "90ms", "60ms+0.2ms/token"])
    @pytest.mark.parametrize("admission", Admission)
    def test_no_set_of_boundaries_is_cheaper(self, target: str, admission: Admission) -> None:
        traffic = lognormal(11, 4_000, (120.0, 40.0), (0.6, 0.6), 256)
        workload = Workload.from_requests(*traffic, 900.0)
        request = request_for(
            H100, target, long_context_tokens=256, gamma_max=1.2, admission=admission
        )
        found = many_pools(workload, request, 3)
        lowest = [brute_force(workload, request, (), pools) for pools in (1, 2, 3)]
        assert isinstance(found, ManyPools)
        assert [one.cost_per_h for one in found.counts] == pytest.approx(lowest, rel=1e-8)


@st.composite
def small_cases(
    draw: st.DrawFn,
) -> tuple[Workload, PlanRequest, tuple[EngineProfile, ...]]:
    """Lengths up to 108 or 128 tokens: few enough boundaries to try every set of three."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 300))
    prompt, completion = rng.integers(1, 90, count), rng.integers(0, 60, count)
    workload = Workload.from_requests(
        prompt,
        completion,
        draw(st.floats(1.0, 20_000.0)),
        rng.integers(0, 3, count),
        draw(st.sampled_from([1.0, 8.0])),
    )
    context = draw(st.sampled_from([108, 128]))
    request = replace(
        draw(requests()),
        long_context_tokens=context,
        gamma_max=draw(st.sampled_from([1.0, 1.1, 1.2])),
        slo_ttft_p99=TtftTarget(draw(st.sampled_from([0.05, 0.2, 60.0])), 2e-4),
    )
    if workload.moments.count_per_bin[: int(np.searchsorted(EDGES_TOKENS, context)) + 1].sum() == 0:
        request = replace(request, long_context_tokens=256, gamma_max=1.0)
    choice = draw(st.sampled_from([0, 0, 2]))
    return workload, request, tuple(draw(engines()) for _ in range(choice))


def brute_force(
    workload: Workload, request: PlanRequest, choice: tuple[EngineProfile, ...], pools: int
) -> float:
    """The lowest cost of exactly so many pools, over all sets of cuts."""
    costs: dict[tuple[int, int], float] = {}
    below, last = choice or (request.short_profile,), choice or (request.long_profile,)
    grids = {
        engine: build(workload, replace(request, short_profile=engine, long_profile=engine))
        for engine in (*below, *last)
    }
    grid = grids[last[0]]

    def cost(lower: int, upper: int) -> float:
        if (lower, upper) not in costs:
            at, is_last = np.array([lower]), upper < 0
            made = [
                (engine, grids[engine].long_pools(at))
                if is_last
                else (engine, grids[engine].pools_between(at, np.array([upper])))
                for engine in (last if is_last else below)
            ]
            costs[lower, upper] = min(
                rate(engine, request.minimise).of(
                    fewest(pool, request, grid.bursts), float(pool.load[0])
                )
                for engine, pool in made
            )
            if not is_last:
                penalty = request.compression_penalty * 3_600
                costs[lower, upper] += float(grid.moved[0, upper]) * penalty
        return costs[lower, upper]

    lowest = math.inf
    for rows in combinations(range(1, grid.rows), pools - 1):
        tops = (*rows, grid.rows)[1:]
        bands = (
            range(min(grid.steps - 1, top - row) + 1) for row, top in zip(rows, tops, strict=True)
        )
        for steps in product(*bands):
            cells = [step * grid.rows + row for step, row in zip(steps, rows, strict=True)]
            chain = [ONE_POOL, *cells, -1]
            lowest = min(lowest, sum(cost(a, b) for a, b in pairwise(chain)))
    return lowest


def fewest(pool: Pools, request: PlanRequest, bursts: Bursts) -> float:
    """Replicas of one pool, one batch of one at a time; infinite beyond 64 times its load's."""

    def meets(count: int) -> bool:
        target = request.slo_ttft_p99
        over = violation_share(pool, np.array([float(count)]), request, bursts, target)
        return bool(over[0] <= 0.01)

    floor = float(least_replicas(pool.load, request)[0])
    if not math.isfinite(floor):
        return math.inf
    most = int(min(floor * 64, request.max_replicas or math.inf))
    counts = range(int(floor), most + 1)
    enough = bisect_left(counts, True, key=meets)
    return float(counts[enough]) if enough < len(counts) else math.inf


def test_a_pool_between_two_boundaries_is_the_only_pool_of_its_requests() -> None:
    prompt, completion = chat()
    length = prompt + completion
    low, high = 1_024, 4_096
    within = (length > low) & (length <= high)
    for admission, target in product(Admission, ("60s", LENGTH_AWARE)):
        request = request_for(H100, target, admission=admission)
        grid = build(Workload.from_requests(prompt, completion, 2_000.0), request)
        lower, upper = (np.array([grid.row_of(edge)]) for edge in (low, high))
        pools = grid.pools_between(lower, upper)
        rate_per_s = 2_000.0 * within.sum() / length.size
        alone = Workload.from_requests(prompt[within], completion[within], rate_per_s)
        of = build(alone, replace(request, long_context_tokens=high))
        only = of.long_pools(np.array([ONE_POOL]))
        assert pools.load == pytest.approx(only.load, rel=1e-9)
        assert pools.sums.slot_count == pytest.approx(only.sums.slot_count)
        assert fewest(pools, request, Bursts()) == fewest(only, of.request, Bursts())
        mean = [(one.mix.share * one.mix.tokens).sum() for one in (pools, only)]
        assert mean[0] == pytest.approx(mean[1], rel=1e-9)


def test_what_is_compressed_over_two_boundaries_is_each_request_compressed() -> None:
    traffic = lognormal(4, 20_000, (900.0, 100.0), (0.8, 0.3), 16_384)
    request = request_for(H100, compressible_share=1.0)
    grid = build(Workload.from_requests(*traffic, 1_000.0), request)
    (low, low_step), (high, high_step) = (1_024, 4), (2_048, 8)
    rows = grid.row_of(low), grid.row_of(high)
    lower, upper = (
        np.array([step * grid.rows + row])
        for step, row in zip((low_step, high_step), rows, strict=True)
    )
    tops = [int(grid.boundaries[row + step]) for row, step in zip(rows, (4, 8), strict=True)]
    _, _, below = compress_each(traffic, low, tops[0])
    i, _, at_most = compress_each(traffic, high, tops[1])
    chosen = at_most & ~below
    rate = 1_000.0 / i.size
    pools = grid.pools_between(lower, upper)
    exact = {
        REQUESTS: chosen.sum(),
        ITERATIONS: (i[chosen] / 2048 + 0.5 + traffic[1][chosen]).sum(),
        PROMPT: i[chosen].sum(),
        PROMPT_SQ: (i[chosen].astype(float) ** 2).sum(),
    }
    for feature, expected in exact.items():
        assert pools.sums.per_s[feature, 0] == pytest.approx(expected * rate, rel=0.01)
    mean = (pools.mix.share * pools.mix.tokens).sum()
    assert mean == pytest.approx(i[chosen].mean(), rel=0.01)


@settings(PATIENT, max_examples=30)
@given(workloads(), requests())
def test_no_pool_costs_less_than_its_bound(workload: Workload, request: PlanRequest) -> None:
    made = cuts(workload, request, (request.short_profile,), (request.long_profile,))
    least = made.least()
    lower, upper = np.nonzero(np.isfinite(least))
    some = np.random.default_rng(1).permutation(lower.size)[:300]
    lower, upper = lower[some], upper[some]
    exact = made.price(lower, upper, np.full(lower.size, np.inf))
    assert (least[lower, upper] <= exact * (1 + 1e-9)).all()


@settings(PATIENT, max_examples=40)
@given(workloads(), requests())
def test_every_fleet_serves_all_lengths_within_its_limits(
    workload: Workload, request: PlanRequest
) -> None:
    found = many_pools(workload, request, 3)
    if isinstance(found, Infeasible):
        assert found.message
        return
    assert all(math.isfinite(number) for number in numbers(asdict(found)))
    assert [one.pools for one in found.counts] == [1, 2, 3]
    for fleet in fleets(found):
        assert len(fleet.cuts) == len(fleet.pools) - 1
        assert fleet.pools[0].min_tokens == 0
        assert fleet.pools[-1].context_tokens == request.long_context_tokens
        for pool, cut, above in zip(fleet.pools, fleet.cuts, fleet.pools[1:], strict=False):
            assert pool.context_tokens == cut.boundary_tokens
            assert above.min_tokens == cut.boundary_tokens + 1
            assert cut.boundary_tokens <= cut.compress_up_to_tokens <= above.context_tokens
            assert 1.0 <= cut.gamma <= request.gamma_max
        for pool in fleet.pools:
            assert request.min_replicas <= pool.replicas <= (request.max_replicas or math.inf)
            assert pool.utilization <= request.max_utilization * (1 + 1e-9)
            assert pool.slot_occupancy <= 1.0
            assert pool.ttft_violation_share <= 0.01
        served = sum(pool.arrival_rate_per_s for pool in fleet.pools)
        assert served == pytest.approx(workload.arrival_rate_per_s * (1 - found.unservable_share))


class TestGains:
    @settings(PATIENT, max_examples=25)
    @given(workloads(), requests())
    def test_more_pools_at_most_never_cost_more(
        self, workload: Workload, request: PlanRequest
    ) -> None:
        found = many_pools(workload, request, 3)
        if isinstance(found, Infeasible):
            return
        costs = [found.at_most_per_h(pools) for pools in (1, 2, 3)]
        assert costs == sorted(costs, reverse=True)
        for one in found.counts[1:]:
            fewer = costs[one.pools - 2]
            if one.gain_per_h is None or one.gain_ratio is None:
                assert math.isinf(fewer) or math.isinf(one.cost_per_h)
                continue
            assert one.gain_per_h == pytest.approx(fewer - one.cost_per_h, abs=1e-6 * fewer)
            assert one.gain_ratio == pytest.approx(one.gain_per_h / fewer)
        assert found.counts[0].gain_per_h is None

    def test_reserved_slots_gain_from_every_pool_and_small_traffic_from_none(self) -> None:
        traffic = chat()
        reserved = request_for(H100, admission=Admission.RESERVED, gamma_max=1.0)
        found = found_for(Workload.from_requests(*traffic, 1_000.0), reserved)
        gains = [one.gain_ratio for one in found.counts[1:]]
        assert all(gain and gain > 0.01 for gain in gains)
        assert gains == sorted(gains, key=lambda gain: gain or 0.0, reverse=True)
        assert found.worth == found.counts[-1].found
        tiny = found_for(Workload.from_requests(*traffic, 0.1), reserved)
        assert tiny.worth == tiny.counts[0].found
        assert all(one.gain_ratio and one.gain_ratio < 0 for one in tiny.counts[1:])

    def test_a_pool_that_gains_little_is_worth_it_only_to_who_says_so(self) -> None:
        workload = Workload.from_requests(*chat(), 1_000.0)
        reserved = request_for(H100, admission=Admission.RESERVED, gamma_max=1.0)
        for ratio in (0.0, 0.01, 0.05, 0.2, 0.9):
            found = many_pools(workload, reserved, 4, worth_gain_ratio=ratio)
            assert isinstance(found, ManyPools)
            pools = len(found.worth.pools)
            cost = found.counts[pools - 1].cost_per_h
            for other in found.counts[pools:]:
                assert cost - other.cost_per_h < ratio * cost * (other.pools - pools)
            for other in found.counts[: pools - 1]:
                later = found.counts[other.pools :]
                assert any(
                    other.cost_per_h - one.cost_per_h
                    >= ratio * other.cost_per_h * (one.pools - other.pools)
                    for one in later
                )


class TestEngines:
    def test_a_choice_costs_no_more_than_any_assignment_of_it(self) -> None:
        workload = Workload.from_requests(*long_context(), 40.0)
        request = request_for(H100, LENGTH_AWARE)
        chosen = found_for(workload, request, 3, (H100, H200))
        for short, long in product((H100, H200), repeat=2):
            fixed = replace(request, short_profile=short, long_profile=long)
            for one, other in zip(chosen.counts, found_for(workload, fixed, 3).counts, strict=True):
                assert one.cost_per_h <= other.cost_per_h * (1 + 1e-9)
        best_pair = min(
            found.minimised_per_h
            for short, long in product((H100, H200), repeat=2)
            if isinstance(
                found := plan(workload, replace(request, short_profile=short, long_profile=long)),
                Plan,
            )
        )
        assert chosen.at_most_per_h(2) == pytest.approx(best_pair)

    def test_one_engine_is_no_choice(self) -> None:
        workload = Workload.from_requests(*chat(), 300.0)
        request = replace(request_for(H100, "2s"), short_profile=H200)
        homogeneous = replace(request, short_profile=H100)
        assert many_pools(workload, request, 3, (H100,)) == many_pools(workload, homogeneous, 3)

    def test_an_engine_too_small_for_the_long_context_serves_the_pools_below(self) -> None:
        small = replace(H100, name="small", kv_capacity_tokens=20_000, price_usd_per_gpu_h=0.5)
        workload = Workload.from_requests(*chat(), 200.0)
        request = request_for(H100, "5s")
        found = found_for(workload, request, 2, (small, H100))
        (single,), (below, last) = (fleet.pools for fleet in fleets(found))
        assert (single.profile, below.profile, last.profile) == ("h100", "small", "h100")
        refused = many_pools(workload, request, 2, (small,))
        assert isinstance(refused, Infeasible)
        assert refused.reason is InfeasibleReason.CONTEXT_EXCEEDS_KV


class TestInfeasible:
    def test_no_requests(self) -> None:
        nothing = Workload(TokenMoments.zero(), 0.0)
        found = many_pools(nothing, request_for(H100))
        assert isinstance(found, Infeasible)
        assert found.reason is InfeasibleReason.NO_REQUESTS

    def test_an_unreachable_target_names_the_tightest(self) -> None:
        workload = Workload.from_requests(*chat(), 100.0)
        for engines_ in ((), (H100, H200), (H200, H100)):
            found = many_pools(workload, request_for(H100, "20ms"), 3, engines_)
            assert isinstance(found, Infeasible)
            assert found.reason is InfeasibleReason.SLO_UNREACHABLE
            assert found.tightest_slo
            eased = replace(request_for(H100), slo_ttft_p99=found.tightest_slo)
            assert isinstance(many_pools(workload, eased, 3, engines_), ManyPools)

    def test_few_replicas_a_pool_need_more_pools(self) -> None:
        workload = Workload.from_requests(*chat(), 200.0)
        request = request_for(PAPER, long_context_tokens=16_384, gamma_max=1.0)
        single = plan(workload, replace(request, boundary_tokens=16_384))
        assert isinstance(single, Plan)
        limited = replace(request, max_replicas=-(-single.short_replicas * 2 // 5))
        found = found_for(workload, limited)
        reasons = [
            one.found.reason if isinstance(one.found, Infeasible) else None for one in found.counts
        ]
        assert reasons[:2] == [InfeasibleReason.MAX_REPLICAS] * 2
        assert None in reasons[2:]
        first = next(one for one in found.counts if isinstance(one.found, PoolChain))
        assert first.gain_per_h is None
        assert math.isinf(found.at_most_per_h(2))
        few = replace(request, max_replicas=1)
        assert isinstance(many_pools(workload, few, 3), Infeasible)

    @pytest.mark.parametrize("most", [0, 17, -1])
    def test_a_number_of_pools_out_of_range(self, most: int) -> None:
        workload = Workload.from_requests(*chat(100), 1.0)
        with pytest.raises(ConfigError, match=f"most_pools is {most}; expected 1 to 16"):
            many_pools(workload, request_for(H100), most)

    def test_a_pinned_boundary(self) -> None:
        workload = Workload.from_requests(*chat(100), 1.0)
        with pytest.raises(ConfigError, match="boundary_tokens is 1024; leave it out"):
            many_pools(workload, request_for(H100, boundary_tokens=1_024))

    def test_more_pools_than_there_are_boundaries(self) -> None:
        workload = Workload.from_requests(np.array([50, 60]), np.array([5, 9]), 10.0)
        found = found_for(workload, request_for(H100, long_context_tokens=76), 4)
        assert [isinstance(one.found, Infeasible) for one in found.counts] == [
            False, False, False, True,
        ]  # fmt: skip
