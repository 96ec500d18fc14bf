"""Coefficients from timings: exact where the model holds, honest where it doesn't."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.connectors.timing_points import read_timing_points
from fleetopt.errors import InputError
from fleetopt.planner.profile_fit import TimingKind, TimingPoint, fit_profile

LENGTHS, BATCHES, PROMPTS = (528, 2064, 8208), (1, 8, 32, 128), (512, 2048, 8192)


def timings(
    base: float, sequence: float, context: float, overhead: float, token: float, pair: float
) -> list[TimingPoint]:
    return [
        TimingPoint(TimingKind.DECODE, length, k, base + k * (sequence + context * length))
        for length, k in product(LENGTHS, BATCHES)
    ] + [
        TimingPoint(TimingKind.PREFILL, n, 1, overhead + token * n + pair * n * n / 2)
        for n in PROMPTS
    ]


TRUTH = (0.0134, 2.6e-5, 4.2e-8, 0.006, 4.7e-5, 2.6e-9)
POINTS = timings(*TRUTH)
NAMES = (
    "base_iteration_s",
    "per_sequence_s",
    "per_context_token_s",
    "prefill_overhead_s",
    "prefill_token_s",
    "prefill_token_context_s",
)


@given(
    base=st.floats(1e-3, 1e-1),
    sequence=st.floats(1e-6, 1e-4),
    context=st.floats(1e-9, 1e-6),
    overhead=st.floats(0.0, 1e-1),
    token=st.floats(1e-6, 1e-3),
    pair=st.floats(1e-10, 1e-7),
)
def test_what_follows_the_model_is_recovered(
    base: float, sequence: float, context: float, overhead: float, token: float, pair: float
) -> None:
    truth = (base, sequence, context, overhead, token, pair)
    fitted = fit_profile(timings(*truth))
    longest_s = overhead + token * 8192 + pair * 8192**2 / 2
    # A coefficient is known to what rounding of the timings leaves of its share in them.
    tolerance = {"per_sequence_s": 1e-10, "prefill_overhead_s": 1e-10 * longest_s}
    for name, expected in zip(NAMES, truth, strict=True):
        assert getattr(fitted, name).value == pytest.approx(
            expected, rel=1e-7, abs=tolerance.get(name, 0.0)
        )
    assert fitted.decode_max_relative_error < 1e-9
    assert fitted.prefill_max_relative_error < 1e-9


def test_the_shipped_coefficients_come_from_the_shipped_timings(shared_data: Path) -> None:
    """The catalogue was fitted elsewhere, to the same timings: the same numbers come out."""
    folder = shared_data / "profiles"
    with (folder / "silicon_points.csv").open("rb") as lines:
        engines = {engine.name: engine for engine in read_timing_points(lines, "points")}
    shipped = json.loads((folder / "silicon_profiles.json").read_text())["profiles"]
    assert len(shipped) == 27
    for profile in shipped:
        name = f"{profile['gpu']}/{profile['model']}/tp{profile['tensor_parallel']}".lower()
        fitted = fit_profile(engines[name].points)
        for coefficient in set(NAMES) - {"prefill_overhead_s"}:
            assert getattr(fitted, coefficient).value == pytest.approx(
                profile[coefficient], rel=0.002
            ), (name, coefficient)
        assert fitted.decode_max_relative_error == pytest.approx(
            profile["decode_fit_max_relative_error"], abs=0.0006
        )


def test_standard_errors_cover_the_truth_as_often_as_they_should() -> None:
    """Two standard errors hold about 95 % of noisy fits; four deviations of 400 fits are 4.4 %."""
    random = np.random.default_rng(7)
    within = dict.fromkeys(NAMES, 0)
    for _ in range(400):
        noisy = [
            replace(p, duration_s=p.duration_s * (1 + noise))
            for p, noise in zip(POINTS * 3, random.normal(0, 0.005, 3 * len(POINTS)), strict=True)
        ]
        fitted = fit_profile(noisy)
        for name, truth in zip(NAMES, TRUTH, strict=True):
            estimate = getattr(fitted, name)
            assert estimate.standard_error is not None
            within[name] += abs(estimate.value - truth) < 2 * estimate.standard_error
    assert all(0.905 <= hits / 400 <= 0.99 for hits in within.values()), within


def test_small_and_large_timings_count_alike() -> None:
    """A tenth more on the shortest iteration moves W about as an unweighted fit never would."""
    moved = [
        replace(p, duration_s=1.1 * p.duration_s)
        if p.kind is TimingKind.DECODE and p.batch < 9
        else p
        for p in POINTS
    ]
    fitted = fit_profile(moved)
    assert fitted.base_iteration_s.value > 1.08 * TRUTH[0]
    assert fitted.decode_max_relative_error < 0.08


def test_no_coefficient_falls_below_zero() -> None:
    falling = timings(0.02, 0.0, 4e-8, 0.003, 5e-5, 0.0)
    quicker = [
        replace(p, duration_s=p.duration_s * (1 - 1e-3 * p.batch / 128))
        if p.kind is TimingKind.DECODE
        else replace(p, duration_s=p.duration_s - 1e-10 * p.context_tokens**2)
        for p in falling
    ]
    fitted = fit_profile(quicker)
    for held in (fitted.per_sequence_s, fitted.prefill_token_context_s):
        assert held.value == 0.0
        assert held.standard_error is None
    assert fitted.base_iteration_s.standard_error is not None


def test_as_many_timings_as_coefficients_leave_no_standard_error() -> None:
    few = [p for p in POINTS if p.kind is TimingKind.PREFILL] + [
        p for p in POINTS if (p.batch, p.context_tokens) in {(1, 528), (32, 528), (32, 8208)}
    ]
    fitted = fit_profile(few)
    assert fitted.base_iteration_s.value == pytest.approx(TRUTH[0])
    assert fitted.base_iteration_s.standard_error is None


def test_the_planners_own_error_on_prefill_is_told_apart() -> None:
    """The planner counts W where prefill was measured to take less: its error is W - a."""
    fitted = fit_profile(POINTS)
    extra_s = TRUTH[0] - TRUTH[3]
    longest, shortest = (p.duration_s for p in (POINTS[-1], POINTS[-3]))
    assert fitted.planned_prefill_error_low == pytest.approx(extra_s / longest)
    assert fitted.planned_prefill_error_high == pytest.approx(extra_s / shortest)


def only(kind: TimingKind, **where: int) -> list[TimingPoint]:
    return [
        p
        for p in POINTS
        if p.kind is not kind or all(getattr(p, key) == value for key, value in where.items())
    ]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "no decode timings.*no prefill timings"),
        ([p for p in POINTS if p.kind is TimingKind.PREFILL], "no decode timings; add"),
        ([p for p in POINTS if p.kind is TimingKind.DECODE], "no prefill timings; add"),
        (only(TimingKind.DECODE, batch=8), "decode is timed at batch 8 only"),
        (only(TimingKind.DECODE, context_tokens=528), "decode is timed at context 528 only"),
        (only(TimingKind.PREFILL, context_tokens=512), "prefill is timed at 512 tokens only"),
        (POINTS[:-1], "prefill is timed at 512, 2048 tokens only"),
        (
            [p for p in POINTS if p.kind is TimingKind.PREFILL or p.batch * 528 == p.context_tokens]
            + [TimingPoint(TimingKind.DECODE, 1056, 2, 0.02)],
            "batch and context change together",
        ),
        ([*POINTS, TimingPoint(TimingKind.DECODE, 1, 1, 0.0)], "duration > 0"),
        ([*POINTS, TimingPoint(TimingKind.DECODE, 1, 1, float("nan"))], "duration > 0"),
        (
            [replace(p, duration_s=p.batch * p.duration_s) for p in POINTS]
            + [TimingPoint(TimingKind.DECODE, 528, 1, 1e-6)],
            "leave no base iteration",
        ),
    ],
)
def test_what_is_missing_is_named(points: list[TimingPoint], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_profile(points)
