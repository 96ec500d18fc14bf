"""How far roofline profiles are from measured ones, over the whole silicon catalogue.

Run it with `python -m benchmarks.roofline_error`: it writes the tables of docs/profiles.md, and
says which efficiencies fit the catalogue best (the defaults are those, rounded).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from scipy.optimize import lsq_linear

from benchmarks.report import Machine, Table, write
from fleetopt.config.hardware import known_gpus, known_models
from fleetopt.config.profiles import load_catalogue
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.hardware import DEFAULT_EFFICIENCY, Efficiency, from_hardware

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "profiles.md"
NAME: Final = "roofline"

_Figure = Callable[[EngineProfile], float]
FIGURES: Final[Mapping[str, _Figure]] = {
    "W, empty iteration": lambda e: e.base_iteration_s,
    "h, per sequence": lambda e: e.per_sequence_s,
    "κ, per token of context": lambda e: e.per_context_token_s,
    "p, per prefill token": lambda e: e.prefill_token_s,
    "c, per pair of prefill tokens": lambda e: e.prefill_token_context_s,
    "KV capacity": lambda e: float(e.kv_capacity_tokens),
    "decode iteration, 8 × 528 tokens": lambda e: _decode_s(e, 8, 528),
    "decode iteration, 32 × 2,064 tokens": lambda e: _decode_s(e, 32, 2064),
    "decode iteration, 32 × 8,208 tokens": lambda e: _decode_s(e, 32, 8208),
    "prefill of 2,048 tokens": lambda e: _prefill_s(e, 2048),
    "prefill of 8,192 tokens": lambda e: _prefill_s(e, 8192),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A measured engine, and the figures that its estimate starts from."""

    measured: EngineProfile
    gpu: str
    model: str

    def estimate(self, efficiency: Efficiency) -> EngineProfile:
        """Return the engine's roofline profile."""
        return from_hardware(
            known_gpus()[self.gpu],
            known_models()[self.model],
            self.measured.gpus_per_replica,
            self.measured.price_usd_per_gpu_h,
            efficiency=efficiency,
        )


def entries() -> list[Entry]:
    """Return every engine of the catalogue whose GPU and model are known."""
    return [
        Entry(profile, profile.gpu, profile.model.lower())
        for profile in load_catalogue().values()
        if profile.model.lower() in known_models() and not profile.prefill_is_free
    ]


def calibrate(known: Sequence[Entry]) -> Efficiency:
    """Fit the efficiencies by least squares on relative errors; attention's by its median.

    c is small beside p, and ill-determined by three prompt lengths: single entries are off
    severalfold, and would decide a least-squares fit.
    """
    # An estimate at full efficiency has the terms that the efficiencies divide.
    nothing = 1e-30
    peak = replace(
        DEFAULT_EFFICIENCY,
        memory=1.0,
        kv_memory=1.0,
        flops=1.0,
        link=1.0,
        attention=1.0,
        decode_compute_share=nothing,
        layer_overhead_s=nothing,
        all_reduce_latency_s=nothing,
    )
    ideal = [entry.estimate(peak) for entry in known]
    real = [entry.measured for entry in known]
    layers = np.array([float(known_models()[entry.model].layers) for entry in known])
    several = np.array([float(entry.measured.gpus_per_replica > 1) for entry in known])
    weights_s = np.array([profile.base_iteration_s for profile in ideal])
    sending_s = np.array([profile.per_sequence_s for profile in ideal])
    arithmetic_s = np.array([profile.prefill_token_s for profile in ideal]) - sending_s

    def measured(figure: _Figure) -> np.ndarray:
        return np.array([figure(profile) for profile in real])

    base = _fit([weights_s, layers, 2 * layers * several], measured(lambda e: e.base_iteration_s))
    token = _fit([arithmetic_s, sending_s], measured(lambda e: e.prefill_token_s))
    left = measured(lambda e: e.per_sequence_s) - token[1] * sending_s
    sequence = _fit(
        [token[0] * arithmetic_s], left, relative_to=measured(lambda e: e.per_sequence_s)
    )
    context = _fit(
        [np.array([profile.per_context_token_s for profile in ideal])],
        measured(lambda e: e.per_context_token_s),
    )
    attention = median(
        profile.prefill_token_context_s / entry.measured.prefill_token_context_s
        for profile, entry in zip(ideal, known, strict=True)
    )
    return replace(
        DEFAULT_EFFICIENCY,
        memory=1 / base[0],
        layer_overhead_s=base[1],
        all_reduce_latency_s=base[2],
        flops=1 / token[0],
        link=1 / token[1],
        decode_compute_share=sequence[0],
        kv_memory=1 / context[0],
        attention=attention,
    )


