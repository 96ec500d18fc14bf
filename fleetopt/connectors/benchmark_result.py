"""What a benchmark tool found in one run: vLLM's, GuideLLM's and AIPerf's JSON, or a plain one.

Which tool wrote it is seen from its keys. Times come out in seconds, whatever unit they had.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from fleetopt.errors import InputError

FAILED_MAX: Final = 0.01
"""If more requests fail, the slowest one in a hundred never came to its end: P99 is infinite."""

_Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """One run. None is unknown."""

    throughput_per_s: float  # requests completed
    completion_p99_s: float  # from sending to the last token
    failed_share: float | None = None
    duration_s: float | None = None
    ttft_mean_s: float | None = None
    token_mean_s: float | None = None  # between two tokens of a request
    completion_mean_s: float | None = None
    prompt_tokens: float | None = None  # mean
    completion_tokens: float | None = None  # mean


def parse_result(text: str | bytes, source: str) -> BenchmarkResult:
    """Return what a run found.

    Raises
    ------
    InputError
        If it is not JSON, no tool that is known wrote it, or a figure is missing or out of range;
        the message says where, and which option of the tool adds it.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{source} is JSON, but no object; expected the result of a benchmark")
    for has, parse in _TOOLS:
        if has in document:
            return _checked(parse(document, source), source)
    raise InputError(
        f"{source} is of no tool that is known; expected the JSON of `vllm bench serve "
        "--save-result`, GuideLLM or AIPerf, or throughput_per_s and completion_p99_s"
    )


def _checked(result: BenchmarkResult, source: str) -> BenchmarkResult:
    if result.failed_share is not None and result.failed_share > FAILED_MAX:
        result = replace(result, completion_p99_s=math.inf)
    if not (math.isfinite(result.throughput_per_s) and result.throughput_per_s >= 0.0):
        raise InputError(f"{source}: throughput is {result.throughput_per_s}; expected ≥ 0")
    if math.isnan(result.completion_p99_s) or result.completion_p99_s <= 0.0:
        raise InputError(f"{source}: completion P99 is {result.completion_p99_s}; expected > 0")
    return result


def _of_vllm(document: _Document, source: str) -> BenchmarkResult:
    completed = _needed(document, source, "completed")
    failed = _number(document, "failed")
    if failed is None and (sent := _number(document, "num_prompts")) is not None:
        failed = sent - completed
    times_s = _detailed_s(document)
    p99_s = _milliseconds(document, "p99_e2el_ms")
    if p99_s is None and times_s is not None:
        p99_s = float(np.quantile(times_s, 0.99))
    mean_s = _milliseconds(document, "mean_e2el_ms")
    if mean_s is None and times_s is not None:
        mean_s = float(times_s.mean())
    failed_share = None if failed is None else max(failed, 0.0) / max(completed + failed, 1.0)
    if p99_s is None and not completed:
        p99_s = math.inf
    if p99_s is None:
        raise InputError(
            f"{source} has no end-to-end P99; run vllm bench serve with "
            "--percentile-metrics ttft,tpot,itl,e2el or with --save-detailed"
        )
    prompt, output = (_number(document, f"total_{name}_tokens") for name in ("input", "output"))
    return BenchmarkResult(
        throughput_per_s=_needed(document, source, "request_throughput"),
        completion_p99_s=p99_s,
        failed_share=failed_share,
        duration_s=_number(document, "duration"),
        ttft_mean_s=_milliseconds(document, "mean_ttft_ms"),
        token_mean_s=_milliseconds(document, "mean_tpot_ms"),
        completion_mean_s=mean_s,
        prompt_tokens=None if prompt is None or not completed else prompt / completed,
        completion_tokens=None if output is None or not completed else output / completed,
    )


def _detailed_s(document: _Document) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """End-to-end times of `--save-detailed`: to the first token, and from each to the next."""
    ttfts, gaps = document.get("ttfts"), document.get("itls")
    if not (isinstance(ttfts, list) and isinstance(gaps, list) and len(ttfts) == len(gaps)):
        return None
    times = [ttft + sum(each) for ttft, each in zip(ttfts, gaps, strict=True) if ttft > 0.0]
    return np.array(times) if times else None


