"""The request classes of the reference grids: lengths of requests, drawn or recorded."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from fleetopt.planner.moments import Compressibility
from fleetopt.planner.simulate.stream import RequestStream
from validation import traffic

CLASSES: Final = ("chat", "code", "long")
CONTEXT_TOKENS: Final = 32_768
_DRAWN: Final = 20_000
_LONG_TOKENS: Final = (8_000.0, 24_000.0)
_LONG_COMPLETION: Final = (300.0, 0.5)  # median, and sigma of the logarithm
_MOST_COMPLETION: Final = 1_000.0


@cache
def requests(name: str) -> RequestStream:
    """Return a class's requests: the public Azure traces of 2023, or generated long ones."""
    return _long() if name == "long" else traffic.requests(name)


def _long() -> RequestStream:
    """Prompts of 8,000 to 24,000 tokens, all lengths alike; some hundred tokens of output."""
    generator = np.random.default_rng(8)
    median, sigma = _LONG_COMPLETION
    completion = np.minimum(generator.lognormal(np.log(median), sigma, _DRAWN), _MOST_COMPLETION)
    return RequestStream(
        np.arange(_DRAWN, dtype=np.float64),
        np.rint(generator.uniform(*_LONG_TOKENS, _DRAWN)).astype(np.int64),
        np.maximum(np.rint(completion), 1.0).astype(np.int64),
        np.zeros(_DRAWN, dtype=np.int64),
        np.full(_DRAWN, Compressibility.UNKNOWN, dtype=np.int64),
    )
