"""An engine's own `/tokenize`: token counts for any model that it serves.

Speaks to vLLM and SGLang (`prompt` or `messages` in, `count` out) and to llama.cpp's server
(`content` in, `tokens` out; chats through `/apply-template`), and finds out which it is. Before the
first count, every minute, and after every failure it asks for the model and for a fixed text's
tokens again: an engine that came back with another tokenizer must not go on counting for the old
one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Annotated, Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fleetopt.connectors.engine_http import EngineHttp
from fleetopt.connectors.message_text import check_unicode, text_parts
from fleetopt.errors import ServiceError

RECHECK_S: Final = 60.0

PROBE: Final = "The quick brown fox: 12345 naïve 日本語 🙂\r\n\tdef f(x): return x  # <|im_end|>"
"""No two vocabularies that are in use make the same tokens of it."""


class _Dialect(Enum):
    VLLM = auto()
    LLAMA_CPP = auto()


class _Model(msgspec.Struct):
    id: str
    root: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Count(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0)]


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Probed(msgspec.Struct):
    tokens: list[int]
    count: int | None = None


class _Prompt(msgspec.Struct):
    prompt: str


class EndpointCounter:
    """Counts for one model through its engine; may be used by several threads.

    Opens no connection until the first count, or `check`. Every call raises ServiceError where
    the engine does not answer within `timeout_s`, refuses, or serves another model.

    Parameters
    ----------
    model : str
        As the engine serves it.
    endpoint : str
        `http://host:port`; a path before `/tokenize` is kept, `/v1` left out.
    timeout_s : float
        For one call, with its checks and another attempt on a closed connection. An answer that
        comes in drops may take up to twice that.
    api_key : str, optional
        Sent as bearer token.
    connections : int
        Kept open at most; further calls wait for one.
    """

    per_unit: Final = False

    def __init__(
        self,
        model: str,
        endpoint: str,
        *,
        timeout_s: float = 5.0,
        api_key: str | None = None,
        connections: int = 8,
    ) -> None:
        self.model = model
        self.name = f"{model} at {endpoint}"
        self._http = EngineHttp(
            endpoint, timeout_s=timeout_s, api_key=api_key, connections=connections
        )
        self._lock = threading.Lock()
        self._dialect = _Dialect.VLLM
        self._probe: list[int] | None = None
        self._recheck_s = -float("inf")
        self._checked_failures = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._http.close()

    def check(self) -> None:
        """Raise ServiceError unless the engine answers, serves the model and counts as before."""
        self._check(self._http.deadline_s())

    def count(self, text: str) -> int:
        """Tokens of the text alone, as the engine reads it."""
        check_unicode(text)
        return self._count(text, self._begin(), is_prompt=False)

    def count_many(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each text, shape (texts,): a request for each, so not for many."""
        return np.array([self.count(text) for text in texts], dtype=np.int64)

    def count_prompt(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of a chat prompt as the engine's own template writes it, tools' answers too.

        Raises InputError for parts that are not text: an engine counts an image as one token
        here, and as hundreds when it is served.
        """
        for at, message in enumerate(messages):
            text_parts(message.get("content"), at)
        deadline_s = self._begin()
        if self._dialect is _Dialect.LLAMA_CPP:
            chat = {"messages": messages}
            prompt = self._http.post("/apply-template", chat, _Prompt, deadline_s).prompt
            return self._count(prompt, deadline_s, is_prompt=True)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "add_generation_prompt": True,
            "add_special_tokens": False,
        }
        return self._http.post("/tokenize", body, _Count, deadline_s).count

    def _count(self, text: str, deadline_s: float, *, is_prompt: bool) -> int:
        body: dict[str, Any]
        if self._dialect is _Dialect.LLAMA_CPP:
            body = {"content": text, "add_special": is_prompt, "parse_special": True}
            return len(self._http.post("/tokenize", body, _Tokens, deadline_s).tokens)
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        return self._http.post("/tokenize", body, _Count, deadline_s).count

    def _begin(self) -> float:
        """Check the engine where it is time to, and return when the call has to be over."""
        deadline_s = self._http.deadline_s()
        is_due = time.monotonic() >= self._recheck_s
        if is_due or self._http.failures != self._checked_failures:
            self._check(deadline_s)
        return deadline_s

    def _check(self, deadline_s: float) -> None:
        failures = self._http.failures
        self._check_model(deadline_s)
        body = {
            "model": self.model,
            "prompt": PROBE,
            "content": PROBE,
            "add_special_tokens": False,
            "add_special": False,
            "parse_special": True,
        }
        probed = self._http.post("/tokenize", body, _Probed, deadline_s)
        if not probed.tokens:
            raise ServiceError(
                f"the engine at {self._http.endpoint} has no tokens for a text: is it an engine "
                "that FleetOpt knows (vLLM, SGLang, llama.cpp)?"
            )
        with self._lock:
            if self._probe is None:
                self._probe = probed.tokens
            elif self._probe != probed.tokens:
                raise ServiceError(
                    f"the engine at {self._http.endpoint} tokenizes otherwise than before: it is "
                    f"not the {self.model!r} that it was; make a new counter to count with it"
                )
            self._dialect = _Dialect.LLAMA_CPP if probed.count is None else _Dialect.VLLM
            self._recheck_s = time.monotonic() + RECHECK_S
            self._checked_failures = failures

    def _check_model(self, deadline_s: float) -> None:
        models = self._http.get("/v1/models", _Models, deadline_s)
        if models is None:  # a gateway in between may pass /tokenize only
            return
        names = [name for each in models.data for name in (each.id, each.root) if name]
        if self.model not in names:
            served = ", ".join(repr(name) for name in dict.fromkeys(names)) or "nothing"
            raise ServiceError(
                f"the engine at {self._http.endpoint} does not serve {self.model!r}, but "
                f"{served}: name the model as the engine does, or give another address"
            )
