"""A comparison of policies as a chart: bars of GPU-seconds, a panel for each budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fleetopt.planner.sieve.compare import Summary

_PANEL_IN: Final = (3.6, 2.8)
_DPI: Final = 144


def draw_comparison(found: Mapping[int, Sequence[Summary]], path: Path) -> None:
    """Write a chart as SVG or PNG; the file's name decides."""
    figure = Figure(figsize=(_PANEL_IN[0] * len(found), _PANEL_IN[1]), layout="constrained")
    panels = figure.subplots(1, len(found), sharey=True, sharex=True, squeeze=False)[0]
    for panel, (budget, summaries) in zip(panels, found.items(), strict=True):
        names = [one.policy.value for one in summaries]
        means = [one.gpu_s_to_oracle.mean for one in summaries]
        ends = [
            [one.gpu_s_to_oracle.mean - one.gpu_s_to_oracle.low for one in summaries],
            [one.gpu_s_to_oracle.high - one.gpu_s_to_oracle.mean for one in summaries],
        ]
        panel.barh(names, means, xerr=ends, color="#4477aa", ecolor="#222222", height=0.6)
        panel.invert_yaxis()
        panel.set_title(f"{budget} GPUs")
        panel.set_xlabel("GPU-seconds to the oracle's decision")
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=_DPI)
