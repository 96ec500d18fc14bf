"""Requests and engines: each figure out of range is refused by its name."""

import re
from dataclasses import replace

import pytest

from fleetopt.errors import ConfigError
from tests.planner.examples import H100, request_for

NAN = float("nan")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_utilization", 1.0),
        ("max_utilization", 0.0),
        ("max_utilization", NAN),
        ("max_utilization", 1e-300),
        ("node_availability", 1e-300),
        ("preemption_probability", 0.0),
        ("preemption_probability", 0.5),
        ("compressible_share", 1.1),
        ("compressible_share", -0.1),
        ("compression_penalty_usd", -1.0),
        ("compression_penalty_usd", NAN),
        ("gamma_max", 0.9),
        ("gamma_max", 100.0),
        ("node_availability", 0.0),
        ("node_availability", 1.1),
        ("min_replicas", 0),
        ("max_replicas", 0),
        ("long_context_tokens", 64),
        ("long_context_tokens", 2_000_000),
    ],
)
def test_a_field_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^{field} is {re.escape(str(value))}; expected"):
        request_for(H100, **{field: value})  # type: ignore[arg-type]


def test_a_pinned_boundary_is_an_edge_or_the_long_context() -> None:
    assert request_for(H100, boundary_tokens=8_192).boundary_tokens == 8_192
    assert request_for(H100, boundary_tokens=32_768).boundary_tokens == 32_768
    odd = request_for(H100, long_context_tokens=40_000, boundary_tokens=40_000)
    assert odd.boundary_tokens == 40_000
    with pytest.raises(ConfigError, match="8000, not a bin edge; the nearest are 7512 or 8192"):
        request_for(H100, boundary_tokens=8_000)
    with pytest.raises(ConfigError, match="above long_context_tokens=32768"):
        request_for(H100, boundary_tokens=65_536)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_iteration_s", 0.0),
        ("base_iteration_s", NAN),
        ("price_usd_per_gpu_h", 0.0),
        ("per_sequence_s", -1e-6),
        ("prefill_token_s", float("inf")),
        ("gpus_per_replica", 0),
        ("prefill_chunk_tokens", 0),
        ("kv_capacity_tokens", -1),
    ],
)
def test_an_engine_out_of_range_is_refused_by_its_path(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^h100\.{field} is"):
        replace(H100, **{field: value})  # type: ignore[arg-type]
