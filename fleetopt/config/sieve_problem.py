"""The file that says what a profiling session decides: classes, configurations, loads, a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import yaml

from fleetopt.config.profiles import load_profile
from fleetopt.errors import ConfigError
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.sieve.evidence import Noise
from fleetopt.planner.sieve.grid import Configuration, Grid, RequestClass
from fleetopt.planner.sieve.predict import DEFAULT_SPEED_ERROR, capacity_per_s, predict
from fleetopt.planner.sieve.sieve import DEFAULT_TOLERANCE, Sieve
from fleetopt.planner.workload import Workload

EXAMPLE: Final = """\
# What `fleetopt sieve run` is to decide: which replicas 32 GPUs should run for two classes.
gpus: 32
classes:
  chat:
    demand_per_s: 90                # requests of all users
    slo_completion_p99_s: 30        # from sending to the last token
    prompt_tokens: [300, 900, 2500] # lengths as your requests have them, all alike often;
    completion_tokens: [150, 210, 300] # one number each will do
  code:
    demand_per_s: 60
    slo_completion_p99_s: 20
    prompt_tokens: [800, 2000, 5000]
    completion_tokens: [10, 20, 60]
configurations:
  tp1: {gpus: 1, profile: h200/qwen3-32b/tp1}
  tp2: {gpus: 2, profile: h200/qwen3-32b/tp2}
  tp4: {gpus: 4, profile: h200/qwen3-32b/tp4}
loads: [0.3, 0.45, 0.6, 0.75, 0.9, 1.05] # of what the profile says a replica can do
repeats: 2                          # runs of each load at most; their mean counts as the truth
run_s: 180                          # how long one takes, about: GPU-seconds are counted with it
command: >-
  vllm bench serve --base-url http://bench-{configuration}:8000 --model Qwen/Qwen3-32B
  --dataset-name sharegpt --dataset-path {class}.json --request-rate {rate} --num-prompts {requests}
  --seed {repeat} --percentile-metrics ttft,tpot,itl,e2el --save-result --result-filename {output}
"""

_MOST_LOADS: Final = 100
_LOADS: Final = (0.3, 0.45, 0.6, 0.75, 0.9, 1.05)
_NOISE: Final = Noise()
_T = TypeVar("_T")


class _Class(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    demand_per_s: float
    slo_completion_p99_s: float
    prompt_tokens: float | list[float] | None = None
    completion_tokens: float | list[float] | None = None


class _Configuration(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    gpus: int
    profile: str | None = None
    command: str | None = None
    offered_per_s: dict[str, list[float]] = {}  # by class, in place of shares


class _Noise(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    throughput: float = _NOISE.throughput
    completion_p99: float = _NOISE.completion_p99


class _Problem(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    gpus: int
    classes: dict[str, _Class]
    configurations: dict[str, _Configuration]
    command: str | None = None
    loads: tuple[float, ...] = _LOADS
    repeats: int = 2
    run_s: float = 180.0
    context_tokens: int = 32_768
    speed_error: float = DEFAULT_SPEED_ERROR
    tolerance: float = DEFAULT_TOLERANCE
    noise: _Noise = msgspec.field(default_factory=_Noise)


@dataclass(frozen=True)
class Problem:
    """A decision to make, and how each configuration is measured."""

    sieve: Sieve
    commands: tuple[str, ...]
    """One for each configuration."""

    engines: tuple[EngineProfile | None, ...]
    """The profile that each configuration is predicted with; None without one."""

    workloads: tuple[Workload | None, ...]
    """One for each class; None where its lengths are not given."""

    context_tokens: int
    run_s: float


def read_problem(
    path: Path, catalogue: Mapping[str, EngineProfile], command: str | None = None
) -> Problem:
    """Return what a file asks for; `command` takes the place of the file's.

    Raises
    ------
    ConfigError
        If the file can't be read, or a value is missing, unknown or out of range; the message
        says where.
    """
    return parse_problem(_text(path), str(path), catalogue, command)


def parse_problem(
    text: str, source: str, catalogue: Mapping[str, EngineProfile], command: str | None = None
) -> Problem:
    """Return what a file's text asks for; arguments and errors as of `read_problem`."""
    try:
        document = yaml.safe_load(text)
        found = msgspec.convert(document, _Problem)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not YAML: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}") from error
    try:
        return _problem(found, catalogue, command)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"can't read {path}: {said}") from error


