"""A fleet of any number of pools: its pools, the cuts between them, and its cost."""

from dataclasses import dataclass, replace
from itertools import pairwise

from fleetopt.planner.bins import BINS_PER_OCTAVE, EDGES_TOKENS
from fleetopt.planner.cost import GpuCost
from fleetopt.planner.cuts import Cuts
from fleetopt.planner.outcome import PoolPlan
from fleetopt.planner.report import pool_plan


@dataclass(frozen=True)
class Cut:
    """A boundary between two pools: up to B belongs below it, up to γB may be compressed to."""

    boundary_tokens: int
    gamma: float
    compress_up_to_tokens: int
    compressed_per_s: float


@dataclass(frozen=True)
class PoolChain:
    """A fleet of so many pools, that of the shortest requests first."""

    pools: tuple[PoolPlan, ...]
    cuts: tuple[Cut, ...]  # between the pools
    gpu_cost_usd_per_h: float
    compression_usd_per_h: float
    compressed_share: float
    minimised_per_h: float  # in the unit that was minimised
    power_w: float | None  # of the GPUs; None is unknown
    carbon_kg_per_h: float | None

    @property
    def gpus(self) -> int:
        """GPUs of the whole fleet."""
        return sum(pool.gpus for pool in self.pools)

    @property
    def cost_usd_per_h(self) -> float:
        """GPUs plus the price of compression."""
        return self.gpu_cost_usd_per_h + self.compression_usd_per_h


def pool_chain(cuts: Cuts, nodes: tuple[int, ...]) -> PoolChain:
    """Figures of the fleet that is cut at these nodes, from the first cut to the last one."""
    between = [_cut(cuts, node) for node in nodes[1:-1]]
    sized = [cuts.sized(lower, upper) for lower, upper in pairwise(nodes)]
    uppers = [cut.boundary_tokens for cut in between] + [cuts.request.long_context_tokens]
    lowers = [0] + [upper + 1 for upper in uppers[:-1]]
    pools: list[PoolPlan] = []
    paid = GpuCost(0.0, 0.0, 0.0)
    for one, lower, upper in zip(sized, lowers, uppers, strict=True):
        name = f"pool {len(pools) + 1}"
        plan = pool_plan(name, one.pools, upper, one.replicas, one.grid)
        pools.append(replace(plan, min_tokens=lower))
        paid += GpuCost(plan.cost_usd_per_h, plan.power_w, plan.carbon_kg_per_h)
    compressed_per_s = sum(cut.compressed_per_s for cut in between)
    minimised = sum(one.cost_per_h for one in sized)
    minimised += float(sum(cuts.compression[node] for node in nodes))
    return PoolChain(
        pools=tuple(pools),
        cuts=tuple(between),
        gpu_cost_usd_per_h=paid.usd_per_h,
        compression_usd_per_h=cuts.request.compression_usd_per_h(compressed_per_s),
        compressed_share=compressed_per_s / cuts.last[0].arrival_rate_per_s,
        minimised_per_h=minimised,
        power_w=paid.power_w,
        carbon_kg_per_h=paid.carbon_kg_per_h,
    )


def _cut(cuts: Cuts, node: int) -> Cut:
    grid, cell = cuts.last[0], int(cuts.cells[node])
    step, row = divmod(cell, grid.rows)
    context = cuts.request.long_context_tokens
    return Cut(
        boundary_tokens=int(grid.boundaries[row]),
        gamma=float(2.0 ** (step / BINS_PER_OCTAVE)),
        compress_up_to_tokens=min(int(EDGES_TOKENS[row - 1 + step]), context),
        compressed_per_s=float(cuts.compressed_per_s[node]),
    )
