"""Results as each tool writes them; figures come out in seconds."""

import json
import math
from typing import Any

import pytest

from fleetopt.connectors.benchmark_result import BenchmarkResult, parse_result
from fleetopt.errors import InputError

VLLM: dict[str, Any] = {
    "request_rate": 2.0,
    "num_prompts": 200,
    "completed": 200,
    "failed": 0,
    "duration": 104.0,
    "total_input_tokens": 200_000,
    "total_output_tokens": 40_000,
    "request_throughput": 1.92,
    "mean_ttft_ms": 180.0,
    "mean_tpot_ms": 21.0,
    "mean_e2el_ms": 4_400.0,
    "p99_e2el_ms": 9_100.0,
}
GUIDELLM: dict[str, Any] = {
    "benchmarks": [
        {
            "duration": 104.0,
            "metrics": {
                "request_totals": {"successful": 199, "errored": 1, "incomplete": 0, "total": 200},
                "requests_per_second": {"successful": {"mean": 1.92}},
                "request_latency": {"successful": {"mean": 4.4, "percentiles": {"p99": 9.1}}},
                "time_to_first_token_ms": {"successful": {"mean": 180.0}},
                "inter_token_latency_ms": {"successful": {"mean": 21.0}},
                "prompt_token_count": {"successful": {"mean": 1_000.0}},
                "output_token_count": {"successful": {"mean": 200.0}},
            },
        }
    ]
}
AIPERF: dict[str, Any] = {
    "request_count": {"unit": "requests", "avg": 200.0},
    "request_throughput": {"unit": "requests/sec", "avg": 1.92},
    "request_latency": {"unit": "ms", "avg": 4_400.0, "p99": 9_100.0},
    "time_to_first_token": {"unit": "ms", "avg": 180.0},
    "inter_token_latency": {"unit": "ms", "avg": 21.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1_000.0},
    "output_sequence_length": {"unit": "tokens", "avg": 200.0},
    "benchmark_duration": {"unit": "sec", "avg": 104.0},
}


def parsed(document: Any) -> BenchmarkResult:
    """The result of a document."""
    return parse_result(json.dumps(document), "result.json")


@pytest.mark.parametrize("document", [VLLM, GUIDELLM, AIPERF])
def test_every_tool_says_the_same(document: dict[str, Any]) -> None:
    found = parsed(document)
    assert found.throughput_per_s == 1.92
    assert found.completion_p99_s == pytest.approx(9.1)
    assert found.duration_s == 104.0
    assert found.ttft_mean_s == pytest.approx(0.18)
    assert found.token_mean_s == pytest.approx(0.021)
    assert found.completion_mean_s == pytest.approx(4.4)
    assert found.prompt_tokens == 1_000.0
    assert found.completion_tokens == 200.0


def test_details_of_vllm_give_the_p99_that_it_left_out() -> None:
    short = {key: value for key, value in VLLM.items() if "e2el" not in key}
    detailed = {**short, "ttfts": [0.1, 0.2], "itls": [[0.5, 0.5], [1.0]]}
    assert parsed(detailed).completion_p99_s == pytest.approx(1.199)
    with pytest.raises(InputError, match="--percentile-metrics"):
        parsed(short)


@pytest.mark.parametrize(
    "document",
    [
        {**VLLM, "failed": 3},
        {**VLLM, "completed": 190, "failed": None},
        {**AIPERF, "error_request_count": {"unit": "requests", "avg": 5.0}},
        {"throughput_per_s": 2.0, "completion_p99_s": 3.0, "failed_share": 0.02},
    ],
)
def test_requests_that_fail_never_come_to_their_end(document: dict[str, Any]) -> None:
    assert parsed(document).completion_p99_s == math.inf


def test_a_result_of_ones_own_needs_two_numbers() -> None:
    found = parsed({"throughput_per_s": 2, "completion_p99_s": 3.5})
    assert (found.throughput_per_s, found.completion_p99_s) == (2.0, 3.5)
    assert found.token_mean_s is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "no object"),
        ("{}", "no tool"),
        ("[" * 100_000, "not JSON"),
        ('{"throughput_per_s": 1}', "completion_p99_s"),
        ('{"throughput_per_s": true, "completion_p99_s": 1}', "throughput_per_s"),
        ('{"throughput_per_s": 1, "completion_p99_s": NaN}', "P99"),
        ('{"throughput_per_s": -1, "completion_p99_s": 1}', "throughput"),
        ('{"throughput_per_s": 1, "completion_p99_s": 0}', "P99"),
        ('{"benchmarks": []}', "0 benchmarks"),
        ('{"benchmarks": [{}, {}]}', "2 benchmarks"),
        ('{"benchmarks": [{"metrics": 3}]}', "requests_per_second"),
        ('{"completed": 3, "p99_e2el_ms": 3}', "request_throughput"),
        ('{"request_latency": {"p99": 3}}', "request_throughput"),
    ],
)
def test_what_is_no_result_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_result(text, "result.json")
