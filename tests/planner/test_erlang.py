"""Erlang B and C against an evaluation with 40 digits, and their own laws."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.planner.erlang import erlang_b, erlang_c

SERVERS = (1.0, 1.5, 2.0, 3.7, 10.0, 15.9, 16.1, 100.0, 1_000.5, 1e4, 1e5, 1e6)
LOADS = (0.01, 0.1, 0.3, 0.5, 0.69, 0.71, 0.9, 0.99, 0.9999)


def exact_delay(servers: float, load: float) -> mpmath.mpf:
    """Erlang C by the incomplete gamma function with 40 digits."""
    with mpmath.workdps(40):
        c, a = mpmath.mpf(servers), mpmath.mpf(load)
        log_pmf = c * mpmath.log(a) - a - mpmath.loggamma(c + 1)
        blocked = mpmath.exp(log_pmf) / mpmath.gammainc(c + 1, a, regularized=True)
        return blocked / (1 - (a / c) * (1 - blocked))


@pytest.mark.parametrize("servers", SERVERS)
@pytest.mark.parametrize("per_server", LOADS)
def test_erlang_c_is_exact_to_ten_digits(servers: float, per_server: float) -> None:
    load = servers * per_server
    expected = exact_delay(servers, load)
    got = float(erlang_c(servers, load))
    if expected < mpmath.mpf("1e-290"):
        assert got < 1e-280
    else:
        assert abs(got / float(expected) - 1.0) < 1e-10


@given(st.integers(1, 60), st.floats(0.01, 0.99))
def test_erlang_b_follows_its_recursion(servers: int, per_server: float) -> None:
    load = servers * per_server
    blocked = 1.0
    for c in range(1, servers + 1):
        blocked = load * blocked / (c + load * blocked)
    assert float(erlang_b(servers, load)) == pytest.approx(blocked, rel=1e-10)


def test_no_load_never_waits_and_overload_always_does() -> None:
    delays = erlang_c(np.array([4.0, 4.0, 4.0]), np.array([0.0, 4.0, 9.0]))
    assert delays.tolist() == [0.0, 1.0, 1.0]


@given(st.floats(0.3, 1e5), st.floats(0.05, 0.95))
def test_more_load_waits_more_and_more_servers_less(servers: float, per_server: float) -> None:
    load = servers * per_server
    delay = float(erlang_c(servers, load))
    assert 0.0 <= delay <= 1.0
    assert float(erlang_c(servers, load * 1.02)) >= delay
    assert float(erlang_c(servers * 1.02, load)) <= delay