def _of_guidellm(document: _Document, source: str) -> BenchmarkResult:
    runs = document["benchmarks"]
    if not isinstance(runs, list) or len(runs) != 1 or not isinstance(runs[0], dict):
        count = len(runs) if isinstance(runs, list) else 0
        raise InputError(f"{source} holds {count} benchmarks; expected one: run one rate at a time")
    run = runs[0]
    metrics = run.get("metrics")
    if not isinstance(metrics, dict):
        raise InputError(f"{source} has no requests_per_second: its benchmark has no metrics")
    totals = metrics.get("request_totals") or run.get("request_totals") or {}
    total, done = _number(totals, "total"), _number(totals, "successful")
    failed = _number(totals, "errored")
    p99_s = _number(metrics, "request_latency", "successful", "percentiles", "p99")
    if not p99_s and not done:
        p99_s = math.inf
    return BenchmarkResult(
        throughput_per_s=_needed(metrics, source, "requests_per_second", "successful", "mean"),
        completion_p99_s=_known(p99_s, source, "request_latency.successful.percentiles.p99"),
        failed_share=None if failed is None or not total else failed / total,
        duration_s=_number(run, "duration"),
        ttft_mean_s=_milliseconds(metrics, "time_to_first_token_ms", "successful", "mean"),
        token_mean_s=_milliseconds(metrics, "inter_token_latency_ms", "successful", "mean"),
        completion_mean_s=_number(metrics, "request_latency", "successful", "mean"),
        prompt_tokens=_number(metrics, "prompt_token_count", "successful", "mean"),
        completion_tokens=_number(metrics, "output_token_count", "successful", "mean"),
    )


def _of_aiperf(document: _Document, source: str) -> BenchmarkResult:
    done = _number(document, "request_count", "avg")
    failed = _number(document, "error_request_count", "avg") or 0.0
    return BenchmarkResult(
        throughput_per_s=_needed(document, source, "request_throughput", "avg"),
        completion_p99_s=_known(
            _seconds(document, "request_latency", "p99"), source, "request_latency.p99"
        ),
        failed_share=None if done is None else failed / max(done + failed, 1.0),
        duration_s=_seconds(document, "benchmark_duration", "avg"),
        ttft_mean_s=_seconds(document, "time_to_first_token", "avg"),
        token_mean_s=_seconds(document, "inter_token_latency", "avg"),
        completion_mean_s=_seconds(document, "request_latency", "avg"),
        prompt_tokens=_number(document, "input_sequence_length", "avg"),
        completion_tokens=_number(document, "output_sequence_length", "avg"),
    )


def _of_anyone(document: _Document, source: str) -> BenchmarkResult:
    optional = (
        "failed_share", "duration_s", "ttft_mean_s", "token_mean_s", "completion_mean_s",
        "prompt_tokens", "completion_tokens",
    )  # fmt: skip
    return BenchmarkResult(
        throughput_per_s=_needed(document, source, "throughput_per_s"),
        completion_p99_s=_needed(document, source, "completion_p99_s"),
        **{name: _number(document, name) for name in optional},
    )


_TOOLS: Final[tuple[tuple[str, Callable[[_Document, str], BenchmarkResult]], ...]] = (
    ("throughput_per_s", _of_anyone),
    ("benchmarks", _of_guidellm),
    ("completed", _of_vllm),
    ("request_latency", _of_aiperf),
)
"""By a key that only this tool writes at the top."""

_UNITS_S: Final = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}


def _number(document: Any, *path: str) -> float | None:
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    if isinstance(document, bool) or not isinstance(document, int | float):
        return None
    return float(document)


def _needed(document: _Document, source: str, *path: str) -> float:
    return _known(_number(document, *path), source, ".".join(path))


def _known(value: float | None, source: str, name: str) -> float:
    if value is None:
        raise InputError(f"{source} has no number {name}")
    return value


def _milliseconds(document: _Document, *path: str) -> float | None:
    value = _number(document, *path)
    return None if value is None else value / 1e3


def _seconds(document: _Document, metric: str, statistic: str) -> float | None:
    """A statistic of AIPerf, whose metrics each say their unit."""
    value = _number(document, metric, statistic)
    unit = document.get(metric, {}).get("unit") if value is not None else None
    return None if value is None else value * _UNITS_S.get(str(unit), 1e-3)
