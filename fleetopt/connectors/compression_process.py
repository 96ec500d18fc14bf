"""One process that compresses: a prompt in, an outcome out, one at a time, until its socket ends.

Runs apart from the event loop that feeds it. It owns the counters and the framing of the socket,
keeps nothing between two prompts, and writes no log: what went wrong is part of the answer.
"""

from __future__ import annotations

import gc
import signal
import socket
import struct
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.compress import compress
from fleetopt.compressor.options import CompressOptions
from fleetopt.compressor.outcome import Compressed, Reason, Unchanged
from fleetopt.compressor.tokens import TokenCounter
from fleetopt.connectors.compression_wire import (
    CompressionReply,
    CompressionRequest,
    decode_request,
    reply_of,
)
from fleetopt.connectors.token_counter import counter_for
from fleetopt.connectors.wire import Rejected
from fleetopt.errors import ConfigError

LENGTH: Final = struct.Struct("!I")
TIME_LEFT: Final = struct.Struct("!d")
MAX_COUNTERS: Final = 16
"""Counters kept for models that the settings don't name; each takes some 30 MB."""

_WARM_UP: Final = "\n\n".join(
    f"Paragraph {number} says what paragraph {number // 2} said. It adds number {number * 7}."
    for number in range(200)
)


@dataclass(frozen=True, slots=True)
class ModelCounter:
    """How a model's tokens are counted."""

    #: A model whose bundled vocabulary is the same; None: the model's own name says it.
    tokenizer: str | None = None
    #: The engine's address; its own /tokenize counts then.
    endpoint: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What every process of a pool is given at its start."""

    #: By model as requests name it; others are counted by their bundled vocabulary.
    models: Mapping[str, ModelCounter] = field(default_factory=dict)
    #: What a request doesn't say.
    options: CompressOptions = field(default_factory=CompressOptions)
    #: A prompt that takes longer ends its process.
    limit_s: float = 10.0


class Answer(msgspec.Struct, frozen=True):
    """What the socket brings back."""

    reply: CompressionReply
    took_s: float = 0.0
    #: Where an exception came from that nobody expected; without its message, which may quote
    #: the prompt.
    traceback: str | None = None


class Counters:
    """Counters by model, made when first asked for and kept."""

    def __init__(self, models: Mapping[str, ModelCounter]) -> None:
        self._models = models
        self._named: dict[str, TokenCounter] = {}
        self._others: OrderedDict[str, TokenCounter] = OrderedDict()

    def of(self, model: str) -> TokenCounter:
        """Return the model's counter. Raises ConfigError where there is none."""
        how = self._models.get(model)
        if how is not None:
            if model not in self._named:
                self._named[model] = make_counter(model, how)
            return self._named[model]
        if model not in self._others:
            self._others[model] = make_counter(model, ModelCounter())
            if len(self._others) > MAX_COUNTERS:
                self._others.popitem(last=False)
        self._others.move_to_end(model)
        return self._others[model]


class _Bytes:
    """Counts bytes, to warm up with: no budget is ever kept with it."""

    name: Final = "bytes"
    per_unit: Final = True

    def count(self, text: str) -> int:
        return len(text.encode())

    def count_many(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return np.array([self.count(text) for text in texts], np.int64)

    def count_prompt(self, messages: Sequence[Mapping[str, Any]]) -> int:
        return sum(self.count(str(message)) for message in messages)


def make_counter(model: str, how: ModelCounter) -> TokenCounter:
    """Return what counts a model's tokens. Raises ConfigError where nothing can."""
    if how.endpoint is None:
        return counter_for(how.tokenizer or model)
    return counter_for(model, how.endpoint, timeout_s=how.timeout_s, api_key=how.api_key)


def serve(connection: socket.socket, setup: Setup) -> None:
    """Answer what comes in on the socket until it ends; the first answer says whether all is well.

    The pool decides when a process ends, and whoever sends signals to a whole group means the pool.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with connection:
        counters = Counters(setup.models)
        try:
            _warm_up(counters, setup)
        except ConfigError as error:
            _send(connection, str(error).encode())
            return
        gc.freeze()
        _send(connection, b"")
        while (frame := _receive(connection)) is not None:
            # Nobody may be there any more to end a process that hangs, so that it ends itself.
            signal.setitimer(signal.ITIMER_REAL, setup.limit_s)
            answer = msgspec.msgpack.encode(answer_to(frame, counters, setup.options))
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            if not _send(connection, answer):
                return


def answer_to(frame: bytes, counters: Counters, options: CompressOptions) -> Answer:
    """Compress what a frame holds; whatever happens, there is an answer."""
    started_s = time.monotonic()
    (left_s,) = TIME_LEFT.unpack_from(frame)
    request = decode_request(frame[TIME_LEFT.size :])
    if isinstance(request, Rejected):
        outcome: Compressed | Unchanged = Unchanged(Reason.INVALID_PROMPT, request.detail)
        return Answer(reply_of("", outcome))
    seen = None
    try:
        outcome = _compress(request, counters, options, started_s + left_s)
    except Exception as error:
        seen = _where(error)
        outcome = Unchanged(Reason.FAILED, f"{type(error).__name__} while it was compressed")
    return Answer(reply_of(request.request_id, outcome), time.monotonic() - started_s, seen)


def _compress(
    request: CompressionRequest, counters: Counters, options: CompressOptions, deadline_s: float
) -> Compressed | Unchanged:
    try:
        counter = counters.of(request.model)
    except ConfigError as error:
        return Unchanged(Reason.NO_TOKEN_COUNTER, str(error))
    asked = {
        name: value
        for name, value in msgspec.structs.asdict(request.options).items()
        if value is not None
    }
    return compress(
        request.prompt,
        request.budget_tokens,
        counter,
        options=replace(
            options,
            category=request.category,
            cached_prompt_tokens=request.cached_prompt_tokens,
            **asked,
        ),
        clock=time.monotonic,
        deadline_s=deadline_s,
    )


def _warm_up(counters: Counters, setup: Setup) -> None:
    """Fill the tables and load what the settings name, so that the first prompt is no slower."""
    compress(_WARM_UP, round(0.7 * len(_WARM_UP)), _Bytes())
    for model in setup.models:
        counter = counters.of(model)
        if counter.per_unit:
            compress(_WARM_UP, round(0.7 * counter.count(_WARM_UP)), counter)


def _where(error: Exception) -> str:
    """Return the lines that an exception passed, and its type."""
    stack = traceback.format_list(traceback.extract_tb(error.__traceback__))
    return "".join([*stack, type(error).__name__])


def _receive(connection: socket.socket) -> bytes | None:
    """Return the next frame, None at the end of the stream."""
    length = _read(connection, LENGTH.size)
    return None if length is None else _read(connection, LENGTH.unpack(length)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(min(size - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


def _send(connection: socket.socket, frame: bytes) -> bool:
    """Return whether somebody is there to take the frame."""
    try:
        connection.sendall(LENGTH.pack(len(frame)) + frame)
    except ConnectionError:
        return False
    return True
