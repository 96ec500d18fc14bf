"""CDFs of total tokens as JSON: `[[tokens, fraction], …]`, bare or under the key `cdf`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from fleetopt.connectors.columns import MAX_TOKENS
from fleetopt.errors import InputError

_MAX_BYTES: Final = 16 << 20
_SUM_ROUNDING: Final = 1e-9  # of fractions that were added up
_END_TOLERANCE: Final = 1e-6


def read_cdf(lines: Iterable[bytes], source: str) -> list[tuple[float, float]]:
    """Return the CDF's points (tokens, cumulative fraction), rising and ending at 1.

    InputError names the first place that is wrong, as a JSON path.
    """
    points = _points(_document(lines, source), source)
    previous_tokens, previous_fraction = 0.0, 0.0
    for index, (where, pair) in enumerate(points):
        tokens, fraction = _pair(pair, where, source)
        if not 0 < tokens <= MAX_TOKENS:
            raise InputError(
                f"{source}: {where}[0] is {tokens:g}; expected tokens above 0, up to {MAX_TOKENS}"
            )
        if not 0 <= fraction <= 1 + _SUM_ROUNDING:
            raise InputError(f"{source}: {where}[1] is {fraction}; expected a fraction from 0 to 1")
        if index and tokens <= previous_tokens:
            raise InputError(
                f"{source}: {where}[0] is {tokens:g}, after {previous_tokens:g}; "
                "expected rising tokens: sort the points"
            )
        if fraction < previous_fraction:
            raise InputError(
                f"{source}: {where}[1] is {fraction:g}, after {previous_fraction:g}; "
                "a cumulative fraction never falls"
            )
        previous_tokens, previous_fraction = tokens, fraction
    if not math.isclose(previous_fraction, 1.0, abs_tol=_END_TOLERANCE):
        raise InputError(
            f"{source}: {points[-1][0]}[1] is {previous_fraction:g}; expected the last fraction "
            "to be 1: add the longest request's point"
        )
    return [(float(pair[0]), min(float(pair[1]), 1.0)) for _, pair in points]


def _document(lines: Iterable[bytes], source: str) -> Any:
    text = bytearray()
    for line in lines:
        text += line
        if len(text) > _MAX_BYTES:
            raise InputError(f"{source} is larger than {_MAX_BYTES >> 20} MiB: not a CDF")
    try:
        # Python's own reader takes NaN and 1e400 for numbers: they are refused with their place.
        return json.loads(text.decode("utf-8-sig"), parse_int=float)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not valid JSON: {error}") from error


def _points(document: Any, source: str) -> list[tuple[str, Any]]:
    path = "$"
    if isinstance(document, dict):
        document, path = document.get("cdf"), "$.cdf"
    if not isinstance(document, list):
        raise InputError(
            f"{source}: {path} is not a list; expected [[tokens, fraction], …], bare or under `cdf`"
        )
    if not document:
        raise InputError(f"{source}: {path} is empty; expected [[tokens, fraction], …]")
    return [(f"{path}[{index}]", pair) for index, pair in enumerate(document)]


def _pair(pair: Any, where: str, source: str) -> tuple[float, float]:
    if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_number, pair)):
        raise InputError(f"{source}: {where} is not a pair of numbers [tokens, fraction]")
    return float(pair[0]), float(pair[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
