"""`fleetopt plan --html` and `--validate`: a page of its own that says what the JSON says."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetopt.cli import main
from tests.cli.conftest import Cli

CHOSEN = ["--arrival-rate", "60", "--slo-ttft-p99", "300ms+0.2ms/token"]
VOID = {"meta", "link", "br", "img", "input", "hr"}
HOSTILE = "\"><script>alert(1)</script>$x_1$&amp;'<b"


@dataclass
class Page(HTMLParser):
    """What a page consists of, and whether its elements are closed in order."""

    text: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    data: list[tuple[Any, str]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "data":
            self.data.append((json.loads(self.elements[-1][1]["value"]), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "data":
            self.data[-1] = (self.data[-1][0], data)
        if "style" not in self.open:
            self.words.append(data)

    @property
    def said(self) -> str:
        """All that a reader sees, white space as one blank."""
        return " ".join("".join(self.words).replace("\N{NO-BREAK SPACE}", " ").split())

    def with_tag(self, *tags: str) -> list[dict[str, str]]:
        """The attributes of these elements."""
        return [attributes for tag, attributes in self.elements if tag in tags]


Order = Callable[..., tuple[dict[str, Any], Page]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traffic") / "t.csv"
    rows = "".join(
        f"{1_700_000_000 + at / 20},{300 + at * 7919 % 3_000 + (at % 9 == 0) * 9_000},"
        f"{50 + at % 200}\n"
        for at in range(3_000)
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows + "never,1,1\n")
    return path


@pytest.fixture
def trace(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the trace that a test may move or change."""
    return Path(shutil.copy(recorded, tmp_path))


@pytest.fixture(scope="module")
def validated(recorded: Path) -> tuple[dict[str, Any], Page]:
    """The JSON and the page of one simulated plan of two pools, for all tests that look at it."""
    file, printed = recorded.with_name("r.html"), io.StringIO()
    with redirect_stdout(printed):
        code = main(["plan", str(recorded), *CHOSEN, "--validate", "--html", str(file),
                     "--output", "json", "--explain"])  # fmt: skip
    assert code == 0
    return json.loads(printed.getvalue()), Page(file.read_text(encoding="utf-8"))


@pytest.fixture
def cdf(tmp_path: Path) -> Path:
    path = tmp_path / "cdf.json"
    path.write_text("[[512, 0.4], [2048, 0.9], [32768, 1.0]]")
    return path


@pytest.fixture
def order(cli: Cli, tmp_path: Path) -> Order:
    """Plan once, and return the JSON and the page of the same run."""

    def run(*args: object, code: int = 0) -> tuple[dict[str, Any], Page]:
        file = tmp_path / "r.html"
        done = cli("plan", *args, "--html", file, "--output", "json", "--explain")
        assert done.code == code, done.err
        return json.loads(done.out), Page(file.read_text(encoding="utf-8"))

    return run


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def test_every_number_is_one_of_the_json(validated: tuple[dict[str, Any], Page]) -> None:
    result, page = validated
    from fleetopt.config.profiles import load_profile
    from fleetopt.planner.target import TTFT_VIOLATIONS_MAX

    engine = load_profile(result["request"]["short_profile"])
    premises = {0.3, TTFT_VIOLATIONS_MAX, *numbers(msgspec.to_builtins(engine))}
    known = {*numbers(result), *premises}
    assert len(page.data) > 120
    assert [value for value, _ in page.data if value not in known] == []
    shown = {value for value, _ in page.data}
    for pool in result["plan"]["pools"].values():
        for name in ("replicas", "gpus", "utilization", "slot_occupancy", "ttft_p99_s"):
            assert pool[name] in shown
        assert page.said.count(pool["context_length_range"]) == 1
        for flag in pool["engine_flags"]:
            assert flag in page.said
    for one in result["baselines"]:
        assert {one["cost_usd_per_h"], one["gpus"], one["saving_ratio"]} <= shown
    why = result["explanation"]
    assert why["ten_ms_of_slo_per_h"] in shown
    for next_one in (why["lower"], why["higher"]):
        assert next_one["change_per_h_per_token"] in shown
    for one in why["sensitivities"]:
        assert {one["value"], one["cost_per_h"]} <= shown
    for pool in result["validation"]["pools"].values():
        assert {pool["ttft"]["p99_s"], pool["utilization"], pool["slot_occupancy"]} <= shown
        assert pool["predicted"]["ttft_p99_s"] in shown
    arrivals = result["traffic"]["measured_arrivals"]
    assert {arrivals["mean_per_s"], arrivals["peak_per_s"], arrivals["planned_per_s"]} <= shown
    assert "1 bad rows were left out" in page.said
    assert engine.source in page.said


