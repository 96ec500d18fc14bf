"""The benchmarks measure what they say: exact counts from real services, tables in their places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import (
    compression,
    compression_pool,
    compression_tables,
    digests,
    forecast,
    ingest,
    load,
    peer,
    planner,
    pools,
    regret,
    route,
    tables,
)
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.counted import MismatchError, check_counts
from benchmarks.report import PAGE, Machine, PageError, Table, page_of, write
from fleetopt.connectors.producer import MessageShape
from fleetopt.pipeline.embedded import EmbeddedBroker, EmbeddedRedis

TINY = ingest.Sizes(
    batch_records=5_000,
    many_fleets_records=0,
    single_records=300,
    agent_single_records=100,
    rounds=1,
)


def test_every_reader_reads_every_record(embedded_broker: EmbeddedBroker) -> None:
    with EmbeddedRedis() as server:  # it is emptied: never the one that others use
        compared = ingest.compare("tiny", embedded_broker.bootstrap_servers, server.url, TINY)
    assert [one.shape for one in compared] == list(MessageShape)
    read = [{name: run.records for name, (run,) in one.runs.items()} for one in compared]
    assert read == [
        {"worker": 5_000, "getmany": 5_000, "agent": 5_000},
        {"worker": 300, "getmany": 300, "agent": 100},
    ]
    for comparison in compared:
        assert all(run.cpu_s > 0 and run.wall_s > 0 for (run,) in comparison.runs.values())
        assert comparison.ratio("worker") == 1.0
    assert [len(table.rows) for table in tables.ingest_tables(compared)] == [3, 3]


def test_counts_that_differ_end_the_measurement(
    embedded_broker: EmbeddedBroker, redis_url: str, topic: str
) -> None:
    laid = load.lay(embedded_broker.bootstrap_servers, topic, MessageShape.RECORD, 10)
    with pytest.raises(MismatchError, match=r"'accepted': 0.*10 records were sent"):
        check_counts(redis_url, laid)


@pytest.mark.parametrize(("records", "messages"), [(1, 1), (250, 1), (251, 2), (5_001, 21)])
def test_as_many_records_are_laid_as_asked(
    embedded_broker: EmbeddedBroker, topic: str, records: int, messages: int
) -> None:
    laid = load.lay(embedded_broker.bootstrap_servers, topic, MessageShape.BATCH, records)
    assert (laid.records, laid.messages) == (records, messages)
    assert sum(laid.end_offsets.values()) == messages


def test_every_way_to_route_is_timed_on_the_same_requests() -> None:
    figures = route.measure(count=400, repeats=1)
    by_tokens, by_bytes, locked, plain, looked_up = figures
    assert by_tokens.shares == locked.shares
    assert by_bytes.shares["short"] < by_tokens.shares["short"]  # the safe side of the band
    assert all(share > 0 for share in by_tokens.shares.values())
    assert plain.shares == looked_up.shares == {}
    assert all(one.decide_s > 0 for one in figures)
    (table,) = route.route_tables(figures)
    assert len(table.rows) == len(figures)


def test_both_digests_hold_the_same_requests_within_their_error() -> None:
    ours, oracle = digests.measure(values=500, repeats=1)
    assert (ours.library, oracle.library) == ("fastdigest", "tdigest")
    for figures in (ours, oracle):
        assert max(figures.rank_errors.values()) < 0.01
        assert figures.update_s > 0
        assert figures.merge_s > 0
    (table,) = tables.sketch_tables([ours, oracle], 500)
    assert {len(row) for row in table.rows} == {3}


def test_tables_go_between_their_markers_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin: x -->\nold\n<!-- end: x -->\nb\n<!-- begin: y -->\n")
    machine = Machine.this()
    for _ in range(2):
        write("x", [Table("T", ("case", "median"), [("one", "2 ms")])], machine, page)
    text = page.read_text()
    assert text.startswith("a\n<!-- begin: x -->\n")
    assert text.endswith("<!-- end: x -->\nb\n<!-- begin: y -->\n")
    assert "old" not in text
    assert text.count("| one | 2 ms |") == 1
    assert text.count(machine.cpu) == 1


def test_a_page_without_the_markers_is_left_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin: x -->")
    with pytest.raises(PageError, match="no place"):
        write("x", [], Machine.this(), page)
    assert page.read_text() == "<!-- begin: x -->"


def test_the_page_has_a_place_for_each_benchmark() -> None:
    for name in BENCHMARKS:
        text = page_of(name).read_text()
        begin, end = text.find(f"<!-- begin: {name} -->"), text.find(f"<!-- end: {name} -->")
        assert 0 <= begin < end


def test_figures_as_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    before = PAGE.read_text()
    assert main(["sketch", "--quick", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [figures["library"] for figures in told["results"]["sketch"]] == [
        "fastdigest",
        "tdigest",
    ]
    assert told["machine"]["cores"] >= 1
    assert PAGE.read_text() == before


def test_an_unknown_benchmark_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plannr"])
    assert ended.value.code == 2
    assert "no benchmark plannr: choose sketch, ingest, planner" in capsys.readouterr().err


def test_planner_figures_come_from_what_pytest_benchmark_wrote() -> None:
    data = [0.001 * step for step in range(1, 101)]
    stats = {"median": 0.0505, "max": 0.1, "rounds": 100, "data": data}
    case = {"name": "test_search[64]", "extra_info": {"cells": 1344, "growth": 1.0}, "stats": stats}
    figures = planner.figures(case)
    assert (figures.name, figures.cells, figures.facts) == ("search[64]", 1344, {"growth": 1.0})
    assert figures.p99_s == pytest.approx(0.09901)
    (table,) = tables.planner_tables([figures])
    shown = ("search[64]", "1,344", "50.5 ms", "99.0 ms", "100 ms", "37.6 µs", "100", "1.0")
    assert tuple(table.rows[0]) == shown


def test_regret_is_told_by_workload_and_by_rate() -> None:
    asked = regret.question("h100/qwen3-32b/tp2")
    figures = regret.compare("chat", regret.chat(2_000), asked)
    by_workload, by_rate = tables.regret_tables(figures)
    (row,) = by_workload.rows
    assert row[0] == "h100/qwen3-32b/tp2, chat"
    assert f"{figures[-1].planned_ratio * 100:+.2f} %" in row[1]
    assert [line[0] for line in by_rate.rows] == ["100", "1,000", "10,000"]


def test_searches_are_told_by_rate() -> None:
    facts = {"cells": 1_344, "traffic": "chat", "target": "2s"}
    stats = {"median": 0.002, "max": 0.1, "rounds": 2, "data": [0.001, 0.003]}
    cases = [
        {"name": f"test_search[{rate}]", "extra_info": facts | {"rate_per_s": rate}, "stats": stats}
        for rate in (100.0, 10.0)
    ]
    by_rate, rest = tables.planner_tables([planner.figures(case) for case in cases])
    assert by_rate.columns == ("traffic, target", "10", "100")
    assert list(by_rate.rows) == [("chat, 2s", "2.00 ms, 2.98 ms", "2.00 ms, 2.98 ms")]
    assert not rest.rows


def test_duels_are_told_by_what_each_did_in_its_time() -> None:
    def duel(task: str) -> peer.Duel:
        return peer.Duel(task, "azure", 100.0, "requests", [0.2, 0.4], [0.001, 0.003], 30, 60)

    assert duel("slots").ratio == pytest.approx(300.0)
    search, slots, fleet = tables.peer_tables("1", [duel(task) for task in ("sweep", "slots")])
    assert search.rows[0][0] == "azure, 100"
    assert search.rows[0][-2:] == ("150×", "300×")
    assert slots.rows[0][1:4] == ("100.0", "30.0 k", "300×")
    assert not fleet.rows


def test_a_peer_that_cannot_be_installed_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert main(["peer", "--quick"]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"benchmarks: vllm-sr-sim can't be installed into {tmp_path}")
    assert "No matching distribution found" in said


def test_forecasts_are_held_against_what_came_and_a_ramp_needs_them() -> None:
    figures = [
        forecast.figures_of(traffic, 3)
        for traffic in forecast.traffics()
        if "Azure" not in traffic.name
    ]
    ramp = next(one for one in figures if one.name.startswith("ramp"))
    assert ramp.origins >= 3
    assert ramp.scores["chosen"].covered > ramp.scores["recent_peak"].covered
    assert "seasonal_naive" not in ramp.scores
    assert sum(ramp.scores["chosen"].methods.values()) == ramp.origins
    held, losses, times = tables.forecast_tables(figures)
    assert len(held.rows) == len(losses.rows) == len(times.rows) == len(figures)
    assert all(len(row) == len(one.columns) for one in (held, losses, times) for row in one.rows)


def test_a_further_pools_gain_is_told_beside_what_it_compresses() -> None:
    case = pools.Case("chat", 50.0, "2s", 2.0)
    gains = pools.gains_of(case, regret.chat(2_000).workload(case.rate_per_s))
    assert [one.pools for one in gains.gains] == [1, 2, 3, 4]
    (table,) = tables.pools_tables([gains])
    (row,) = table.rows
    assert len(row) == len(table.columns)
    assert row[0] == "chat 50/s, 2s, γ ≤ 2"
    assert "(" not in row[1]
    assert "%)" in row[2]
    nothing = pools.Gain(2, None, None, 0.0)
    (row,) = tables.pools_tables([pools.Gains("x", (nothing,), 1, 0.1)])[0].rows
    assert row[1] == "–"


def test_every_method_keeps_the_budget_and_ours_the_answers() -> None:
    figures = compression.measure(compression.Sizes(4, 1_500, 1_500))
    found = {(one.corpus, one.method, one.keep): one.survived for one in figures.survival}
    assert all(found["needle", "FleetOpt", keep] == 1.0 for keep in compression.KEEPS)
    totals = {
        method: sum(share for (_, by, _), share in found.items() if by == method)
        for method in compression.METHODS
    }
    assert max(totals, key=lambda method: totals[method]) == "FleetOpt"
    survival = compression_tables.fidelity_tables(figures)[0]
    assert survival.columns[:2] == ("corpus", "FleetOpt")
    assert survival.rows[-1][0] == "needle without word overlap"


def test_what_became_of_every_prompt_is_told() -> None:
    sizes = compression_pool.Sizes(rounds=1, seconds=1.0, per_s=20.0, overload_within_s=0.2)
    with EmbeddedBroker() as broker:
        figures = compression_pool.measure(broker.bootstrap_servers, sizes)
    (usual,) = figures.rounds
    assert sum(usual.outcomes.values()) == 20
    assert sum(figures.overload.outcomes.values()) == 200
    assert (usual.lost, figures.overload.lost) == (0, 0)
    assert usual.quantile(0.5) <= usual.quantile(0.99) <= usual.quantile(1.0)
    latency, fates, memory = compression_tables.pool_tables(figures)
    assert [len(row) for row in latency.rows] == [len(latency.columns)]
    counted = [int(count.replace(",", "")) for _, count in fates.rows]
    assert sum(counted) == 200
    assert [len(row) for row in memory.rows] == [3, 3, 3]
