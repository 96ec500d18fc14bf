"""The same simulation, one iteration after the other and with plain objects: slow and obvious."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fleetopt.planner.simulate.fleet import SimulatedPool
from fleetopt.planner.simulate.stream import RequestStream


@dataclass(eq=False)
class Sequence:
    """A request, from its arrival to its end."""

    prompt: int
    completion: int
    cached: int
    arrival_s: float
    done: int = 0
    generated: int = 0
    decodes: bool = False
    first_token_s: float = math.nan
    end_s: float = math.nan
    preemptions: int = 0

    @property
    def need(self) -> int:
        return self.prompt + self.generated


@dataclass(eq=False)
class Replica:
    """One engine: what waits, what runs (in order of admission), when its iteration ends."""

    pool: SimulatedPool
    waiting: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    chunks: list[tuple[Sequence, int]] = field(default_factory=list)
    ends_s: float = math.inf
    changed: int = 0
    began_s: float = 0.0
    iterations: int = 0
    gaps_s: list[tuple[float, float]] = field(default_factory=list)  # when each ended, its length

    @property
    def held(self) -> int:
        return len(self.waiting) + len(self.running)

    def kv_tokens(self) -> int:
        return sum(one.need + (0 if one.decodes else 1) for one in self.running)

    def start(self, now: float) -> None:
        limit = self.pool.cache_tokens
        if self.kv_tokens() > limit:
            while self.kv_tokens() > limit:
                victim = self.running.pop()
                victim.decodes, victim.done = False, victim.cached
                victim.preemptions += 1
                self.waiting.insert(0, victim)
        else:
            while (
                self.waiting
                and len(self.running) < self.pool.slots
                and self.kv_tokens() + self.waiting[0].need + 1 <= limit
            ):
                self.running.append(self.waiting.pop(0))
        self.ends_s = math.inf if not self.running else now + self.compose()
        self.began_s = now

    def compose(self) -> float:
        """Choose the chunks of the next iteration, and say how long it takes."""
        engine = self.pool.profile
        decoding = [one for one in self.running if one.decodes]
        self.chunks, budget = [], engine.prefill_chunk_tokens
        for one in sorted((s for s in self.running if not s.decodes), key=self.running.index):
            if budget == 0:
                break
            chunk = min(budget, one.need - one.done)
            self.chunks.append((one, chunk))
            if not engine.prefill_is_free:
                budget -= chunk
        context = sum(one.need for one in decoding) + sum(s.done + c for s, c in self.chunks)
        before = sum(c * (s.done + c / 2) for s, c in self.chunks)
        return (
            engine.base_iteration_s
            + engine.per_sequence_s * (len(decoding) + len(self.chunks))
            + engine.per_context_token_s * context
            + engine.prefill_token_s * sum(c for _, c in self.chunks)
            + engine.prefill_token_context_s * before
        )

    def end(self) -> int:
        """Book the iteration that ends now; return how many requests left."""
        self.iterations += 1
        had = self.held
        for one in [one for one in self.running if one.decodes]:
            self.gaps_s.append((self.ends_s, self.ends_s - self.began_s))
            self.token(one)
        for one, chunk in self.chunks:
            one.done += chunk
            if one.done == one.need:
                one.decodes = True
                if math.isnan(one.first_token_s):
                    one.first_token_s = self.ends_s
                self.token(one)
        return had - self.held

    def token(self, one: Sequence) -> None:
        one.generated += 1
        if one.generated == one.completion:
            one.end_s = self.ends_s
            self.running.remove(one)


def run(pool: SimulatedPool, stream: RequestStream) -> list[Sequence]:
    """All requests of the stream, run to their ends; to the replica with the fewest requests."""
    return _run(pool, stream)[0]


def gaps_s(pool: SimulatedPool, stream: RequestStream, until_s: float) -> list[float]:
    """Every time between two tokens of a request, of those that ended until then."""
    replicas = _run(pool, stream)[1]
    return [gap for replica in replicas for end, gap in replica.gaps_s if end <= until_s]


def _run(pool: SimulatedPool, stream: RequestStream) -> tuple[list[Sequence], list[Replica]]:
    sequences = [
        Sequence(prompt, max(completion, 1), min(cached, max(prompt - 1, 0)), arrival)
        for arrival, prompt, completion, cached in zip(
            stream.arrival_s.tolist(),
            stream.prompt_tokens.tolist(),
            stream.completion_tokens.tolist(),
            stream.cached_tokens.tolist(),
            strict=True,
        )
    ]
    replicas = [Replica(pool) for _ in range(pool.replicas)]
    changes = 0

    def catch_up(until_s: float) -> None:
        nonlocal changes
        while (replica := min(replicas, key=lambda one: one.ends_s)).ends_s <= until_s:
            if replica.ends_s == math.inf:
                return
            if replica.end():
                changes += 1
                replica.changed = changes
            replica.start(replica.ends_s)

    for one in sequences:
        one.done = one.cached
        catch_up(one.arrival_s)
        chosen = min(replicas, key=lambda replica: (replica.held, replica.changed))
        changes += 1
        chosen.changed = changes
        chosen.waiting.append(one)
        if chosen.ends_s == math.inf:
            chosen.start(one.arrival_s)
    catch_up(math.inf)
    return sequences, replicas
