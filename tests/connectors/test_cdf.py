"""CDF files: read as they are, or refused with the place that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetopt.connectors.cdf import read_cdf
from fleetopt.errors import InputError


def read(text: str) -> list[tuple[float, float]]:
    return read_cdf([text.encode()], "x.json")


def test_bare_and_wrapped_points_are_the_same() -> None:
    points = [[64, 0.1], [128, 0.1], [256, 1.0]]
    expected = [(64.0, 0.1), (128.0, 0.1), (256.0, 1.0)]
    assert read(json.dumps(points)) == read(json.dumps({"cdf": points, "by": "me"})) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[64, 0.5], [32, 1]]", r"x\.json: \$\[1\]\[0\] is 32, after 64; .*sort the points"),
        ("[[64, 0.5], [64, 1]]", r"\$\[1\]\[0\] is 64, after 64"),
        ("[[64, 0.5], [128, 0.4]]", r"\$\[1\]\[1\] is 0\.4, after 0\.5; .*never falls"),
        ("[[64, 0.5], [128, 1.5]]", r"\$\[1\]\[1\] is 1\.5; expected a fraction from 0 to 1"),
        ("[[64, -0.5], [128, 1]]", r"\$\[0\]\[1\] is -0\.5"),
        ("[[0, 0.5], [128, 1]]", r"\$\[0\]\[0\] is 0; expected tokens above 0"),
        ("[[64, 0.5], [128, 0.9]]", r"\$\[1\]\[1\] is 0\.9; expected the last fraction to be 1"),
        ('{"cdf": [[64, "1"]]}', r"\$\.cdf\[0\] is not a pair of numbers"),
        ("[[64, true]]", r"\$\[0\] is not a pair of numbers"),
        ("[[64, null]]", r"\$\[0\] is not a pair of numbers"),
        ("[64, 1]", r"\$\[0\] is not a pair"),
        ("[]", r"\$ is empty"),
        ('{"cdf": 3}', r"\$\.cdf is not a list"),
        ("{}", r"\$\.cdf is not a list"),
        ("[[64, NaN]]", r"\$\[0\]\[1\] is nan; expected a fraction from 0 to 1"),
        ("[[NaN, 1]]", r"\$\[0\]\[0\] is nan; expected tokens above 0"),
        ("[[64, 0.5], [1e400, 1]]", r"\$\[1\]\[0\] is inf; expected tokens above 0, up to"),
        ("[[1" + "0" * 5_000 + ", 1]]", r"\$\[0\]\[0\] is inf"),
        ("[[64, one]]", r"not valid JSON"),
        ("[[64, 1]", r"not valid JSON"),
    ],
)
def test_each_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(text)


@pytest.mark.parametrize("name", ["azure_cdf.json", "agent_heavy_cdf.json"])
def test_the_reference_cdfs_are_read(shared_data: Path, name: str) -> None:
    path = shared_data / "cdf" / name
    points = read_cdf([path.read_bytes()], str(path))
    assert points[-1] == (65_536.0, 1.0)
    assert points[0][0] == 64.0


def test_a_sum_that_was_rounded_up_is_one() -> None:
    text = b"[[100, 0.5], [200, 1.0000000000000002]]"
    assert read_cdf([text], "c") == [(100.0, 0.5), (200.0, 1.0)]