def test_what_is_shown_is_the_value_rounded(validated: tuple[dict[str, Any], Page]) -> None:
    _, page = validated
    for value, text in page.data:
        plain = text.replace("−", "-").replace(",", "")
        number, unit = re.fullmatch(r"([-+0-9.e]+) ?(%|ms|s|kW|W|)", plain).groups()  # type: ignore[union-attr]
        scale = {"%": 100, "ms": 1000, "kW": 0.001}.get(unit, 1)
        digits = len(number.partition(".")[2]) if "e" not in number else 12
        near = max(0.51 * 10.0**-digits, abs(value * scale) * 6e-4)
        assert float(number) == pytest.approx(value * scale, abs=near), text


@pytest.mark.parametrize("kind", ["trace", "cdf", "one pool", "infeasible"])
def test_the_page_needs_nothing_else(trace: Path, cdf: Path, order: Order, kind: str) -> None:
    orders: dict[str, tuple[object, ...]] = {
        "trace": (trace, *CHOSEN),
        "cdf": (cdf, "--arrival-rate", 100, "--slo-ttft-p99", "4s", "--output-share", "0.1"),
        "one pool": (cdf, "--arrival-rate", 5, "--slo-ttft-p99", "9s", "--boundary", 32768),
        "infeasible": (trace, "--slo-ttft-p99", "10ms"),
    }
    _, page = order(*orders[kind], code=3 if kind == "infeasible" else 0)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "image", "base"}
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            if name in attributes:
                assert attributes[name].startswith("#"), f"<{tag} {name}={attributes[name]}>"
    assert "://" not in page.text
    assert not re.search(r"@import|url\((?!#)", page.text)
    policy = [meta for meta in page.with_tag("meta") if "http-equiv" in meta]
    assert policy[0]["content"].startswith("default-src 'none'")


def test_ids_are_unique_and_what_is_referred_to_is_there(
    validated: tuple[dict[str, Any], Page],
) -> None:
    _, page = validated
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) > 20
    referred = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page.text))
    for attributes in page.with_tag("svg"):
        referred |= set(attributes["aria-labelledby"].split())
    assert referred <= set(ids)
    assert len(referred) > 10


def test_every_chart_says_in_words_what_it_shows(validated: tuple[dict[str, Any], Page]) -> None:
    result, page = validated
    charts = page.with_tag("svg")
    assert len(charts) == 5
    assert all(chart["role"] == "img" for chart in charts)
    assert len(page.with_tag("figcaption")) == 5
    assert f"B = {result['plan']['boundary_tokens']:,}" in page.said
    flat = "Flat:" if result["explanation"]["is_flat"] else "Sharp:"
    assert flat in page.said
    for unit in ("USD/h", "tokens (log scale)", "share at most so long, %", "P99 TTFT, s"):
        assert unit in page.said


def test_colours_follow_the_page_in_light_and_dark(validated: tuple[dict[str, Any], Page]) -> None:
    _, page = validated
    style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert style
    light, _, dark = style[1].partition("@media screen and (prefers-color-scheme: dark)")
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", page.text))
    assert len(used) > 12
    for name in used:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark
    drawings = "".join(re.findall(r"<svg.*?</svg>", page.text, re.DOTALL))
    assert len(drawings) > 10_000
    assert not re.search(r"#[0-9a-f]{6}\b", drawings), "a colour that does not change with the page"


def test_boundaries_without_a_fleet_are_marked(cdf: Path, order: Order) -> None:
    result, page = order(cdf, "--arrival-rate", 40, "--slo-ttft-p99", "2.8s",
                         "--output-share", "0.05")  # fmt: skip
    none = result["explanation"]["infeasible_boundaries_tokens"]
    assert none
    assert f"{len(none)} boundaries have no fleet that meets the target (crosses)" in page.said
    assert page.said.count("no fleet") >= 3


def test_what_is_minimised_is_what_is_compared(trace: Path, order: Order) -> None:
    result, page = order(trace, *CHOSEN, "--minimise", "carbon", "--carbon-intensity", "350")
    plan = result["plan"]
    shown = {value for value, _ in page.data}
    assert {plan["carbon_kg_per_h"], plan["power_w"], plan["cost_usd_per_h"]} <= shown
    assert {one["minimised_per_h"] for one in result["baselines"]} <= shown
    assert page.said.count("kgCO2e/h") > 10
    assert f"≤ {plan['power_w'] / 1000:,.2f} kW" in page.said


def test_a_cached_share_holds_in_plan_and_simulation(trace: Path, order: Order) -> None:
    result, page = order(trace, *CHOSEN, "--cached-share", "0.5", "--validate")
    assert result["traffic"]["cached_prompt_share"] == pytest.approx(0.5, abs=0.01)
    assert "Prefix cache50.0 % of prompt tokens" in page.said
    assert "cached prompt tokens" in page.said
    for pool in result["validation"]["pools"].values():
        predicted = pool["predicted"]["utilization"]
        assert pool["utilization"] == pytest.approx(predicted, rel=0.1)


