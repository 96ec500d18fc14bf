"""An engine profile from a GPU's and a model's figures, for what nobody has measured yet."""

import math
from dataclasses import dataclass, fields
from typing import Final

from fleetopt.errors import ConfigError
from fleetopt.planner.engine import EngineProfile

_ACTIVATION_BYTES: Final = 2  # bf16
_ALL_REDUCES_PER_LAYER: Final = 2  # after attention and after the feed-forward part
_FLOPS_PER_WEIGHT: Final = 2  # a multiplication and an addition


def _check_positive(figures: "Gpu | ModelShape | Efficiency") -> None:
    kind = type(figures).__name__
    for field in fields(figures):
        value = getattr(figures, field.name)
        if isinstance(value, str):
            if not value.strip():
                raise ConfigError(f"{kind}.{field.name} is empty; expected a name")
        elif not (math.isfinite(value) and value > 0.0):
            raise ConfigError(f"{kind}.{field.name} is {value}; expected a finite number > 0")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its maker describes it; bandwidths are peak, FLOPS dense."""

    name: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops_per_s: float  # at the precision that the model computes in, without sparsity
    link_bytes_per_s: float  # to the other GPUs of a replica, in one direction

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model decides its speed; of a mixture of experts, give all weights' bytes."""

    name: str
    weights_bytes: float
    active_parameters: float  # that one token is multiplied with
    kv_bytes_per_token: float
    layers: int
    hidden_size: int
    attention_width: int  # query heads × head size
    kv_heads: int  # over more GPUs than these the KV cache is not split any further

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What engines reach of the hardware's peak, and what they spend beside it.

    The defaults are least squares over the silicon catalogue (A100 to B200, vLLM, bf16):
    `benchmarks/roofline_error.py` finds them again and says how far off they are.
    """

    memory: float = 0.80  # weights
    kv_memory: float = 0.87
    flops: float = 0.83
    link: float = 0.58
    attention: float = 0.39
    decode_compute_share: float = 0.33
    """What is left of a sequence's arithmetic while weights stream in; the rest is hidden."""

    layer_overhead_s: float = 16e-6
    all_reduce_latency_s: float = 14e-6
    memory_share: float = 0.9  # that the engine may use: vLLM's gpu_memory_utilization
    reserved_bytes_per_gpu: float = 2e9  # activations, CUDA graphs, libraries

    def __post_init__(self) -> None:
        _check_positive(self)


DEFAULT_EFFICIENCY: Final = Efficiency()


