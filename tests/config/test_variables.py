"""Misspelt variables are told apart from settings, and from what others set."""

import pytest

from fleetopt.config.settings import setting_paths
from fleetopt.config.variables import unknown_variables


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("FLEETOPT_FLEET_PROFILE", "did you mean FLEETOPT_FLEET__PROFILE?"),
        ("FLEETOPT_FLEETT__PROFILE", "did you mean FLEETOPT_FLEET__PROFILE?"),
        ("FLEETOPT_WINDOW_SLICE_S", "did you mean FLEETOPT_WINDOW__SLICE_S?"),
        ("FLEETOPT_WORKER_WEB_PORT", "did you mean FLEETOPT_WORKER__WEB_PORT?"),
        ("fleetopt_profile", "did you mean FLEETOPT_PROFILES?"),
        ("FLEETOPT_NOPE", "`fleetopt config show` lists all settings"),
    ],
)
def test_a_misspelt_variable_is_named_with_what_was_meant(name: str, hint: str) -> None:
    remarks = list(unknown_variables([name, "PATH"], setting_paths()))
    assert remarks == [f"{name} is no setting and plays no part; {hint}"]


@pytest.mark.parametrize(
    "name",
    [
        "FLEETOPT_KAFKA__TOPIC",
        "fleetopt_kafka__topic",
        "FLEETOPT_FLEET",
        "FLEETOPT_FLEETS__chat__PROFILE",
        "FLEETOPT_PROFILES",
        "FLEETOPT_REDIS_URL",
        "FLEETOPT_PORT_6379_TCP_ADDR",
        "FLEETOPT_REDIS_SERVICE_HOST",
        "FLEETOPT_REDIS_SERVICE_PORT_TCP",
        "HOME",
    ],
)
def test_settings_and_what_others_set_need_no_remark(name: str) -> None:
    assert not list(unknown_variables([name], setting_paths()))
