"""Every setting of FleetOpt, typed and described, read once at the edge.

Sources, first wins: arguments, `FLEETOPT_…` variables (nested by `__`), a YAML file, defaults.
Library objects are given these values and never read the environment themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from fleetopt.errors import ConfigError

OTHER_GPUS: Final = "default"
"""Among figures by GPU type: the one of all types that are not named."""

_SECRETS: Final = re.compile(r"(?<=://).*(?=@)|(?<=[?&]password=)[^&]*")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def without_password(url: str) -> str:
    """Return a Redis URL with stars for its user and password, which nobody should see in a log."""
    return _SECRETS.sub("***", url)


class KafkaSettings(_Section):
    """Where the request logs are."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="Broker addresses, host:port,…")
    topic: str = Field("fleetopt.requests", description="Topic of the request logs.")
    partitions: int = Field(
        8, ge=1, le=1024, description="Partitions of the topic when FleetOpt creates it."
    )
    replication_factor: int = Field(
        1, ge=1, description="Replicas of the topic when FleetOpt creates it."
    )
    retention_s: float = Field(
        86_400.0,
        gt=0,
        allow_inf_nan=True,
        description="Retention of the topic when FleetOpt creates it; at least the window.",
    )
    group: str = Field("fleetopt", description="Consumer group of the workers.")
    session_timeout_s: float = Field(
        10.0, gt=0, description="A worker silent for this long loses its partitions."
    )
    max_future_s: float = Field(
        300.0,
        ge=0,
        description="An arrival later by more than this than its message's timestamp, or than the "
        "worker's clock, is refused.",
    )


class RedisSettings(_Section):
    """Where sketches and recommendations are kept."""

    url: str = Field("redis://127.0.0.1:6379/0", description="redis:// or rediss:// URL.")
    history: int = Field(1_000, ge=1, description="Recommendations kept per fleet in its stream.")
    timeout_s: float = Field(5.0, gt=0, description="Limit of one command.")

    @property
    def shown_url(self) -> str:
        """The URL as it may be shown."""
        return without_password(self.url)


class WindowSettings(_Section):
    """What the sketches remember, in event time."""

    slice_s: int = Field(60, ge=1, le=3600, description="Length of a slice.")
    slices: int = Field(60, ge=2, le=1440, description="Closed slices that a plan looks at.")
    allowed_lateness_s: float = Field(
        120.0,
        ge=0,
        description="A record older than the newest by more than this may find its slice closed. "
        "Logs are written at completion, so allow for the longest request.",
    )

    @property
    def span_s(self) -> float:
        """Length of the whole window."""
        return float(self.slice_s * self.slices)


class ForecastSettings(_Section):
    """Which arrival rate to plan for."""

    horizon_s: float = Field(
        600.0,
        gt=0,
        le=7 * 86_400,
        description="The plan must hold for so long: the lateness allowed, the time between two "
        "plans and the time that a replica takes to come up.",
    )
    quantile: float = Field(
        0.95, ge=0.5, lt=1, description="Share of the horizon's slices that the rate must cover."
    )
    season_s: float | None = Field(
        None, gt=0, description="Length of a season; none: a day and a week are tried."
    )
    method: Literal[
        "auto", "recent_peak", "recent_level", "damped_trend", "seasonal_naive", "holt_winters"
    ] = Field("auto", description="`auto`: what does best on the window.")


class ReplanSettings(_Section):
    """When to plan."""

    interval_s: float = Field(30.0, gt=0, description="Time between two plans of a fleet.")
    load_check_s: float = Field(
        1.0, gt=0, description="Time between two checks of the pools' load; past its limit: replan."
    )
    stale_after_s: float = Field(
        120.0, gt=0, description="Traffic unknown for this long makes a recommendation stale."
    )
    drift_confirm_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Drift seen again this share of the window later is confirmed.",
    )


class IngestSettings(_Section):
    """How a worker reads the log."""

    flush_interval_s: float = Field(
        0.5, gt=0, description="Time between two durable writes of changed sketches."
    )
    max_fetch_bytes: int = Field(4 << 20, ge=1 << 16, description="Bytes of one fetch.")


def _alone_is_default(value: Any) -> Any:
    return {OTHER_GPUS: value} if isinstance(value, int | float | str) else value


_ByGpu = Annotated[
    dict[str, Annotated[float, Field(gt=0)]],
    BeforeValidator(_alone_is_default),
]


