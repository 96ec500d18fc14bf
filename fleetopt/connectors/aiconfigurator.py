"""Engine timings from NVIDIA's aiconfigurator, where it is installed; it is never required.

Its Python API adds up operator timings that were measured on silicon and come with the package:
nothing is sent anywhere, though it fetches the configuration of a model that it does not ship.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from typing import Any, Final

from fleetopt.connectors.timing_points import TimedEngine
from fleetopt.errors import ConfigError, InputError
from fleetopt.planner.profile_fit import TimingKind, TimingPoint

_PACKAGE: Final = "aiconfigurator"
_PROMPTS_TOKENS: Final = (512, 2048, 8192)
_BATCHES: Final = (1, 8, 32, 128)
_COMPLETION_TOKENS: Final = 32  # a decode time is the mean over these: at half of them in context
_SYSTEM_SUFFIX: Final = "_sxm"
_SXM_GPUS: Final = frozenset({"a100", "h100", "h200", "b200", "b300"})
_MEMORY_SHARE: Final = 0.9  # vLLM's default gpu_memory_utilization
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class ImportedEngine:
    """An engine's timings, the KV cache that fits beside its weights, and where they are from."""

    engine: TimedEngine
    kv_capacity_tokens: int | None
    source: str


def time_engine(
    gpu: str, model: str, tensor_parallel: int, backend: str = "vllm"
) -> ImportedEngine:
    """Return the timings of a model (`Qwen/Qwen3-32B`) on a GPU (`h100`, `h100_pcie`).

    ConfigError if the package is absent; InputError if it can't time the engine.
    """
    estimate = _estimator()
    system = gpu + _SYSTEM_SUFFIX if gpu in _SXM_GPUS else gpu
    engine = f"{model} on {tensor_parallel} × {system}"
    points: list[TimingPoint] = []
    with _quiet():
        for prompt, batch in product(_PROMPTS_TOKENS, _BATCHES):
            try:
                timed = estimate(
                    model_path=model,
                    system_name=system,
                    mode="static",
                    backend_name=backend,
                    isl=prompt,
                    osl=_COMPLETION_TOKENS,
                    batch_size=batch,
                    tp_size=tensor_parallel,
                )
            except Exception as error:  # it raises its own kinds, ValueError and AssertionError
                raise InputError(
                    f"aiconfigurator has no timings of {engine} with {backend}: {error}"
                ) from error
            points.append(
                TimingPoint(
                    TimingKind.DECODE, prompt + _COMPLETION_TOKENS // 2, batch, timed.tpot / 1e3
                )
            )
            if batch == 1:
                points.append(TimingPoint(TimingKind.PREFILL, prompt, 1, timed.ttft / 1e3))
            if (prompt, batch) == (_PROMPTS_TOKENS[1], 1):
                kv_capacity_tokens = _kv_capacity_tokens(timed.summary, engine)
            backend_version = timed.backend_version
    return ImportedEngine(
        TimedEngine(
            system.removesuffix(_SYSTEM_SUFFIX),
            model.rpartition("/")[2],
            tensor_parallel,
            tuple(points),
        ),
        kv_capacity_tokens,
        f"aiconfigurator {version(_PACKAGE)} operator timings ({backend} {backend_version})",
    )


def _estimator() -> Any:
    try:
        return importlib.import_module(f"{_PACKAGE}.cli.api").cli_estimate
    except ModuleNotFoundError as error:
        raise ConfigError(
            "aiconfigurator is not installed in this environment; "
            "install it (pip install 'aiconfigurator>=0.12') or fit timings of your own with "
            "`fleetopt profile fit`"
        ) from error
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"this aiconfigurator has another API than 0.12, which FleetOpt knows: {error}"
        ) from error


def _kv_capacity_tokens(summary: Any, engine: str) -> int:
    """Return the tokens that fit beside weights, activations and libraries, on all GPUs."""
    memory_gib = summary.get_memory()
    kv_bytes, kv_tokens = summary.get_kv_per_seq()
    used_bytes = (memory_gib["total"] - memory_gib["kvcache"]) * _GIB
    left_bytes = _MEMORY_SHARE * summary.get_mem_capacity_bytes() - used_bytes
    tokens = int(left_bytes * kv_tokens / kv_bytes)
    if tokens < 1:
        raise InputError(f"{engine}: the weights leave no room for a KV cache; use more GPUs")
    return tokens


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back the package's remarks on data of other engines that it loads beside ours."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
