"""Whole fleets: routing, figures, and whether a queue grows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.errors import ConfigError, InputError
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.plan import Plan, plan
from fleetopt.planner.simulate.figures import percentiles
from fleetopt.planner.simulate.fleet import Dispatch, SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.outcome import Simulation
from fleetopt.planner.simulate.routing import route
from fleetopt.planner.simulate.simulation import simulate, slot_service_s
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, PATIENT, chat, code, request_for
from tests.planner.simulate.examples import fleet, poisson, pool, stream

RNG = np.random.default_rng(0)


def two_pools(share: float = 1.0, up_to: int = 2_000) -> SimulatedFleet:
    long = SimulatedPool("long", H100, 8_000, 2, 20, is_paged=False)
    short = SimulatedPool("short", H100, 1_000, 2, 80, is_paged=False)
    return SimulatedFleet(short, long, 1_000, up_to, share, TtftTarget(1.0))


class TestRouting:
    def test_requests_go_by_their_total_length(self) -> None:
        given_stream = stream(np.arange(5.0), [900, 901, 3_000, 7_900, 7_901], 100)
        routed = route(two_pools(share=0.0), given_stream, RNG)
        assert routed.streams[0].prompt_tokens.tolist() == [900]
        assert routed.streams[1].prompt_tokens.tolist() == [901, 3_000, 7_900]
        assert routed.is_unservable.tolist() == [False] * 4 + [True]

    def test_the_band_arrives_at_the_boundary_with_nothing_cached(self) -> None:
        given_stream = stream(np.arange(3.0), [1_000, 1_800, 1_900], [100, 200, 101], cached=50)
        routed = route(two_pools(), given_stream, RNG)
        assert routed.is_compressed.tolist() == [True, True, False]
        assert routed.streams[0].prompt_tokens.tolist() == [900, 800]
        assert routed.streams[0].total_tokens.tolist() == [1_000, 1_000]
        assert routed.streams[0].cached_tokens.tolist() == [0, 0]
        assert routed.streams[1].cached_tokens.tolist() == [50]

    def test_an_output_that_leaves_no_room_stays_long(self) -> None:
        given_stream = stream(np.arange(2.0), [500, 500], [875, 876])  # 125 = 1,000 / 8 kept
        assert route(two_pools(), given_stream, RNG).is_compressed.tolist() == [True, False]

    @pytest.mark.parametrize(
        ("kind", "low", "high"),
        [
            (Compressibility.COMPRESSIBLE, 1.0, 1.0),
            (Compressibility.FIXED, 0.0, 0.0),
            (Compressibility.UNKNOWN, 0.28, 0.32),
        ],
    )
    def test_the_class_decides(self, kind: Compressibility, low: float, high: float) -> None:
        given_stream = stream(np.arange(10_000.0), 1_400, 100, kind=kind)
        compressed = route(two_pools(share=0.3), given_stream, RNG).is_compressed
        assert low <= compressed.mean() <= high


class TestFigures:
    def test_a_pool_at_rest(self) -> None:
        """One request at a time: all figures are those of its iterations."""
        seen = simulate(fleet(pool(slots=4)), stream(np.arange(500) * 10.0, 2_000, 101))
        [figures] = seen.pools
        w, h, kappa = H100.base_iteration_s, H100.per_sequence_s, H100.per_context_token_s
        prefill_s = w + h + (kappa + H100.prefill_token_s) * 2_000
        prefill_s += H100.prefill_token_context_s * 2_000**2 / 2
        decode_s = sum(w + h + kappa * (2_000 + j) for j in range(1, 101))
        busy_s = prefill_s + decode_s
        assert figures.ttft is not None
        assert figures.e2e is not None
        assert figures.ttft.p50_s == pytest.approx(prefill_s)
        assert figures.ttft.p99_s == pytest.approx(prefill_s)
        assert figures.e2e.p90_s == pytest.approx(busy_s)
        assert figures.busy_share == pytest.approx(busy_s / 10.0, rel=0.01)
        assert figures.slot_occupancy == pytest.approx(busy_s / 10.0 / 4, rel=0.01)
        assert figures.mean_iteration_s == pytest.approx(busy_s / 101, rel=0.01)
        assert figures.sequence_iteration_s == pytest.approx(busy_s / 101, rel=0.01)
        full_s = 101 * w / 4 + busy_s - 101 * w
        assert figures.utilization == pytest.approx(full_s / 10.0, rel=0.01)
        assert figures.requests + figures.warm_up_requests == 500
        assert not seen.is_diverging

    def test_the_target_grows_with_the_prompt(self) -> None:
        given_stream = stream(np.arange(200) * 5.0, [100, 9_000] * 100, 5)
        constant = simulate(fleet(pool(), "200ms"), given_stream).pools[0]
        affine = simulate(fleet(pool(), "200ms+1ms/token"), given_stream).pools[0]
        assert constant.ttft_violation_share == pytest.approx(0.5)
        assert affine.ttft_violation_share == 0.0

    @pytest.mark.parametrize(
        ("traffic", "rate", "replicas"), [(chat(), 60.0, 8), (code(), 30.0, 8)]
    )
    def test_occupancy_and_utilization_are_about_the_mean_fields(
        self, traffic: tuple[np.ndarray, np.ndarray], rate: float, replicas: int
    ) -> None:
        request = request_for(H100, min_replicas=replicas, max_replicas=replicas, gamma_max=1.0)
        request = replace(request, boundary_tokens=32_768)
        found = plan(Workload.from_requests(*traffic, rate), request)
        assert isinstance(found, Plan)
        chosen = SimulatedFleet.of_plan(found, request)
        figures = simulate(chosen, poisson(traffic, rate)).pools[0]
        assert figures.utilization == pytest.approx(found.short.utilization, rel=0.04)
        assert figures.slot_occupancy == pytest.approx(found.short.slot_occupancy, rel=0.1)
        assert figures.sequence_iteration_s == pytest.approx(found.short.mean_iteration_s, rel=0.1)

    def test_seeds_and_runs_are_the_same_again(self) -> None:
        given_stream = poisson(chat(4_000), 40.0)
        chosen = two_pools(share=0.5)
        assert simulate(chosen, given_stream, seed=3) == simulate(chosen, given_stream, seed=3)
        assert simulate(chosen, given_stream, seed=3) != simulate(chosen, given_stream, seed=4)

    def test_progress_ends_at_all_that_is_served(self) -> None:
        told: list[int] = []
        simulate(two_pools(), poisson(chat(4_000), 40.0), on_progress=told.append)
        served = route(two_pools(), poisson(chat(4_000), 40.0), np.random.default_rng(0)).streams
        assert told[-1] == sum(map(len, served))
        assert told == sorted(told)

    def test_a_pool_without_requests_has_no_percentiles(self) -> None:
        seen = simulate(two_pools(), stream(np.arange(50.0), 10, 10))
        assert seen.pools[1].ttft is None
        assert seen.pools[1].utilization == 0.0
        assert not seen.pools[1].growth.is_diverging

    def test_the_interval_holds_the_p99(self) -> None:
        """Of 200 samples, about 95 % of the intervals do."""
        rng = np.random.default_rng(8)
        hits = 0
        for _ in range(200):
            found = percentiles(rng.exponential(1.0, 20_000))
            assert found is not None
            assert found.p99_low_s is not None
            assert found.p99_high_s is not None
            hits += found.p99_low_s <= np.log(100.0) <= found.p99_high_s
        assert 180 <= hits <= 200

    def test_few_requests_have_no_interval(self) -> None:
        found = percentiles(np.ones(300))
        assert found is not None
        assert found.p99_low_s is None


class TestGrowth:
    @pytest.mark.parametrize("is_paged", [False, True])
    @pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
    @pytest.mark.parametrize("replicas", [1, 4])
    def test_a_queue_that_is_served_does_not_diverge(
        self, load: float, replicas: int, is_paged: bool
    ) -> None:
        seen = self.run(load, replicas, is_paged)
        assert seen.pools[0].utilization == pytest.approx(load, rel=0.1)
        assert not seen.is_diverging

    @pytest.mark.parametrize("is_paged", [False, True])
    @pytest.mark.parametrize("load", [1.1, 1.3, 2.0])
    @pytest.mark.parametrize("replicas", [1, 4])
    def test_more_than_can_be_served_does(self, load: float, replicas: int, is_paged: bool) -> None:
        growth = self.run(load, replicas, is_paged).pools[0].growth
        assert growth.is_diverging
        assert growth.share_of_arrivals == pytest.approx(1 - 1 / load, abs=0.06)

    @staticmethod
    def run(load: float, replicas: int, is_paged: bool) -> Simulation:
        """Twelve slots each at a multiple of what they can serve, by the load formula."""
        only = pool(replicas, 12, kv_tokens=280_000 if is_paged else None)
        prompt, completion = chat(12_000)
        lengths = poisson((prompt, completion), 1.0)
        rate = load * 12 * replicas / slot_service_s(only, lengths).mean()
        return simulate(fleet(only), poisson((prompt, completion), rate))

    def test_compressed_requests_can_overload_the_pool_they_move_to(self) -> None:
        """Compressed requests are no average short ones: they fill the window they go to."""
        short = SimulatedPool("short", H100, 1_000, 1, 100, is_paged=False)
        long = SimulatedPool("long", H100, 8_000, 4, 30, is_paged=False)
        rng = np.random.default_rng(9)
        band = rng.random(30_000) < 0.5
        given_stream = stream(
            np.cumsum(rng.exponential(1 / 30.0, 30_000)),
            np.where(band, 1_700, 50),
            np.where(band, 200, 20),
        )
        alone = simulate(
            SimulatedFleet(short, long, 1_000, 1_000, 1.0, TtftTarget(1.0)), given_stream
        )
        moved = simulate(
            SimulatedFleet(short, long, 1_000, 2_000, 1.0, TtftTarget(1.0)), given_stream
        )
        assert not alone.is_diverging
        assert moved.pools[0].growth.is_diverging
        assert not moved.pools[1].growth.is_diverging


class TestPreemption:
    def test_it_is_counted_where_the_cache_is_too_small(self) -> None:
        given_stream = poisson(chat(3_000), 6.0)
        tight = simulate(fleet(pool(kv_tokens=40_000)), given_stream).pools[0]
        roomy = simulate(fleet(pool(kv_tokens=280_000)), given_stream).pools[0]
        reserved = simulate(fleet(pool(slots=64)), given_stream).pools[0]
        assert tight.preemptions > 0
        assert 0 < tight.preempted_share <= 1
        assert tight.preemption_rate == tight.preemptions / tight.requests
        assert roomy.preemptions == 0
        assert replace(reserved, growth=roomy.growth) == roomy  # room for all is no limit

    @PATIENT
    @given(st.integers(0, 2**32 - 1), st.sampled_from(Dispatch))
    def test_window_figures_stay_in_their_bounds(self, seed: int, dispatch: Dispatch) -> None:
        rng = np.random.default_rng(seed)
        rate = float(rng.choice([5.0, 40.0, 200.0]))
        given_stream = poisson(chat(400), rate, seed)
        seen = simulate(two_pools(), given_stream, dispatch=dispatch, seed=seed)
        assert sum(p.requests + p.warm_up_requests for p in seen.pools) <= 400
        for one in seen.pools:
            assert 0.0 <= one.slot_occupancy <= 1.0 + 1e-9
            assert 0.0 <= one.busy_share <= 1.0 + 1e-9
            assert 0.0 <= one.utilization <= 1.0 + 1e-9
            assert 0.0 <= one.ttft_violation_share <= 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pool(replicas=0), "short.replicas is 0"),
        (lambda: pool(slots=0), "short.slots is 0"),
        (lambda: SimulatedPool("long", H100, 300_000, 1, 1, is_paged=True), "cache of h100 holds"),
        (lambda: replace(two_pools(), compressible_share=1.5), "compressible_share is 1.5"),
        (lambda: replace(two_pools(), boundary_tokens=1_001), "boundary_tokens is 1001"),
        (lambda: replace(two_pools(), compress_up_to_tokens=10), "compress_up_to_tokens is 10"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]


def test_too_little_to_simulate_is_refused() -> None:
    with pytest.raises(InputError, match="1 requests over 0"):
        simulate(fleet(pool()), stream([0.0], 1, 1))
    with pytest.raises(InputError, match="warm_up_share is 1"):
        simulate(fleet(pool()), stream([0.0, 1.0], 1, 1), warm_up_share=1.0)
