"""The traffic of the validation: two public traces, two public CDFs and five generated mixes.

Each is a set of requests. The planner sees their moments, the simulation draws from the requests
themselves, so that what moments lose shows as a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.cdf import read_cdf
from fleetopt.connectors.traces import TraceReader, open_input
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.simulate.stream import RequestStream

DATA: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
TRACES: Final = {"chat": "azure_llm_2023_conv.csv", "code": "azure_llm_2023_code.csv"}
CDFS: Final = {"azure_cdf": "azure_cdf.json", "agent_heavy": "agent_heavy_cdf.json"}
CDF_OUTPUT_SHARE: Final = 0.2
_DRAWN: Final = 200_000
_MOST_TOKENS: Final = 32_000

Floats = NDArray[np.float64]


def names() -> tuple[str, ...]:
    """All traffic that can be had here: without the public data, only what is generated."""
    public = (
        *(name for name, file in TRACES.items() if (DATA / "traces" / file).is_file()),
        *(name for name, file in CDFS.items() if (DATA / "cdf" / file).is_file()),
    )
    return (*public, *GENERATED)


@cache
def requests(name: str) -> RequestStream:
    """The requests of this traffic; only those of a trace have arrival times that mean anything."""
    if name in TRACES:
        return _trace(DATA / "traces" / TRACES[name])
    if name in CDFS:
        return _cdf(DATA / "cdf" / CDFS[name])
    return GENERATED[name]()


def _trace(path: Path) -> RequestStream:
    with open_input(str(path)) as opened:
        records = TraceReader(opened).records()
    return _unknown_class(
        np.array([one.arrival_s for one in records]),
        np.array([one.prompt_tokens for one in records], dtype=np.float64),
        np.array([one.completion_tokens for one in records], dtype=np.float64),
    )


def _cdf(path: Path) -> RequestStream:
    """Evenly spaced quantiles: no sampling error in the lengths themselves."""
    with path.open("rb") as file:
        points = np.array([(0.0, 0.0), *read_cdf(file, str(path))])
    quantile = (np.arange(_DRAWN) + 0.5) / _DRAWN
    total = np.maximum(np.rint(np.interp(quantile, points[:, 1], points[:, 0])), 1.0)
    completion = np.rint(CDF_OUTPUT_SHARE * total)
    return _unknown_class(np.arange(_DRAWN, dtype=np.float64), total - completion, completion)


def _long_context() -> RequestStream:
    """Conversations that carry long histories: mean prompt 8,600, lognormal."""
    rng = np.random.default_rng(3)
    return _lognormal(rng, (5_900.0, 0.95), (200.0, 0.8))


def _short_chat() -> RequestStream:
    """Questions of a line or two, answers of a paragraph."""
    rng = np.random.default_rng(4)
    return _lognormal(rng, (120.0, 0.9), (150.0, 0.8))


def _agentic() -> RequestStream:
    """Seven short tool calls for every three with a whole repository or history in them."""
    rng = np.random.default_rng(5)
    short = _lognormal(rng, (900.0, 0.5), (60.0, 0.7), int(0.7 * _DRAWN))
    long = _lognormal(rng, (12_000.0, 0.5), (400.0, 0.8), _DRAWN - int(0.7 * _DRAWN))
    return _unknown_class(
        np.arange(_DRAWN, dtype=np.float64),
        np.concatenate((short.prompt_tokens, long.prompt_tokens)).astype(np.float64),
        np.concatenate((short.completion_tokens, long.completion_tokens)).astype(np.float64),
    )


def _retrieval() -> RequestStream:
    """Retrieved passages of 2,000 to 6,000 tokens, uniform; short answers."""
    rng = np.random.default_rng(6)
    prompt = rng.uniform(2_000.0, 6_000.0, _DRAWN)
    completion = np.minimum(rng.lognormal(np.log(120.0), 0.6, _DRAWN), 1_000.0)
    return _unknown_class(np.arange(_DRAWN, dtype=np.float64), prompt, completion)


def _reasoning() -> RequestStream:
    """Short questions, thousands of tokens of thought."""
    rng = np.random.default_rng(7)
    return _lognormal(rng, (250.0, 0.8), (2_800.0, 0.6))


def _lognormal(
    rng: np.random.Generator,
    prompt: tuple[float, float],
    completion: tuple[float, float],
    count: int = _DRAWN,
) -> RequestStream:
    """Medians and sigmas of the logarithms."""
    o = np.minimum(rng.lognormal(np.log(completion[0]), completion[1], count), _MOST_TOKENS / 2)
    i = np.minimum(rng.lognormal(np.log(prompt[0]), prompt[1], count), _MOST_TOKENS - o)
    return _unknown_class(np.arange(count, dtype=np.float64), i, o)


def _unknown_class(arrival_s: Floats, prompt: Floats, completion: Floats) -> RequestStream:
    nothing = np.zeros(arrival_s.size, dtype=np.int64)
    i = np.maximum(np.rint(prompt), 1.0).astype(np.int64)
    o = np.maximum(np.rint(completion), 1.0).astype(np.int64)
    return RequestStream(arrival_s, i, o, nothing, nothing + int(Compressibility.UNKNOWN))


GENERATED: Final[dict[str, Callable[[], RequestStream]]] = {
    "long_context": _long_context,
    "short_chat": _short_chat,
    "agentic": _agentic,
    "retrieval": _retrieval,
    "reasoning": _reasoning,
}
