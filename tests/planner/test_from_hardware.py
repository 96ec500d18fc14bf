"""Roofline profiles: the arithmetic by hand, the laws of scaling, and how near to silicon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import roofline_error
from fleetopt.config.hardware import known_gpus, known_models
from fleetopt.errors import ConfigError
from fleetopt.planner.hardware import DEFAULT_EFFICIENCY, Efficiency, Gpu, from_hardware

GPU = Gpu("x1", 100e9, 2e12, 400e12, 250e9)
MODEL = known_models()["llama-3.1-8b"]
PEAK = Efficiency(1, 1, 1, 1, 1, 1, 1e-30, 1e-30, 0.9, 2e9)


def test_one_gpu_by_hand() -> None:
    engine = from_hardware(GPU, MODEL, 1, 2.0, efficiency=PEAK)
    assert engine.name == "x1/llama-3.1-8b/tp1"
    assert engine.base_iteration_s == pytest.approx(16.06e9 / 2e12)
    assert engine.per_context_token_s == pytest.approx(131_072 / 2e12)
    assert engine.prefill_token_s == pytest.approx(2 * 8.03e9 / 400e12)
    assert engine.per_sequence_s == pytest.approx(2 * 8.03e9 / 400e12)
    assert engine.prefill_token_context_s == pytest.approx(4 * 32 * 4096 / 400e12)
    assert engine.kv_capacity_tokens == int((0.9 * 100e9 - 2e9 - 16.06e9) / 131_072)
    assert engine.price_usd_per_replica_h == 2.0
    assert "not measured" in engine.source


def test_four_gpus_share_the_work_and_send_activations() -> None:
    """A ring all-reduce of 4 GPUs sends 1.5 times its data, twice a layer, 2 bytes a value."""
    engine = from_hardware(GPU, MODEL, 4, 2.0, efficiency=replace(PEAK, all_reduce_latency_s=1e-5))
    sending_s = 2 * 32 * 4096 * 2 * 1.5 / 250e9
    assert engine.base_iteration_s == pytest.approx(16.06e9 / 4 / 2e12 + 64 * 1e-5)
    assert engine.per_context_token_s == pytest.approx(131_072 / 4 / 2e12)
    assert engine.prefill_token_s == pytest.approx(2 * 8.03e9 / 1600e12 + sending_s)
    assert engine.kv_capacity_tokens == int(4 * (0.9 * 100e9 - 2e9 - 16.06e9 / 4) / 131_072)


def test_kv_heads_limit_how_far_the_cache_is_split() -> None:
    eight, sixteen = (from_hardware(GPU, MODEL, k, 2.0, efficiency=PEAK) for k in (8, 16))
    assert sixteen.per_context_token_s == eight.per_context_token_s
    assert sixteen.kv_capacity_tokens < 1.05 * eight.kv_capacity_tokens


@given(factor=st.floats(1.01, 10.0), parallel=st.sampled_from([1, 2, 4, 8]))
def test_better_hardware_is_never_slower(factor: float, parallel: int) -> None:
    plain = from_hardware(GPU, MODEL, parallel, 2.0)
    wider = from_hardware(
        replace(GPU, bandwidth_bytes_per_s=GPU.bandwidth_bytes_per_s * factor), MODEL, parallel, 2.0
    )
    quicker = from_hardware(
        replace(GPU, flops_per_s=GPU.flops_per_s * factor), MODEL, parallel, 2.0
    )
    assert wider.base_iteration_s < plain.base_iteration_s
    assert wider.per_context_token_s < plain.per_context_token_s
    assert wider.prefill_token_s == plain.prefill_token_s
    assert quicker.prefill_token_s < plain.prefill_token_s
    assert quicker.prefill_token_context_s < plain.prefill_token_context_s
    assert quicker.base_iteration_s == plain.base_iteration_s


def test_a_model_that_does_not_fit_says_what_it_fits() -> None:
    big = known_models()["llama-3.1-70b"]
    with pytest.raises(ConfigError, match=r"on 1 × x1: weights of 141\.1 GB .* fits 2 GPUs"):
        from_hardware(GPU, big, 1, 2.0)
    assert from_hardware(GPU, big, 2, 2.0).kv_capacity_tokens > 0
    with pytest.raises(ConfigError, match="such a GPU holds no model"):
        from_hardware(replace(GPU, memory_bytes=1e9), big, 1, 2.0)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_figures_out_of_range_are_named(value: float) -> None:
    with pytest.raises(ConfigError, match=r"Gpu\.flops_per_s is"):
        replace(GPU, flops_per_s=value)
    with pytest.raises(ConfigError, match=r"ModelShape\.weights_bytes is"):
        replace(MODEL, weights_bytes=value)
    with pytest.raises(ConfigError, match=r"Efficiency\.link is"):
        replace(DEFAULT_EFFICIENCY, link=value)


def test_names_and_degrees_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"Gpu\.name is empty"):
        replace(GPU, name=" ")
    with pytest.raises(ConfigError, match="tensor_parallel is 0"):
        from_hardware(GPU, MODEL, 0, 2.0)


def test_estimates_are_near_what_silicon_does() -> None:
    """The whole catalogue: typical iterations within 20 %, half of them within 6 %."""
    known = roofline_error.entries()
    assert len(known) == 27
    found = roofline_error.errors(known, lambda entry: DEFAULT_EFFICIENCY)
    for name in ("decode iteration, 32 × 2,064 tokens", "prefill of 2,048 tokens"):
        sizes = sorted(map(abs, found[name]))
        assert sizes[-1] < 0.20
        assert sizes[len(sizes) // 2] < 0.06


def test_the_defaults_are_what_fits_the_catalogue_best() -> None:
    best = roofline_error.calibrate(roofline_error.entries())
    for name in Efficiency.__dataclass_fields__:
        assert getattr(DEFAULT_EFFICIENCY, name) == pytest.approx(getattr(best, name), rel=0.02)


def test_calibration_finds_the_efficiencies_that_made_the_profiles() -> None:
    made = Efficiency(0.7, 0.8, 0.6, 0.5, 0.4, 0.2, 3e-5, 1e-5, 0.9, 2e9)
    known = [replace(e, measured=e.estimate(made)) for e in roofline_error.entries()]
    found = roofline_error.calibrate(known)
    for name in Efficiency.__dataclass_fields__:
        assert getattr(found, name) == pytest.approx(getattr(made, name), rel=1e-6)


def test_the_page_shows_the_errors_as_they_are(project: Path) -> None:
    page = (project / "docs" / "profiles.md").read_text(encoding="utf-8")
    for table in roofline_error.tables():
        assert table.markdown() in page


def test_every_gpu_of_the_catalogue_is_known() -> None:
    assert set(known_gpus()) == {"a100", "h100", "h200", "b200"}
    assert {entry.model for entry in roofline_error.entries()} == set(known_models())