def test_without_validation_the_page_says_how_to_get_one(trace: Path, order: Order) -> None:
    result, page = order(trace, "--slo-ttft-p99", "2s")
    assert "validation" not in result
    assert "With --validate it is run request by request" in page.said


def test_further_targets_are_on_the_page(trace: Path, order: Order) -> None:
    result, page = order(trace, "--slo-ttft-p99", "2s", "--slo-itl-p99", "60ms",
                         "--slo-e2e-p99", "5s+40ms/token", "--validate")  # fmt: skip
    assert "end to end 5s+40ms/token, between tokens 60" in page.said
    assert page.said.count("P99 between tokens") >= 3
    seen = result["validation"]["pools"]["short"]
    assert seen["predicted"]["itl_p99_s"] <= 0.06 * 1.001
    assert seen["inter_token"]["p99_s"] <= 0.06 * 1.1


def test_one_pool_is_a_page_of_one(cdf: Path, order: Order) -> None:
    result, page = order(cdf, "--arrival-rate", 5, "--slo-ttft-p99", "9s", "--boundary", 32768,
                         "--validate")  # fmt: skip
    assert result["plan"]["pools"]["long"] is None
    assert f"One pool of {result['plan']['short_replicas']} replicas" in page.said
    assert "output share 0.2" in page.said
    assert list(result["validation"]["pools"]) == ["short"]


def test_one_replica_is_not_said_to_be_several(trace: Path, order: Order) -> None:
    least = ("--arrival-rate", 0.01, "--slo-ttft-p99", "60s", "--boundary", 32768)
    result, page = order(trace, *least)
    assert result["plan"]["short_replicas"] == 1
    assert "One pool of 1 replica " in page.said


def test_the_page_says_where_the_rate_comes_from(trace: Path, order: Order) -> None:
    result, page = order(trace, "--slo-ttft-p99", "9s", "--boundary", 32768)
    forecast = result["traffic"]["measured_arrivals"]["forecast"]
    assert forecast["method"] == "recent_peak"
    assert "by the recent peak (too short for a forecast)" in page.said


def test_an_infeasible_plan_is_a_page_that_says_why(trace: Path, order: Order) -> None:
    result, page = order(trace, "--slo-ttft-p99", "10ms", "--validate", code=3)
    assert result["infeasible"]["message"].partition(" ")[2] in page.said
    assert result["infeasible"]["tightest_slo_ttft_p99"] in page.said
    assert len(page.with_tag("svg")) == 1


def test_hostile_names_stay_words(trace: Path, tmp_path: Path, order: Order) -> None:
    name = HOSTILE.replace("/", "∕")  # a file's name has no slash
    hostile = trace.rename(tmp_path / name)
    from fleetopt.config.profiles import load_profile

    engine = load_profile("h100/qwen3-32b/tp2")
    profiles = tmp_path / "mine.toml"
    profiles.write_text(
        f"[profiles.{json.dumps(HOSTILE)}]\n"
        f"gpu = {json.dumps(HOSTILE)}\nmodel = {json.dumps(HOSTILE)}\n"
        f"source = {json.dumps(HOSTILE)}\ngpus_per_replica = 2\n"
        f"base_iteration_s = {engine.base_iteration_s}\n"
        f"per_context_token_s = {engine.per_context_token_s}\nprice_usd_per_gpu_h = 3\n"
        f"prefill_chunk_tokens = 2048\nkv_capacity_tokens = {engine.kv_capacity_tokens}\n"
    )
    _, page = order(hostile, "--profiles", profiles, "--profile", HOSTILE, "--slo-ttft-p99", "5s",
                    "--validate")  # fmt: skip
    assert "script" not in {tag for tag, _ in page.elements}
    assert "b" not in {tag for tag, _ in page.elements}
    plain = " ".join(HOSTILE.split())
    assert page.said.count(plain) >= 4
    assert " ".join(name.split()) in page.said


def test_the_page_replaces_a_file_whole_and_keeps_its_mode(
    cli: Cli, trace: Path, tmp_path: Path
) -> None:
    file = tmp_path / "r.html"
    file.write_text("old")
    file.chmod(0o640)
    link = tmp_path / "link.html"
    link.symlink_to(file)
    done = cli("plan", trace, "--slo-ttft-p99", "2s", "--html", link)
    assert done.code == 0
    assert done.err == f"note: wrote {link}\n"
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8").endswith("</html>")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"r.html", "link.html", "t.csv"}


