"""Topics are made as asked, once, and their ids tell one life of a topic from the next."""

from __future__ import annotations

import asyncio
import math
import socket
from uuid import UUID

import pytest

from fleetopt.connectors.topics import Topics, ensure_topic
from fleetopt.errors import ServiceError
from fleetopt.pipeline.child import free_port
from fleetopt.pipeline.embedded import EmbeddedBroker
from scripts.apache_kafka import ApacheKafka
from tests.integration.conftest import Kafka


def test_a_new_topic_has_the_partitions_asked_for(kafka: Kafka, topic: str) -> None:
    state = asyncio.run(ensure_topic(kafka.bootstrap_servers, topic, 6, 3600))
    assert state.created
    assert state.partitions == 6
    assert state.problems == ()
    assert UUID(state.topic_id).int != 0


def test_ensuring_twice_changes_nothing(kafka: Kafka, topic: str) -> None:
    first = asyncio.run(ensure_topic(kafka.bootstrap_servers, topic, 3, 3600))
    second = asyncio.run(ensure_topic(kafka.bootstrap_servers, topic, 3, 3600))
    assert not second.created
    assert second.topic_id == first.topic_id
    assert second.problems == ()


def test_many_at_once_make_one_topic(kafka: Kafka, topic: str) -> None:
    async def race() -> list[bool]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(ensure_topic(kafka.bootstrap_servers, topic, 2, 3600))
                for _ in range(5)
            ]
        states = [task.result() for task in tasks]
        assert len({state.topic_id for state in states}) == 1
        return [state.created for state in states]

    assert sum(asyncio.run(race())) == 1


def test_other_partitions_are_reported_and_left(kafka: Kafka, topic: str) -> None:
    asyncio.run(ensure_topic(kafka.bootstrap_servers, topic, 3, 3600))
    state = asyncio.run(ensure_topic(kafka.bootstrap_servers, topic, 5, 3600))
    assert state.partitions == 3
    assert "has 3 partitions, not the 5" in state.problems[0]


def test_retention_is_set_and_too_short_a_one_reported(kafka: Kafka, topic: str) -> None:
    servers = kafka.bootstrap_servers
    assert asyncio.run(ensure_topic(servers, topic, 1, 3600)).retention_s == 3600
    longer = asyncio.run(ensure_topic(servers, topic, 1, 7200))
    assert longer.retention_s == 3600
    assert "keeps records for 3600 s, less than the 7200 s" in longer.problems[0]
    assert asyncio.run(ensure_topic(servers, topic, 1, 60)).problems == ()


def test_endless_retention_is_enough_for_any_window(kafka: Kafka, topic: str) -> None:
    servers = kafka.bootstrap_servers
    assert asyncio.run(ensure_topic(servers, topic, 1, math.inf)).retention_s == math.inf
    assert asyncio.run(ensure_topic(servers, topic, 1, 1e9)).problems == ()


@pytest.mark.kafka
def test_more_replicas_than_brokers_are_refused_with_the_reason(
    apache_kafka: ApacheKafka, topic: str
) -> None:
    with pytest.raises(ServiceError, match=r"refuses to make topic .* 3 replicas"):
        asyncio.run(
            ensure_topic(apache_kafka.bootstrap_servers, topic, 1, 3600, replication_factor=3)
        )


def test_asking_for_an_id_makes_no_topic(kafka: Kafka, topic: str) -> None:
    async def ask_twice() -> list[str | None]:
        async with Topics(kafka.bootstrap_servers) as topics:
            return [await topics.topic_id(topic), await topics.topic_id(topic)]

    assert asyncio.run(ask_twice()) == [None, None]


def test_ids_come_over_one_connection_without_blocking_the_loop(kafka: Kafka, topic: str) -> None:
    async def ask() -> None:
        async with Topics(kafka.bootstrap_servers) as topics:
            state = await topics.ensure(topic, 1, 3600)
            asked = [topics.topic_id(topic) for _ in range(50)]
            assert set(await asyncio.gather(*asked)) == {state.topic_id}

    asyncio.run(ask())


def test_a_broker_that_forgot_gives_the_topic_a_new_id(topic: str) -> None:
    async def lives(broker: EmbeddedBroker) -> None:
        async with Topics(broker.bootstrap_servers) as topics:
            before = await topics.ensure(topic, 1, 3600)
            await asyncio.to_thread(broker.kill)
            with pytest.raises(ServiceError, match="does not answer"):
                await topics.topic_id(topic)
            await asyncio.to_thread(broker.restart)
            assert await topics.topic_id(topic) is None
            after = await topics.ensure(topic, 1, 3600)
            assert after.created
            assert after.topic_id != before.topic_id

    with EmbeddedBroker() as broker:
        asyncio.run(lives(broker))


def test_an_absent_broker_is_said_with_its_address() -> None:
    servers = f"127.0.0.1:{free_port()}"
    with pytest.raises(ServiceError, match=f"{servers} does not answer"):
        asyncio.run(ensure_topic(servers, "any", 1, 3600))


def test_a_broker_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceError, match=f"{servers} does not answer: TimeoutError"):
            asyncio.run(ensure_topic(servers, "any", 1, 3600, timeout_s=0.3))
