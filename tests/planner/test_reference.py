"""The reference table of the planning model, and the directions of its latency table."""

import csv
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fleetopt.config.profiles import load_profile
from fleetopt.planner.plan import Admission, Infeasible, InfeasibleReason, Plan, PlanRequest, plan
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload
from tests.planner.examples import long_context

DATA = Path(__file__).parents[3] / "shared/data"
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here"),
]

PAPER = "a100/llama-3-70b/paper"
# profile, workload, C_l, and replicas: one pool reserved, one pool at its mean context, two pools
# with gamma = 1, gamma <= 2 at p_c 0.75, gamma <= 2 at p_c 1
Row = tuple[str, str, int, int, int, int, int, int]
TABLE: list[Row] = [
    (PAPER, "azure", 65_536, 282, 97, 113, 103, 83),
    (PAPER, "agent_heavy", 65_536, 2_336, 1_714, 1_924, 1_672, 1_579),
    (PAPER, "conv", 65_536, 151, 27, 34, 31, 28),
    (PAPER, "code", 65_536, 26, 8, 9, 8, 7),
    ("h100/qwen3-32b/tp2", "conv", 32_768, 507, 102, 134, 111, 103),
    ("h100/qwen3-32b/tp2", "code", 32_768, 188, 133, 143, 121, 112),
    ("h100/llama-3.1-70b/tp4", "conv", 32_768, 415, 109, 134, 112, 105),
    ("h200/llama-3.1-70b/tp4", "code", 32_768, 164, 152, 154, 133, 126),
    ("h100/llama-3.1-8b/tp1", "conv", 32_768, 174, 48, 59, 50, 47),
]


@cache
def workload(name: str, rate_per_s: float = 1_000.0) -> Workload:
    """One of the reference workloads."""
    if name in {"conv", "code"}:
        with (DATA / f"traces/azure_llm_2023_{name}.csv").open() as file:
            rows = [(int(row[1]), int(row[2])) for row in list(csv.reader(file))[1:]]
        prompt, completion = np.array(rows).T
        return Workload.from_requests(prompt, completion, rate_per_s)
    document = json.loads((DATA / f"cdf/{name}_cdf.json").read_text())
    points = document["cdf"] if isinstance(document, dict) else document
    return Workload.from_cdf(points, 0.2, rate_per_s)


def planned(profile: str, name: str, context: int, gamma_max: float, share: float) -> Plan:
    """The plan that a row of the table asks for."""
    engine = load_profile(profile)
    request = PlanRequest(
        engine,
        engine,
        context,
        TtftTarget(60.0),
        Admission.RESERVED,
        gamma_max=gamma_max,
        compressible_share=share,
        compression_penalty_usd=0.0,
    )
    found = plan(workload(name), request)
    assert isinstance(found, Plan)
    return found


def replicas(found: Plan) -> int:
    """Replicas of both pools."""
    return found.short_replicas + found.long_replicas


def agrees(got: int, expected: int) -> bool:
    """Within one replica or 1 %: the bin edges are a coarser grid than the reference's."""
    return abs(got - expected) <= max(1.0, 0.01 * expected)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
class TestReplicasAgreeWithTheTable:
    def test_one_pool_reserved_and_two_pools(
        self, row: tuple[str, str, int, int, int, int]
    ) -> None:
        found = planned(*row[:3], gamma_max=1.0, share=0.75)
        reserved, statistical, two_pools = found.baselines[:3]
        assert agrees(reserved.short_replicas, row[3])
        assert agrees(two_pools.short_replicas + two_pools.long_replicas, row[5])
        assert agrees(replicas(found), row[5])
        # the mean context is the limit that statistical admission approaches from above
        assert row[4] - 1 <= statistical.short_replicas <= 1.05 * row[4] + 1

    @pytest.mark.parametrize(("share", "column"), [(0.75, 6), (1.0, 7)])
    def test_with_compression(self, row: Row, share: float, column: int) -> None:
        expected = row[6] if column == 6 else row[7]
        found = planned(*row[:3], gamma_max=2.0, share=share)
        assert agrees(replicas(found), expected)
        assert found.long is not None
        assert max(found.short.utilization, found.long.utilization) <= 0.85


@pytest.mark.parametrize("admission", Admission)
def test_half_a_second_is_out_of_reach_for_the_agents_longest_prompts(
    admission: Admission,
) -> None:
    engine = load_profile(PAPER)
    request = PlanRequest(engine, engine, 65_536, TtftTarget(0.5), admission)
    found = plan(workload("agent_heavy"), request)
    assert isinstance(found, Infeasible)
    assert found.reason is InfeasibleReason.SLO_UNREACHABLE
    assert found.tightest_slo is not None
    reachable = PlanRequest(engine, engine, 65_536, found.tightest_slo, admission)
    assert isinstance(plan(workload("agent_heavy"), reachable), Plan)
    out_of_reach = PlanRequest(
        engine, engine, 65_536, TtftTarget(found.tightest_slo.base_s - 0.005), admission
    )
    assert isinstance(plan(workload("agent_heavy"), out_of_reach), Infeasible)


@pytest.mark.parametrize("rate_per_s", [8.0, 24.0])
class TestLongConversations:
    def counts(self, target: str, rate_per_s: float) -> tuple[int, int]:
        """Replicas of one pool and of two, without compression, statistical admission."""
        engine = load_profile("h100/qwen3-32b/tp2")
        prompt, completion = long_context()
        request = PlanRequest(engine, engine, 32_768, TtftTarget.parse(target), gamma_max=1.0)
        found = plan(Workload.from_requests(prompt, completion, rate_per_s), request)
        assert isinstance(found, Plan)
        two = found.baselines[2]
        return found.baselines[1].short_replicas, two.short_replicas + two.long_replicas

    def test_with_a_length_aware_target_two_pools_need_far_fewer(self, rate_per_s: float) -> None:
        one, two = self.counts("300ms+0.2ms/token", rate_per_s)
        assert two <= 0.65 * one

    def test_with_one_constant_target_a_single_pool_is_as_good(self, rate_per_s: float) -> None:
        one, two = self.counts("6s", rate_per_s)
        assert abs(two - one) <= max(1, round(0.05 * one))
