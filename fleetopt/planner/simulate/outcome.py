"""What a simulation says: figures of each pool over the measured window."""

from dataclasses import dataclass

from fleetopt.planner.simulate.figures import Growth, Percentiles
from fleetopt.planner.simulate.fleet import Dispatch


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """One pool, iteration by iteration.

    Rates and shares are of the measured window: what comes before it is warm-up, and what is left
    after the last arrival is only run to its end. A pool without requests has no percentiles.
    """

    name: str
    replicas: int
    slots: int
    requests: int  # that arrived in the window
    warm_up_requests: int  # that arrived before it
    arrival_rate_per_s: float
    utilization: float  # ρ: the work done, as a share of what full replicas would do
    busy_share: float  # of the replicas' time, in an iteration
    slot_occupancy: float  # of all slots, admitted requests
    mean_iteration_s: float  # of all iterations alike
    sequence_iteration_s: float  # as sequences see them: long ones hold more of them
    ttft: Percentiles | None
    e2e: Percentiles | None
    inter_token: Percentiles | None  # of all times between two tokens, without an interval
    ttft_violation_share: float
    preemptions: int
    preempted_share: float  # of the requests, at least once
    growth: Growth

    @property
    def preemption_rate(self) -> float:
        """Preemptions for each request."""
        return self.preemptions / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """A fleet, simulated."""

    pools: tuple[PoolFigures, ...]
    requests: int
    compressed_share: float
    unservable_share: float
    warm_up_s: float
    measured_s: float
    seed: int
    dispatch: Dispatch

    @property
    def is_diverging(self) -> bool:
        """Whether any pool's queue grows without end."""
        return any(pool.growth.is_diverging for pool in self.pools)


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """One pool as c servers that take requests in order of arrival."""

    name: str
    servers: int  # replicas · slots
    requests: int
    utilization: float
    delayed_share: float  # of the requests, that wait at all
    mean_wait_s: float
    wait: Percentiles | None
    growth: Growth
