"""Sketches in Redis: stored and loaded so that every message is counted exactly once.

The state of a partition and the offset that it covers change in one script, and only if the
stored offset is the one that the writer started from. Whoever finds another offset (a paused
former owner, a worker whose Redis lost its last second) loads what is stored and reads the log
from there. Owns the layout of the keys:

    fleetopt:{sketch:<topic>:<epoch>:<partition>}:cover           hash: position, sources, …,
                                                                  and two fields a fleet:
                                                                  its meta, its oldest slice
    fleetopt:{sketch:<topic>:<epoch>:<partition>}:slices:<fleet>  hash: slice index → sketch
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from fleetopt.errors import InputError

_STORE = """
local position = redis.call('HGET', KEYS[1], 'position') or ''
if position ~= ARGV[1] then
  if position == ARGV[2] then
    return {1, position}
  end
  return {0, position}
end
local ttl_s = ARGV[5]
redis.call('HSET', KEYS[1], 'position', ARGV[2], 'sources', ARGV[3], 'rejected', ARGV[4])
redis.call('EXPIRE', KEYS[1], ttl_s)
local at = 6
for key = 2, #KEYS do
  local name, meta, oldest, count = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  at = at + 4
  redis.call('HSET', KEYS[1], 'fleet:' .. name, meta)
  for _ = 1, tonumber(count) do
    redis.call('HSET', KEYS[key], ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  if redis.call('HGET', KEYS[1], 'oldest:' .. name) ~= oldest then
    redis.call('HSET', KEYS[1], 'oldest:' .. name, oldest)
    for _, index in ipairs(redis.call('HKEYS', KEYS[key])) do
      if tonumber(index) < tonumber(oldest) then
        redis.call('HDEL', KEYS[key], index)
      end
    end
  end
  redis.call('EXPIRE', KEYS[key], ttl_s)
end
return {1, ARGV[2]}
"""

LAYOUT_VERSION: Final = 4
"""Of the bytes stored. Another one makes other keys, so that old sketches are never misread: a
worker finds none, and rebuilds them from the log's last window."""

_FLEET: Final = b"fleet:"


@dataclass(frozen=True, slots=True)
class FleetChange:
    """What is to be stored of one fleet."""

    meta: bytes
    oldest: int
    """Slices below this index are deleted."""
    slices: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class StoredCover:
    """What is stored of a partition, without the slices."""

    position: int
    sources: bytes
    rejected: bytes
    fleets: Mapping[str, bytes]


def sketch_epoch(topic_id: str, slice_s: int) -> str:
    """Return what sketches depend on beside the topic's name: its id, slice length, version."""
    return f"{topic_id}:{slice_s}s:v{LAYOUT_VERSION}"


class SketchStore:
    """The sketches of one topic, by partition; `epoch` is a `sketch_epoch`."""

    def __init__(self, client: Redis, topic: str, epoch: str, ttl_s: float) -> None:
        self._client = client
        self._prefix = f"{topic}:{epoch}"
        self._ttl_s = max(1, round(ttl_s))
        self._store = client.register_script(_STORE)

    def _cover(self, partition: int) -> str:
        return f"fleetopt:{{sketch:{self._prefix}:{partition}}}:cover"

    def _slices(self, partition: int, fleet: str) -> str:
        return f"fleetopt:{{sketch:{self._prefix}:{partition}}}:slices:{fleet}"

    @contextmanager
    def _hashes(self, partition: int | str) -> Iterator[None]:
        """Tell a key of ours that somebody else wrote to from a command that went wrong."""
        try:
            yield
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise InputError(
                f"a key under fleetopt:{{sketch:{self._prefix}:{partition}}} is not a hash: "
                f"something else writes to it ({error})"
            ) from error

    async def store(
        self,
        partition: int,
        base: int | None,
        position: int,
        sources: bytes,
        rejected: bytes,
        fleets: Mapping[str, FleetChange],
    ) -> bool:
        """Store changes that lead from offset `base` (None: nothing stored yet) to `position`.

        Returns False, and changes nothing, where the stored offset is not `base`.
        Safe to repeat when the answer got lost. Raises InputError where a key is not a hash.
        """
        args: list[bytes | str | int] = [
            "" if base is None else base,
            position,
            sources,
            rejected,
            self._ttl_s,
        ]
        for name, change in fleets.items():
            args += [name, change.meta, change.oldest, len(change.slices)]
            for index, sketch in change.slices.items():
                args += [index, sketch]
        keys = [self._cover(partition), *(self._slices(partition, name) for name in fleets)]
        with self._hashes(partition):
            accepted, _ = cast(tuple[int, bytes], await self._store(keys=keys, args=args))
        return bool(accepted)

    async def load(self, partition: int) -> StoredCover | None:
        """Return what is stored of a partition, None where nothing is.

        Raises InputError where that is damaged.
        """
        with self._hashes(partition):
            fields = await cast(
                Awaitable[dict[bytes, bytes]], self._client.hgetall(self._cover(partition))
            )
        if b"position" not in fields:
            return None
        try:
            return StoredCover(
                position=int(fields[b"position"]),
                sources=fields[b"sources"],
                rejected=fields[b"rejected"],
                fleets={
                    name[len(_FLEET) :].decode(): meta
                    for name, meta in fields.items()
                    if name.startswith(_FLEET)
                },
            )
        except (KeyError, ValueError) as error:
            raise InputError(f"{self._cover(partition)} is damaged: {error!r}") from error

    async def forget(self, partition: int, fleets: Iterable[str] = ()) -> None:
        """Delete what is stored of a partition, of `fleets` too where it does not name them."""
        cover = self._cover(partition)
        slices = {self._slices(partition, fleet) for fleet in fleets}
        if await self._client.type(cover) == b"hash":
            names = await cast(Awaitable[list[bytes]], self._client.hkeys(cover))
            slices |= {
                self._slices(partition, name[len(_FLEET) :].decode())
                for name in names
                if name.startswith(_FLEET)
            }
        await self._client.delete(cover, *slices)

    async def load_slices(
        self, partition: int, wanted: Mapping[str, list[int]]
    ) -> dict[str, dict[int, bytes]]:
        """Return the wanted slices by fleet; those that are not stored are left out.

        Raises InputError where a key is not a hash.
        """
        asked = {fleet: indices for fleet, indices in wanted.items() if indices}
        async with self._client.pipeline(transaction=False) as pipe:
            for fleet, indices in asked.items():
                pipe.hmget(self._slices(partition, fleet), [str(index) for index in indices])
            with self._hashes(partition):
                answers = await pipe.execute()
        return {
            fleet: {
                index: sketch
                for index, sketch in zip(indices, answer, strict=True)
                if sketch is not None
            }
            for (fleet, indices), answer in zip(asked.items(), answers, strict=True)
        }

    async def fleets(self, partitions: int) -> set[str]:
        """Return the names of all fleets that any partition knows.

        Raises InputError where a key is not a hash.
        """
        async with self._client.pipeline(transaction=False) as pipe:
            for partition in range(partitions):
                pipe.hkeys(self._cover(partition))
            with self._hashes("*"):
                answers = await pipe.execute()
        return {
            name[len(_FLEET) :].decode()
            for names in answers
            for name in names
            if name.startswith(_FLEET)
        }

    async def load_fleet(self, fleet: str, partitions: int) -> list[tuple[bytes, dict[int, bytes]]]:
        """Return (meta, slices) of a fleet from each partition that knows it.

        The slices may be newer than the meta, but not those that it says are closed.
        Raises InputError where a key is not a hash.
        """
        async with self._client.pipeline(transaction=False) as pipe:
            for partition in range(partitions):
                pipe.hget(self._cover(partition), f"fleet:{fleet}")
                pipe.hgetall(self._slices(partition, fleet))
            with self._hashes("*"):
                answers = await pipe.execute()
        return [
            (meta, {int(index): sketch for index, sketch in slices.items()})
            for meta, slices in zip(answers[::2], answers[1::2], strict=True)
            if meta is not None
        ]
