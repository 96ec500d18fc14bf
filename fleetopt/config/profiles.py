"""The catalogue of engine profiles: what ships with the product, and what a user adds to it."""

import difflib
import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from fleetopt.errors import ConfigError
from fleetopt.planner.engine import EngineProfile

_Table = TypeVar("_Table", bound=msgspec.Struct)
_OF_THE_GPU: Final = ("price_usd_per_gpu_h", "idle_power_w", "max_power_w", "carbon_g_per_kwh")


class _Gpu(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What holds for every profile on this GPU that says nothing else."""

    price_usd_per_gpu_h: float | None = None
    idle_power_w: float | None = None
    max_power_w: float | None = None
    carbon_g_per_kwh: float | None = None
    source: str = ""
    power_source: str = ""


class _Profile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    gpu: str
    model: str
    gpus_per_replica: int
    base_iteration_s: float
    per_context_token_s: float
    kv_capacity_tokens: int
    per_sequence_s: float = 0.0
    prefill_token_s: float = 0.0
    prefill_token_context_s: float = 0.0
    prefill_chunk_tokens: int = 2048
    kv_block_tokens: int = 16
    price_usd_per_gpu_h: float | None = None
    idle_power_w: float | None = None
    max_power_w: float | None = None
    carbon_g_per_kwh: float | None = None
    source: str = ""


class _Tables(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    gpus: dict[str, dict[str, Any]] = {}
    profiles: dict[str, dict[str, Any]] = {}


class _File(msgspec.Struct, frozen=True):
    gpus: dict[str, _Gpu] = {}
    profiles: dict[str, _Profile] = {}


def load_catalogue(extra_toml: Path | None = None) -> Mapping[str, EngineProfile]:
    """Every engine profile by its name; a file of one's own adds profiles, prices and power.

    Raises
    ------
    ConfigError
        If the file can't be read, or a figure is missing, unknown or out of range.

    Examples
    --------
    >>> load_catalogue()["h100/qwen3-32b/tp2"].gpus_per_replica
    2
    """
    shipped = _shipped()
    own = _File() if extra_toml is None else _read(extra_toml)
    entries = sorted((shipped.profiles | own.profiles).items())
    made = {}
    for name, entry in entries:
        gpus = (own.gpus.get(entry.gpu), shipped.gpus.get(entry.gpu))
        made[name] = _profile(name, entry, [gpu for gpu in gpus if gpu is not None])
    return MappingProxyType(made)


def load_profile(
    name: str, catalogue: Mapping[str, EngineProfile] | Path | None = None
) -> EngineProfile:
    """The profile of this name, from a catalogue, or from the shipped one and a TOML file.

    Raises
    ------
    ConfigError
        If there is none; the message lists the closest names.
    """
    known = catalogue if isinstance(catalogue, Mapping) else load_catalogue(catalogue)
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4) or list(known)[:3]
    raise ConfigError(
        f"there is no engine profile {name!r}; close ones are {', '.join(close)}; "
        "`fleetopt profiles` lists all"
    )


@cache
def _shipped() -> _File:
    file = resources.files("fleetopt.config").joinpath("profiles.toml")
    return _decode(file.read_text(encoding="utf-8"), "fleetopt/config/profiles.toml")


def _read(path: Path) -> _File:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"profiles file {path} can't be read: {error}") from error
    return _decode(text, str(path))


def _decode(text: str, where: str) -> _File:
    try:
        tables = msgspec.convert(tomllib.loads(text), _Tables)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{where}: {error}") from error
    gpus = {
        name: _checked(_entry(table, _Gpu, f"{where}: gpus.{name}"), f"{where}: gpus.{name}")
        for name, table in tables.gpus.items()
    }
    profiles = {
        name: _entry(table, _Profile, f"{where}: profiles.{name}")
        for name, table in tables.profiles.items()
    }
    return _File(gpus, profiles)


def _entry(table: dict[str, Any], kind: type[_Table], path: str) -> _Table:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        problem = str(error)
        problem, _, place = f"{problem[:1].lower()}{problem[1:]}".partition(" - at `$.")
        field = place.rstrip("`")
        if field not in table:
            raise ConfigError(f"{path}: {problem}") from error
        raise ConfigError(f"{path}.{field} is {table[field]!r}; {problem}") from error


def _checked(gpu: _Gpu, path: str) -> _Gpu:
    """Refuse what would else be found in a profile that has nothing to do with it."""
    for field in _OF_THE_GPU:
        value = getattr(gpu, field)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise ConfigError(f"{path}.{field} is {value}; expected a finite number > 0")
    return gpu


def _profile(name: str, entry: _Profile, gpus: Sequence[_Gpu]) -> EngineProfile:
    """The profile; what it leaves out is its GPU's, the first that says it."""
    figures = msgspec.structs.asdict(entry)
    for field in _OF_THE_GPU:
        said = (getattr(one, field) for one in (entry, *gpus))
        figures[field] = next((value for value in said if value is not None), None)
    if figures["price_usd_per_gpu_h"] is None:
        raise ConfigError(
            f"{name} has no price_usd_per_gpu_h and [gpus.{entry.gpu}] has none; set one of them"
        )
    return EngineProfile(name=name, **figures)
