"""Metrics count what happened, in a text that Prometheus' own parser reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from fleetopt.compressor.outcome import Compressed, Reason, Stage, Unchanged
from fleetopt.connectors.compression_pool import CompressionPool
from fleetopt.connectors.compression_process import Setup
from fleetopt.pipeline.compression_metrics import CompressionMetrics


def samples(metrics: CompressionMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name.removeprefix("fleetopt_compressor_"), frozenset(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def test_everything_is_there_before_anything_happened() -> None:
    found = samples(CompressionMetrics(CompressionPool(Setup())))
    for reason in Reason:
        labels = frozenset({("outcome", "unchanged"), ("reason", reason.value)})
        assert found["outcomes_total", labels] == 0.0
    for stage in Stage:
        assert found["stage_seconds_count", frozenset({("stage", stage.value)})] == 0.0
    for name in ("waiting", "working", "processes", "requests_total", "unsent_total"):
        assert found[name, frozenset()] == 0.0


def test_what_happened_is_counted() -> None:
    metrics = CompressionMetrics(CompressionPool(Setup()))
    for _ in range(4):
        metrics.requested()
    metrics.expired()
    metrics.rejected()
    metrics.unsent()
    metrics.answered(Compressed("text", 1_000, 600, stage_s={Stage.SCORE: 0.25}), 0.5)
    metrics.answered(Unchanged(Reason.OVERLOADED, "full"), 0.25)
    metrics.event_loop_was_late(0.5, 0.0625)
    metrics.event_loop_was_late(0.125, 0.25)
    found = samples(metrics)
    score = frozenset({("stage", "score")})
    assert found["stage_seconds_sum", score] == 0.25
    assert found["seconds_sum", frozenset()] == 0.75
    assert found["event_loop_lag_seconds", frozenset()] == 0.5
    assert found["event_loop_blocked_seconds", frozenset()] == 0.125
    summary = metrics.summary()
    assert summary["unchanged"] == {"overloaded": 1}
    assert (summary["requests"], summary["compressed"], summary["expired"]) == (4, 1, 1)
    assert (summary["rejected"], summary["unsent"], summary["kept_share"]) == (1, 1, 0.6)


def test_two_compressors_in_one_process_count_apart() -> None:
    first, second = (CompressionMetrics(CompressionPool(Setup())) for _ in range(2))
    first.requested()
    assert (first.summary()["requests"], second.summary()["requests"]) == (1, 0)
