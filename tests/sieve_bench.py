"""A benchmark command for tests: an engine of the catalogue, simulated, with vLLM's JSON.

python -m tests.sieve_bench PROFILE CLASS RATE SEED [FILE]
"""

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.sieve.bench_run import times_s
from fleetopt.config.profiles import load_catalogue
from fleetopt.planner.simulate.draw import resampled_stream
from fleetopt.planner.simulate.stream import RequestStream

LENGTHS = {
    "chat": ([300, 900, 2_500], [150, 210, 300]),
    "code": ([800, 2_000, 5_000], [10, 20, 60]),
}
WINDOW_S = 60.0


def recorded(name: str) -> RequestStream:
    """The class's requests, once each."""
    prompt, completion = (np.array(one, dtype=np.int64) for one in LENGTHS[name])
    nothing = np.zeros(prompt.size, dtype=np.int64)
    return RequestStream(np.arange(prompt.size, dtype=float), prompt, completion, nothing, nothing)


def bench(profile: str, name: str, rate_per_s: float, seed: int) -> dict[str, object]:
    """Offer Poisson arrivals for a minute, and report as vLLM does."""
    engine = load_catalogue()[profile]
    count = max(int(rate_per_s * WINDOW_S), 2)
    stream = resampled_stream(recorded(name), rate_per_s, count, seed)
    first_s, end_s = times_s(engine, stream)
    latency_s = end_s - stream.arrival_s
    ttft_s = first_s - stream.arrival_s
    further = np.maximum(stream.completion_tokens - 1, 1)
    window_s = float(stream.arrival_s[-1])
    return {
        "num_prompts": count,
        "completed": count,
        "failed": 0,
        "duration": float(end_s.max()),
        "request_throughput": rate_per_s * min(float((end_s <= window_s).sum()) / (0.9 * count), 1),
        "total_input_tokens": int(stream.prompt_tokens.sum()),
        "total_output_tokens": int(stream.completion_tokens.sum()),
        "mean_ttft_ms": 1e3 * float(ttft_s.mean()),
        "mean_tpot_ms": 1e3 * float(((latency_s - ttft_s) / further).mean()),
        "mean_e2el_ms": 1e3 * float(latency_s.mean()),
        "p99_e2el_ms": 1e3 * float(np.quantile(latency_s, 0.99)),
    }


if __name__ == "__main__":
    profile, name, rate, seed, *path = sys.argv[1:]
    text = json.dumps(bench(profile, name, float(rate), int(seed)))
    if path:
        Path(path[0]).write_text(text)
    else:
        print(text)
