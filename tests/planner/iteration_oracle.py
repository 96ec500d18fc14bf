"""An iteration-level simulation of a pool: the oracle that predicted latency is held against.

Independent of the planner's formulas: replicas run iterations as in an engine profile, decode
first, then prefill in arrival order; a request goes to the replica that holds the fewest.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.engine import EngineProfile


@dataclass
class _Replica:
    waiting: deque[int] = field(default_factory=deque)
    prefilling: deque[list[int]] = field(default_factory=deque)  # [request, tokens done]
    finishing: list[tuple[int, int]] = field(default_factory=list)  # (iteration, context)
    decoding: int = 0
    context: int = 0
    iteration: int = 0
    held: int = 0
    busy: bool = False


class Pool:
    """Replicas of one engine with a number of slots each."""

    def __init__(self, engine: EngineProfile, replicas: int, slots: int) -> None:
        self.engine, self.slots = engine, slots
        self.replicas = [_Replica() for _ in range(replicas)]
        self.ends: list[tuple[float, int]] = []

    def ttft_s(
        self, arrival_s: NDArray[np.float64], prompt: list[int], completion: list[int]
    ) -> NDArray[np.float64]:
        """Time to first token of each request; NaN where it came after the last arrival."""
        first = np.full(len(prompt), np.nan)
        for request, now in enumerate(arrival_s.tolist()):
            while self.ends and self.ends[0][0] <= now:
                ended, index = heapq.heappop(self.ends)
                self._end(self.replicas[index], ended, arrival_s, prompt, completion, first)
                self._start(index, ended, prompt)
            index = min(range(len(self.replicas)), key=lambda r: self.replicas[r].held)
            replica = self.replicas[index]
            replica.waiting.append(request)
            replica.held += 1
            if not replica.busy:
                self._start(index, now, prompt)
        return first

    def _start(self, index: int, now: float, prompt: list[int]) -> None:
        replica, engine = self.replicas[index], self.engine
        while replica.waiting and replica.decoding + len(replica.prefilling) < self.slots:
            replica.prefilling.append([replica.waiting.popleft(), 0])
        replica.busy = bool(replica.decoding or replica.prefilling)
        if not replica.busy:
            return
        budget, tokens, before, context = engine.prefill_chunk_tokens, 0, 0.0, replica.context
        for entry in replica.prefilling:
            chunk = min(budget, prompt[entry[0]] - entry[1])
            before += chunk * (entry[1] + chunk / 2.0)
            entry[1] += chunk
            context += entry[1]
            tokens += chunk
            if not engine.prefill_is_free:
                budget -= chunk
        took = (
            engine.base_iteration_s
            + engine.per_sequence_s * replica.decoding
            + engine.per_context_token_s * context
            + engine.prefill_token_s * tokens
            + engine.prefill_token_context_s * before
        )
        heapq.heappush(self.ends, (now + took, index))

    def _end(
        self,
        replica: _Replica,
        now: float,
        arrival_s: NDArray[np.float64],
        prompt: list[int],
        completion: list[int],
        first: NDArray[np.float64],
    ) -> None:
        replica.iteration += 1
        replica.context += replica.decoding
        while replica.finishing and replica.finishing[0][0] <= replica.iteration:
            replica.context -= heapq.heappop(replica.finishing)[1]
            replica.decoding -= 1
            replica.held -= 1
        still: deque[list[int]] = deque()
        for entry in replica.prefilling:
            request = entry[0]
            if entry[1] < prompt[request]:
                still.append(entry)
                continue
            first[request] = now - arrival_s[request]
            replica.decoding += 1
            replica.context += prompt[request]
            end = replica.iteration + completion[request]
            heapq.heappush(replica.finishing, (end, prompt[request] + completion[request]))
        replica.prefilling = still


def simulated_ttft_p99_s(
    engine: EngineProfile,
    replicas: int,
    slots: int,
    rate_per_s: float,
    prompt: NDArray[np.int64],
    completion: NDArray[np.int64],
    seed: int,
) -> float:
    """P99 TTFT under Poisson arrivals, the first fifth left out."""
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_per_s, prompt.size))
    first = Pool(engine, replicas, slots).ttft_s(arrival_s, prompt.tolist(), completion.tolist())
    measured = first[prompt.size // 5 :]
    return float(np.nanquantile(measured, 0.99))
