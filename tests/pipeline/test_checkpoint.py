"""A worker that goes on from what is stored ends where one without interruption ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetopt.connectors.sketch_store import FleetChange, StoredCover
from fleetopt.errors import InputError
from fleetopt.pipeline import checkpoint
from fleetopt.pipeline.fold import fold
from fleetopt.pipeline.sketch import Sketch
from fleetopt.pipeline.window import PartitionWindows, WindowConfig
from tests.pipeline.log_messages import START_S, LogMessage, as_json, batch, log_of, logs, record

CONFIG = WindowConfig(slice_s=10, slices=6, allowed_lateness_s=25.0)
MAX_FUTURE_S = 300.0


@dataclass
class Shelf:
    """What the store's script does with a partition's changes, in plain Python."""

    position: int = 0
    sources: bytes = b""
    rejected: bytes = b""
    metas: dict[str, bytes] = field(default_factory=dict)
    slices: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def store(self, windows: PartitionWindows) -> None:
        self.position = windows.position
        self.sources = checkpoint.sources_bytes(windows)
        self.rejected = checkpoint.rejected_bytes(windows)
        for name, change in checkpoint.changes(windows).items():
            self.metas[name] = change.meta
            kept = self.slices.get(name, {}) | dict(change.slices)
            self.slices[name] = {at: data for at, data in kept.items() if at >= change.oldest}
        checkpoint.mark_stored(windows)

    def restored(self) -> PartitionWindows:
        cover = StoredCover(self.position, self.sources, self.rejected, self.metas)
        wanted = checkpoint.open_slices(cover)
        found = {
            name: {at: self.slices[name][at] for at in indices if at in self.slices[name]}
            for name, indices in wanted.items()
        }
        return checkpoint.restore(CONFIG, cover, found)


def fold_each(windows: PartitionWindows, log: list[LogMessage]) -> None:
    for message in log:
        fold(windows, [message], MAX_FUTURE_S)


@settings(max_examples=150)
@given(log=logs(), stores=st.sets(st.integers(0, 12)), deaths=st.sets(st.integers(0, 12)))
def test_going_on_from_what_is_stored_changes_nothing(
    log: list[LogMessage], stores: set[int], deaths: set[int]
) -> None:
    uninterrupted, expected = PartitionWindows(CONFIG), Shelf()
    fold_each(uninterrupted, log)
    expected.store(uninterrupted)

    windows, shelf = PartitionWindows(CONFIG), Shelf()
    shelf.store(windows)
    for at in range(len(log)):
        fold_each(windows, log[: at + 1])  # what is covered already is passed over
        if at in stores:
            shelf.store(windows)
        if at in deaths:
            windows = shelf.restored()
    fold_each(windows, log)
    shelf.store(windows)
    assert shelf == expected


@given(log=logs(), at=st.integers(0, 12))
def test_restoring_gives_open_slices_and_all_counts_back(log: list[LogMessage], at: int) -> None:
    windows, shelf = PartitionWindows(CONFIG), Shelf()
    fold_each(windows, log[:at])
    shelf.store(windows)
    restored = shelf.restored()
    assert restored.position == windows.position
    assert list(restored.sources.items()) == list(windows.sources.items())
    assert restored.rejected == windows.rejected
    assert restored.changed == set()
    for name, window in windows.fleets.items():
        found = restored.fleets[name]
        assert found.meta.watermark_s(CONFIG) == window.meta.watermark_s(CONFIG)
        assert found.open_indices() == window.open_indices()
        for index, sketch in found.slices.items():
            assert sketch.to_bytes() == window.slices[index].to_bytes()


def test_only_what_changed_is_stored() -> None:
    windows = PartitionWindows(CONFIG)
    fold(windows, log_of(as_json(record(5.0, "a")), as_json(record(5.0, "b"))), MAX_FUTURE_S)
    checkpoint.mark_stored(windows)
    assert checkpoint.changes(windows) == {}
    fold(windows, [LogMessage(2, as_json(record(15.0, "a")))], MAX_FUTURE_S)
    (change,) = checkpoint.changes(windows).values()
    second = int(START_S // CONFIG.slice_s) + 1
    assert isinstance(change, FleetChange)
    assert set(change.slices) == {second}
    assert checkpoint.decode_meta(change.meta).open == [second - 1, second]


def test_asking_for_changes_changes_nothing() -> None:
    windows = PartitionWindows(CONFIG)
    fold(windows, log_of(as_json(batch([5.0, 15.0, 95.0]))), MAX_FUTURE_S)
    assert checkpoint.changes(windows) == checkpoint.changes(windows)


def test_what_expired_is_told_even_when_its_slices_are_gone() -> None:
    windows = PartitionWindows(CONFIG)
    fold(windows, log_of(as_json(record(5.0))), MAX_FUTURE_S)
    shelf = Shelf()
    shelf.store(windows)
    fold(windows, [LogMessage(1, as_json(record(5_000.0)))], MAX_FUTURE_S)
    shelf.store(windows)
    (slices,) = shelf.slices.values()
    assert set(slices) == {int((START_S + 5_000.0) // CONFIG.slice_s)}


def test_a_batch_stored_before_a_death_is_still_known_after_it() -> None:
    windows, shelf = PartitionWindows(CONFIG), Shelf()
    sent = as_json(batch([5.0], src="a", seq=2**63 - 1))
    fold(windows, log_of(sent), MAX_FUTURE_S)
    shelf.store(windows)
    restored = shelf.restored()
    fold(restored, [LogMessage(1, sent)], MAX_FUTURE_S)
    meta = restored.fleets["chat"].meta
    assert (meta.accepted, meta.duplicated) == (1, 1)


@pytest.mark.parametrize("damaged", [b"", b"\xc1", b"\x81\xa8accepted\xa1x", b"rubbish"])
def test_damaged_state_is_an_input_error(damaged: bytes) -> None:
    with pytest.raises(InputError, match="rebuild"):
        checkpoint.decode_meta(damaged)
    with pytest.raises(InputError, match="rebuild"):
        checkpoint.decode_rejected(damaged)
    cover = StoredCover(5, damaged, msgspec.msgpack.encode({}), {})
    with pytest.raises(InputError, match="rebuild"):
        checkpoint.restore(CONFIG, cover, {})


def test_slices_that_are_gone_are_an_input_error() -> None:
    windows = PartitionWindows(CONFIG)
    fold(windows, log_of(as_json(record(5.0))), MAX_FUTURE_S)
    shelf = Shelf()
    shelf.store(windows)
    cover = StoredCover(1, shelf.sources, shelf.rejected, shelf.metas)
    with pytest.raises(InputError, match="noeviction"):
        checkpoint.restore(CONFIG, cover, {})


def test_slices_of_another_length_are_an_input_error() -> None:
    windows = PartitionWindows(CONFIG)
    fold(windows, log_of(as_json(record(5.0))), MAX_FUTURE_S)
    shelf = Shelf()
    shelf.store(windows)
    cover = StoredCover(1, shelf.sources, shelf.rejected, shelf.metas)
    (index,) = windows.fleets["chat"].open_indices()
    foreign = {"chat": {index: Sketch.for_slice(60).to_bytes()}}
    with pytest.raises(InputError, match=r"window\.slice_s"):
        checkpoint.restore(CONFIG, cover, foreign)
