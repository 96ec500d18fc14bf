"""Kafka topics: made with the right partitions and retention, and told apart by their ids.

A topic's id is the epoch of its offsets: when a topic is deleted and made again, or an in-memory
broker restarts, offsets begin at 0 under a new id. An existing topic is never altered; what is
not as asked is reported.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from fleetopt.connectors.topic_metadata import NO_ID, TopicMetadataRequest
from fleetopt.errors import ServiceError

T = TypeVar("T")
_RETENTION = "retention.ms"
_POLL_S = 0.05


@dataclass(frozen=True)
class TopicState:
    """A topic as it is, beside what was asked for."""

    name: str
    topic_id: str
    partitions: int
    #: `inf` when unlimited, None when the broker does not say.
    retention_s: float | None
    #: Whether this call made it.
    created: bool
    #: What differs from what was asked: one sentence each, for a log line.
    problems: tuple[str, ...] = ()


class Topics:
    """A connection to Kafka for looking after topics, opened at first use and kept.

    A broker that is absent or lost raises ServiceError; the next call connects afresh.

    Parameters
    ----------
    bootstrap_servers
        Broker addresses, `host:port` separated by commas.
    timeout_s
        How long a call may wait for an answer.
    """

    def __init__(self, bootstrap_servers: str, *, timeout_s: float = 5.0) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._admin: AIOKafkaAdminClient | None = None
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    async def topic_id(self, name: str) -> str | None:
        """Return the topic's id, None when there is no such topic: one small request."""
        described = await self._call(lambda admin: self._describe(admin, name))
        return _id(described) if described else None

    async def partitions(self, name: str) -> int:
        """Return how many partitions the topic has, 0 when there is no such topic."""
        described = await self._call(lambda admin: self._describe(admin, name))
        return len(described["partitions"]) if described else 0

    async def ensure(
        self, name: str, partitions: int, retention_s: float, *, replication_factor: int = 1
    ) -> TopicState:
        """Make the topic if it is not there, and say how it is."""

        async def ensure(admin: AIOKafkaAdminClient) -> TopicState:
            created = False
            if await self._describe(admin, name) is None:
                created = await self._create(
                    admin, name, partitions, retention_s, replication_factor
                )
            described = await self._described_with_leaders(admin, name)
            kept_s = await self._retention_s(admin, name)
            found = len(described["partitions"])
            return TopicState(
                name=name,
                topic_id=_id(described),
                partitions=found,
                retention_s=kept_s,
                created=created,
                problems=tuple(_problems(name, partitions, found, retention_s, kept_s)),
            )

        return await self._call(ensure)

    async def _call(self, action: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await action(await self._connected())
        except (errors.KafkaError, OSError, TimeoutError) as error:
            # Whatever is known of the cluster may be wrong now: start over next time.
            await self.close()
            raise ServiceError(
                f"Kafka at {self._bootstrap_servers} does not answer: "
                f"{str(error) or type(error).__name__}. Check that it runs and that "
                "kafka.bootstrap_servers is right"
            ) from error
        except NotImplementedError as error:
            raise ServiceError(
                f"Kafka at {self._bootstrap_servers} is too old to give topic ids: "
                "version 3.1 or newer is needed"
            ) from error

    async def _connected(self) -> AIOKafkaAdminClient:
        async with self._connecting:
            if self._admin is None:
                admin = AIOKafkaAdminClient(
                    bootstrap_servers=self._bootstrap_servers,
                    client_id="fleetopt-topics",
                    request_timeout_ms=int(self._timeout_s * 1000),
                )
                try:
                    await admin.start()
                except BaseException:
                    await admin.close()
                    raise
                self._admin = admin
            return self._admin

    async def _describe(self, admin: AIOKafkaAdminClient, name: str) -> dict[str, Any] | None:
        response = await admin._send_request(TopicMetadataRequest(name))
        topic: dict[str, Any] = response.to_object()["topics"][0]
        error = errors.for_code(topic["error_code"])
        if error is errors.UnknownTopicOrPartitionError:
            return None
        if error not in (errors.NoError, errors.LeaderNotAvailableError):
            raise ServiceError(f"Kafka refuses to describe topic {name}: {error.__name__}")
        return topic

    async def _create(
        self,
        admin: AIOKafkaAdminClient,
        name: str,
        partitions: int,
        retention_s: float,
        replication_factor: int,
    ) -> bool:
        """Return whether the topic was made by us and not, meanwhile, by another."""
        retention_ms = -1 if math.isinf(retention_s) else round(retention_s * 1000)
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            # The broker's clock is one clock; those of the senders are many.
            topic_configs={
                _RETENTION: str(retention_ms),
                "message.timestamp.type": "LogAppendTime",
            },
        )
        response = await admin.create_topics([topic], timeout_ms=int(self._timeout_s * 1000))
        _, code, message = response.topic_errors[0]
        error = errors.for_code(code)
        if error is errors.NoError:
            return True
        if error is errors.TopicAlreadyExistsError:
            return False
        raise ServiceError(
            f"Kafka refuses to make topic {name} with {partitions} partitions, "
            f"{replication_factor} replicas and {retention_s:g} s of retention: "
            f"{message or error.__name__}"
        )

    async def _described_with_leaders(
        self, admin: AIOKafkaAdminClient, name: str
    ) -> dict[str, Any]:
        """Wait until a new topic can be written to: brokers learn of it a little later."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            described = await self._describe(admin, name)
            if described and all(part["leader"] >= 0 for part in described["partitions"]):
                return described
            if time.monotonic() > deadline_s:
                raise ServiceError(f"topic {name} has partitions without a leader")
            await asyncio.sleep(_POLL_S)

    async def _retention_s(self, admin: AIOKafkaAdminClient, name: str) -> float | None:
        # All of its settings: the embedded broker closes the connection when keys are named.
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        for response in await admin.describe_configs([resource]):
            for _, _, _, _, entries in response.resources:
                for key, value, *_ in entries:
                    if key == _RETENTION and value is not None:
                        return math.inf if int(value) < 0 else int(value) / 1000
        return None


async def ensure_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int,
    retention_s: float,
    *,
    replication_factor: int = 1,
    timeout_s: float = 10.0,
) -> TopicState:
    """Make the topic if it is not there, over a connection of its own, and say how it is."""
    async with Topics(bootstrap_servers, timeout_s=timeout_s) as topics:
        return await topics.ensure(
            name, partitions, retention_s, replication_factor=replication_factor
        )


def _id(described: dict[str, Any]) -> str:
    if described["topic_id"] == NO_ID:
        raise ServiceError(
            f"Kafka gives no id for topic {described['name']}: "
            "version 3.1 or newer with KRaft is needed"
        )
    return str(described["topic_id"])


def _problems(
    name: str, partitions: int, found: int, retention_s: float, kept_s: float | None
) -> list[str]:
    problems = []
    if found != partitions:
        problems.append(
            f"topic {name} has {found} partitions, not the {partitions} of kafka.partitions: "
            "it stays as it is; set kafka.partitions to what it has, or alter the topic yourself"
        )
    if kept_s is not None and kept_s < retention_s:
        problems.append(
            f"topic {name} keeps records for {kept_s:g} s, less than the {retention_s:g} s asked "
            "for: a rebuild would miss part of the window; raise its retention.ms to "
            f"{retention_s * 1000:.0f}"
        )
    return problems
