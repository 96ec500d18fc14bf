"""The two Kafkas: the embedded broker, and Apache Kafka where Java and Maven are present."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

import pytest

from fleetopt.errors import ServiceError
from scripts.apache_kafka import ApacheKafka, fetch_jars, missing_tools

REQUIRE_VARIABLE = "FLEETOPT_REQUIRE_APACHE_KAFKA"


class Kafka(Protocol):
    """Whatever speaks the Kafka protocol at an address."""

    @property
    def bootstrap_servers(self) -> str:
        """The address, as Kafka clients take it."""
        ...


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """One KRaft node of Apache Kafka, started when the first test asks for it."""
    if os.environ.get(REQUIRE_VARIABLE) != "1":
        if missing := missing_tools():
            pytest.skip(f"Apache Kafka needs {missing}, see CONTRIBUTING.md")
        try:
            fetch_jars()
        except ServiceError as error:
            pytest.skip(f"Apache Kafka is not at hand: {error}")
    with ApacheKafka() as node:
        yield node


@pytest.fixture(
    scope="session",
    params=["embedded", pytest.param("apache", marks=pytest.mark.kafka)],
)
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Each Kafka in turn: a test that asks for it runs against both."""
    name = {"embedded": "embedded_broker", "apache": "apache_kafka"}[request.param]
    node: Kafka = request.getfixturevalue(name)
    return node