class FleetSettings(_Section):
    """What a fleet is made of and promises."""

    profile: str = Field(
        "h100/qwen3-32b/tp2", description="Engine profile of both pools: `fleetopt profiles`."
    )
    short_profile: str | None = Field(None, description="Engine profile of the short pool.")
    long_profile: str | None = Field(None, description="Engine profile of the long pool.")
    long_context_tokens: int = Field(
        32_768, ge=128, le=1 << 20, description="Context window of the long pool."
    )
    slo_ttft_p99: str = Field(
        "500ms", description="P99 time to first token: `500ms` or `300ms+0.2ms/token`."
    )
    slo_e2e_p99: str | None = Field(
        None, description="P99 time from arrival to last token: `30s` or `2s+40ms/token`."
    )
    slo_itl_p99: str | None = Field(None, description="P99 time between two tokens: `50ms`.")
    slo_scope: Literal["pool", "fleet"] = Field(
        "pool", description="Whether each pool holds its P99s, or all requests together."
    )
    admission: Literal["statistical", "reserved"] = Field(
        "statistical", description="How the engines admit sequences."
    )
    preemption_probability: float = Field(
        0.001, gt=0, lt=0.5, description="Accepted under statistical admission."
    )
    max_utilization: float = Field(0.85, ge=0.01, lt=1, description="Cap on a pool's load.")
    gamma_max: float = Field(2.0, ge=1, le=8, description="Upper limit of the compression band.")
    compressible_share: float = Field(
        0.75, ge=0, le=1, description="Prior for requests whose log names no category."
    )
    compression_penalty_usd: float = Field(
        1e-6, ge=0, description="Price of one compressed request (quality)."
    )
    minimise: Literal["usd", "carbon"] = Field(
        "usd", description="What the cheapest fleet has least of: USD/h, or kgCO2e/h of its power."
    )
    prices_usd_per_gpu_h: _ByGpu = Field(
        {},
        description="Your own prices by GPU type, such as spot prices, in place of the profiles'; "
        "`default` or a number alone: of all others.",
    )
    carbon_g_per_kwh: _ByGpu = Field(
        {},
        description="Carbon intensity of the grid, CO2 equivalents, by GPU type; `default` or a "
        "number alone: of all others.",
    )
    min_replicas: int = Field(
        1, ge=1, le=1_000_000, description="Fewest replicas of a pool in use."
    )
    max_replicas: int | None = Field(None, ge=1, description="Most replicas of a pool.")
    node_availability: float = Field(1.0, ge=0.01, le=1, description="Share of nodes that are up.")
    max_drift_regret: float = Field(
        0.03, gt=0, description="Regret of the pinned boundary that counts as drift."
    )
    min_samples: int = Field(
        1_500, ge=1, description="Requests in the window below which the boundary is not moved."
    )


class WorkerSettings(_Section):
    """The worker process."""

    web_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port of Faust's web server, on every interface; none: off.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto`: console on a terminal, else JSON."
    )


class ModelSettings(_Section):
    """How a model's tokens are counted."""

    tokenizer: str | None = Field(
        None,
        min_length=1,
        description="A model whose bundled vocabulary it has; none: its own name says it.",
    )
    endpoint: str | None = Field(
        None, min_length=1, description="The engine's address: its own /tokenize counts then."
    )
    api_key: SecretStr | None = Field(None, description="For the engine.")
    timeout_s: float = Field(1.0, gt=0, description="Limit of one count by the engine.")


class CompressorSettings(_Section):
    """The processes that compress prompts, and where they get them from."""

    request_topic: str = Field(
        "fleetopt.compress.requests", description="Topic of the prompts to compress."
    )
    reply_topic: str = Field(
        "fleetopt.compress.replies",
        description="Answers are sent to this topic, and to those named by it and a dot and more.",
    )
    partitions: int = Field(
        8, ge=1, le=1024, description="Partitions of the request topic when FleetOpt creates it."
    )
    retention_s: float = Field(
        600.0,
        gt=0,
        allow_inf_nan=True,
        description="Retention of the request topic when FleetOpt creates it.",
    )
    group: str = Field(
        "fleetopt-compressor",
        description="Consumer group of the compressors, a dot and the topic's id behind it.",
    )
    workers: int = Field(2, ge=1, le=256, description="Processes of one compressor.")
    queue_limit: int = Field(
        64, ge=0, le=100_000, description="Prompts that wait for a process; one more: `overloaded`."
    )
    max_wait_s: float = Field(
        10.0, gt=0, le=600, description="Longest deadline; that of a request that names none."
    )
    job_limit_s: float = Field(
        10.0, gt=0, le=600, description="A process that takes longer for one prompt is replaced."
    )
    fetch_wait_s: float = Field(
        0.01,
        gt=0,
        le=10,
        description="A broker may hold a fetch back for so long when there is nothing to read. The "
        "embedded one holds each for half of it; Apache Kafka doesn't, so there it may be more.",
    )
    drain_s: float = Field(
        10.0, ge=0, description="For prompts that are there when the compressor is told to stop."
    )
    min_kept_share: float = Field(
        0.5, ge=0, le=1, description="Less than this share of the prose left: unchanged."
    )
    keep_cached_prefix: bool = Field(
        True, description="A prompt with tokens in the prefix cache stays as it is."
    )
    web_port: int | None = Field(
        None, ge=1, le=65535, description="Port of /metrics, on every interface; none: off."
    )
    models: dict[str, ModelSettings] = Field(
        {},
        description="Models that are loaded at the start, by the name that requests use, and how "
        "their tokens are counted; others are loaded when they are first asked for.",
    )


