"""FleetOpt replans an LLM inference fleet from its live traffic."""

__version__ = "0.1.0"
