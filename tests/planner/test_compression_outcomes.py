"""What compressions came to, as the share that the next ones will come to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleetopt.planner.bins import BINS
from fleetopt.planner.compression_outcomes import (
    TOKENS_AFTER,
    TOKENS_BEFORE,
    CompressionOutcome,
    informed_by,
    no_outcomes,
    success_shares,
)
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.outcome import Plan
from fleetopt.planner.plan import plan
from fleetopt.planner.record import compression_record
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, chat, request_for


def test_without_attempts_the_shares_are_what_was_believed() -> None:
    shares = success_shares(no_outcomes(), 0.6)
    assert (shares[0] == 1.0).all()
    assert shares[1] == pytest.approx(0.6)


def test_a_bin_follows_its_attempts_and_the_others_their_class() -> None:
    counts = no_outcomes()
    counts[1, 50, CompressionOutcome.FAILED] = 20_000
    counts[1, 51, CompressionOutcome.COMPRESSED] = 20_000
    shares = success_shares(counts, 0.6)
    assert shares[1, 50] < 0.001
    assert shares[1, 51] > 0.999
    assert shares[1, 70] == pytest.approx(0.5, abs=0.001)
    assert (shares[0] == 1.0).all()
    assert np.all((shares >= 0.0) & (shares <= 1.0))


@pytest.mark.parametrize("outcome", CompressionOutcome)
def test_what_is_moved_between_classes_is_the_same_traffic(outcome: CompressionOutcome) -> None:
    values = Workload.from_requests(*chat(), 100.0).moments.values
    counts = no_outcomes()
    counts[:, ::3, outcome] = 50
    informed = informed_by(values, counts, 0.75)
    assert informed.sum(axis=0) == pytest.approx(values.sum(axis=0))
    assert (informed >= 0.0).all()
    assert not informed[Compressibility.UNKNOWN].any()
    assert informed_by(values, None, 0.75) is values


def test_where_no_compression_succeeds_nothing_is_planned_to_be_compressed() -> None:
    workload = Workload.from_requests(*chat(), 1_000.0)
    request = request_for(H100, "2s")
    counts = no_outcomes()
    counts[:, :, CompressionOutcome.NOT_ELIGIBLE] = 10**9
    found = plan(replace(workload, outcomes=counts), request)
    without = plan(workload, replace(request, gamma_max=1.0))
    hopeful = plan(workload, request)
    assert isinstance(found, Plan)
    assert isinstance(without, Plan)
    assert isinstance(hopeful, Plan)
    assert found.cost_usd_per_h == pytest.approx(without.cost_usd_per_h)
    assert found.compressed_share < 1e-6 < hopeful.compressed_share
    counts = no_outcomes()
    counts[:, :, CompressionOutcome.COMPRESSED] = 10**9
    assured = plan(replace(workload, outcomes=counts), request)
    certain = plan(workload, replace(request, compressible_share=1.0))
    assert isinstance(assured, Plan)
    assert isinstance(certain, Plan)
    assert assured.cost_usd_per_h == pytest.approx(certain.cost_usd_per_h)


def test_the_record_says_what_attempts_came_to() -> None:
    assert compression_record(None) is None
    assert compression_record(no_outcomes()) is None
    counts = no_outcomes()
    assert counts.shape[1] == BINS
    counts[0, 40, CompressionOutcome.COMPRESSED] = 6
    counts[0, 40, TOKENS_BEFORE], counts[0, 40, TOKENS_AFTER] = 6_000, 4_200
    counts[1, 41, CompressionOutcome.NOT_ELIGIBLE] = 3
    counts[1, 42, CompressionOutcome.FAILED] = 1
    record = compression_record(counts)
    assert record is not None
    assert (record.attempted, record.compressed_share) == (10, 0.6)
    assert (record.not_eligible_share, record.failed_share) == (0.3, 0.1)
    assert record.kept_share == pytest.approx(0.7)
    counts[0, 40] = 0
    record = compression_record(counts)
    assert record is not None
    assert record.kept_share is None