def from_hardware(
    gpu: Gpu,
    model: ModelShape,
    tensor_parallel: int,
    price_usd_per_gpu_h: float,
    *,
    prefill_chunk_tokens: int = 2048,
    efficiency: Efficiency = DEFAULT_EFFICIENCY,
) -> EngineProfile:
    """Estimate an engine's profile by its roofline.

    Decode is bound by memory: an iteration reads all weights once (W) and each running sequence's
    KV cache (κ). Prefill is bound by arithmetic: 2 FLOP per weight and token (p), 4 · width per
    layer, token and token before it (c). Tensor parallelism divides all of them and adds two
    all-reduces a layer: latency to W, bytes to h and p.

    Parameters
    ----------
    gpu, model
        Figures in bytes, bytes/s, FLOP/s.
    tensor_parallel
        GPUs of one replica, ≥ 1.
    price_usd_per_gpu_h
        Price of one GPU, USD/h.
    prefill_chunk_tokens
        Prefill tokens an iteration takes at most.
    efficiency
        Shares of the peak, in (0, 1]; overheads in seconds and bytes.

    Returns
    -------
    EngineProfile
        Named `<gpu>/<model>/tp<k>`. An estimate: its error against measured engines is in
        docs/profiles.md.

    Raises
    ------
    ConfigError
        If a figure is not above 0, or the weights leave no room for a KV cache.

    Notes
    -----
    The roofline is that of [1]_; the counts of FLOP and bytes in a transformer, and the cost of
    its tensor parallelism, those of [2]_.

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance
       Model for Multicore Architectures", CACM 52(4), 2009.
    .. [2] R. Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023.

    Examples
    --------
    >>> h100 = Gpu("h100", 80e9, 3.35e12, 989.4e12, 450e9)
    >>> qwen = ModelShape("Qwen3-32B", 65.5e9, 32.8e9, 262_144, 64, 5_120, 8_192, 8)
    >>> estimate = from_hardware(h100, qwen, 2, price_usd_per_gpu_h=3.49)
    >>> f"{estimate.name} {estimate.base_iteration_s * 1e3:.0f} ms"
    'h100/qwen3-32b/tp2 15 ms'
    """
    if tensor_parallel < 1:
        raise ConfigError(f"tensor_parallel is {tensor_parallel}; expected a whole number ≥ 1")
    kv_shards = min(tensor_parallel, model.kv_heads)
    all_reduces = _ALL_REDUCES_PER_LAYER * model.layers if tensor_parallel > 1 else 0
    weights_s = (
        model.weights_bytes / tensor_parallel / (gpu.bandwidth_bytes_per_s * efficiency.memory)
    )
    flops_per_s = tensor_parallel * gpu.flops_per_s
    arithmetic_s = _FLOPS_PER_WEIGHT * model.active_parameters / (flops_per_s * efficiency.flops)
    sent_bytes = (
        all_reduces
        * model.hidden_size
        * _ACTIVATION_BYTES
        * 2.0 * (tensor_parallel - 1) / tensor_parallel  # a ring: reduce, then gather
    )  # fmt: skip
    sending_s = sent_bytes / (gpu.link_bytes_per_s * efficiency.link)
    attention_flops = 2 * _FLOPS_PER_WEIGHT * model.layers * model.attention_width
    return EngineProfile(
        name="-".join(f"{gpu.name}/{model.name}/tp{tensor_parallel}".lower().split()),
        gpu=gpu.name,
        model=model.name,
        gpus_per_replica=tensor_parallel,
        base_iteration_s=weights_s
        + model.layers * efficiency.layer_overhead_s
        + all_reduces * efficiency.all_reduce_latency_s,
        per_sequence_s=efficiency.decode_compute_share * arithmetic_s + sending_s,
        per_context_token_s=model.kv_bytes_per_token
        / (kv_shards * gpu.bandwidth_bytes_per_s * efficiency.kv_memory),
        prefill_token_s=arithmetic_s + sending_s,
        prefill_token_context_s=attention_flops / (flops_per_s * efficiency.attention),
        prefill_chunk_tokens=prefill_chunk_tokens,
        kv_capacity_tokens=_kv_capacity_tokens(gpu, model, tensor_parallel, kv_shards, efficiency),
        price_usd_per_gpu_h=price_usd_per_gpu_h,
        source="roofline estimate from hardware figures, not measured",
    )


def _kv_capacity_tokens(
    gpu: Gpu, model: ModelShape, tensor_parallel: int, kv_shards: int, efficiency: Efficiency
) -> int:
    usable_bytes = efficiency.memory_share * gpu.memory_bytes - efficiency.reserved_bytes_per_gpu
    left_bytes = usable_bytes - model.weights_bytes / tensor_parallel
    tokens = math.floor(left_bytes * kv_shards / model.kv_bytes_per_token)
    if tokens < 1:
        enough = (
            f"it fits {math.floor(model.weights_bytes / usable_bytes) + 1} GPUs or more"
            if usable_bytes > 0
            else "such a GPU holds no model"
        )
        raise ConfigError(
            f"{model.name} on {tensor_parallel} × {gpu.name}: weights of "
            f"{model.weights_bytes / 1e9:.1f} GB leave no room for a KV cache; {enough}"
        )
    return tokens
