"""`fleetopt profile from-hardware`: a profile for what nobody has measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from fleetopt.cli.profile_options import (
    ChunkOption,
    FileOption,
    FormOption,
    PriceOption,
    TensorParallelOption,
    form_of,
)
from fleetopt.cli.profile_text import price_usd_per_gpu_h, show_profile
from fleetopt.errors import ConfigError

# Which option sets which figure, and the unit of the option.
_GPU_OPTIONS = {
    "memory_bytes": ("--memory-gb", 1e9),
    "bandwidth_bytes_per_s": ("--bandwidth-gb-per-s", 1e9),
    "flops_per_s": ("--tflops", 1e12),
    "link_bytes_per_s": ("--link-gb-per-s", 1e9),
}
_MODEL_OPTIONS = {
    "weights_bytes": ("--weights-gb", 1e9),
    "active_parameters": ("--parameters-b", 1e9),
    "kv_bytes_per_token": ("--kv-bytes-per-token", 1),
    "layers": ("--layers", 1),
    "hidden_size": ("--hidden-size", 1),
    "attention_width": ("--attention-width", 1),
    "kv_heads": ("--kv-heads", 1),
}

_Figure = float | None


def from_hardware(
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="A GPU that ships, or a name for your figures.")
    ],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model that ships, or a name for your figures.")
    ],
    tp: TensorParallelOption = 1,
    memory_gb: Annotated[_Figure, typer.Option(metavar="GB", help="Memory of a GPU.")] = None,
    bandwidth_gb_per_s: Annotated[
        _Figure, typer.Option(metavar="GB/s", help="Memory bandwidth of a GPU.")
    ] = None,
    tflops: Annotated[
        _Figure, typer.Option(metavar="TFLOPS", help="Dense, at the precision of the arithmetic.")
    ] = None,
    link_gb_per_s: Annotated[
        _Figure, typer.Option(metavar="GB/s", help="To a replica's other GPUs, in one direction.")
    ] = None,
    weights_gb: Annotated[
        _Figure, typer.Option(metavar="GB", help="All weights, as they are loaded.")
    ] = None,
    parameters_b: Annotated[
        _Figure, typer.Option(metavar="1E9", help="Parameters that a token passes, in billions.")
    ] = None,
    kv_bytes_per_token: Annotated[
        _Figure,
        typer.Option(metavar="BYTES", help="2 * layers * KV heads * head size * bytes a value."),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers.")] = None,
    hidden_size: Annotated[int | None, typer.Option(help="Hidden size.")] = None,
    attention_width: Annotated[int | None, typer.Option(help="Query heads * head size.")] = None,
    kv_heads: Annotated[int | None, typer.Option(help="Key-value heads.")] = None,
    price: PriceOption = None,
    prefill_chunk: ChunkOption = 2048,
    output: FormOption = None,
    write_to: FileOption = None,
) -> None:
    """Estimate a profile from the figures of a GPU and a model, where nobody has measured.

    A100, H100, H200, B200 and Qwen3-32B, Llama-3.1-70B, Llama-3.1-8B ship with theirs; options
    replace them one by one, or describe another GPU or model in full. docs/profiles.md says how
    far such estimates are from measured engines.

    \b
    Examples:
      fleetopt profile from-hardware --gpu h100 --model qwen3-32b --tp 2
      fleetopt profile from-hardware --gpu h200 --model llama-3.1-70b --tp 4 -o estimate.toml
    """
    from fleetopt.config.hardware import known_gpus, known_models
    from fleetopt.planner import hardware

    given: dict[str, float | None] = {
        "--memory-gb": memory_gb,
        "--bandwidth-gb-per-s": bandwidth_gb_per_s,
        "--tflops": tflops,
        "--link-gb-per-s": link_gb_per_s,
        "--weights-gb": weights_gb,
        "--parameters-b": parameters_b,
        "--kv-bytes-per-token": kv_bytes_per_token,
        "--layers": layers,
        "--hidden-size": hidden_size,
        "--attention-width": attention_width,
        "--kv-heads": kv_heads,
    }
    gpus, models = known_gpus(), known_models()
    gpu, shape = gpu.lower(), models.get(model.lower())
    chosen_gpu = hardware.Gpu(name=gpu, **_figures(gpu, gpus, _GPU_OPTIONS, given))
    chosen_model = hardware.ModelShape(
        name=model if shape is None else shape.name,
        **_figures(model.lower(), models, _MODEL_OPTIONS, given),
    )
    profile = hardware.from_hardware(
        chosen_gpu,
        chosen_model,
        tp,
        price_usd_per_gpu_h(gpu, price),
        prefill_chunk_tokens=prefill_chunk,
    )
    show_profile(profile, form_of(output, write_to), write_to, has_own_price=price is not None)


def _figures(
    name: str,
    known: Mapping[str, Any],
    options: Mapping[str, tuple[str, float]],
    given: Mapping[str, float | None],
) -> dict[str, Any]:
    """Return the figures that ship, with those that were given in their place."""
    figures: dict[str, Any] = {}
    if name in known:
        shipped = known[name]
        figures = {field.name: getattr(shipped, field.name) for field in fields(shipped)}
        del figures["name"]
    for field, (option, unit) in options.items():
        value = given[option]
        if value is not None:
            figures[field] = value * unit
    missing = [option for field, (option, _) in options.items() if field not in figures]
    if missing:
        raise ConfigError(
            f"no figures of {name} ship with FleetOpt, only of {', '.join(sorted(known))}; "
            f"give {', '.join(missing)}"
        )
    return figures