_Fleets = Annotated[
    dict[str, dict[str, Any]],
    Field(description="Per fleet: what differs from `fleet`, by the same keys."),
]


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETOPT_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings, description="Request logs.")
    redis: RedisSettings = Field(default_factory=RedisSettings, description="State and results.")
    window: WindowSettings = Field(default_factory=WindowSettings, description="Event time.")
    ingest: IngestSettings = Field(default_factory=IngestSettings, description="Reading.")
    forecast: ForecastSettings = Field(
        default_factory=ForecastSettings, description="The rate to plan for."
    )
    replan: ReplanSettings = Field(default_factory=ReplanSettings, description="Planning.")
    worker: WorkerSettings = Field(default_factory=WorkerSettings, description="Process.")
    compressor: CompressorSettings = Field(
        default_factory=CompressorSettings, description="Compressing prompts."
    )
    profiles: Path | None = Field(None, description="TOML file with engine profiles of your own.")
    fleet: FleetSettings = Field(default_factory=FleetSettings, description="Every fleet's base.")
    fleets: _Fleets = Field(default_factory=dict)

    @field_validator("fleets")
    @classmethod
    def _overrides_are_valid(cls, fleets: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, overrides in fleets.items():
            try:
                FleetSettings(**overrides)
            except ValidationError as error:
                raise ValueError(f"fleets.{name}.{_first_problem(error)}") from error
        return fleets

    def for_fleet(self, name: str) -> FleetSettings:
        """Return the settings of the fleet `name`: the base with its own overrides."""
        overrides = self.fleets.get(name)
        if not overrides:
            return self.fleet
        own = FleetSettings(**overrides).model_dump(include=set(overrides))
        base = self.fleet.model_dump()
        for key, value in own.items():  # figures by GPU add to the base's, as in every source
            base[key] = {**base[key], **value} if isinstance(value, dict) else value
        return FleetSettings(**base)

    def path_of(self, name: str | None) -> str:
        """Return where the settings of a fleet are, as an error names it."""
        return f"fleets.{name}" if name in self.fleets else "fleet"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: arguments, environment, file."""
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def load_settings(path: Path | None = None, **overrides: Any) -> Settings:
    """Read the settings from the environment and, where given, a YAML file.

    `overrides` are sections by name (`kafka={"topic": …}`) and win over both.
    A wrong value raises ConfigError with the key's path.
    """
    if path is not None and not path.is_file():
        raise ConfigError(f"there is no configuration file {path}")

    class _FromFile(Settings):
        model_config = SettingsConfigDict(yaml_file=path)

    try:
        return _FromFile(**overrides)
    except ValidationError as error:
        source = _source(error.errors()[0]["loc"], path, overrides)
        raise ConfigError(f"{source}{_first_problem(error)}") from error
    except SettingsError as error:
        raise ConfigError(_variable_problem(error)) from error
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from error
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: not a YAML mapping of settings: {error}") from error


def setting_paths(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Yield the path of every section and setting: `kafka`, `kafka.topic`."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_paths(field.annotation, f"{prefix}{name}.")


def _source(at: Sequence[int | str], path: Path | None, overrides: Mapping[str, Any]) -> str:
    """Where the setting at this place came from; nothing of options, which users have before them.

    Sources are merged key by key, and the first that has the key, or all above it, has its say.
    """
    given: Any = overrides
    for part in at:
        if not isinstance(given, Mapping) or part not in given:
            break
        given = given[part]
    else:
        return ""
    for length in range(len(at), 0, -1):
        if variable := _variable("__".join(map(str, at[:length]))):
            return f"{variable}: "
    return f"{path}: " if path else ""


def _variable(name: str) -> str | None:
    """Return the variable for a setting as it is spelt in the environment, if it is there."""
    wanted = f"FLEETOPT_{name}".upper()
    return next((variable for variable in os.environ if variable.upper() == wanted), None)


def _variable_problem(error: SettingsError) -> str:
    """Say what is wrong with a variable that stands for a whole section and is no JSON."""
    named = re.search(r'field "(\w+)"', str(error))
    section = named[1] if named else ""
    variable = _variable(section)
    if variable is None:
        return str(error)
    each = f"{variable}__CHAT__PROFILE" if section == "fleets" else f"{variable}__…"
    return (
        f"{variable} is {os.environ[variable]!r}; expected a JSON object, or a variable for each "
        f"of its settings: {each}"
    )


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    got = problem["input"]
    if problem["type"] == "extra_forbidden":
        return f"{where}: no such setting; `fleetopt config show` lists all"
    if problem["type"] in ("dict_type", "model_type", "model_attributes_type"):
        message = "expected settings by name"
    shown = f", got {got!r}" if isinstance(got, str | int | float | bool) else ""
    if message.startswith(f"{where}."):  # a fleet's setting, which says its own path
        return f"{message}{shown}"
    return f"{where}: {message}{shown}" if where else message
