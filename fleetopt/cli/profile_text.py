"""Engine profiles on their way out: as a table, as JSON, as TOML, to a file or the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetopt.cli.output import console, percent, power, print_note, table, tokens, usd
from fleetopt.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from fleetopt.planner.engine import EngineProfile
    from fleetopt.planner.profile_fit import Coefficient, ProfileFit


class ProfileOutput(StrEnum):
    """The form of profiles."""

    TABLE = "table"
    JSON = "json"
    TOML = "toml"


@dataclass(frozen=True, slots=True)
class FittedEngine:
    """A fit, and what it takes beside it to be a profile."""

    name: str
    gpu: str
    model: str
    gpus_per_replica: int
    fit: ProfileFit
    prefill_chunk_tokens: int
    kv_capacity_tokens: int | None
    own_price_usd_per_gpu_h: float | None
    source: str

    def profile(self) -> EngineProfile:
        """Return the profile; ConfigError says what it lacks."""
        from fleetopt.planner.engine import EngineProfile

        if self.kv_capacity_tokens is None:
            raise ConfigError(
                f"{self.name}: timings don't tell its KV capacity; give --kv-capacity TOKENS or "
                f"{self.name}=TOKENS (vLLM logs it when it starts, as GPU KV cache size), "
                "or leave the engine out with --only"
            )
        return EngineProfile(
            name=self.name,
            gpu=self.gpu,
            model=self.model,
            gpus_per_replica=self.gpus_per_replica,
            base_iteration_s=_rounded(self.fit.base_iteration_s),
            per_sequence_s=_rounded(self.fit.per_sequence_s),
            per_context_token_s=_rounded(self.fit.per_context_token_s),
            prefill_token_s=_rounded(self.fit.prefill_token_s),
            prefill_token_context_s=_rounded(self.fit.prefill_token_context_s),
            prefill_chunk_tokens=self.prefill_chunk_tokens,
            kv_capacity_tokens=self.kv_capacity_tokens,
            price_usd_per_gpu_h=price_usd_per_gpu_h(self.gpu, self.own_price_usd_per_gpu_h),
            source=self.source,
        )


def _rounded(coefficient: Coefficient) -> float:
    """Leave out the digits that no timing has."""
    return float(f"{coefficient.value:.6g}")


def price_usd_per_gpu_h(gpu: str, own: float | None) -> float:
    """Return the price that was given, or the one that ships; ConfigError if there is neither."""
    from fleetopt.config.hardware import known_gpus
    from fleetopt.config.profiles import load_catalogue

    if own is not None:
        return own
    if gpu in known_gpus():
        for profile in load_catalogue().values():
            if profile.gpu == gpu and not profile.prefill_is_free:
                return profile.price_usd_per_gpu_h
    raise ConfigError(
        f"no price of {gpu} ships with FleetOpt; give --price USD, or --price {gpu}=USD"
    )


def show_fits(fitted: Sequence[FittedEngine], output: ProfileOutput, file: Path | None) -> None:
    """Print fits, or write them to a file."""
    if output is ProfileOutput.JSON:
        _emit(_json([_fit_json(engine) for engine in fitted]), file)
    elif output is ProfileOutput.TABLE:
        _emit_table(_fit_table(fitted), file)
    else:
        comments = [_errors_text(engine.fit) for engine in fitted]
        own = [engine.own_price_usd_per_gpu_h is not None for engine in fitted]
        _emit(_toml([engine.profile() for engine in fitted], own, comments), file)
    if file is not None:
        what = "profile" if len(fitted) == 1 else "profiles"
        print_note(f"{len(fitted)} {what} written to {file}")


def show_profile(
    profile: EngineProfile, output: ProfileOutput, file: Path | None, *, has_own_price: bool
) -> None:
    """Print one profile, or write it to a file."""
    import msgspec

    if output is ProfileOutput.JSON:
        _emit(_json(msgspec.to_builtins(profile)), file)
    elif output is ProfileOutput.TABLE:
        _emit_table(_profile_table(profile), file)
    else:
        _emit(_toml([profile], [has_own_price], [""]), file)
    if file is not None:
        print_note(f"1 profile written to {file}")


def _fit_json(engine: FittedEngine) -> dict[str, Any]:
    import msgspec

    return {
        "name": engine.name,
        "gpu": engine.gpu,
        "model": engine.model,
        "gpus_per_replica": engine.gpus_per_replica,
        "prefill_chunk_tokens": engine.prefill_chunk_tokens,
        "kv_capacity_tokens": engine.kv_capacity_tokens,
        **msgspec.to_builtins(engine.fit),
        "source": engine.source,
    }


def _fit_table(fitted: Sequence[FittedEngine]) -> Table:
    shown = table("engine", "W ms", "h us", "k ns", "p us", "c ns", "decode", "prefill")
    shown.columns[0].no_wrap = True
    for engine in fitted:
        fit = engine.fit
        shown.add_row(
            engine.name,
            _with_error(fit.base_iteration_s, 1e3),
            _with_error(fit.per_sequence_s, 1e6),
            _with_error(fit.per_context_token_s, 1e9),
            _with_error(fit.prefill_token_s, 1e6),
            _with_error(fit.prefill_token_context_s, 1e9),
            percent(fit.decode_max_relative_error),
            _range(fit),
        )
    shown.caption = (
        "± one standard error; none where the timings can't tell. decode: worst error of the fit. "
        "prefill: errors of what the planner counts for it, W included."
    )
    shown.caption_justify = "left"
    return shown


def _with_error(coefficient: Coefficient, factor: float) -> str:
    value = f"{coefficient.value * factor:.4g}"
    if coefficient.standard_error is None:
        return value
    return f"{value} ±{coefficient.standard_error / coefficient.value:.0%}"


def _errors_text(fit: ProfileFit) -> str:
    return (
        f"worst errors: decode {percent(fit.decode_max_relative_error)}, "
        f"prefill as planned {_range(fit)}"
    )


def _range(fit: ProfileFit) -> str:
    return f"{fit.planned_prefill_error_low:+.0%} … {fit.planned_prefill_error_high:+.0%}"


def _profile_table(profile: EngineProfile) -> Table:
    shown = table("figure", "value")
    for label, text in (
        ("name", profile.name),
        ("GPUs per replica", str(profile.gpus_per_replica)),
        ("W, empty iteration", f"{profile.base_iteration_s * 1e3:.4g} ms"),
        ("h, per sequence", f"{profile.per_sequence_s * 1e6:.4g} us"),
        ("k, per token of context", f"{profile.per_context_token_s * 1e9:.4g} ns"),
        ("p, per prefill token", f"{profile.prefill_token_s * 1e6:.4g} us"),
        ("c, and token before it", f"{profile.prefill_token_context_s * 1e9:.4g} ns"),
        ("prefill tokens an iteration", tokens(profile.prefill_chunk_tokens)),
        ("KV capacity", f"{tokens(profile.kv_capacity_tokens)} tokens"),
        ("price", f"{usd(profile.price_usd_per_replica_h)} USD/replica h"),
        ("power of a GPU", _power(profile)),
        ("source", profile.source or "–"),
    ):
        shown.add_row(label, text)
    shown.columns[1].no_wrap = False
    return shown


def _power(profile: EngineProfile) -> str:
    if profile.max_power_w is None:
        return power(None)
    if profile.idle_power_w is None:
        return f"at most {power(profile.max_power_w)}, idle unknown"
    return f"{power(profile.idle_power_w)} idle to {power(profile.max_power_w)}"


def _toml(
    profiles: Sequence[EngineProfile], own_prices: Sequence[bool], comments: Sequence[str]
) -> str:
    from fleetopt.config.profile_toml import ProfileEntry, profiles_toml

    return profiles_toml(
        {
            profile.name: ProfileEntry(profile, own, comment)
            for profile, own, comment in zip(profiles, own_prices, comments, strict=True)
        }
    )


def _json(value: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _emit_table(shown: Table, file: Path | None) -> None:
    if file is None:
        console().print(shown)
        return
    text = io.StringIO()
    console(text).print(shown)
    _emit(text.getvalue(), file)


def _emit(text: str, file: Path | None) -> None:
    if file is None:
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {file}: {error.strerror}") from error
