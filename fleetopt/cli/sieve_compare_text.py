"""How policies compare, as tables and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetopt.cli.output import console, percent, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleetopt.planner.sieve.compare import Estimate, Summary
    from fleetopt.planner.sieve.table import Table


def show_comparison(
    found: Mapping[int, Sequence[Summary]], runs: Table, *, has_prior: bool
) -> None:
    """Print a table for each budget of GPUs."""
    out, grid = console(), runs.grid
    everything = grid.repeats * float(grid.cost_gpu_s.sum())
    first = next(iter(found.values()))[0]
    out.print(
        f"{len(grid.classes)} classes on {len(grid.configurations)} configurations at "
        f"{grid.shape[2]} loads, {grid.repeats} runs each: {everything:,.0f} GPU-s in all. "
        f"{first.orders} random orders, {'with' if has_prior else 'without'} predictions.",
        soft_wrap=True,
    )
    for budget, summaries in found.items():
        out.print(_policies(budget, summaries))
        out.print(_classes(summaries, [one.name for one in grid.classes]))
    out.print(
        "GPU-seconds until the decision is the oracle's and stays so, what is saved of those of "
        "random order, and those until the policy stops by itself; the share of its demand that "
        "the worst class loses there against the oracle, in the mean and at worst; and false "
        "certificates.",
        soft_wrap=True,
    )


def _policies(budget: int, summaries: Sequence[Summary]) -> Any:
    made = table(
        "policy",
        "GPU-s to oracle",
        "saved, %",
        "to stop",
        "regret",
        "worst",
        "false",
        title=f"{budget} GPUs",
    )
    for one in summaries:
        made.add_row(
            one.policy.value,
            _gpu_s(one.gpu_s_to_oracle),
            _share(one.saving),
            f"{one.gpu_s_to_stop.mean:,.0f}",
            percent(one.regret_fulfilment),
            percent(one.worst_regret_fulfilment),
            str(one.wrong_certificates),
        )
    return made


def _classes(summaries: Sequence[Summary], names: Sequence[str]) -> Any:
    made = table("saved by class, %", *names)
    for one in summaries:
        made.add_row(one.policy.value, *(_share(saving) for saving in one.saving_by_class))
    return made


def _gpu_s(estimate: Estimate) -> str:
    return f"{estimate.mean:,.0f} [{estimate.low:,.0f}, {estimate.high:,.0f}]"


def _share(estimate: Estimate) -> str:
    if estimate.mean != estimate.mean:  # nothing was spent at random
        return "-"
    low, mean, high = (100.0 * end for end in (estimate.low, estimate.mean, estimate.high))
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def comparison_json(found: Mapping[int, Sequence[Summary]], runs: Table) -> dict[str, Any]:
    """Return what `--output json` prints."""
    grid = runs.grid
    return {
        "classes": [one.name for one in grid.classes],
        "configurations": [one.name for one in grid.configurations],
        "loads": grid.shape[2],
        "repeats": grid.repeats,
        "all_runs_gpu_s": grid.repeats * float(grid.cost_gpu_s.sum()),
        "budgets": [
            {
                "gpus": budget,
                "policies": [_summary(one, [c.name for c in grid.classes]) for one in summaries],
            }
            for budget, summaries in found.items()
        ],
    }


def _summary(one: Summary, names: Sequence[str]) -> dict[str, Any]:
    return {
        "policy": one.policy.value,
        "orders": one.orders,
        "gpu_s_to_oracle": _estimate(one.gpu_s_to_oracle),
        "gpu_s_to_stop": _estimate(one.gpu_s_to_stop),
        "saving_ratio": _estimate(one.saving),
        "saving_ratio_by_class": {
            name: _estimate(saving) for name, saving in zip(names, one.saving_by_class, strict=True)
        },
        "mean_regret_fulfilment": one.regret_fulfilment,
        "worst_regret_fulfilment": one.worst_regret_fulfilment,
        "mean_regret_per_s": one.regret_per_s,
        "false_certificates": one.wrong_certificates,
    }


def _estimate(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
