"""A partition's windows as bytes and back: what is stored with each offset.

Pure: says what has changed since the last store, and rebuilds windows from what was loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from fleetopt.connectors.sketch_store import FleetChange, StoredCover
from fleetopt.errors import InputError
from fleetopt.pipeline.sketch import Sketch, cells_in
from fleetopt.pipeline.window import FleetMeta, FleetWindow, PartitionWindows, WindowConfig

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_meta_decoder = msgspec.msgpack.Decoder(FleetMeta)
_sources_decoder = msgspec.msgpack.Decoder(list[tuple[str, int]])
_rejected_decoder = msgspec.msgpack.Decoder(dict[str, int])


def sources_bytes(windows: PartitionWindows) -> bytes:
    """Encode the sources' sequence numbers, least recent first."""
    return _encoder.encode(list(windows.sources.items()))


def rejected_bytes(windows: PartitionWindows) -> bytes:
    """Encode the counts of refused rows."""
    return _encoder.encode(windows.rejected)


def changes(windows: PartitionWindows) -> dict[str, FleetChange]:
    """Return what is to be stored of each fleet that changed."""
    return {name: _change(windows.fleets[name]) for name in windows.changed}


def mark_stored(windows: PartitionWindows) -> None:
    """Note that what `changes` returned is stored."""
    for name in windows.changed:
        windows.fleets[name].stored()
    windows.changed.clear()


def decode_meta(data: bytes) -> FleetMeta:
    """Read a fleet's meta; raises InputError for anything else."""
    return _decoded(_meta_decoder, data)


def decode_rejected(data: bytes) -> dict[str, int]:
    """Read the counts of refused rows; raises InputError for anything else."""
    return _decoded(_rejected_decoder, data)


def open_slices(cover: StoredCover) -> dict[str, list[int]]:
    """Return which stored slices a worker needs to go on."""
    return {name: decode_meta(meta).open for name, meta in cover.fleets.items()}


def restore(
    config: WindowConfig, cover: StoredCover, slices: Mapping[str, Mapping[int, bytes]]
) -> PartitionWindows:
    """Rebuild a partition's windows from what is stored.

    Raises InputError where that is damaged, or was cut into slices of another length.
    """
    sources = _decoded(_sources_decoder, cover.sources)
    windows = PartitionWindows(
        config=config,
        position=cover.position,
        sources=OrderedDict(sources),
        rejected=decode_rejected(cover.rejected),
    )
    for name, meta in cover.fleets.items():
        window = FleetWindow(config, decode_meta(meta))
        stored = slices.get(name, {})
        lost = [index for index in window.meta.open if index not in stored]
        if lost:
            raise InputError(
                f"slices {lost} of fleet {name!r} are not stored any more: has Redis evicted "
                "keys? FleetOpt needs maxmemory-policy noeviction"
            )
        window.slices = {index: _sketch(config, data) for index, data in stored.items()}
        windows.fleets[name] = window
    return windows


def _sketch(config: WindowConfig, data: bytes) -> Sketch:
    sketch = Sketch.from_bytes(data)
    if len(sketch.arrivals) != cells_in(config.slice_s):
        raise InputError(
            f"a stored sketch has {len(sketch.arrivals)} arrival cells, slices of "
            f"{config.slice_s} s have {cells_in(config.slice_s)}: put window.slice_s back, or "
            "delete the stored sketches to rebuild them from the log"
        )
    return sketch


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise InputError(
            f"what is stored of a partition is damaged ({error}): delete the stored sketches to "
            "rebuild them from the log"
        ) from error


def _change(window: FleetWindow) -> FleetChange:
    meta = msgspec.structs.replace(window.meta, open=window.open_indices())
    return FleetChange(
        meta=_encoder.encode(meta),
        oldest=window.oldest,
        slices={index: window.slices[index].to_bytes() for index in sorted(window.changed)},
    )
