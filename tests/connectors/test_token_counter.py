"""What every token counter must do, bundled or an engine's, and which one is chosen."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetopt.compressor.tokens import TokenCounter
from fleetopt.connectors.token_counter import counter_for
from fleetopt.connectors.tokenize_endpoint import EndpointCounter
from fleetopt.connectors.tokenizers import BundledCounter
from fleetopt.errors import ConfigError, FleetOptError, InputError
from tests.connectors.engine_server import Engine
from tests.connectors.hostile_texts import HOSTILE

BUNDLED = ("gpt-4", "gpt-4o", "gpt-oss-20b", "llama-3.1-8b-instruct", "qwen3-8b")
ENGINES = {
    "vLLM": Engine(),
    "without a list of models": Engine(has_models=False),
    "llama.cpp": Engine(is_llama_cpp=True),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
ANY_NUMBER = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=[*BUNDLED, *ENGINES])
def counter(request: pytest.FixtureRequest) -> Iterator[TokenCounter]:
    if request.param in BUNDLED:
        yield counter_for(request.param)
        return
    with ENGINES[request.param] as engine, EndpointCounter(engine.model, engine.address) as one:
        yield one


def test_it_is_a_token_counter(counter: TokenCounter) -> None:
    assert isinstance(counter, TokenCounter)
    assert counter.name
    assert counter.per_unit is isinstance(counter, BundledCounter)


def test_nothing_has_no_tokens(counter: TokenCounter) -> None:
    assert counter.count("") == 0
    none = counter.count_many([])
    assert (none.shape, none.dtype) == ((0,), np.dtype(np.int64))


@pytest.mark.parametrize("kind", HOSTILE)
def test_one_and_many_count_the_same_every_time(counter: TokenCounter, kind: str) -> None:
    text = HOSTILE[kind]
    first = counter.count(text)
    assert type(first) is int
    many = counter.count_many([text, "x", text])
    assert many.dtype == np.int64
    assert many.tolist() == [first, 1, first]


@ANY_NUMBER
@given(texts=st.lists(TEXTS, max_size=4))
def test_any_texts_count_the_same_alone_and_together(
    counter: TokenCounter, texts: list[str]
) -> None:
    assert counter.count_many(texts).tolist() == [counter.count(text) for text in texts]


@ANY_NUMBER
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
def test_a_prompt_has_its_template_on_top_of_its_messages(
    counter: TokenCounter, texts: list[str]
) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    counted = [counter.count_prompt(messages[:count]) for count in range(1, len(texts) + 1)]
    assert counted == sorted(set(counted)), "each message adds tokens"
    assert counter.count_prompt([{"role": "user", "content": "x" * 400}]) > counter.count("x" * 400)


@pytest.mark.parametrize("text", ["\ud800", "a\udc00b"])
def test_a_lone_surrogate_is_refused(counter: TokenCounter, text: str) -> None:
    for count in (
        lambda: counter.count(text),
        lambda: counter.count_many(["x", text]),
        lambda: counter.count_prompt([{"role": "user", "content": text}]),
    ):
        with pytest.raises(InputError, match="lone surrogate"):
            count()


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", None])
def test_parts_that_are_not_text_are_refused(counter: TokenCounter, kind: str | None) -> None:
    content = [{"type": "text", "text": "What is this?"}, {"type": kind}]
    with pytest.raises(InputError, match=r"messages\[0\]\.content\[1\]"):
        counter.count_prompt([{"role": "user", "content": content}])


def test_text_parts_are_counted(counter: TokenCounter) -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}]
    joined = counter.count_prompt([{"role": "user", "content": "What is\nthis?"}])
    assert counter.count_prompt([{"role": "user", "content": parts}]) >= joined


# The choice


def test_a_model_that_is_bundled_needs_no_engine() -> None:
    assert isinstance(counter_for("Qwen/Qwen3-8B"), BundledCounter)


def test_an_engine_that_is_named_counts_for_any_model() -> None:
    with Engine(model="anyone/anything") as engine:
        counter = counter_for("anyone/anything", engine.address + "/v1/")
        assert isinstance(counter, EndpointCounter)
        with counter:
            assert counter.count("Hello, world!") == 4


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-27B", "anyone/anything"])
def test_an_unknown_model_without_an_engine_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="engine's address"):
        counter_for(model)


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:1"])
def test_a_model_must_have_a_name(endpoint: str | None) -> None:
    with pytest.raises(ConfigError, match="empty"):
        counter_for(" ", endpoint)


@pytest.mark.parametrize(
    "endpoint",
    ["", "localhost:8000", "ftp://host/", "http://", "http://u:p@host", "http://host/?a=b",
     "http://host:port"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="expected http"):
        counter_for("m", endpoint)


def test_a_timeout_must_be_some_time() -> None:
    for timeout_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="timeout_s"):
            counter_for("m", "http://127.0.0.1:1", timeout_s=timeout_s)


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(FleetOptError, match=r"pip install 'fleetopt\[compress\]'"):
        counter_for("m", "http://127.0.0.1:1")