def errors(
    known: Iterable[Entry], efficiency_of: Callable[[Entry], Efficiency]
) -> dict[str, list[float]]:
    """Return each figure's signed relative error against every measured engine."""
    found: dict[str, list[float]] = {name: [] for name in FIGURES}
    for entry in known:
        estimate = entry.estimate(efficiency_of(entry))
        for name, figure in FIGURES.items():
            found[name].append(figure(estimate) / figure(entry.measured) - 1.0)
    return found


def tables() -> list[Table]:
    """Return the errors of the defaults, and of efficiencies found without the GPU in question."""
    known = entries()
    without = {
        gpu: calibrate([entry for entry in known if entry.gpu != gpu])
        for gpu in sorted({entry.gpu for entry in known})
    }
    defaults = errors(known, lambda entry: DEFAULT_EFFICIENCY)
    unseen = errors(known, lambda entry: without[entry.gpu])
    rows = [(name, *_summary(defaults[name]), *_summary(unseen[name])) for name in FIGURES]
    counts = ", ".join(
        f"{sum(entry.gpu == gpu for entry in known)} on {gpu.upper()}" for gpu in without
    )
    return [
        Table(
            f"Roofline against silicon, {len(known)} engines ({counts})",
            ("figure", "median size of error", "lowest … highest", "GPU unseen: median size",
             "GPU unseen: lowest … highest"),
            rows,
        ),
        _by_gpu(known),
    ]  # fmt: skip


def _by_gpu(known: Sequence[Entry]) -> Table:
    gpus = sorted({entry.gpu for entry in known})
    found = {
        gpu: errors([e for e in known if e.gpu == gpu], lambda entry: DEFAULT_EFFICIENCY)
        for gpu in gpus
    }
    return Table(
        "Median size of error (worst error) by GPU",
        ("figure", *(gpu.upper() for gpu in gpus)),
        [
            (name, *(f"{_middle(found[gpu][name])} ({_worst(found[gpu][name])})" for gpu in gpus))
            for name in FIGURES
        ],
    )


def _decode_s(engine: EngineProfile, batch: int, context_tokens: int) -> float:
    return engine.base_iteration_s + batch * (
        engine.per_sequence_s + engine.per_context_token_s * context_tokens
    )


def _prefill_s(engine: EngineProfile, tokens: int) -> float:
    """Return the time of the iterations that a prompt takes alone, as the planner counts them."""
    chunks = -(-tokens // engine.prefill_chunk_tokens)
    return (
        chunks * engine.base_iteration_s
        + engine.prefill_token_s * tokens
        + engine.prefill_token_context_s * tokens**2 / 2
    )


def _fit(
    terms: Sequence[np.ndarray], values: np.ndarray, relative_to: np.ndarray | None = None
) -> list[float]:
    weighted = np.stack(terms, axis=1) / (values if relative_to is None else relative_to)[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    target = values / (values if relative_to is None else relative_to)
    solved = lsq_linear(weighted / scale, target, (0.0, np.inf), method="bvls")
    return [float(value) for value in solved.x / scale]


def _summary(found: Sequence[float]) -> tuple[str, str]:
    return _middle(found), f"{min(found):+.0%} … {max(found):+.0%}"


def _middle(found: Sequence[float]) -> str:
    return f"{median(map(abs, found)):.1%}"


def _worst(found: Sequence[float]) -> str:
    return f"{max(found, key=abs):+.0%}"


def main() -> int:
    """Write the page's tables and print the efficiencies that fit best."""
    made = tables()
    for table in made:
        print(table.markdown(), end="\n\n")
    print(f"best fit: {calibrate(entries())}", file=sys.stderr)
    write(NAME, made, Machine.this(), PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
