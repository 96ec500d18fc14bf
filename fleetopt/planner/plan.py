"""The planner's front door: plan(workload, request) → Plan | Infeasible."""

from fleetopt.planner.outcome import (
    Baseline,
    BaselineName,
    Binding,
    Infeasible,
    InfeasibleReason,
    Plan,
    PoolPlan,
    ReasonCode,
)
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.workload import Workload

__all__ = [
    "Admission",
    "Baseline",
    "BaselineName",
    "Binding",
    "Infeasible",
    "InfeasibleReason",
    "Plan",
    "PlanRequest",
    "PoolPlan",
    "ReasonCode",
    "Workload",
]
