"""The GPUs and models whose figures ship with the product."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import msgspec

from fleetopt.planner.hardware import Gpu, ModelShape


class _Gpu(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops_per_s: float
    link_bytes_per_s: float
    source: str


class _Model(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str
    weights_bytes: float
    active_parameters: float
    kv_bytes_per_token: float
    layers: int
    hidden_size: int
    attention_width: int
    kv_heads: int
    source: str


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    gpus: dict[str, _Gpu]
    models: dict[str, _Model]


def known_gpus() -> Mapping[str, Gpu]:
    """GPUs by their name in the catalogue.

    >>> sorted(known_gpus())
    ['a100', 'b200', 'h100', 'h200']
    """
    return MappingProxyType(
        {name: Gpu(name=name, **_figures(gpu)) for name, gpu in _shipped().gpus.items()}
    )


def known_models() -> Mapping[str, ModelShape]:
    """Models by their name in the catalogue, in lower case."""
    return MappingProxyType(
        {name: ModelShape(**_figures(model)) for name, model in _shipped().models.items()}
    )


def _figures(entry: _Gpu | _Model) -> dict[str, Any]:
    figures = msgspec.structs.asdict(entry)
    del figures["source"]
    return figures


@cache
def _shipped() -> _File:
    file = resources.files("fleetopt.config").joinpath("hardware.toml")
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File)
