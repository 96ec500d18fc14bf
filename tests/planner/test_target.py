"""TTFT targets: read, written, refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.errors import ConfigError
from fleetopt.planner.target import TtftTarget


@pytest.mark.parametrize(
    ("text", "base_s", "per_token_s"),
    [
        ("500ms", 0.5, 0.0),
        ("60s", 60.0, 0.0),
        ("1.5 s", 1.5, 0.0),
        ("300ms+0.2ms/token", 0.3, 0.0002),
        ("1s + 50us / tok", 1.0, 0.00005),
        ("0s+1ms/token", 0.0, 0.001),
    ],
)
def test_targets_are_read(text: str, base_s: float, per_token_s: float) -> None:
    target = TtftTarget.parse(text)
    assert target.base_s == pytest.approx(base_s)
    assert target.per_prompt_token_s == pytest.approx(per_token_s)
    assert target.at(np.array([1_000.0])) == pytest.approx([base_s + 1_000 * per_token_s])


@given(st.integers(1, 10**6), st.integers(0, 10**5))
def test_what_is_written_is_read_back(base_us: int, slope_ns: int) -> None:
    target = TtftTarget(base_us / 1e6, slope_ns / 1e9)
    again = TtftTarget.parse(str(target))
    assert again.base_s == pytest.approx(target.base_s)
    assert again.per_prompt_token_s == pytest.approx(target.per_prompt_token_s)


@pytest.mark.parametrize("text", ["", "500", "fast", "-1s", "0s", "1s+2", "1s-1ms/token", "nans"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="slo_ttft_p99"):
        TtftTarget.parse(text)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_target_is_finite_and_positive(seconds: float) -> None:
    with pytest.raises(ConfigError, match="slo_ttft_p99"):
        TtftTarget(seconds)
    with pytest.raises(ConfigError, match="slo_ttft_p99"):
        TtftTarget(1.0, seconds)