def test_a_pipe_takes_the_page(shell: Cli, trace: Path) -> None:
    done = shell("plan", trace, "--slo-ttft-p99", "2s", "--html", "/dev/stdout")
    assert done.code == 0
    assert "</html>" in done.out
    assert "compared with" in done.out


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (".", "is a folder; name a file in it"),
        ("no-such-folder/r.html", "there is no folder no-such-folder"),
    ],
)
def test_a_page_with_no_place_is_refused_before_planning(
    cli: Cli, trace: Path, file: str, says: str
) -> None:
    done = cli("plan", trace, "--slo-ttft-p99", "2s", "--html", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert says in done.err


def test_a_file_that_cannot_be_written_is_one_line(cli: Cli, trace: Path) -> None:
    done = cli("plan", trace, "--slo-ttft-p99", "2s", "--html", "/proc/r.html")
    assert done.code == 2
    assert done.err.startswith("error: can't write /proc/r.html: ")
    assert done.err.count("\n") == 1


def test_what_is_read_is_never_overwritten(cli: Cli, trace: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.html"
    link.symlink_to(trace)
    for page in (trace, link):
        before = trace.read_bytes()
        done = cli("plan", trace, "--slo-ttft-p99", "2s", "--html", page)
        assert (done.code, done.out) == (2, "")
        assert f"--html {page}: is read by this command" in done.err
        assert trace.read_bytes() == before


@pytest.mark.parametrize("target", ["2s", "300ms+0.2ms/token"])
def test_the_page_says_of_the_boundary_what_the_table_says(
    cli: Cli, trace: Path, tmp_path: Path, target: str
) -> None:
    page = tmp_path / "r.html"
    asked = ("plan", trace, "--arrival-rate", "60", "--slo-ttft-p99", target, "--html", page)
    said = cli(*asked, "--explain").out
    shape = next(line.strip(" -") for line in said.splitlines() if "of the lowest" in line)
    words = " ".join(Page(page.read_text(encoding="utf-8")).words)
    assert f"{shape[:1].upper()}{shape[1:]}, which is the height of the strip." in words


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_without_the_extra_it_says_what_to_install(
    cli: Cli, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # what an absent package looks like
    done = cli("plan", trace, "--slo-ttft-p99", "2s", "--html", tmp_path / "r.html")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: --html needs {missing}: run pip install 'fleetopt[report]'\n"
    assert cli("plan", trace, "--slo-ttft-p99", "2s").code == 0


def test_validation_comes_after_the_table(cli: Cli, trace: Path) -> None:
    plain, validated = cli("plan", trace, *CHOSEN).out, cli("plan", trace, *CHOSEN, "--validate")
    assert validated.code == 0
    assert validated.out.startswith(plain)
    assert "simulated (predicted)" in validated.out.removeprefix(plain)


def test_validation_is_what_simulate_says_of_the_plan(
    cli: Cli, recorded: Path, tmp_path: Path, validated: tuple[dict[str, Any], Page]
) -> None:
    result, _ = validated
    plain = json.loads(cli("plan", recorded, *CHOSEN, "--output", "json", "--explain").out)
    assert {**plain, "validation": result["validation"]} == result
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plain))
    simulated = json.loads(cli("simulate", file, "--trace", recorded, "--output", "json").out)
    assert result["validation"] == simulated
    assert simulated["status"] == "stable"


def test_validation_wants_a_file_that_can_be_read_twice(
    cli: Cli, shell: Cli, trace: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for done in (
        shell("plan", "-", "--validate", stdin=trace.read_bytes()),
        cli("plan", pipe, "--validate"),
    ):
        assert done.code == 2
        assert "--validate reads the traffic twice: name a file" in done.err
        assert done.err.count("\n") == 1


def test_a_queue_that_grows_is_an_error_after_all_is_shown(cli: Cli, tmp_path: Path) -> None:
    # The fleet is planned for the mix, but what takes long comes all at once, and last.
    trace, page = tmp_path / "t.csv", tmp_path / "r.html"
    lengths = ("4000,200" if 20_000 <= at < 65_000 else "200,20" for at in range(100_000))
    rows = "".join(f"{1_700_000_000 + at / 20},{both}\n" for at, both in enumerate(lengths))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    done = cli("plan", trace, "--arrival-rate", "20", "--slo-ttft-p99", "60s",
               "--boundary", "32768", "--validate", "--html", page)  # fmt: skip
    assert done.code == 1
    assert done.err.endswith("error: diverging: the queue of the short pool grows\n")
    assert "simulated (predicted)" in done.out
    assert "✗ diverging" in Page(page.read_text(encoding="utf-8")).said


def test_the_templates_come_with_the_package() -> None:
    folder = resources.files("fleetopt.cli") / "templates"
    assert {"report.html.j2", "report.css"} <= {file.name for file in folder.iterdir()}
