"""With Numba and without it, the same seed gives the same figures, to the last bit."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from fleetopt.planner.simulate.compiled import column, row, rows
from fleetopt.planner.simulate.state import NONE, Request

RUN = """
import sys
if sys.argv[1] == "plain":
    sys.modules["numba"] = None  # importing it fails
import numpy as np
from tests.planner.examples import H100, PAPER, chat, code
from tests.planner.simulate.examples import fleet, poisson, pool
from fleetopt.planner.simulate import compiled
from fleetopt.planner.simulate.fleet import Dispatch
from fleetopt.planner.simulate.simulation import simulate, simulate_slots
assert compiled.IS_COMPILED == (sys.argv[1] != "plain")
for only, traffic, rate in [
    (pool(4, 150), chat(2_000), 20.0),
    (pool(3, 20), chat(2_000), 200.0),
    (pool(8, 100), code(2_000), 30.0),
    (pool(2, 60, PAPER), code(2_000), 80.0),
    (pool(2, 60, kv_tokens=40_000), chat(2_000), 12.0),
]:
    for dispatch in Dispatch:
        print(simulate(fleet(only), poisson(traffic, rate), dispatch=dispatch))
    print(simulate_slots(fleet(only), poisson(traffic, rate)))
"""


def figures(how: str) -> str:
    command = [sys.executable, "-c", RUN, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba, of the extra `simulate`, is absent"
)
def test_compiled_loops_give_what_plain_ones_give() -> None:
    compiled = figures("compiled")
    assert compiled.count("p99_s") >= 15
    assert compiled == figures("plain")


def test_rows_have_their_defaults_and_the_columns_given() -> None:
    table = rows(Request, 3, prompt=np.array([5, 6, 7]), arrival_s=np.array([0.5, 1.0, 1.5]))
    assert column(table, "prompt").tolist() == [5, 6, 7]
    assert column(table, "after").tolist() == [NONE] * 3
    assert row(Request, table, 1) == Request(arrival_s=1.0, prompt=6)
