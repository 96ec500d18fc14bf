"""What a chosen fleet is predicted to do: figures per pool, compression, marginal costs."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.availability import replicas_up
from fleetopt.planner.cost import gpu_cost
from fleetopt.planner.end_to_end import served_s
from fleetopt.planner.grid import ONE_POOL, Grid, Index
from fleetopt.planner.inter_token import TokenGaps, gap_p99_s
from fleetopt.planner.outcome import Binding, PoolPlan
from fleetopt.planner.pool import (
    Pools,
    further_shares,
    gaps_at,
    least_replicas,
    load_replicas,
    queues_at,
    violation_share,
)
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX
from fleetopt.planner.ttft import Queues, exceedance, exceeding_share, own_time_s

Array = NDArray[np.float64]

_QUANTILE_POINTS: Final = 9
_QUANTILE_WITHIN: Final = 1e-4
"""Of the quantile: rare long waits make the range that it is looked for in much longer."""


def pool_plan(name: str, pools: Pools, context_tokens: int, replicas: int, grid: Grid) -> PoolPlan:
    """Figures of one sized pool.

    Parameters
    ----------
    name : str
        The pool's.
    pools : Pools
        A batch of one.
    context_tokens : int
        Its window C.
    replicas : int
        Provisioned, ≥ 1. More load than these can carry gives figures of a queue without end.
    grid : Grid
        For its request and the arrivals' bursts.
    """
    request, engine = grid.request, pools.engine
    count = np.full(1, float(replicas))
    state = queues_at(pools, count, request, grid.bursts)
    own = own_time_s(pools.mix, state.field, engine)
    busy = bool(pools.sums.per_s[REQUESTS, 0] > 0.0)
    gaps = gaps_at(pools, count, request, grid.bursts, state)
    over = exceeding_share(pools.mix, state, engine, request.slo_ttft_p99) if busy else np.zeros(1)
    slot_count = float(pools.sums.slot_count[0]) if busy else engine.slots_reserved(context_tokens)
    paid = gpu_cost(engine, replicas, float(pools.load[0]))
    return PoolPlan(
        name=name,
        profile=engine.name,
        context_tokens=context_tokens,
        replicas=replicas,
        gpus=replicas * engine.gpus_per_replica,
        max_num_seqs=int(slot_count),
        arrival_rate_per_s=float(pools.sums.per_s[REQUESTS, 0]),
        utilization=float(pools.load[0] / replicas_up(count, request.node_availability)[0]),
        slot_occupancy=min(float(state.field.sequences[0]) / slot_count, 1.0),
        mean_iteration_s=float(state.field.iteration_s[0]),
        ttft_p99_s=_quantile_s(state, own, pools.mix.share) if busy else 0.0,
        ttft_violation_share=float(over[0]),
        wait_p99_s=_wait_p99_s(state) if busy else 0.0,
        binding=_binding(pools, replicas, grid),
        cost_usd_per_h=paid.usd_per_h,
        max_num_batched_tokens=engine.prefill_chunk_tokens,
        power_w=paid.power_w,
        power_is_upper_bound=paid.power_w is not None and engine.idle_power_w is None,
        carbon_kg_per_h=paid.carbon_kg_per_h,
        e2e_p99_s=_e2e_p99_s(pools, state, gaps) if busy else 0.0,
        itl_p99_s=float(gap_p99_s(gaps, pools.mix, engine)[0]) if busy else 0.0,
    )


def marginal_gpus(grid: Grid, cell: int) -> tuple[float | None, float | None]:
    """GPUs that B one bin edge lower or higher would add, before rounding to replicas."""
    step, row = divmod(cell, grid.rows)
    if cell == ONE_POOL:
        return None, None
    around = np.clip(np.arange(cell - 1, cell + 2), 0, grid.steps * grid.rows - 1)
    below, here, above = _gpus(grid, around).tolist()
    lower = below - here if row > 1 else None
    higher = above - here if row + 1 + step <= grid.rows and row + 1 < grid.rows else None
    return lower, higher


def _gpus(grid: Grid, cells: Index) -> Array:
    request = grid.request
    short, long = grid.both_sums(cells)
    gpus = (
        short.load * request.short_profile.gpus_per_replica
        + long.load * request.long_profile.gpus_per_replica
    )
    return np.asarray(gpus / (request.max_utilization * request.node_availability))


def _binding(pools: Pools, replicas: int, grid: Grid) -> Binding:
    request: PlanRequest = grid.request
    if replicas > least_replicas(pools.load, request)[0]:
        fewer = np.full(1, float(replicas - 1))
        if request.has_further_targets:
            late, slow = further_shares(pools, fewer, request, grid.bursts)
            over = violation_share(pools, fewer, request, grid.bursts, request.slo_ttft_p99)
            if max(late[0], slow[0]) > over[0]:
                return Binding.END_TO_END if late[0] >= slow[0] else Binding.BETWEEN_TOKENS
        state = queues_at(pools, fewer, request, grid.bursts)
        waits_for_slot = state.slot_delay * state.slot_scale_s
        waits_for_prefill = state.prefill.delay * state.prefill.scale_s
        slower = bool(waits_for_slot[0] > waits_for_prefill[0])
        return Binding.QUEUE_WAIT if slower else Binding.PREFILL_TTFT
    needed = load_replicas(pools.load, request)[0]
    return Binding.MINIMUM if needed < request.min_replicas else Binding.UTILIZATION


def _e2e_p99_s(pools: Pools, state: Queues, gaps: TokenGaps) -> float:
    """P99 from arrival to last token."""
    lengths = pools.lengths.mix()
    served = served_s(lengths, state.field, gaps, pools.engine)
    return _quantile_s(state, served, lengths.prompts.share)


def _wait_p99_s(state: Queues) -> float:
    """P99 of the wait for a slot and for prefill; the request's own time left out."""
    return _quantile_s(state, np.zeros((1, 1)), np.ones((1, 1)))


def _quantile_s(state: Queues, own_s: Array, share: Array) -> float:
    """P99 of own time plus waits, by repeated subdivision."""
    used = own_s[share > 0.0]
    queue = state.prefill
    scale = max(float(queue.scale_s[0]), float(state.slot_scale_s[0]))
    waits = max(float(queue.offset_s[0]), float(queue.floor_s[0])) + 20.0 * scale
    low, high = 0.0, float(used.max()) + waits + 1e-6
    while high - low > _QUANTILE_WITHIN * high:
        times = np.linspace(low, high, _QUANTILE_POINTS)
        slack = (times[:, None] - own_s).reshape(1, -1)
        over = exceedance(state, slack).reshape(times.size, -1)
        met = (over * share).sum(axis=1) <= TTFT_VIOLATIONS_MAX
        first = int(met.argmax()) if met.any() else times.size - 1
        low, high = float(times[max(first - 1, 0)]), float(times[first])
    return high
