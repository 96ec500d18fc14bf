"""A partition's windows as bytes and back: what is stored with each offset.

Pure: says what has changed since the last store, and rebuilds windows from what was loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from fleetopt.connectors.sketch_store import FleetChange, StoredCover
from fleetopt.pipeline.sketch import Sketch
from fleetopt.pipeline.window import FleetMeta, FleetWindow, PartitionWindows, WindowConfig

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
    """Read a fleet's meta."""
    return _meta_decoder.decode(data)


def decode_rejected(data: bytes) -> dict[str, int]:
    """Read the counts of refused rows."""
    return _rejected_decoder.decode(data)


def open_slices(cover: StoredCover) -> dict[str, list[int]]:
    """Return which stored slices a worker needs to go on."""
    return {name: decode_meta(meta).open for name, meta in cover.fleets.items()}


def restore(
    config: WindowConfig, cover: StoredCover, slices: Mapping[str, Mapping[int, bytes]]
) -> PartitionWindows:
    """Rebuild a partition's windows from what is stored."""
    windows = PartitionWindows(
        config=config,
        position=cover.position,
        sources=OrderedDict(_sources_decoder.decode(cover.sources)),
        rejected=decode_rejected(cover.rejected),
    )
    for name, meta in cover.fleets.items():
        window = FleetWindow(config, decode_meta(meta))
        window.slices = {
            index: Sketch.from_bytes(data) for index, data in slices.get(name, {}).items()
        }
        windows.fleets[name] = window
    return windows


def _change(window: FleetWindow) -> FleetChange:
    meta = msgspec.structs.replace(window.meta, open=window.open_indices())
    return FleetChange(
        meta=_encoder.encode(meta),
        oldest=window.oldest,
        slices={index: window.slices[index].to_bytes() for index in sorted(window.changed)},
    )
