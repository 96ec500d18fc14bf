"""State and offset change together in a real Redis, and only from the offset that is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
import redis
from redis.asyncio import Redis

from fleetopt.connectors.sketch_store import FleetChange, SketchStore
from fleetopt.errors import InputError
from fleetopt.pipeline import checkpoint
from fleetopt.pipeline.fold import fold
from fleetopt.pipeline.window import PartitionWindows, WindowConfig
from tests.pipeline.log_messages import FLEETS, as_json, batch, log_of, record

T = TypeVar("T")
TTL_S = 3_600
ODD = "a:b/c-é"
CONFIG = WindowConfig(slice_s=10, slices=6, allowed_lateness_s=25.0)


class Stores:
    """Runs one action on a store of this test's topic, each over a connection of its own."""

    def __init__(self, url: str, topic: str) -> None:
        self.url = url
        self.topic = topic

    def __call__(self, action: Callable[[SketchStore], Awaitable[T]], epoch: str = "epoch-1") -> T:
        async def run() -> T:
            client = Redis.from_url(self.url)
            try:
                return await action(SketchStore(client, self.topic, epoch, TTL_S))
            finally:
                await client.aclose()

        return asyncio.run(run())


@pytest.fixture
def on_store(redis_url: str, topic: str, redis_client: redis.Redis) -> Iterator[Stores]:
    """Run actions on the store, and leave nothing behind in a Redis that is not ours."""
    yield Stores(redis_url, topic)
    for key in redis_client.scan_iter(match=f"*{topic}*"):
        redis_client.delete(key)


@pytest.fixture
def keys(redis_client: redis.Redis, topic: str) -> Callable[[], dict[bytes, object]]:
    """Return what is stored under this test's topic."""

    def read() -> dict[bytes, object]:
        found = sorted(redis_client.scan_iter(match=f"*{topic}*"))
        return {key: redis_client.hgetall(key) for key in found}

    return read


def write(
    base: int | None,
    position: int,
    fleets: dict[str, FleetChange] | None = None,
    partition: int = 0,
) -> Callable[[SketchStore], Awaitable[bool]]:
    return lambda store: store.store(
        partition, base, position, b"sources-%d" % position, b"rejected", fleets or {}
    )


def change(meta: bytes = b"meta", oldest: int = 0, **slices: bytes) -> FleetChange:
    return FleetChange(meta, oldest, {int(index[1:]): data for index, data in slices.items()})


Keys = Callable[[], dict[bytes, object]]


def test_what_is_stored_is_loaded(on_store: Stores, keys: Keys) -> None:
    fleets = {"chat": change(b"\x00\xff", s5=b"five\x00", s6=b""), ODD: change(b"odd", s7=b"seven")}
    assert on_store(write(None, 10, fleets))
    cover = on_store(lambda store: store.load(0))
    assert cover is not None
    assert (cover.position, cover.sources, cover.rejected) == (10, b"sources-10", b"rejected")
    assert dict(cover.fleets) == {"chat": b"\x00\xff", ODD: b"odd"}
    wanted = {"chat": [5, 6, 99], ODD: [7], "unknown": [1], "none": []}
    assert on_store(lambda store: store.load_slices(0, wanted)) == {
        "chat": {5: b"five\x00", 6: b""},
        ODD: {7: b"seven"},
        "unknown": {},
    }
    assert on_store(lambda store: store.load_slices(0, {})) == {}
    assert len(keys()) == 3


def test_nothing_stored_is_none(on_store: Stores, keys: Keys) -> None:
    assert on_store(lambda store: store.load(0)) is None
    assert on_store(lambda store: store.fleets(3)) == set()
    assert on_store(lambda store: store.load_fleet("chat", 3)) == []
    assert keys() == {}


@pytest.mark.parametrize("base", [None, 0, 9, 11, 20])
def test_a_write_from_another_offset_is_refused_and_changes_nothing(
    on_store: Stores, keys: Keys, base: int | None
) -> None:
    assert on_store(write(None, 10, {"chat": change(s5=b"five")}))
    before = keys()
    later = {"chat": change(b"newer", 6, s6=b"six"), "other": change(s1=b"one")}
    assert not on_store(write(base, 30, later))
    assert keys() == before


def test_nothing_stored_takes_no_write_that_goes_on(on_store: Stores, keys: Keys) -> None:
    """A Redis that lost its data must not take a half window for a whole one."""
    assert not on_store(write(10, 20, {"chat": change(s5=b"five")}))
    assert keys() == {}
    assert on_store(write(None, 20))


def test_a_repeated_write_is_accepted_and_counts_once(on_store: Stores, keys: Keys) -> None:
    assert on_store(write(None, 10, {"chat": change(s5=b"five")}))
    again = write(10, 20, {"chat": change(b"newer", s5=b"more")})
    assert on_store(again)
    before = keys()
    assert on_store(again)
    assert keys() == before


def test_position_zero_is_not_nothing(on_store: Stores, keys: Keys) -> None:
    assert on_store(write(None, 0))
    assert not on_store(write(None, 5))
    assert on_store(write(0, 5))
    assert len(keys()) == 1


def test_of_two_owners_the_one_who_was_overtaken_is_refused(on_store: Stores) -> None:
    assert on_store(write(None, 10))
    assert on_store(write(10, 25, {"chat": change(s5=b"new owner")}))
    assert not on_store(write(10, 20, {"chat": change(s5=b"paused owner")}))
    assert on_store(lambda store: store.load_slices(0, {"chat": [5]})) == {
        "chat": {5: b"new owner"}
    }


