"""A compressor's settings as its processes take them."""

from __future__ import annotations

from fleetopt.compressor.options import CompressOptions
from fleetopt.config.settings import CompressorSettings, ModelSettings
from fleetopt.connectors.compression_process import ModelCounter, Setup, make_counter
from fleetopt.errors import ConfigError


def pool_setup(settings: CompressorSettings) -> Setup:
    """Return what each process is given at its start."""
    return Setup(
        models={name: _counter(model) for name, model in settings.models.items()},
        options=CompressOptions(
            min_kept_share=settings.min_kept_share,
            keep_cached_prefix=settings.keep_cached_prefix,
        ),
        limit_s=settings.job_limit_s,
    )


def check_models(settings: CompressorSettings) -> None:
    """Raise ConfigError for a model that nothing here can count, with the setting's path."""
    for name, model in settings.models.items():
        try:
            make_counter(name, _counter(model))
        except ConfigError as error:
            raise ConfigError(f"compressor.models.{name}: {error}") from error


def _counter(model: ModelSettings) -> ModelCounter:
    key = model.api_key
    return ModelCounter(
        tokenizer=model.tokenizer,
        endpoint=model.endpoint,
        api_key=None if key is None else key.get_secret_value(),
        timeout_s=model.timeout_s,
    )
