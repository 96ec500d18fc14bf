"""Which counter counts for a model: its engine's, where its address is given, or a bundled one."""

from __future__ import annotations

from fleetopt.compressor.tokens import TokenCounter
from fleetopt.connectors.tokenize_endpoint import EndpointCounter
from fleetopt.connectors.tokenizers import BundledCounter
from fleetopt.errors import ConfigError


def counter_for(
    model: str,
    endpoint: str | None = None,
    *,
    timeout_s: float = 5.0,
    api_key: str | None = None,
) -> TokenCounter:
    """Return what counts this model's tokens exactly.

    Parameters
    ----------
    model : str
        Its name; with an endpoint, as the engine serves it.
    endpoint : str, optional
        The engine's address. Without one, only models whose vocabulary is bundled can be counted:
        that takes microseconds, and the engine milliseconds.
    timeout_s : float
        For one count through the engine.
    api_key : str, optional
        For the engine.

    Raises
    ------
    ConfigError
        If the model is neither bundled nor served at an endpoint, or a package is missing.

    Examples
    --------
    >>> counter_for("qwen3-8b").count("Hello, world!")
    4
    """
    if not model.strip():
        raise ConfigError("the model's name is empty: tokens are counted for one model")
    if endpoint is None:
        return BundledCounter(model)
    return EndpointCounter(model, endpoint, timeout_s=timeout_s, api_key=api_key)
