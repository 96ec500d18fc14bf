"""JSON requests to one engine over kept connections, each call with its deadline.

Whatever goes wrong on the way (no answer in time, another status than 200, something else than
was asked for) is a ServiceError that names the engine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from fleetopt.connectors.message_text import lone_surrogate
from fleetopt.errors import ConfigError, InputError, ServiceError

if TYPE_CHECKING:
    import urllib3

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 1 << 26
ATTEMPTS: Final = 2
"""A kept connection may have been closed by the engine just now: then another one is tried."""

_CHUNK_BYTES: Final = 1 << 16
_MAX_DETAIL: Final = 200


class EngineHttp:
    """One engine's HTTP interface; may be used by several threads.

    Raises ConfigError for an address that is none, and where the package is not installed.
    """

    def __init__(
        self, endpoint: str, *, timeout_s: float, api_key: str | None, connections: int
    ) -> None:
        if not 0.0 < timeout_s < float("inf"):
            raise ConfigError(f"timeout_s is {timeout_s}; expected seconds above 0")
        self.endpoint = endpoint
        self.failures = 0
        """Calls that failed so far: whoever remembers something of the engine asks it again."""
        self._timeout_s = timeout_s
        self._pool, self._path = _connect(endpoint, connections)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._pool.close()

    def deadline_s(self) -> float:
        """Return when a call that begins now has to be over, by the monotonic clock."""
        return time.monotonic() + self._timeout_s

    def post(self, path: str, body: object, kind: type[T], deadline_s: float) -> T:
        """Return the answer to a request with this body, read as `kind`."""
        status, answer = self._request("POST", path, _encoded(body), deadline_s)
        return self._decoded(path, status, answer, kind)

    def get(self, path: str, kind: type[T], deadline_s: float) -> T | None:
        """Return what is at this path, read as `kind`; None where nothing is (404)."""
        status, answer = self._request("GET", path, None, deadline_s)
        return None if status == 404 else self._decoded(path, status, answer, kind)

    def _decoded(self, path: str, status: int, answer: bytes, kind: type[T]) -> T:
        seen = repr(answer[:_MAX_DETAIL].decode(errors="replace"))
        if status != 200:
            self.failures += 1
            raise self._error(f"answered {path} with status {status}: {seen}")
        try:
            return msgspec.json.decode(answer, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.failures += 1
            raise self._error(
                f"answered {path} with something else than asked for ({error}): {seen}. Is it an "
                "engine that FleetOpt knows (vLLM, SGLang, llama.cpp)?"
            ) from error

    def _request(
        self, method: str, path: str, body: bytes | None, deadline_s: float
    ) -> tuple[int, bytes]:
        """Return status and body; raises ServiceError where there are none in time."""
        from urllib3 import exceptions

        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(method, path, body, deadline_s)
            except exceptions.ProtocolError as error:
                if attempt < ATTEMPTS and time.monotonic() < deadline_s:
                    continue
                self.failures += 1
                raise self._error(f"closed the connection at {path} ({error})") from error
            except exceptions.EmptyPoolError as error:
                raise self._error(
                    f"had no connection free for {path} within {self._timeout_s:g} s: allow more"
                ) from error
            except exceptions.HTTPError as error:
                self.failures += 1
                # A refused connection is a kind of timeout there.
                is_refused = isinstance(error, exceptions.NewConnectionError)
                if isinstance(error, exceptions.TimeoutError) and not is_refused:
                    raise self._late(path) from error
                raise self._error(
                    f"can't be reached ({error}): start it, or give its right address"
                ) from error

    def _attempt(
        self, method: str, path: str, body: bytes | None, deadline_s: float
    ) -> tuple[int, bytes]:
        from urllib3 import Timeout

        left_s = self._left_s(path, deadline_s)
        response = self._pool.urlopen(
            method,
            self._path + path,
            body=body,
            headers=self._headers,
            retries=False,
            redirect=False,
            timeout=Timeout(total=left_s),
            pool_timeout=left_s,  # type: ignore[arg-type]  # seconds, which may be fractions
            preload_content=False,
        )
        parts, size, is_whole = [], 0, False
        try:
            while part := response.read1(_CHUNK_BYTES):
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    raise self._error(f"answered {path} with over {MAX_ANSWER_BYTES} bytes")
                self._left_s(path, deadline_s)
            is_whole = True
        finally:
            if is_whole:
                response.release_conn()
            else:
                response.close()
        return response.status, b"".join(parts)

    def _left_s(self, path: str, deadline_s: float) -> float:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0.0:
            self.failures += 1
            raise self._late(path)
        return left_s

    def _late(self, path: str) -> ServiceError:
        return self._error(
            f"did not answer {path} within {self._timeout_s:g} s: see why it is slow, or allow more"
        )

    def _error(self, what: str) -> ServiceError:
        return ServiceError(f"the engine at {self.endpoint} {what}")


def _connect(endpoint: str, connections: int) -> tuple[urllib3.HTTPConnectionPool, str]:
    """Return a pool of connections, and the path that requests begin with."""
    try:
        import urllib3
        from urllib3.exceptions import LocationParseError
    except ImportError as error:
        raise ConfigError(
            "counting with an engine's /tokenize needs: pip install 'fleetopt[compress]'"
        ) from error
    try:
        url = urllib3.util.parse_url(endpoint)
    except LocationParseError as error:
        raise _no_address(endpoint) from error
    if url.scheme not in ("http", "https") or not url.host or url.auth or url.query or url.fragment:
        raise _no_address(endpoint)
    path = (url.path or "").rstrip("/").removesuffix("/tokenize").removesuffix("/v1")
    kind = urllib3.HTTPSConnectionPool if url.scheme == "https" else urllib3.HTTPConnectionPool
    return kind(url.host, port=url.port, maxsize=max(1, connections), block=True), path


def _no_address(endpoint: str) -> ConfigError:
    return ConfigError(
        f"endpoint {endpoint!r} is not the address of an engine; expected http://host:port"
    )


def _encoded(body: object) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise lone_surrogate(error) from error
    except (TypeError, ValueError) as error:
        raise InputError(f"messages that JSON can't hold: {error}") from error
