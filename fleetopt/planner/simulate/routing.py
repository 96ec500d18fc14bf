"""The gateway: which pool each request goes to, and as what."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.band import KEPT_PROMPT_SHARE
from fleetopt.planner.moments import Compressibility
from fleetopt.planner.simulate.fleet import SimulatedFleet
from fleetopt.planner.simulate.stream import RequestStream


@dataclass(frozen=True, eq=False)
class Routed:
    """The requests of each pool as they arrive there, and who was compressed or refused."""

    streams: tuple[RequestStream, ...]  # one for each of the fleet's pools
    is_compressed: NDArray[np.bool_]  # of all requests
    is_unservable: NDArray[np.bool_]


def route(fleet: SimulatedFleet, stream: RequestStream, rng: np.random.Generator) -> Routed:
    """Send requests to their pools; a compressed one arrives with i = B − o and nothing cached.

    A compressed prompt keeps at least `KEPT_PROMPT_SHARE` of B, as in the planner: a request
    whose output leaves less room stays long. Longer requests than the last pool's context are
    not served.
    """
    boundary = fleet.boundary_tokens
    total = stream.total_tokens
    is_short = total <= boundary
    if fleet.long is None:
        nobody = np.zeros(len(stream), dtype=np.bool_)
        return Routed((stream.take(is_short),), nobody, ~is_short)
    is_servable = total <= fleet.long.context_tokens
    room = boundary - stream.completion_tokens
    is_compressed = ~is_short & (total <= fleet.compress_up_to_tokens)
    is_compressed &= room >= KEPT_PROMPT_SHARE * boundary
    is_compressed &= _may_compress(stream, fleet.compressible_share, rng) & is_servable
    arriving = RequestStream(
        stream.arrival_s,
        np.where(is_compressed, np.maximum(room, 0), stream.prompt_tokens),
        stream.completion_tokens,
        np.where(is_compressed, 0, stream.cached_tokens),
        stream.compressibility,
    )
    short = is_short | is_compressed
    return Routed(
        (arriving.take(short), arriving.take(~short & is_servable)), is_compressed, ~is_servable
    )


def _may_compress(
    stream: RequestStream, unknown_share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    drawn = rng.random(len(stream)) < unknown_share
    kind = stream.compressibility
    known = kind == Compressibility.COMPRESSIBLE
    return np.asarray(known | ((kind == Compressibility.UNKNOWN) & drawn))
