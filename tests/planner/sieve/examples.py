"""Grids of engines whose curves are known, and priors that are off by known factors."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleetopt.planner.sieve.grid import Configuration, Grid, RequestClass
from fleetopt.planner.sieve.prior import Prior
from fleetopt.planner.sieve.table import Table

Array = NDArray[np.float64]

SIZES = (1, 2, 4, 8)
RHO = np.array([0.3, 0.45, 0.6, 0.75, 0.9, 1.05])
WINDOW_S = 120.0
SLO_S = 30.0
SPEEDS = np.exp(np.linspace(-np.log(1.6), np.log(1.6), 9))


@dataclass(frozen=True)
class World:
    """A table of runs and a prior for it."""

    table: Table
    prior: Prior


def curves(capacity_per_s: Array, alone_s: Array, offered_per_s: Array) -> tuple[Array, Array]:
    """Throughput and completion P99 of a made-up engine."""
    rho = offered_per_s / capacity_per_s
    queue_s = 0.4 * alone_s * rho / np.maximum(1.0 - rho, 0.02) ** 0.8
    backlog_s = np.maximum(rho - 1.0, 0.0) * WINDOW_S
    return (
        np.minimum(offered_per_s, capacity_per_s),
        alone_s * (1.0 + 1.5 * rho) + queue_s + backlog_s,
    )


def world(
    seed: int, budget: int, *, classes: int = 3, configurations: int = 4, noise: float = 0.08
) -> World:
    """Draw a world: configurations are up to 1.4 times as fast or slow as their prior says."""
    generator = np.random.default_rng(seed)
    sizes = np.array(SIZES[:configurations], dtype=float)
    need = generator.uniform(0.5, 3.0, classes)[:, None]
    prior_capacity, prior_alone_s = 2.0 / need * sizes**0.9, 6.0 * need * sizes**-0.6
    speed = np.exp(generator.uniform(-0.35, 0.35, configurations))
    speed = speed * np.exp(generator.uniform(-0.08, 0.08, (classes, configurations)))
    capacity, alone_s = prior_capacity * speed, prior_alone_s / speed
    offered = capacity[:, :, None] * RHO
    exact = curves(capacity[:, :, None], alone_s[:, :, None], offered)
    shape = (*offered.shape, 2)
    throughput = exact[0][..., None] * generator.uniform(0.98, 1.0, shape)
    p99 = exact[1][..., None] * generator.uniform(1.0 - noise, 1.0 + noise, shape)
    usable = np.where(exact[1] <= SLO_S, exact[0], 0.0).max(axis=2)
    demand = np.maximum((usable / sizes).max(axis=1), 0.01) * 1.1 / classes * budget
    cost = sizes[None, :, None] * (np.maximum(WINDOW_S, 300.0 / offered) + exact[1])
    grid = Grid(
        tuple(RequestClass(f"class{one}", float(rate), SLO_S) for one, rate in enumerate(demand)),
        tuple(Configuration(f"tp{int(size)}", int(size)) for size in sizes),
        offered,
        cost,
        repeats=2,
    )
    return World(Table(grid, throughput, p99), prior_of(prior_capacity, prior_alone_s, offered))


def prior_of(capacity_per_s: Array, alone_s: Array, offered_per_s: Array) -> Prior:
    """Predictions at each speed; infinite P99 where the engine can't keep up."""
    predictions = [
        curves(capacity_per_s[:, :, None] * speed, alone_s[:, :, None] / speed, offered_per_s)
        for speed in SPEEDS
    ]
    throughput = np.stack([one for one, _ in predictions], axis=3)
    p99 = np.stack([one for _, one in predictions], axis=3)
    p99[throughput < offered_per_s[..., None]] = np.inf
    return Prior(SPEEDS, throughput, p99)


worlds = st.builds(
    world,
    st.integers(0, 10_000),
    st.sampled_from([8, 16, 32]),
    classes=st.integers(1, 3),
    configurations=st.integers(1, 4),
)
"""Worlds of several sizes."""
