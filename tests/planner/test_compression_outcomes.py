"""What compressions came to, as the share that the next ones will come to."""

from __future__ import annotations

import numpy as np
import pytest

from fleetopt.planner.compression_outcomes import (
    CompressionOutcome,
    no_outcomes,
    success_shares,
)


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
