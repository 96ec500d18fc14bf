"""One engine replica: how long an iteration takes, what it holds, what it costs."""

import math
from dataclasses import dataclass
from typing import Final

from fleetopt.errors import ConfigError

_POSITIVE: Final = ("base_iteration_s", "price_usd_per_gpu_h")
_POSITIVE_IF_KNOWN: Final = ("idle_power_w", "max_power_w", "carbon_g_per_kwh")
_NOT_NEGATIVE: Final = (
    "per_sequence_s",
    "per_context_token_s",
    "prefill_token_s",
    "prefill_token_context_s",
)
_AT_LEAST_ONE: Final = (
    "gpus_per_replica",
    "prefill_chunk_tokens",
    "kv_capacity_tokens",
    "kv_block_tokens",
)


@dataclass(frozen=True)
class EngineProfile:
    """Coefficients of one engine replica on one kind of GPU.

    An iteration with k sequences of contexts L_1…L_k and m prefill tokens takes
    W + h·k + κ·ΣL + p·m + c·Σ(tokens before them).

    The power of a GPU rises linearly with load. Where only `max_power_w` is known, the GPU is
    taken to draw it always. None is unknown.

    Raises
    ------
    ConfigError
        If a figure is out of range; the message starts with the field's path.
    """

    name: str
    gpu: str
    model: str
    gpus_per_replica: int
    base_iteration_s: float  # W
    per_sequence_s: float  # h
    per_context_token_s: float  # κ
    prefill_token_s: float  # p
    prefill_token_context_s: float  # c
    prefill_chunk_tokens: int  # ch
    kv_capacity_tokens: int  # KV
    price_usd_per_gpu_h: float
    kv_block_tokens: int = 16
    source: str = ""
    idle_power_w: float | None = None  # of a GPU with the model loaded and nothing to serve
    max_power_w: float | None = None  # of a GPU at full load
    carbon_g_per_kwh: float | None = None  # of the grid that feeds it, CO2 equivalents

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("profile.name is empty; expected a name such as h100/qwen3-32b/tp2")
        for field in _POSITIVE:
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"{self.name}.{field} is {value}; expected a finite number > 0")
        for field in _POSITIVE_IF_KNOWN:
            value = getattr(self, field)
            if value is not None and not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"{self.name}.{field} is {value}; expected a finite number > 0")
        if self.idle_power_w is not None:
            if self.max_power_w is None:
                raise ConfigError(
                    f"{self.name}.max_power_w is unknown; expected it beside idle_power_w"
                )
            if self.idle_power_w > self.max_power_w:
                raise ConfigError(
                    f"{self.name}.idle_power_w is {self.idle_power_w}; expected at most "
                    f"max_power_w={self.max_power_w}"
                )
        for field in _NOT_NEGATIVE:
            value = getattr(self, field)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"{self.name}.{field} is {value}; expected a finite number ≥ 0")
        for field in _AT_LEAST_ONE:
            value = getattr(self, field)
            if value < 1:
                raise ConfigError(f"{self.name}.{field} is {value}; expected a whole number ≥ 1")

    @property
    def price_usd_per_replica_h(self) -> float:
        """What one replica costs in an hour."""
        return self.gpus_per_replica * self.price_usd_per_gpu_h

    def power_w(self, replicas: float, load: float) -> float | None:
        """Power of the GPUs of a pool; None where it is unknown.

        Parameters
        ----------
        replicas : float
            All of the pool's, whether up or not.
        load : float
            In fully used replicas.
        """
        if self.max_power_w is None:
            return None
        idle_w = self.max_power_w if self.idle_power_w is None else self.idle_power_w
        return self.gpus_per_replica * (replicas * idle_w + load * (self.max_power_w - idle_w))

    @property
    def prefill_is_free(self) -> bool:
        """The paper's simplification: every sequence prefills a chunk of its own, at no cost."""
        return self.prefill_token_s == 0.0 and self.prefill_token_context_s == 0.0

    def slots_reserved(self, context_tokens: int) -> int:
        """Sequences at once when each slot reserves a whole context; 0 if not even one fits."""
        blocks = -(-context_tokens // self.kv_block_tokens)
        return self.kv_capacity_tokens // (blocks * self.kv_block_tokens)
