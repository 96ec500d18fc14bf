"""What can't be planned with gets one line: its path, what it is, and what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

GOOD = "[[1000, 0.5], [5000, 1.0]]"
PROFILE = """
[profiles.mine]
gpu = "h100"
model = "m"
gpus_per_replica = 1
base_iteration_s = 0.01
per_context_token_s = 1e-8
kv_capacity_tokens = 100_000
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a good CDF."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdf.json").write_text(GOOD)
    return tmp_path


def refused(cli: Cli, *order: str) -> tuple[int, str]:
    """The exit code, and the one line on standard error."""
    done = cli(*order)
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    return done.code, done.err.removeprefix("error: ").strip()


RATED = ("plan", "cdf.json", "--arrival-rate", "10", "--output-share", "0.2")


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ("[[1000, 0.5], [500, 1]]", "$[1][0] is 500, after 1000; expected rising tokens"),
        ("[[1000, 0.5], [5000, 1.5]]", "$[1][1] is 1.5; expected a fraction from 0 to 1"),
        ("[[1000, -0.5], [5000, 1]]", "$[0][1] is -0.5; expected a fraction from 0 to 1"),
        ("[[1000, 0.5], [5000, NaN]]", "$[1][1] is nan; expected a fraction from 0 to 1"),
        ('{"cdf": [[NaN, 1]]}', "$.cdf[0][0] is nan; expected tokens above 0"),
        ("[[1000, 0.9], [5000, 0.5]]", "$[1][1] is 0.5, after 0.9; a cumulative fraction never"),
        ("[[1000, 0.5]]", "$[0][1] is 0.5; expected the last fraction to be 1"),
    ],
)
def test_a_cdf_is_refused_by_place(cli: Cli, here: Path, points: str, says: str) -> None:
    (here / "cdf.json").write_text(points)
    code, line = refused(cli, *RATED)
    assert code == 1
    assert line.startswith(f"cdf.json: {says}")


WRONG = [
    ("--arrival-rate", "0", "--arrival-rate 0.0: expected a number above 0"),
    ("--arrival-rate", "-1", "--arrival-rate -1.0: expected a number above 0"),
    ("--arrival-rate", "nan", "--arrival-rate nan: expected a number"),
    ("--boundary", "65536", "boundary_tokens is 65536, above long_context_tokens=32768; expected"),
    ("--boundary", "5000", "boundary_tokens is 5000, not a bin edge; the nearest are 4870 or 5311"),
    ("--boundary", "-1", "boundary_tokens is -1, not a bin edge; the nearest is 64"),
    ("--slo-ttft-p99", "0s", "slo_ttft_p99 is zero; expected a time such as 500ms"),
    ("--slo-ttft-p99", "nan", "slo_ttft_p99 is 'nan'; expected a time such as 500ms"),
    ("--slo-ttft-p99", "-1s", "slo_ttft_p99 is '-1s'; expected a time such as 500ms"),
    ("--slo-ttft-p99", "500", "slo_ttft_p99 is '500'; expected a time such as 500ms"),
    ("--slo-e2e-p99", "soon", "fleet.slo_e2e_p99 is 'soon'; expected a time such as 30s"),
    ("--slo-itl-p99", "0ms", "fleet.slo_itl_p99 is '0ms'; expected a time above 0 such as 50ms"),
    ("--slo-itl-p99", "9s+1ms/token", "fleet.slo_itl_p99 is '9s+1ms/token'; expected a time"),
    ("--profile", "h1000/qwen3-32b/tp2", "profile: there is no engine profile 'h1000/qwen3-32b"),
    ("--compressible-share", "1.5", "compressible_share: Input should be less than or equal to 1"),
    ("--compressible-share", "nan", "compressible_share: Input should be a finite number, got nan"),
    ("--max-utilization", "1.5", "max_utilization: Input should be less than 1, got 1.5"),
    ("--node-availability", "0", "node_availability: Input should be greater than or equal to 0.0"),
    ("--min-replicas", "0", "min_replicas: Input should be greater than or equal to 1, got 0"),
    ("--max-replicas", "0", "max_replicas: Input should be greater than or equal to 1, got 0"),
    ("--gamma-max", "0.5", "gamma_max"),
    ("--long-context", "10", "long_context_tokens: Input should be greater than or equal to 128"),
    ("--output-share", "1.5", "--output-share': 1.5; expected a number from 0 to 1"),
    ("--output-share", "nan", "--output-share': nan; expected a number from 0 to 1"),
    ("--cached-share", "-0.1", "--cached-share': -0.1; expected a number from 0 to 1"),
]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["plan", "whatif"])
@pytest.mark.parametrize(("option", "value", "says"), WRONG)
def test_an_option_is_refused_by_name(
    cli: Cli, command: str, option: str, value: str, says: str
) -> None:
    given = {"--arrival-rate": "10", "--output-share": "0.2"} | {option: value}
    code, line = refused(
        cli, command, "cdf.json", *(word for pair in given.items() for word in pair)
    )
    assert code == 2
    assert says in line


@pytest.mark.usefixtures("here")
def test_a_minimum_above_the_maximum_is_refused_with_both(cli: Cli) -> None:
    limits = ("--min-replicas", "5", "--max-replicas", "3")
    assert refused(cli, *RATED, *limits) == (
        2,
        "fleet.max_replicas is 3; expected ≥ min_replicas=5",
    )
    code, line = refused(cli, *RATED, *limits, "--fleet", "chat")
    assert (code, line) == (2, "fleets.chat.max_replicas is 3; expected ≥ min_replicas=5")


