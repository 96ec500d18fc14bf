"""Where requests go: what the boundary holds, what may be compressed, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetopt.connectors import gateway_routes
from fleetopt.connectors.gateway_routes import MIN_BAND_REQUESTS, Route, Routes
from fleetopt.errors import InputError
from fleetopt.planner.recommendation import BytesPerToken, Status
from tests.connectors.gateway_plans import BOUNDARY, UP_TO, recommendation

ROUTES = Routes(BOUNDARY, UP_TO)
routes_of = partial(gateway_routes.routes_of, min_kept_share=0.5)
categories = st.none() | st.sampled_from(["prose", "rag", "code", "tool", "chat", "other", "new"])


@given(st.integers(-5, 20_000), st.none() | st.integers(-5, 20_000), categories)
def test_the_short_pool_gets_nothing_that_it_may_not_hold(
    prompt: int, completion: int | None, category: str | None
) -> None:
    route = ROUTES.route(prompt, completion, category)
    known = completion is not None and completion >= 0 and prompt > 0
    holds = known and prompt + (completion or 0) <= BOUNDARY
    assert (route is Route.SHORT) == holds
    if route is Route.COMPRESS:
        assert completion is not None
        assert BOUNDARY < prompt + completion <= UP_TO
        assert BOUNDARY - completion >= prompt / 2
        assert category not in ("code", "tool")


def test_prompt_and_reservation_count_together() -> None:
    assert Routes(32_768, 32_768).route(1_077, 32_000) is Route.LONG
    assert Routes(32_768, 32_768).route(768, 32_000) is Route.SHORT


@pytest.mark.parametrize("category", ["prose", "rag", "chat", "other", None, "new"])
def test_what_may_be_prose_is_tried(category: str | None) -> None:
    assert ROUTES.route(5_000, 100, category) is Route.COMPRESS


@pytest.mark.parametrize("category", ["code", "tool"])
def test_code_and_tools_are_never_compressed(category: str) -> None:
    assert ROUTES.route(5_000, 100, category) is Route.LONG
    assert ROUTES.route(3_000, 100, category) is Route.SHORT


def test_a_prompt_of_which_too_little_would_stay_is_not_tried() -> None:
    assert ROUTES.route(3_100, 2_500, "rag") is Route.COMPRESS
    assert ROUTES.route(3_200, 2_500, "rag") is Route.LONG


def test_how_much_must_stay_is_the_compressors_affair() -> None:
    plan = recommendation("f")
    strict = gateway_routes.routes_of(plan, min_kept_share=0.9)
    loose = gateway_routes.routes_of(plan, min_kept_share=0.1)
    assert strict is not None
    assert loose is not None
    assert strict.route(5_000, 100) is Route.LONG
    assert loose.route(3_200, 2_500) is Route.COMPRESS


def test_before_the_first_plan_everything_is_long() -> None:
    assert Routes().route(1, 0) is Route.LONG
    assert Routes().route_bytes(1, 0) is Route.LONG


def test_no_limit_of_the_completion_reserves_what_the_plan_says() -> None:
    plan = recommendation("f")
    assert plan.lengths is not None
    lengths = replace(plan.lengths, p99_tokens=1_000)
    routes = routes_of(replace(plan, lengths=lengths))
    assert routes is not None
    assert routes.route(BOUNDARY - 1_000) is Route.SHORT
    assert routes.route(BOUNDARY - 999) is Route.COMPRESS
    own = routes_of(replace(plan, lengths=lengths), reserved_tokens=10)
    assert own is not None
    assert own.route(BOUNDARY - 10) is Route.SHORT
    unknown = routes_of(replace(plan, lengths=None))
    assert unknown is not None
    assert unknown.route(1) is Route.LONG


def band(low: float, requests: int) -> BytesPerToken:
    return BytesPerToken(mean=low * 1.2, low=low, high=low * 1.5, requests=requests)


def test_bytes_are_read_at_the_end_of_the_band_that_makes_more_tokens() -> None:
    bands = {
        "rag": band(4.0, MIN_BAND_REQUESTS),
        "chat": band(4.0, MIN_BAND_REQUESTS - 1),
        "unknown": band(2.0, MIN_BAND_REQUESTS),
    }
    routes = routes_of(recommendation("f", bytes_per_token=bands))
    assert routes is not None
    assert routes.route_bytes(16_000, 96, "rag") is Route.SHORT
    assert routes.route_bytes(16_001, 96, "rag") is Route.COMPRESS
    for category in ("chat", "prose", None):
        assert routes.route_bytes(8_000, 96, category) is Route.SHORT
        assert routes.route_bytes(8_001, 96, category) is Route.COMPRESS
    without = routes_of(recommendation("f"))
    assert without is not None
    assert without.route_bytes(4_000, 96, "rag") is Route.SHORT
    assert without.route_bytes(4_001, 96, "rag") is Route.COMPRESS


def test_a_boundary_waits_for_the_engines() -> None:
    routes = routes_of(recommendation("f"), short_context_tokens=2_048)
    assert routes is not None
    assert routes.route(2_000, 48) is Route.SHORT
    assert routes.route(2_001, 48) is Route.COMPRESS


def test_no_plan_gives_no_routes_and_a_contradiction_is_refused() -> None:
    none = recommendation("f", status=Status.INFEASIBLE, active=None)
    assert routes_of(none) is None
    with pytest.raises(InputError, match="boundary_tokens 6144 and compress_up_to_tokens 4096"):
        routes_of(recommendation("f", boundary_tokens=UP_TO, compress_up_to_tokens=BOUNDARY))
