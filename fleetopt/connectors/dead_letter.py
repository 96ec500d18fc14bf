"""Dead letters: what was refused, with its reason, on a topic beside the one it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition

from fleetopt.connectors.wire import Rejected

MAX_VALUE_BYTES: Final = 900_000
"""Longer values are cut, so that a letter fits where its message just fitted."""


def dead_letter_topic(topic: str) -> str:
    """Return the name of the topic's dead-letter topic."""
    return f"{topic}.dead-letter"


async def send_dead_letters(
    producer: AIOKafkaProducer, source: TopicPartition, letters: Iterable[tuple[int, Rejected]]
) -> None:
    """Write letters (offset, refused) and return when the broker has them all."""
    sent = [
        await producer.send(
            dead_letter_topic(source.topic),
            value=rejected.value[:MAX_VALUE_BYTES],
            headers=[
                ("reason", rejected.reason.value.encode()),
                ("detail", rejected.detail.encode("utf-8", "backslashreplace")),
                ("topic", source.topic.encode()),
                ("partition", str(source.partition).encode()),
                ("offset", str(offset).encode()),
                ("bytes", str(len(rejected.value)).encode()),
            ],
        )
        for offset, rejected in letters
    ]
    await asyncio.gather(*sent)
