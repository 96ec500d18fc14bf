"""Engine profiles as the TOML text that `--profiles` reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fleetopt.planner.engine import EngineProfile

_POWER: Final = ("idle_power_w", "max_power_w", "carbon_g_per_kwh")


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A profile to write down; without a price of its own it takes its GPU's from the catalogue."""

    profile: EngineProfile
    has_own_price: bool
    comment: str = ""


def profiles_toml(entries: Mapping[str, ProfileEntry]) -> str:
    """Return one table for each profile, in the order given."""
    return "\n".join(_table(name, entry) for name, entry in entries.items())


def _table(name: str, entry: ProfileEntry) -> str:
    profile = entry.profile
    figures: dict[str, str | int | float] = {
        "gpu": profile.gpu,
        "model": profile.model,
        "gpus_per_replica": profile.gpus_per_replica,
        "base_iteration_s": profile.base_iteration_s,
        "per_sequence_s": profile.per_sequence_s,
        "per_context_token_s": profile.per_context_token_s,
        "prefill_token_s": profile.prefill_token_s,
        "prefill_token_context_s": profile.prefill_token_context_s,
        "prefill_chunk_tokens": profile.prefill_chunk_tokens,
        "kv_capacity_tokens": profile.kv_capacity_tokens,
        "kv_block_tokens": profile.kv_block_tokens,
        "source": profile.source,
    }
    if entry.has_own_price:
        figures["price_usd_per_gpu_h"] = profile.price_usd_per_gpu_h
    power = {name: getattr(profile, name) for name in _POWER}
    figures |= {name: value for name, value in power.items() if value is not None}
    head = f"[profiles.{_text(name)}]" + (f" # {entry.comment}" if entry.comment else "")
    lines = (f"{key} = {_value(value)}" for key, value in figures.items())
    return "\n".join((head, *lines)) + "\n"


def _value(value: str | int | float) -> str:
    if isinstance(value, str):
        return _text(value)
    return repr(value)


def _text(value: str) -> str:
    """Quote a string: JSON's escapes are TOML's too, but for DEL, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