def test_old_slices_are_deleted_and_others_stay(on_store: Stores) -> None:
    assert on_store(write(None, 1, {"chat": change(s5=b"5", s9=b"9", s10=b"10", s100=b"100")}))
    assert on_store(write(1, 2, {"other": change(oldest=50, s60=b"60")}))
    ((_, slices),) = on_store(lambda store: store.load_fleet("chat", 1))
    assert set(slices) == {5, 9, 10, 100}, "another fleet's age is its own"
    assert on_store(write(2, 3, {"chat": change(oldest=10, s101=b"101")}))
    ((_, slices),) = on_store(lambda store: store.load_fleet("chat", 1))
    assert slices == {10: b"10", 100: b"100", 101: b"101"}
    assert on_store(write(3, 4, {"chat": change(oldest=-7, s102=b"102")}))
    ((_, slices),) = on_store(lambda store: store.load_fleet("chat", 1))
    assert set(slices) == {10, 100, 101, 102}


def test_a_fleet_is_gathered_from_its_partitions(on_store: Stores) -> None:
    assert on_store(write(None, 1, {"chat": change(b"m0", s5=b"p0"), ODD: change()}, partition=0))
    assert on_store(write(None, 1, {"code": change()}, partition=1))
    assert on_store(write(None, 1, {"chat": change(b"m2", s6=b"p2")}, partition=2))
    assert on_store(lambda store: store.load_fleet("chat", 3)) == [
        (b"m0", {5: b"p0"}),
        (b"m2", {6: b"p2"}),
    ]
    assert on_store(lambda store: store.fleets(3)) == {"chat", "code", ODD}
    assert on_store(lambda store: store.fleets(2)) == {"chat", "code", ODD}
    assert on_store(lambda store: store.load_fleet(ODD, 3)) == [(b"meta", {})]


@pytest.mark.parametrize("field", ["position", "sources", "rejected"])
def test_a_damaged_cover_is_said_to_be_damaged(
    on_store: Stores, redis_client: redis.Redis, keys: Keys, field: str
) -> None:
    on_store(lambda store: store.store(0, None, 5, b"s", b"r", {"a": change(s1=b"x")}))
    cover = next(key for key in keys() if key.endswith(b":cover"))
    if field == "position":
        redis_client.hset(cover, field, "x")
    else:
        redis_client.hdel(cover, field)
    with pytest.raises(InputError, match="damaged"):
        on_store(lambda store: store.load(0))


@pytest.mark.parametrize("which", ["cover", "slices:a"])
def test_a_key_of_another_type_is_reported_and_can_be_forgotten(
    on_store: Stores, redis_client: redis.Redis, keys: Keys, which: str
) -> None:
    fleets = {"a": change(s1=b"x")}
    on_store(lambda store: store.store(0, None, 5, b"s", b"r", fleets))
    key = next(key for key in keys() if key.endswith(which.encode()))
    redis_client.delete(key)
    redis_client.set(key, "not ours")
    for action in (
        lambda store: store.store(0, 5, 6, b"s", b"r", fleets),
        lambda store: store.load_fleet("a", 1),
        (lambda store: store.load(0))
        if which == "cover"
        else (lambda store: store.load_slices(0, {"a": [1]})),
    ):
        with pytest.raises(InputError, match="not a hash"):
            on_store(action)
    on_store(lambda store: store.forget(0, ["a"]))
    assert keys() == {}
    assert on_store(lambda store: store.store(0, None, 6, b"s", b"r", fleets))


def test_another_epoch_of_the_topic_has_its_own_state(on_store: Stores) -> None:
    assert on_store(write(None, 10, {"chat": change(s5=b"five")}))
    assert on_store(lambda store: store.load(0), epoch="epoch-2") is None
    assert on_store(write(None, 3), epoch="epoch-2")
    cover = on_store(lambda store: store.load(0))
    assert cover is not None
    assert cover.position == 10


def test_all_keys_of_a_partition_have_one_hash_tag_and_expire(
    on_store: Stores, keys: Keys, redis_client: redis.Redis
) -> None:
    assert on_store(write(None, 10, {"chat": change(s5=b"five"), ODD: change(s5=b"five")}))
    found = keys()
    assert len(found) == 3
    assert len({key[key.index(b"{") : key.index(b"}")] for key in found}) == 1
    for key in found:
        assert 0 < int(redis_client.ttl(key)) <= TTL_S


def test_a_partitions_windows_go_through_redis_unchanged(on_store: Stores) -> None:
    windows = PartitionWindows(CONFIG)
    values = [
        as_json(record(at * 4.0, FLEETS[at % 2])) if at % 3 else as_json(batch([at * 4.0, 1.0]))
        for at in range(40)
    ]
    fold(windows, log_of(*values, b"rubbish", None), 300.0)

    async def save(store: SketchStore) -> bool:
        return await store.store(
            0,
            None,
            windows.position,
            checkpoint.sources_bytes(windows),
            checkpoint.rejected_bytes(windows),
            checkpoint.changes(windows),
        )

    async def load(store: SketchStore) -> PartitionWindows:
        cover = await store.load(0)
        assert cover is not None
        slices = await store.load_slices(0, checkpoint.open_slices(cover))
        return checkpoint.restore(CONFIG, cover, slices)

    assert on_store(save)
    checkpoint.mark_stored(windows)
    restored = on_store(load)
    assert (restored.position, restored.rejected) == (42, {"malformed": 1, "empty": 1})
    for name in FLEETS:
        mine, theirs = windows.fleets[name], restored.fleets[name]
        assert theirs.meta.accepted == mine.meta.accepted > 0
        assert {index: sketch.to_bytes() for index, sketch in theirs.slices.items()} == {
            index: sketch.to_bytes() for index, sketch in mine.slices.items()
        }