def _problem(
    found: _Problem, catalogue: Mapping[str, EngineProfile], command: str | None
) -> Problem:
    _in_range("gpus", found.gpus, 1, 100_000)
    _in_range("run_s", found.run_s, 1.0, 1e6)
    _in_range("repeats", found.repeats, 1, 100)
    _in_range("loads", len(found.loads), 1, _MOST_LOADS)
    for position, share in enumerate(found.loads):
        _in_range(f"loads[{position}]", share, 0.01, 10.0)
    if not found.configurations:
        raise ConfigError("configurations is empty; expected at least one")
    engines = tuple(
        None if one.profile is None else _engine(name, one.profile, catalogue)
        for name, one in found.configurations.items()
    )
    workloads = [_workload(name, one) for name, one in found.classes.items()]
    classes = tuple(
        RequestClass(name, one.demand_per_s, one.slo_completion_p99_s)
        for name, one in found.classes.items()
    )
    offered = np.array(
        [
            [
                _offered(found, name, configuration, engine, workload)
                for configuration, engine in zip(found.configurations, engines, strict=True)
            ]
            for name, workload in zip(found.classes, workloads, strict=True)
        ]
    )
    configurations = tuple(
        Configuration(name, one.gpus) for name, one in found.configurations.items()
    )
    sizes = np.array([float(one.gpus) for one in configurations])
    cost = np.broadcast_to((sizes * found.run_s)[None, :, None], offered.shape)
    grid = Grid(classes, configurations, offered, cost.copy(), found.repeats)
    prior = None
    known = [one for one in engines if one is not None]
    lengths = [one for one in workloads if one is not None]
    if len(known) == len(engines) and len(lengths) == len(workloads):
        prior = predict(grid, known, lengths, found.context_tokens, found.speed_error)
    noise = Noise(found.noise.throughput, found.noise.completion_p99)
    return Problem(
        Sieve(grid, found.gpus, noise, prior, found.tolerance),
        tuple(_command(name, one, command or found.command) for name, one in
              found.configurations.items()),
        engines,
        tuple(workloads),
        found.context_tokens,
        found.run_s,
    )  # fmt: skip


def _engine(name: str, profile: str, catalogue: Mapping[str, EngineProfile]) -> EngineProfile:
    try:
        return load_profile(profile, catalogue)
    except ConfigError as error:
        raise ConfigError(f"configurations.{name}.profile: {error}") from error


def _workload(name: str, one: _Class) -> Workload | None:
    if one.prompt_tokens is None and one.completion_tokens is None:
        return None
    prompt, completion = (
        _lengths(f"classes.{name}.{key}", getattr(one, key))
        for key in ("prompt_tokens", "completion_tokens")
    )
    if len(prompt) != len(completion) and 1 not in (len(prompt), len(completion)):
        raise ConfigError(
            f"classes.{name} has {len(prompt)} prompt_tokens and {len(completion)} "
            "completion_tokens; expected as many of both, or one of either"
        )
    prompts, completions = np.broadcast_arrays(np.rint(prompt), np.rint(completion))
    return Workload.from_requests(prompts.astype(np.int64), completions.astype(np.int64), 1.0)


def _lengths(path: str, value: float | list[float] | None) -> list[float]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not values:
        raise ConfigError(f"{path} is missing; expected a length, or a list of them")
    for one in values:
        _in_range(path, one, 1.0, 1e7)
    return values


def _offered(
    found: _Problem,
    name: str,
    configuration: str,
    engine: EngineProfile | None,
    workload: Workload | None,
) -> list[float]:
    """Rates that are given, or shares of what the profile says a replica can do."""
    path = f"configurations.{configuration}.offered_per_s"
    given = found.configurations[configuration].offered_per_s
    for other in given:
        if other not in found.classes:
            raise ConfigError(f"{path}.{other} is no class; expected {', '.join(found.classes)}")
    if name in given:
        rates = given[name]
        if len(rates) != len(found.loads):
            raise ConfigError(
                f"{path}.{name} has {len(rates)} rates; expected as many as loads, "
                f"{len(found.loads)}"
            )
        return rates
    if engine is None or workload is None:
        raise ConfigError(
            f"{path}.{name} is missing; expected rates, or a profile of {configuration} and "
            f"prompt_tokens and completion_tokens of {name} to take shares of"
        )
    capacity = capacity_per_s(engine, workload, found.context_tokens)
    if capacity is None:
        raise ConfigError(
            f"configurations.{configuration}: {engine.name} can't serve {name} within "
            f"context_tokens={found.context_tokens}; leave it out, or give {path}.{name}"
        )
    return [_rounded(capacity * share) for share in found.loads]


def _rounded(rate_per_s: float) -> float:
    """Four digits: the same rate again after small changes elsewhere, and readable in a command."""
    return float(f"{rate_per_s:.4g}")


def _command(name: str, one: _Configuration, common: str | None) -> str:
    command = one.command or common
    if not command:
        raise ConfigError(
            f"configurations.{name}.command is missing; expected it there, at the top, or --command"
        )
    return command


def _in_range(path: str, value: Any, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise ConfigError(f"{path} is {value}; expected {low:g} to {high:g}")