@pytest.mark.usefixtures("here")
def test_a_target_below_one_prefill_chunk_is_infeasible_and_the_reachable_one_is_named(
    cli: Cli,
) -> None:
    code, line = refused(cli, *RATED, "--slo-ttft-p99", "1ms")
    assert code == 3
    assert "no fleet can meet slo_ttft_p99=1ms: prefill alone takes longer; the tightest" in line
    tightest = line.rpartition(" ")[2]
    assert cli(*RATED, "--slo-ttft-p99", tightest).code == 0


SETTINGS = [
    ("max_utilization", "1.5", "less than 1"),
    ("max_utilization", ".nan", "finite number, got nan"),
    ("compressible_share", "-1", "got -1"),
    ("min_replicas", "0", "got 0"),
    ("long_context_tokens", "many", "valid integer"),
    ("gamma_max", "99", "got 99"),
    ("preemption_probability", "0.5", "less than 0.5"),
]


@pytest.mark.parametrize("where", ["fleet", "fleets.chat"])
@pytest.mark.parametrize(("key", "value", "says"), SETTINGS)
def test_a_setting_in_a_file_is_refused_by_file_and_path(
    cli: Cli, here: Path, where: str, key: str, value: str, says: str
) -> None:
    section = f"{{{key}: {value}}}"
    text = f"fleet: {section}" if where == "fleet" else f"fleets: {{chat: {section}}}"
    (here / "f.yaml").write_text(text)
    for order in (("config", "check", "f.yaml"), (*RATED, "--config", "f.yaml")):
        code, line = refused(cli, *order)
        assert code == 2
        assert line.startswith(f"f.yaml: {where}.{key}: ")
        assert says in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "fleet: {profile: h1000/m/tp1}",
            "fleet.profile: there is no engine profile 'h1000/m/tp1'",
        ),
        (
            "fleet: {short_profile: h1000}",
            "fleet.short_profile: there is no engine profile 'h1000'",
        ),
        ("fleet: {slo_ttft_p99: 0s}", "fleet.slo_ttft_p99 is zero; expected a time"),
        (
            "fleet: {min_replicas: 5, max_replicas: 3}",
            "fleet.max_replicas is 3; expected ≥ min_rep",
        ),
        (
            "fleet: {prices_usd_per_gpu_h: {h1000: 1}}",
            "fleet.prices_usd_per_gpu_h.h1000: no engine",
        ),
        ("fleet: 3", "f.yaml: fleet: expected settings by name, got 3"),
        ("3", "f.yaml: not a YAML mapping of settings"),
    ],
)
def test_what_settings_say_together_is_refused_by_path(
    cli: Cli, here: Path, text: str, says: str
) -> None:
    (here / "f.yaml").write_text(text)
    for order in (("config", "check", "f.yaml"), (*RATED, "--config", "f.yaml")):
        code, line = refused(cli, *order)
        assert code == 2
        assert line.startswith(says)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("FLEETOPT_FLEET", "x", "FLEETOPT_FLEET is 'x'; expected a JSON object, or a variable"),
        ("FLEETOPT_FLEET__MIN_REPLICAS", "0", "FLEETOPT_FLEET__MIN_REPLICAS: fleet.min_replicas: "),
        ("FLEETOPT_FLEET__GAMMA_MAX", "nan", "FLEETOPT_FLEET__GAMMA_MAX: fleet.gamma_max: "),
        ("FLEETOPT_FLEET__PROFILE", "nope", "fleet.profile: there is no engine profile 'nope'"),
    ],
)
def test_a_variable_is_refused_by_its_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    for order in (("config", "check"), RATED):
        code, line = refused(cli, *order)
        assert code == 2
        assert line.startswith(says)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("= 0.01", "= nan", "mine.base_iteration_s is nan; expected a finite number > 0"),
        ("= 1e-8", "= -1e-8", "mine.per_context_token_s is -1e-08; expected a finite number ≥ 0"),
        ("= 100_000", "= 0", "mine.kv_capacity_tokens is 0; expected a whole number ≥ 1"),
        ("= 100_000", "= 1.5", "p.toml: profiles.mine.kv_capacity_tokens is 1.5; expected `int`"),
        ('"h100"', '"h1000"', "mine has no price_usd_per_gpu_h and [gpus.h1000] has none; set one"),
        (
            "base_iteration_s = 0.01",
            "",
            "p.toml: profiles.mine: object missing required field `bas",
        ),
        ("[profiles.mine]", "[profiles.mine", "p.toml: "),
        (
            "[profiles.mine]",
            "[gpus.h100]\nmax_power_w = 0\n[profiles.mine]",
            "p.toml: gpus.h100.max",
        ),
    ],
)
def test_a_profile_is_refused_by_name_and_field(
    cli: Cli, here: Path, old: str, new: str, says: str
) -> None:
    assert old in PROFILE
    (here / "p.toml").write_text(PROFILE.replace(old, new))
    code, line = refused(cli, *RATED, "--profiles", "p.toml", "--profile", "mine")
    assert code == 2
    assert line.startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "hdr.csv: the input is empty: expected a CSV with the header"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "hdr.csv holds no requests"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n1700000000,nan,10\n",
            "hdr.csv: none of 1 rows is usable; line 2: Expected `int`, got `str` - at ContextTok",
        ),
    ],
)
def test_a_trace_without_a_usable_row_is_refused(
    cli: Cli, here: Path, text: str, says: str
) -> None:
    (here / "hdr.csv").write_text(text)
    code, line = refused(cli, "plan", "hdr.csv")
    assert code == 1
    assert line.startswith(says)
