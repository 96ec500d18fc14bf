"""What the tests of the compressor share."""

from __future__ import annotations

import pytest

from fleetopt.compressor.tokens import TokenCounter
from fleetopt.connectors.tokenizers import BundledCounter


@pytest.fixture(scope="session")
def counter() -> TokenCounter:
    """Counts as Qwen3 does."""
    return BundledCounter("Qwen/Qwen3-32B")
