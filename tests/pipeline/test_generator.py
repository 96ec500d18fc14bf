"""Generated traffic: as ordered, and the same for the same seed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from fleetopt.connectors.wire import RequestLog
from fleetopt.errors import InputError
from fleetopt.pipeline.generator import (
    MAX_COMPLETION_TOKENS,
    MAX_PROMPT_TOKENS,
    MIXES,
    Archetype,
    Schedule,
    draw,
    generate,
)

START_S = 1_700_000_000.0


def traffic(schedule: Schedule, seed: int = 0) -> list[RequestLog]:
    chunks = generate(schedule, "f", START_S, np.random.default_rng(seed))
    return [record for chunk in chunks for record in chunk]


def total_tokens(records: list[RequestLog]) -> np.ndarray:
    return np.array([record.prompt_tokens + record.completion_tokens for record in records])


STEADY = Schedule(Archetype.CONCENTRATED_BELOW, rate_per_s=50.0, duration_s=200.0)


def test_the_seed_decides_everything() -> None:
    assert traffic(STEADY, 7) == traffic(STEADY, 7)
    assert traffic(STEADY, 7) != traffic(STEADY, 8)


def test_arrivals_are_in_order_within_the_duration_at_the_rate() -> None:
    records = traffic(replace(STEADY, duration_s=199.5))
    times_s = np.array([record.arrival_s for record in records]) - START_S
    assert (np.diff(times_s) >= 0).all()
    assert times_s[0] >= 0
    assert times_s[-1] < 199.5
    mean = 50 * 199.5
    assert abs(len(records) - mean) < 5 * math.sqrt(mean)
    assert len({record.request_id for record in records}) == len(records)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_about_the_share_asked_for_is_cached_and_the_rest_stays_the_same(share: float) -> None:
    records = traffic(replace(STEADY, cached_share=share))
    assert [replaced(record, cached_prompt_tokens=None) for record in records] == traffic(STEADY)
    cached = [record.cached_prompt_tokens for record in records]
    assert all(
        tokens is not None and 0 <= tokens < record.prompt_tokens
        for tokens, record in zip(cached, records, strict=True)
    )
    found = sum(tokens or 0 for tokens in cached)
    assert found / sum(record.prompt_tokens for record in records) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_cached_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="cached_share"):
        replace(STEADY, cached_share=share)


@pytest.mark.parametrize("dispersion", [1.0, 4.0])
def test_counts_are_as_dispersed_as_asked(dispersion: float) -> None:
    records = traffic(replace(STEADY, duration_s=2_000.0, dispersion=dispersion))
    counts = np.bincount([int(record.arrival_s - START_S) for record in records], minlength=2_000)
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.2)


@pytest.mark.parametrize("archetype", Archetype)
def test_mixes_are_mixes(archetype: Archetype) -> None:
    mix = MIXES[archetype]
    assert sum(kind.share for kind in mix) == pytest.approx(1.0)
    kinds, prompts, completions = draw(archetype, 40_000, np.random.default_rng(1))
    for index, kind in enumerate(mix):
        of_kind = kinds == index
        assert of_kind.mean() == pytest.approx(kind.share, abs=0.02)
        assert np.median(prompts[of_kind]) == pytest.approx(kind.prompt_median_tokens, rel=0.1)
        assert np.median(completions[of_kind]) == pytest.approx(
            kind.completion_median_tokens, rel=0.1
        )
    assert prompts.min() >= 1
    assert prompts.max() <= MAX_PROMPT_TOKENS
    assert completions.min() >= 1
    assert completions.max() <= MAX_COMPLETION_TOKENS


def test_archetypes_lie_where_their_names_say() -> None:
    share_below = {
        archetype: float(
            np.mean(sum(draw(archetype, 20_000, np.random.default_rng(2))[1:]) < 4_096)
        )
        for archetype in Archetype
    }
    assert share_below[Archetype.CONCENTRATED_BELOW] > 0.85
    assert 0.4 < share_below[Archetype.DISPERSED] < 0.75
    assert share_below[Archetype.CONCENTRATED_ABOVE] < 0.3


def test_the_mix_turns_linearly_within_the_transition() -> None:
    schedule = replace(STEADY, shift_to=Archetype.DISPERSED, shift_at_s=100.0, transition_s=50.0)
    assert [schedule.share_after_shift(at) for at in (0, 99, 100, 125, 150, 199)] == [
        0, 0, 0, 0.5, 1, 1,
    ]  # fmt: skip
    at_once = replace(schedule, transition_s=0.0)
    assert [at_once.share_after_shift(at) for at in (99, 100)] == [0, 1]
    assert STEADY.share_after_shift(1e9) == 0


def test_lengths_change_with_the_shift() -> None:
    records = traffic(
        replace(STEADY, shift_to=Archetype.DISPERSED, shift_at_s=80.0, transition_s=40.0)
    )
    before = total_tokens([record for record in records if record.arrival_s < START_S + 80])
    after = total_tokens([record for record in records if record.arrival_s > START_S + 120])
    assert np.mean(before > 4_096) < 0.15 < 0.3 < np.mean(after > 4_096)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rate_per_s", -1.0), ("rate_per_s", math.nan), ("dispersion", 0.5), ("duration_s", math.inf)],
)
def test_a_wrong_schedule_names_its_field(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        replace(STEADY, **{field: value})  # type: ignore[arg-type]
