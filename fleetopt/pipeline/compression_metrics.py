"""What a compressor counts and measures, in Prometheus' text format and for a log line.

A registry of its own for each compressor, so that several in one process don't mix. No label holds
a fleet, a model or anything else that requests bring: only the closed set of reasons.
"""

from __future__ import annotations

from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fleetopt.compressor.outcome import Compressed, Reason, Stage, Unchanged
from fleetopt.connectors.compression_pool import CompressionPool

_TIMES_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
_SHARES: Final = tuple(percent / 100 for percent in range(50, 101, 5))
_PREFIX: Final = "fleetopt_compressor"


class CompressionMetrics:
    """Counters, histograms and gauges of one compressor."""

    def __init__(self, pool: CompressionPool) -> None:
        self.registry = CollectorRegistry()
        self._pool = pool
        self._requests = self._counter("requests", "Requests taken from Kafka.")
        self._outcomes = self._counter(
            "outcomes", "Requests that were answered, by outcome and reason.", "outcome", "reason"
        )
        for reason in Reason:
            self._outcomes.labels("unchanged", reason.value)
        self._outcomes.labels("compressed", "")
        self._expired = self._counter(
            "expired", "Requests past their deadline when they were read."
        )
        self._rejected = self._counter("rejected", "Requests that went to the dead letters.")
        self._unsent = self._counter("unsent", "Answers that Kafka did not take in time.")
        self._before = self._counter("tokens_before", "Tokens of prompts that were compressed.")
        self._after = self._counter("tokens_after", "Tokens of them after compression.")
        self._kept = Histogram(
            f"{_PREFIX}_kept_share",
            "Tokens after, of tokens before.",
            buckets=_SHARES,
            registry=self.registry,
        )
        self._stage_s = Histogram(
            f"{_PREFIX}_stage_seconds",
            "Time of each stage of a compression.",
            ["stage"],
            buckets=_TIMES_S,
            registry=self.registry,
        )
        for stage in Stage:
            self._stage_s.labels(stage.value)
        self._total_s = Histogram(
            f"{_PREFIX}_seconds",
            "From reading a request to Kafka's receipt of its answer.",
            buckets=_TIMES_S,
            registry=self.registry,
        )
        self._gauge("waiting", "Prompts that wait for a process.", lambda: pool.waiting)
        self._gauge("working", "Prompts that a process has.", lambda: pool.working)
        self._gauge("processes", "Processes that are up.", lambda: len(pool.pids))
        self._gauge("replaced_processes", "Processes that died.", lambda: pool.replaced)
        self._lag_s = Gauge(
            f"{_PREFIX}_event_loop_lag_seconds",
            "Longest time that the event loop was late, so far.",
            registry=self.registry,
        )
        self._blocked_s = Gauge(
            f"{_PREFIX}_event_loop_blocked_seconds",
            "Longest time that it was late over work of its own, not for want of a CPU.",
            registry=self.registry,
        )

    def requested(self) -> None:
        """A request was read."""
        self._requests.inc()

    def expired(self) -> None:
        """Its deadline had passed: nobody waits for an answer."""
        self._expired.inc()

    def rejected(self) -> None:
        """It could not be read."""
        self._rejected.inc()

    def unsent(self) -> None:
        """Its answer did not get to Kafka."""
        self._unsent.inc()

    def answered(self, outcome: Compressed | Unchanged, took_s: float) -> None:
        """Kafka has its answer."""
        self._total_s.observe(took_s)
        for stage, stage_s in outcome.stage_s.items():
            self._stage_s.labels(stage.value).observe(stage_s)
        if isinstance(outcome, Unchanged):
            self._outcomes.labels("unchanged", outcome.reason.value).inc()
            return
        self._outcomes.labels("compressed", "").inc()
        self._before.inc(outcome.tokens_before)
        self._after.inc(outcome.tokens_after)
        self._kept.observe(outcome.kept_share)

    def event_loop_was_late(self, late_s: float, worked_s: float) -> None:
        """Keep the longest delay of the event loop; it had a CPU for `worked_s` meanwhile."""
        blocked_s = min(late_s, worked_s)
        self._lag_s.set(max(late_s, self._value("event_loop_lag_seconds")))
        self._blocked_s.set(max(blocked_s, self._value("event_loop_blocked_seconds")))

    def text(self) -> str:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def summary(self) -> dict[str, Any]:
        """Return what a log line says: counts since the start, and what is going on."""
        compressed = self._value("outcomes_total", outcome="compressed", reason="")
        before, after = self._value("tokens_before_total"), self._value("tokens_after_total")
        seconds, answered = self._value("seconds_sum"), self._value("seconds_count")
        unchanged = {
            reason.value: int(self._value("outcomes_total", outcome="unchanged", reason=reason))
            for reason in Reason
        }
        return {
            "requests": int(self._value("requests_total")),
            "compressed": int(compressed),
            "unchanged": {reason: count for reason, count in unchanged.items() if count},
            "expired": int(self._value("expired_total")),
            "rejected": int(self._value("rejected_total")),
            "unsent": int(self._value("unsent_total")),
            "kept_share": round(after / before, 4) if before else None,
            "mean_s": round(seconds / answered, 4) if answered else None,
            "waiting": self._pool.waiting,
            "working": self._pool.working,
            "replaced_processes": self._pool.replaced,
            "event_loop_lag_s": round(self._value("event_loop_lag_seconds"), 4),
            "event_loop_blocked_s": round(self._value("event_loop_blocked_seconds"), 4),
        }

    def _value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"{_PREFIX}_{name}", labels) or 0.0

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", what, labels, registry=self.registry)

    def _gauge(self, name: str, what: str, read: Any) -> None:
        Gauge(f"{_PREFIX}_{name}", what, registry=self.registry).set_function(read)
