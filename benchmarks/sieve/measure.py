"""Policies on the reference grids: GPU-seconds to the oracle's decision, and false certificates."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.report import Table
from benchmarks.sieve.reference import FOLDER, REFERENCES
from fleetopt.cli.sieve_compare_text import comparison_json
from fleetopt.connectors.sieve_grid import read_prior, read_table
from fleetopt.planner.sieve.compare import compare
from fleetopt.planner.sieve.evidence import Evidence
from fleetopt.planner.sieve.policies import Policy
from fleetopt.planner.sieve.sieve import Sieve, State
from fleetopt.planner.sieve.table import Table as Runs

BUDGETS: Final = (16, 32, 64)
ORDERS: Final = 200
QUICK_ORDERS: Final = 5
_STEPS: Final = 40

Comparison = dict[str, Any]
"""As `fleetopt sieve compare --output json` prints it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All comparisons of a grid, and how good its intervals are."""

    grid: str
    with_prior: Comparison
    without_prior: Comparison
    outside_share: float
    """Of the cells' true P99s after the sieve's runs, those outside their intervals."""

    step_ms: float
    """Median time of a decision and the choice of the next run."""


def measure(orders: int = ORDERS) -> list[Figures]:
    """Compare policies on all reference grids, each in a process of its own."""
    with ProcessPoolExecutor(max_workers=len(REFERENCES)) as pool:
        return list(
            pool.map(_of_grid, (one.name for one in REFERENCES), [orders] * len(REFERENCES))
        )


def _of_grid(name: str, orders: int) -> Figures:
    return Figures(
        name,
        compared(name, list(Policy), orders, has_prior=True),
        compared(name, [Policy.SIEVE, Policy.RANDOM], orders, has_prior=False),
        *intervals_of(name),
    )


def compared(name: str, policies: list[Policy], orders: int, *, has_prior: bool) -> Comparison:
    """Compare policies on one grid at all budgets."""
    tables = {budget: _table(name, budget) for budget in BUDGETS}
    first = tables[BUDGETS[0]]
    prior = read_prior(str(FOLDER / f"{name}.prior.csv"), first.grid) if has_prior else None
    found = {
        budget: compare(policies, Sieve(table.grid, budget, prior=prior), table, orders=orders)
        for budget, table in tables.items()
    }
    return comparison_json(found, first)


def intervals_of(name: str) -> tuple[float, float]:
    """Return how many true P99s lie outside their intervals in a session, and a step's time."""
    table = _table(name, BUDGETS[-1])
    prior = read_prior(str(FOLDER / f"{name}.prior.csv"), table.grid)
    sieve = Sieve(table.grid, BUDGETS[-1], prior=prior)
    evidence, outside, took_s = Evidence.none(table.grid), [], []
    for _ in range(_STEPS):
        began_s = time.perf_counter()
        state = sieve.state(evidence)
        point = sieve.next_run(state)
        took_s.append(time.perf_counter() - began_s)
        outside.append(_outside(state, table))
        if point is None:
            break
        evidence = evidence.plus(table.run(point, int(evidence.runs[point])))
    return float(np.mean(outside)), 1e3 * float(np.median(took_s))


def _outside(state: State, table: Runs) -> float:
    p99, known = table.completion_p99_s.mean(axis=3), state.known.completion_p99_s
    return 1.0 - float(np.mean((known.low <= p99) & (p99 <= known.high)))


def _table(name: str, budget: int) -> Runs:
    return read_table(str(FOLDER / f"{name}.csv"), str(FOLDER / f"{name}.toml"), budget)


def sieve_tables(figures: list[Figures]) -> list[Table]:
    """Return what docs/sieve.md shows."""
    tables = []
    for one in figures:
        found = one.with_prior
        classes = found["classes"]
        tables.append(
            Table(
                f"{one.grid}: {found['all_runs_gpu_s']:,.0f} GPU-s for all runs, "
                f"{found['budgets'][0]['policies'][0]['orders']} orders",
                (
                    "policy", "GPUs", "GPU-s to oracle", "saved, %",
                    *(f"{name}, %" for name in classes),
                    "GPU-s to stop", "regret, %", "worst, %", "false",
                ),
                [
                    *(_row(policy, budget["gpus"], "") for budget in found["budgets"]
                      for policy in budget["policies"]),
                    *(_row(policy, budget["gpus"], ", no prior")
                      for budget in one.without_prior["budgets"]
                      for policy in budget["policies"] if policy["policy"] == "sieve"),
                ],
            )
        )  # fmt: skip
    tables.append(
        Table(
            "Intervals and steps of the sieve, with prior, 64 GPUs",
            ("grid", "true P99s outside their intervals", "decision and next run"),
            [
                (one.grid, f"{100 * one.outside_share:.1f} %", f"{one.step_ms:.1f} ms")
                for one in figures
            ],
        )
    )
    return tables


def _row(policy: dict[str, Any], gpus: int, remark: str) -> tuple[str, ...]:
    saving = policy["saving_ratio"]
    return (
        policy["policy"] + remark,
        str(gpus),
        f"{policy['gpu_s_to_oracle']['mean']:,.0f}",
        f"{100 * saving['mean']:.1f} [{100 * saving['low']:.1f}, {100 * saving['high']:.1f}]",
        *(f"{100 * one['mean']:.0f}" for one in policy["saving_ratio_by_class"].values()),
        f"{policy['gpu_s_to_stop']['mean']:,.0f}",
        f"{100 * policy['mean_regret_fulfilment']:.1f}",
        f"{100 * policy['worst_regret_fulfilment']:.1f}",
        str(policy["false_certificates"]),
    )
