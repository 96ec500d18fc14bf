"""Requests drawn from moments, resampled from a trace, or sent by its copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.errors import InputError
from fleetopt.planner.bins import bin_of
from fleetopt.planner.moments import TokenMoments
from fleetopt.planner.simulate.draw import poisson_stream, resampled_stream
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.simulate.tenants import tenant_stream
from fleetopt.planner.workload import Workload
from tests.planner.examples import PATIENT, chat, code, workloads
from tests.planner.simulate.examples import poisson, stream

NOTHING = np.zeros(2, dtype=np.int64)


@pytest.mark.parametrize("traffic", [chat(), code()])
def test_drawn_lengths_have_the_workloads_moments(traffic: tuple[np.ndarray, np.ndarray]) -> None:
    drawn = poisson_stream(Workload.from_requests(*traffic, 50.0), 200_000, seed=3)
    for name, recorded in zip(("prompt_tokens", "completion_tokens"), traffic, strict=True):
        lengths = getattr(drawn, name).astype(float)
        assert lengths.mean() == pytest.approx(recorded.mean(), rel=0.01)
        assert np.square(lengths).mean() == pytest.approx(np.square(recorded).mean(), rel=0.03)
    assert len(drawn) / drawn.span_s == pytest.approx(50.0, rel=0.01)


@PATIENT
@given(workloads(), st.integers(0, 2**32 - 1))
def test_drawn_requests_are_of_the_workloads_bins_and_classes(
    workload: Workload, seed: int
) -> None:
    drawn = poisson_stream(workload, 500, seed, cached_share=0.5)
    assert (np.diff(drawn.arrival_s) >= 0).all()
    held = workload.moments.values[:, :, 0] > 0
    assert held[drawn.compressibility, bin_of(drawn.total_tokens)].all()
    # No prompt is cached to its end, whatever the share.
    assert (drawn.cached_tokens < np.maximum(drawn.prompt_tokens, 1)).all()
    again = poisson_stream(workload, 500, seed, cached_share=0.5)
    assert (drawn.prompt_tokens == again.prompt_tokens).all()


def test_a_single_kind_of_request_is_drawn_as_it_is() -> None:
    drawn = poisson_stream(Workload.from_requests([700] * 5, [40] * 5, 1.0), 100, seed=0)
    assert set(drawn.prompt_tokens) == {700}
    assert set(drawn.completion_tokens) == {40}


@pytest.mark.parametrize("times", [0.3, 1.0, 2.5, 40.0])
def test_tenants_reach_the_rate_and_keep_the_mix(times: float) -> None:
    recorded = poisson(chat(), 10.0)
    scaled = tenant_stream(recorded, 10.0 * times, 20_000, seed=4)
    assert len(scaled) / (20_000 / (10.0 * times)) == pytest.approx(10.0 * times, rel=0.03)
    mean = recorded.prompt_tokens.mean()
    assert scaled.prompt_tokens.mean() == pytest.approx(mean, rel=0.05)
    moments = TokenMoments.from_requests(scaled.prompt_tokens, scaled.completion_tokens)
    assert moments.count == len(scaled)


def test_one_tenant_is_the_trace_itself_turned_round() -> None:
    recorded = stream([0.0, 1.0, 3.0, 6.0], [1, 2, 3, 4], 1)  # its period is 8 s
    turned = tenant_stream(recorded, 0.5, 8, seed=5)
    order = turned.prompt_tokens[:4]
    assert len(turned) in (7, 8, 9)
    assert (np.roll(np.arange(1, 5), -int(np.argmax(np.arange(1, 5) == order[0]))) == order).all()
    gaps = dict(zip([1, 2, 3, 4], [1.0, 2.0, 3.0, 2.0], strict=True))
    assert np.diff(turned.arrival_s)[:3] == pytest.approx([gaps[int(one)] for one in order[:3]])


def test_bursts_survive_scaling_as_independent_ones() -> None:
    """The index of dispersion of a sum of independent copies is that of one."""

    def dispersion(given_stream: RequestStream) -> float:
        counts = np.bincount(given_stream.arrival_s.astype(int))[:-1]
        return float(counts.var() / counts.mean())

    bursts = np.repeat(np.cumsum(np.random.default_rng(6).exponential(1.0, 2_000)), 10)
    recorded = stream(bursts, 100, 10)
    scaled = tenant_stream(recorded, 100.0, 100_000, seed=6)
    assert dispersion(scaled) == pytest.approx(dispersion(recorded), rel=0.25)
    assert dispersion(resampled_stream(recorded, 100.0, 100_000, seed=6)) < 1.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stream([1.0, 0.5], 1, 1), "in order"),
        (lambda: stream([0.0], -1, 1), "prompt_tokens holds -1"),
        (lambda: stream([0.0], 5, 1, cached=6), "cached_tokens exceed"),
        (
            lambda: RequestStream(np.zeros(2), NOTHING, NOTHING, NOTHING, NOTHING[:1]),
            "shape \\(1,\\)",
        ),
        (lambda: tenant_stream(stream([0.0], 1, 1), 1.0, 10, 0), "two or more"),
        (lambda: tenant_stream(stream([0.0, 1.0], 1, 1), 0.0, 10, 0), "rate_per_s is 0"),
        (lambda: tenant_stream(stream([0.0, 1.0], 1, 1), 1e-6, 10_000, 0), "10,000 requests at 1e"),
        (lambda: resampled_stream(stream([], [], []), 1.0, 10, 0), "no requests"),
        (lambda: poisson_stream(Workload.from_requests([], [], 0.0), 5, 0), "no requests"),
        (lambda: poisson_stream(Workload.from_requests([1], [1], 1.0), -1, 0), "count is -1"),
    ],
)
def test_what_is_no_stream_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_a_trace_at_a_tiny_rate_takes_no_room_for_what_is_left_out() -> None:
    rng = np.random.default_rng(9)
    times = np.cumsum(rng.exponential(0.001, 5_000))
    recorded = stream(list(times), 100, 10)
    scaled = tenant_stream(recorded, 1e-4, 20_000, seed=10)  # of 2·10¹¹ rows
    assert len(scaled) == pytest.approx(20_000, rel=0.05)
    assert scaled.span_s == pytest.approx(2e8, rel=0.01)
    gaps = np.diff(scaled.arrival_s)
    assert gaps.min() >= 0.0
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
