"""aiconfigurator where it is installed, a stand-in with its API elsewhere, and its absence."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from fleetopt.connectors import aiconfigurator
from fleetopt.connectors.aiconfigurator import time_engine
from fleetopt.errors import ConfigError, InputError
from fleetopt.planner.profile_fit import TimingKind, fit_profile

GIB = 1 << 30


@dataclass
class Summary:
    """16 GiB of weights and 4 GiB of the rest on a GPU of 80 GiB; 128 KiB a token."""

    weights_gib: float = 16.0

    def get_memory(self) -> dict[str, float]:
        used = self.weights_gib + 4.0
        return {"total": used + 0.25, "weights": self.weights_gib, "kvcache": 0.25}

    def get_kv_per_seq(self) -> tuple[float, int]:
        return 2048 * 131_072.0, 2048

    def get_mem_capacity_bytes(self) -> int:
        return 80 * GIB


@dataclass
class Estimate:
    """What `cli_estimate` returns: milliseconds."""

    tpot: float
    ttft: float
    backend_version: str = "0.24.0"
    summary: Summary = field(default_factory=Summary)


Install = Callable[[Callable[..., Estimate]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(cli_estimate: Callable[..., Estimate]) -> None:
        modules = {
            name: ModuleType(name)
            for name in ("aiconfigurator", "aiconfigurator.cli", "aiconfigurator.cli.api")
        }
        modules["aiconfigurator.cli.api"].cli_estimate = cli_estimate  # type: ignore[attr-defined]
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(aiconfigurator, "version", lambda _: "0.12.0")

    return put


def test_milliseconds_become_a_profile(install: Install) -> None:
    asked: list[dict[str, Any]] = []

    def cli_estimate(**question: Any) -> Estimate:
        asked.append(question)
        batch, prompt = question["batch_size"], question["isl"]
        context = prompt + question["osl"] / 2
        return Estimate(
            tpot=1e3 * (0.0134 + batch * (2.6e-5 + 4.2e-8 * context)),
            ttft=1e3 * batch * (0.006 + 4.7e-5 * prompt + 1.3e-9 * prompt**2),
        )

    install(cli_estimate)
    imported = time_engine("h100", "Qwen/Qwen3-32B", 2)
    fitted = fit_profile(imported.engine.points)
    assert imported.engine.name == "h100/qwen3-32b/tp2"
    assert imported.source == "aiconfigurator 0.12.0 operator timings (vllm 0.24.0)"
    assert imported.kv_capacity_tokens == int((0.9 * 80 - 20) * GIB / 131_072)
    assert fitted.base_iteration_s.value == pytest.approx(0.0134)
    assert fitted.per_sequence_s.value == pytest.approx(2.6e-5)
    assert fitted.per_context_token_s.value == pytest.approx(4.2e-8)
    assert fitted.prefill_token_s.value == pytest.approx(4.7e-5)
    assert fitted.prefill_token_context_s.value == pytest.approx(2.6e-9)
    assert {one["system_name"] for one in asked} == {"h100_sxm"}
    assert {one["mode"] for one in asked} == {"static"}
    assert sum(point.kind is TimingKind.PREFILL for point in imported.engine.points) == 3


@pytest.mark.parametrize(
    ("gpu", "system"), [("b200", "b200_sxm"), ("h100_pcie", "h100_pcie"), ("l40s", "l40s")]
)
def test_a_gpu_is_a_system(install: Install, gpu: str, system: str) -> None:
    def cli_estimate(**question: Any) -> Estimate:
        assert question["system_name"] == system
        return Estimate(tpot=10.0, ttft=50.0)

    install(cli_estimate)
    assert time_engine(gpu, "Qwen/Qwen3-8B", 1).engine.gpu == gpu


def test_what_it_refuses_is_passed_on(install: Install) -> None:
    def cli_estimate(**_: Any) -> Estimate:
        raise AssertionError("num_heads 64 should be divisible by tp_size 3")

    install(cli_estimate)
    with pytest.raises(
        InputError, match=r"no timings of Qwen/Qwen3-32B on 3 × h100_sxm.*num_heads"
    ):
        time_engine("h100", "Qwen/Qwen3-32B", 3)


def test_weights_that_do_not_fit_are_refused(install: Install) -> None:
    install(lambda **_: Estimate(10.0, 50.0, summary=Summary(weights_gib=140.0)))
    with pytest.raises(InputError, match="leave no room for a KV cache; use more GPUs"):
        time_engine("h100", "big", 1)


def test_without_the_package_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator", None)
    with pytest.raises(ConfigError, match=r"not installed.*pip install 'aiconfigurator>=0\.12'"):
        time_engine("h100", "Qwen/Qwen3-32B", 2)


def test_another_api_is_said_to_be_one(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(lambda **_: Estimate(10.0, 50.0))
    monkeypatch.delattr(sys.modules["aiconfigurator.cli.api"], "cli_estimate")
    with pytest.raises(ConfigError, match=r"another API than 0\.12"):
        time_engine("h100", "Qwen/Qwen3-32B", 2)


def test_the_package_gives_the_catalogues_profile() -> None:
    """Where the package is: the catalogue was made from it, so the same figures come out."""
    try:
        importlib.import_module("aiconfigurator.cli.api")
    except ModuleNotFoundError:
        pytest.skip("aiconfigurator is not installed")
    imported = time_engine("h100", "Qwen/Qwen3-32B", 2)
    fitted = fit_profile(imported.engine.points)
    assert fitted.base_iteration_s.value == pytest.approx(0.01343, rel=0.05)
    assert fitted.prefill_token_s.value == pytest.approx(4.691e-05, rel=0.1)
