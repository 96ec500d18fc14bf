"""Counting through an engine: what is asked, and what becomes of every way in which it fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from fleetopt.connectors import tokenize_endpoint
from fleetopt.connectors.tokenize_endpoint import EndpointCounter
from fleetopt.errors import ServiceError
from tests.connectors.engine_server import Engine

CHAT = [{"role": "user", "content": "Hello, world!"}]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as one:
        yield one


@pytest.fixture
def counter(engine: Engine) -> Iterator[EndpointCounter]:
    with EndpointCounter(engine.model, engine.address, timeout_s=30.0) as one:
        yield one


def test_nothing_is_asked_before_the_first_count(engine: Engine, counter: EndpointCounter) -> None:
    assert engine.requests == []
    counter.check()
    assert [path for path, _ in engine.requests] == ["/v1/models", "/tokenize"]


def test_a_text_is_counted_without_the_tokens_that_a_prompt_begins_with(
    engine: Engine, counter: EndpointCounter
) -> None:
    assert counter.count("Hello, world!") == 4
    expected = {"model": "qwen3-8b", "prompt": "Hello, world!", "add_special_tokens": False}
    assert engine.requests[-1] == ("/tokenize", expected)


def test_a_chat_is_counted_by_the_engines_template(
    engine: Engine, counter: EndpointCounter
) -> None:
    assert counter.count_prompt(CHAT) == len(engine.tokens(engine.chat(CHAT)))
    assert engine.requests[-1] == (
        "/tokenize",
        {
            "model": "qwen3-8b",
            "messages": CHAT,
            "add_generation_prompt": True,
            "add_special_tokens": False,
        },
    )


def test_llama_cpp_is_asked_in_its_own_words() -> None:
    with (
        Engine(is_llama_cpp=True) as engine,
        EndpointCounter(engine.model, engine.address) as counter,
    ):
        assert counter.count("Hello, world!") == 4
        body = {"content": "Hello, world!", "add_special": False, "parse_special": True}
        assert engine.requests[-1] == ("/tokenize", body)
        assert counter.count_prompt(CHAT) == len(engine.tokens(engine.chat(CHAT)))
        assert engine.requests[-2] == ("/apply-template", {"messages": CHAT})
        body = {"content": engine.chat(CHAT), "add_special": True, "parse_special": True}
        assert engine.requests[-1] == ("/tokenize", body)


def test_the_key_is_sent(engine: Engine) -> None:
    with EndpointCounter(engine.model, engine.address, api_key="secret") as counter:
        counter.check()
    assert engine.authorization == "Bearer secret"


def test_the_connection_is_kept(engine: Engine, counter: EndpointCounter) -> None:
    for _ in range(20):
        counter.count("x")
    assert engine.connections == 1


def test_threads_share_a_counter(engine: Engine) -> None:
    found: list[int] = []
    with EndpointCounter(engine.model, engine.address, timeout_s=60.0, connections=2) as counter:
        threads = [
            threading.Thread(
                target=lambda: found.extend(counter.count_many(["Hello, world!"] * 10))
            )
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [4] * 60
    assert engine.connections <= 2


def test_another_model_is_noticed(engine: Engine) -> None:
    with (
        EndpointCounter("llama-3.1-8b", engine.address) as counter,
        pytest.raises(ServiceError, match=r"does not serve 'llama-3\.1-8b', but 'qwen3-8b'"),
    ):
        counter.count("x")


def test_another_model_is_noticed_where_none_are_listed() -> None:
    with (
        Engine(has_models=False) as engine,
        EndpointCounter("llama-3.1-8b", engine.address) as counter,
        pytest.raises(ServiceError, match=r"404.*`llama-3\.1-8b` does not exist"),
    ):
        counter.count("x")


def test_another_tokenizer_is_noticed_and_stays_so(
    engine: Engine, counter: EndpointCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.count("x")
    engine.vocabulary = "llama3"
    assert counter.count("x") == 1, "not asked each time"
    monkeypatch.setattr(tokenize_endpoint, "RECHECK_S", -1.0)
    with pytest.raises(ServiceError, match="tokenizes otherwise than before"):
        counter.check()
    engine.faults = ["500"]
    for _ in range(3):
        with pytest.raises(ServiceError):
            counter.count("x")
    engine.vocabulary = "qwen3"
    assert counter.count("x") == 1


def test_the_probe_is_another_in_every_vocabulary() -> None:
    names = ("cl100k_base", "o200k_base", "llama3", "qwen3")
    found = {tuple(Engine(vocabulary=name).tokens(tokenize_endpoint.PROBE)) for name in names}
    assert len(found) == len(names)


FAULTS = {
    "404": "status 404",
    "500": "status 500: 'Internal Server Error'",
    "redirect": "status 307",
    "no json": "something else than asked for.*<html>",
    "cut json": "something else than asked for",
    "other json": "something else than asked for",
    "no number": "something else than asked for",
    "negative": "something else than asked for",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_answer_is_a_service_error_and_the_engine_is_asked_anew(
    engine: Engine, counter: EndpointCounter, fault: str
) -> None:
    counter.check()
    engine.faults = [fault]
    with pytest.raises(ServiceError, match=FAULTS[fault]) as error:
        counter.count("x")
    assert engine.address in str(error.value)
    before = len(engine.requests)
    assert counter.count("x") == 1
    asked = [path for path, _ in engine.requests[before:]]
    assert asked == ["/v1/models", "/tokenize", "/tokenize"]


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"404", "negative"}))
def test_a_bad_answer_to_the_first_question_is_a_service_error(
    engine: Engine, counter: EndpointCounter, fault: str
) -> None:
    engine.faults = [fault]
    with pytest.raises(ServiceError):
        counter.count("x")


def test_an_engine_that_knows_no_tokens_is_refused(
    engine: Engine, counter: EndpointCounter
) -> None:
    engine.faults = ["", "no tokens"]
    with pytest.raises(ServiceError, match="has no tokens for a text"):
        counter.count("x")


@pytest.mark.parametrize("fault", ["closed", "cut short"])
def test_a_closed_connection_is_tried_once_more(
    engine: Engine, counter: EndpointCounter, fault: str
) -> None:
    counter.check()
    engine.faults = [fault]
    before = len(engine.requests)
    assert counter.count("x") == 1
    assert len(engine.requests) == before + 2
    engine.faults = [fault, fault]
    with pytest.raises(ServiceError, match="closed the connection"):
        counter.count("x")
    assert len(engine.requests) == before + 4


def test_a_connection_that_was_closed_while_idle_does_no_harm(
    engine: Engine, counter: EndpointCounter
) -> None:
    engine.faults = ["", "", "closed after"]
    assert counter.count("x") == counter.count("x") == 1


@pytest.mark.parametrize("fault", ["slow", "drops"])
def test_an_answer_that_comes_too_late_is_given_up(engine: Engine, fault: str) -> None:
    with EndpointCounter(engine.model, engine.address, timeout_s=30.0) as patient:
        patient.check()
    with EndpointCounter(engine.model, engine.address, timeout_s=0.3) as counter:
        counter.check()
        engine.faults = [fault]
        before = len(engine.requests)
        with pytest.raises(ServiceError, match=r"within 0\.3 s"):
            counter.count("x " * 2_000)
        assert len(engine.requests) == before + 1, "not asked again"


def test_no_free_connection_is_a_service_error(engine: Engine) -> None:
    with EndpointCounter(engine.model, engine.address, timeout_s=0.5, connections=1) as counter:
        counter.check()
        engine.faults = ["slow"]
        failed: list[str] = []

        def count() -> None:
            try:
                counter.count("x")
            except ServiceError as error:
                failed.append(str(error))

        threads = [threading.Thread(target=count) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(failed) >= 1
    assert all("within 0.5 s" in text for text in failed)


def test_nobody_at_the_address_is_a_service_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            EndpointCounter("m", address) as counter,
            pytest.raises(ServiceError, match="can't be reached"),
        ):
            counter.count("x")


def test_a_path_before_tokenize_is_kept(engine: Engine) -> None:
    with (
        EndpointCounter(engine.model, engine.address + "/east/v1") as counter,
        pytest.raises(ServiceError, match="404"),
    ):
        counter.check()
    assert [path for path, _ in engine.requests] == ["/east/v1/models", "/east/tokenize"]
