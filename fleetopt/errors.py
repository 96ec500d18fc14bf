"""The errors that a caller may want to tell apart.

Every message says what is wrong, the value, what is accepted, and what to do next.
An SLO that no fleet can meet is not an error: the planner returns it as a value.
"""


class FleetOptError(Exception):
    """Base of every error that FleetOpt raises on purpose."""


class ConfigError(FleetOptError):
    """A setting is missing, unknown or out of range."""


class InputError(FleetOptError):
    """Data from outside (a file, a record, an argument) can't be used as it stands."""


class DecodeError(InputError):
    """A message is not in a format that FleetOpt reads; `reason` is from a closed set."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ServiceError(FleetOptError):
    """A service that FleetOpt depends on (Kafka, Redis) is absent or refuses the work."""
