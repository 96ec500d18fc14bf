"""The validation: what it measures, how it judges, and that it says what it found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks import paper_table
from benchmarks.paper_model import paper_fleets
from validation import cache, cheapest, traffic
from validation.__main__ import PAGE, main
from validation.failures import Case, causes
from validation.measure import PoolResult, Predicted, RowResult, Verdict, measure
from validation.rows import PAPER, QWEN, RATES_PER_S, SILICON, Arrivals, Row, design
from validation.simulated import Limits, Simulated, SimulatedSlots, half_done, settling_s
from validation.summary import fleets_summary, summary
from validation.tables import fleet_table, row_tables
from validation.text import lines

TINY = Limits(first=2_000, most=40_000, most_for_p99=4_000, most_slots=100_000)
ROW = Row(QWEN, "short_chat", Arrivals.POISSON, 200.0, "500ms")
POOL = PoolResult(
    name="one",
    replicas=5,
    slots=10,
    rate_per_s=20.0,
    binding="utilization",
    predicted=Predicted(0.8, 0.5, 0.02, 1.0, 0.005, 9.0, 0.12),
    simulated=Simulated(
        requests=1_000,
        runs=1,
        arrival_rate_per_s=20.0,
        utilization=0.8,
        slot_occupancy=0.5,
        mean_iteration_s=0.02,
        sequence_iteration_s=0.021,
        ttft_p99_s=1.0,
        ttft_p99_low_s=0.95,
        ttft_p99_high_s=1.05,
        violation_share=0.005,
        preempted_share=0.0,
        growth_share=0.0,
        is_diverging=False,
        e2e_p99_s=10.0,
        itl_p99_s=0.1,
    ),
    slot_level=SimulatedSlots(1_000, 20.0, 0.8, 0.001),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of tests stay in the tests."""
    monkeypatch.setattr(cache, "FOLDER", tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.parametrize(
    ("predicted_s", "verdict"),
    [
        (0.92, Verdict.LOW),
        (0.94, Verdict.HOLDS),
        (1.25, Verdict.HOLDS),
        (1.27, Verdict.HIGH),
    ],
)
def test_p99_fails_only_where_no_value_of_its_interval_would_do(
    predicted_s: float, verdict: Verdict
) -> None:
    assert replace(POOL, predicted=replace(POOL.predicted, ttft_p99_s=predicted_s)).p99 is verdict


def test_utilization_is_compared_at_the_rate_that_was_drawn() -> None:
    assert POOL.utilization is Verdict.HOLDS
    busier = replace(POOL.slot_level, arrival_rate_per_s=21.0, utilization=0.84)
    assert replace(POOL, slot_level=busier).utilization_error == pytest.approx(0.0)
    heavier = replace(POOL.slot_level, utilization=0.84)
    assert replace(POOL, slot_level=heavier).utilization is Verdict.LOW


def test_a_row_is_planned_simulated_and_kept(own_cache: Path) -> None:
    result = measure(ROW, TINY)
    assert result.infeasible == ""
    for pool in result.pools:
        assert 0.0 < pool.simulated.ttft_p99_low_s <= pool.simulated.ttft_p99_high_s
        assert pool.predicted.slot_occupancy == pytest.approx(
            pool.simulated.slot_occupancy, rel=0.5
        )
        assert abs(pool.utilization_error) < 0.1
    kept = {path: path.stat().st_mtime_ns for path in own_cache.iterdir()}
    assert len(kept) == 2 * len(result.pools)
    assert measure(ROW, TINY) == result
    assert {path: path.stat().st_mtime_ns for path in own_cache.iterdir()} == kept


def test_tenants_are_planned_for_with_their_peaks_and_bursts(shared_data: Path) -> None:
    result = measure(replace(ROW, traffic="code", arrivals=Arrivals.TENANTS, target="5s"), TINY)
    assert result.dispersion > 2.0
    assert result.planned_rate_per_s > ROW.rate_per_s
    assert sum(pool.rate_per_s for pool in result.pools) == pytest.approx(ROW.rate_per_s)
    assert {pool.simulated.runs for pool in result.pools} == {4}


def test_answers_are_kept_by_question() -> None:
    asked: list[int] = []

    def slots(rate: float) -> SimulatedSlots:
        asked.append(1)
        return SimulatedSlots(1, rate, 0.5, 0.1)

    for _ in range(2):
        for rate in (1.0, 2.0):
            found = cache.kept(["a", rate], SimulatedSlots, partial(slots, rate))
            assert found.arrival_rate_per_s == rate
    assert len(asked) == 2


def test_causes_are_what_failing_pools_share() -> None:
    def case(fails: bool, *facts: str) -> Case:
        return Case(frozenset(facts), 0.5 if fails else 0.0, fails)

    cases = [case(True, "code", "bursts", "short")] * 3 + [case(True, "code", "bursts", "long")] * 3
    cases += [case(False, "code", "poisson", "short")] * 5
    cases += [case(False, "chat", "bursts", "short")] * 5
    cases += [case(True, "chat", "poisson", "paper")]
    first, second = causes(cases)
    assert (first.facts, first.failing, first.having) == (("bursts", "code"), 6, 6)
    assert (second.failing, second.having) == (1, 1)
    assert "bursts, code: 6 of 6, by +50%" in first.sentence()
    assert causes([case(False, "chat")]) == []


def test_the_design_covers_every_traffic_and_rate_on_both_kinds_of_engine() -> None:
    rows = design()
    assert len({row.name for row in rows}) == len(rows)
    poisson = [row for row in rows if row.arrivals is Arrivals.POISSON]
    for name in {row.traffic for row in rows}:
        for rate in RATES_PER_S:
            engines = {
                one.engine for one in poisson if (one.traffic, one.rate_per_s) == (name, rate)
            }
            assert PAPER in engines
            assert engines & set(SILICON)


def test_every_silicon_engine_has_both_traces_and_both_kinds_of_target(shared_data: Path) -> None:
    rows = design()
    for engine in SILICON:
        assert {"chat", "code"} <= {row.traffic for row in rows if row.engine == engine}
        assert len({"token" in row.target for row in rows if row.engine == engine}) == 2
    tenants = [row for row in rows if row.arrivals is Arrivals.TENANTS]
    assert {row.rate_per_s for row in tenants} == set(RATES_PER_S)


def test_the_summary_counts_pools_of_five_replicas_and_names_what_fails() -> None:
    small = replace(POOL, replicas=4, predicted=replace(POOL.predicted, ttft_p99_s=9.0))
    high = replace(POOL, predicted=replace(POOL.predicted, ttft_p99_s=2.0))
    grows = replace(POOL, simulated=replace(POOL.simulated, is_diverging=True))
    results = [
        RowResult(ROW, ROW.name, 20.0, 1.0, 4096, 1.0, (pool,))
        for pool in (POOL, small, high, grows)
    ]
    text = summary(results)
    assert "4 pools, 3 of them with 5 replicas or more" in text
    assert "| P99 TTFT | -2% to +20% of iteration level | 2 of 3 | 67% | 0 | 1 |" in text
    assert f"Diverging queues: 1 of 4 pools; {ROW.name} (one)." in text
    assert "P99 TTFT is too high in 1 of 3 pools:" in text
    assert "P99 TTFT is never too low." in text
    assert (round(POOL.e2e_error, 6), round(POOL.itl_error, 6)) == (-0.1, 0.2)
    (table,) = row_tables(results)
    assert len(table.rows) == 4
    assert {len(line) for line in table.rows} == {len(table.columns)}
    assert sum("▲" in line for line in lines(results)) == 2


def test_fewest_replicas_are_accepted_and_one_fewer_is_not() -> None:
    row = Row(QWEN, "short_chat", Arrivals.POISSON, 150.0, "120ms")
    answer = cheapest.answer(row, requests=4_000)
    one = answer.cheapest["one pool"]
    assert one.is_found
    assert answer.best.cost_usd_per_h <= one.cost_usd_per_h
    assert answer.best.cost_usd_per_h <= answer.planned.cost_usd_per_h
    context = row.request().long_context_tokens
    trials = [
        cheapest.try_pool(row, context, 1.0, 0, count, requests=4_000)
        for count in (one.replicas[0], one.replicas[0] - 1)
    ]
    assert [trial.is_accepted for trial in trials] == [True, False]
    (line,) = fleet_table([answer]).rows
    assert line[0] == "short_chat 150/s, 120ms"
    assert "1 cases" in fleets_summary([answer])


def test_the_papers_own_table_comes_out_to_the_last_digit(shared_data: Path) -> None:
    for case in paper_table.CASES:
        for fleet in paper_fleets(case, paper_table.points_of(case)):
            assert round(fleet.saving, 3) == case.published_saving[fleet.gamma]


def test_the_papers_fleet_of_48_short_gpus_diverges(shared_data: Path) -> None:
    azure = paper_table.CASES[0]
    points = paper_table.points_of(azure)
    fleet = paper_fleets(azure, points)[-1]
    assert (fleet.gamma, fleet.short_gpus) == (2.0, 48)
    short, _ = paper_table.try_fleet(fleet, points, requests=60_000)
    assert short.own_load == pytest.approx(1.62, abs=0.03)
    assert short.figures.growth.is_diverging


def test_the_page_has_a_place_for_each_part() -> None:
    text = PAGE.read_text()
    for name in ("summary", "fleets", "paper", "rows"):
        assert 0 <= text.find(f"<!-- begin: {name} -->") < text.find(f"<!-- end: {name} -->")


def test_some_rows_are_shown_and_the_page_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = PAGE.read_text()
    out = tmp_path / "out.json"
    asked = ["rows", "--quick", "--rows", "short_chat poisson", "--rate", "20", "--jobs", "1"]
    assert main([*asked, "--json", str(out)]) == 0
    assert "short_chat poisson 20/s" in capsys.readouterr().out
    (row,) = msgspec.json.decode(out.read_bytes())["rows"]
    assert row["row"]["rate_per_s"] == 20.0
    assert PAGE.read_text() == before


def test_a_pattern_without_rows_and_an_unknown_part_are_usage_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for asked, told in ((["--rows", "no such row"], "no row matches"), (["rws"], "no part rws")):
        with pytest.raises(SystemExit) as ended:
            main(asked)
        assert ended.value.code == 2
        assert told in capsys.readouterr().err


def test_pools_fill_as_slowly_as_their_longest_requests_go() -> None:
    assert settling_s(np.full(1_000, 2.0)) == pytest.approx(2.0)
    few_are_long = np.concatenate((np.full(990, 1.0), np.full(10, 100.0)))
    assert settling_s(few_are_long) > 90.0


def test_runs_begin_with_requests_half_done() -> None:
    stream = traffic.requests("short_chat").take(np.arange(1_000))
    begun = half_done(stream, 50, seed=1)
    assert len(begun) == 1_050
    first = begun.take(np.arange(50))
    assert (first.arrival_s == stream.arrival_s[0]).all()
    assert (first.cached_tokens == first.prompt_tokens).all()
    assert set(first.total_tokens.tolist()) <= set(stream.total_tokens.tolist())
    assert half_done(stream, 0, seed=1) is stream
