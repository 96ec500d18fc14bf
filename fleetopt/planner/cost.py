"""What is minimised: money, or the carbon of the power that a fleet draws."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fleetopt.errors import ConfigError
from fleetopt.planner.engine import EngineProfile

SECONDS_PER_HOUR: Final = 3600.0
_KG_PER_G: Final = 1e-3
_KW_PER_W: Final = 1e-3


class CostUnit(StrEnum):
    """The unit in which fleets are compared."""

    USD = "usd"
    CARBON = "carbon"

    @property
    def per_h(self) -> str:
        """The unit as a reader sees it."""
        return "USD/h" if self is CostUnit.USD else "kgCO2e/h"


@dataclass(frozen=True, slots=True)
class Rate:
    """What a pool of one engine costs in an hour: by its replicas, and by the load on them.

    Load is counted in fully used replicas. Only power depends on it.
    """

    per_replica: float  # > 0
    per_load: float  # ≥ 0

    def of(self, replicas: float, load: float) -> float:
        """What so many replicas with this load on them cost in an hour."""
        return replicas * self.per_replica + load * self.per_load


def rate(engine: EngineProfile, unit: CostUnit) -> Rate:
    """What an engine costs in this unit.

    Raises
    ------
    ConfigError
        If carbon is asked for and the engine's power or its grid's carbon is unknown.
    """
    if unit is CostUnit.USD:
        return Rate(engine.price_usd_per_replica_h, 0.0)
    highest_w, g_per_kwh = engine.max_power_w, engine.carbon_g_per_kwh
    if highest_w is None:
        raise ConfigError(
            f"{engine.name}.max_power_w is unknown; to minimise carbon, set it for the profile or "
            f"its GPU in a profiles file"
        )
    if g_per_kwh is None:
        raise ConfigError(
            f"{engine.name}.carbon_g_per_kwh is unknown; to minimise carbon, set carbon_g_per_kwh, "
            f"for all or for {engine.gpu}"
        )
    kg_per_w_h = engine.gpus_per_replica * _KW_PER_W * g_per_kwh * _KG_PER_G
    idle_w = highest_w if engine.idle_power_w is None else engine.idle_power_w
    return Rate(idle_w * kg_per_w_h, (highest_w - idle_w) * kg_per_w_h)


@dataclass(frozen=True, slots=True)
class GpuCost:
    """What GPUs cost in every unit; None is unknown."""

    usd_per_h: float
    power_w: float | None
    carbon_kg_per_h: float | None

    def __add__(self, other: "GpuCost") -> "GpuCost":
        return GpuCost(
            self.usd_per_h + other.usd_per_h,
            _sum(self.power_w, other.power_w),
            _sum(self.carbon_kg_per_h, other.carbon_kg_per_h),
        )


def gpu_cost(engine: EngineProfile, replicas: int, load: float) -> GpuCost:
    """What the GPUs of a pool cost in every unit.

    Parameters
    ----------
    engine : EngineProfile
        Its price, power and grid.
    replicas : int
        All of the pool's, whether up or not.
    load : float
        In fully used replicas; only power depends on it.
    """
    power_w, g_per_kwh = engine.power_w(replicas, load), engine.carbon_g_per_kwh
    carbon = None
    if power_w is not None and g_per_kwh is not None:
        carbon = power_w * _KW_PER_W * g_per_kwh * _KG_PER_G
    return GpuCost(replicas * engine.price_usd_per_replica_h, power_w, carbon)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
