"""Results on the terminal: a line for each row, and one for each of its pools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from validation.measure import PoolResult, RowResult, Verdict

HEADER: Final = (
    "  pool   N × slots   bound by      load pred  slots  error  | occ pred    sim  error  | "
    "iter ms pred  sim  seq | P99 s pred    sim   ±%  ratio  | E2E s pred    sim ratio | "
    "ITL ms pred    sim ratio | over pred    sim  preempt"
)
_MARKS: Final = {Verdict.HOLDS: " ", Verdict.LOW: "▼", Verdict.HIGH: "▲"}


def lines(results: Iterable[RowResult]) -> Iterable[str]:
    """▼ and ▲ are beside figures that miss their goal; * beside pools too small to count."""
    yield HEADER
    for result in results:
        if result.infeasible:
            yield f"{result.name}: {result.infeasible}"
            continue
        yield (
            f"{result.name}  [B {result.boundary_tokens} γ {result.gamma:.2f} "
            f"z {result.dispersion:.1f} planned {result.planned_rate_per_s:.4g}/s]"
        )
        yield from map(_line, result.pools)


def _line(pool: PoolResult) -> str:
    said, seen = pool.predicted, pool.simulated
    count = f"{pool.replicas} × {pool.slots}{'' if pool.is_counted else ' *'}"
    return (
        f"  {pool.name:5s} {count:>12s} {pool.binding:>12s}   "
        f"{said.utilization:9.3f} {pool.slot_level.utilization:6.3f} {pool.utilization_error:+6.1%}"
        f"{_MARKS[pool.utilization]} | "
        f"{said.slot_occupancy:8.3f} {seen.slot_occupancy:6.3f} {pool.occupancy_error:+6.1%}"
        f"{_MARKS[pool.occupancy]} | "
        f"{1e3 * said.mean_iteration_s:12.1f} {1e3 * seen.mean_iteration_s:4.1f} "
        f"{1e3 * seen.sequence_iteration_s:4.1f} | "
        f"{said.ttft_p99_s:10.3f} {seen.ttft_p99_s:6.3f} {100 * seen.p99_error:4.1f} "
        f"{1 + pool.p99_error:6.2f}{_MARKS[pool.p99]} | "
        f"{said.e2e_p99_s:10.2f} {seen.e2e_p99_s:6.2f} {1 + pool.e2e_error:5.2f} | "
        f"{1e3 * said.itl_p99_s:11.1f} {1e3 * seen.itl_p99_s:6.1f} {1 + pool.itl_error:5.2f} | "
        f"{said.violation_share:9.2%} {seen.violation_share:6.2%} {seen.preempted_share:8.3%}"
        f"{'  DIVERGES' if seen.is_diverging else ''}"
    )
