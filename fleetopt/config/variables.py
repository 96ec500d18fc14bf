"""Environment variables that look like settings and are none: a misspelt one changes nothing."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

PREFIX: Final = "FLEETOPT_"
NOT_SETTINGS: Final = frozenset(
    {"FLEETOPT_REDIS_URL", "FLEETOPT_CHAOS", "FLEETOPT_REQUIRE_APACHE_KAFKA"}
)
"""Read elsewhere: by `up` and `demo`, and by tests."""

_SERVICE_LINK: Final = re.compile(r"_(SERVICE_HOST|(SERVICE_)?PORT(_\w+)?)$")
"""What Kubernetes sets in every pod beside a service with a name like ours."""


def unknown_variables(names: Iterable[str], settings: Iterable[str]) -> Iterator[str]:
    """Say of each variable that is no setting what it may have been meant to be.

    Parameters
    ----------
    names : iterable of str
        Variables of the environment.
    settings : iterable of str
        Paths of all settings and sections: `kafka.topic`, `fleets`.

    Examples
    --------
    >>> list(unknown_variables(["FLEETOPT_KAFKA_TOPIC"], ["kafka", "kafka.topic"]))
    ['FLEETOPT_KAFKA_TOPIC is no setting and plays no part; did you mean FLEETOPT_KAFKA__TOPIC?']
    """
    known = {f"{PREFIX}{path.replace('.', '__')}".upper() for path in settings}
    sections = {name.split("__")[0] for name in known}
    for name in sorted(names):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper in NOT_SETTINGS:
            continue
        if upper.split("__")[0] in sections:  # what is wrong after that is refused with its value
            continue
        one_underscore = [each for each in known if each.replace("__", "_") == upper]
        if not one_underscore and _SERVICE_LINK.search(upper):
            continue
        near = one_underscore or get_close_matches(upper, known, n=1, cutoff=0.8)
        hint = f"did you mean {near[0]}?" if near else "`fleetopt config show` lists all settings"
        yield f"{name} is no setting and plays no part; {hint}"
