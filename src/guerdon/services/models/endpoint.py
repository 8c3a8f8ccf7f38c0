"""The HTTP side of a language model: its connections, and what went wrong with one."""

from __future__ import annotations

import asyncio
import atexit
import functools
import heapq
import json
import os
import weakref
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from guerdon._background import background_loop
from guerdon.errors import (
    InvalidArgumentError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnavailableError,
)
from guerdon.services.models.retrying import asked_pause
from guerdon.services.models.secret import fits_a_header, secret_of

if TYPE_CHECKING:
    import ssl

    from openai import AsyncOpenAI

__all__ = ["Endpoint", "RefusedError", "address", "passing"]

# What a server without keys is sent, as the client insists on one.
NO_KEY = "none"
# One HTTP client looks through all its connections at each request: many small ones are faster.
PER_CLIENT = 16
# Answers that say that the request itself can't be meant.
REFUSED = (400, 422)
UNAVAILABLE = (408, 409, 429, 502, 503, 504)
EXIT_S = 5.0  # for closing connections at the end of the process
SHOWN = 500  # characters of what a server says of its failure


class RefusedError(ServiceError):
    """The endpoint takes no such request."""


class Endpoint:
    """The connections to one endpoint, which belong to the background loop.

    They are opened when they are first needed, in a forked process anew, and closed with `close`,
    or when nobody holds the endpoint any more.

    Args:
        url: The address, as `address` gives it.
        name: What messages call the model.
        api_key: The key.
        api_key_env: The environment variable that holds it, read when a connection is opened.
        timeout_s: Seconds that one request may take.
        concurrency: How many may be under way at once.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        api_key: str | None,
        api_key_env: str | None,
        timeout_s: float,
        concurrency: int,
    ) -> None:
        if api_key and not fits_a_header(api_key):  # it is not repeated here
            raise InvalidArgumentError(
                "api_key takes printable ASCII with no space or line break at an end"
            )
        self._url, self._name = url, name
        self._key, self._key_env = api_key, api_key_env
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._open: _Open | None = None

    async def post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request for a completion, on the background loop.

        Returns:
            The answer, a JSON object.

        Raises:
            InvalidArgumentError: The request can't be written as JSON.
            RefusedError: The endpoint takes no such request.
            ServiceUnavailableError: It isn't there, or has no place for one more.
            ServiceTimeoutError: It took too long.
            ServiceError: It failed, or gave what is no JSON object.
        """
        import openai

        key = self._find_key()
        try:
            async with self._connections().client(key) as client:
                async with asyncio.timeout(self._timeout_s):  # one that drips is not silent
                    # As text: only its own methods make a model of every answer, which takes
                    # longer than all the rest.
                    answer = await client.post("/chat/completions", body=dict(body), cast_to=str)
        except (TimeoutError, openai.APITimeoutError) as error:
            raise ServiceTimeoutError(
                f"{self._name} gave no answer within {self._timeout_s:g} s", service=self._name
            ) from error
        except openai.APIConnectionError as error:
            why = error.__cause__ or error
            raise self._failed(ServiceUnavailableError, "can't be reached", why, key) from error
        except openai.APIStatusError as error:
            raise self._of_status(error, key) from error
        except (TypeError, ValueError) as error:  # before anything was sent
            raise InvalidArgumentError(
                f"{self._name} can't be sent what JSON in UTF-8 can't hold: {error}"
            ) from error
        try:
            said = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise self._broken(f"an answer that is no JSON ({error})") from error
        if not isinstance(said, dict):
            raise self._broken(f"{type(said).__name__} instead of an object")
        return said

    async def close(self) -> None:
        """Close all connections, on the background loop. The next request opens new ones."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()

    def _connections(self) -> _Open:
        opened = self._open
        if opened is None or opened.process != os.getpid():
            opened = self._open = _Open(self._url, self._timeout_s, self._concurrency)
            weakref.finalize(self, opened.close_soon).atexit = False
            _all_open.add(opened)
            _close_at_exit(opened.process)
        return opened

    def _find_key(self) -> str:
        if self._key_env is None:
            return self._key or NO_KEY
        return secret_of(self._key_env, self._name, service=self._name)

    def _of_status(self, error: Any, key: str) -> ServiceError:
        status = error.status_code
        kind: type[ServiceError] = ServiceError
        if status in REFUSED:
            kind = RefusedError
        elif status in UNAVAILABLE:
            kind = ServiceUnavailableError
        failed = self._failed(kind, f"answered {status}", error.response.text[:SHOWN], key)
        may_pass = status in UNAVAILABLE or status >= 500
        _may_pass(failed, asked_pause(error.response.headers) if may_pass else None)
        return failed

    def _failed(self, kind: type[ServiceError], what: str, why: object, key: str) -> ServiceError:
        said = str(why) or type(why).__name__
        if key != NO_KEY:
            said = said.replace(key, "…")  # some servers repeat it
        return _may_pass(kind(f"{self._name} {what}: {said}", service=self._name), 0.0)

    def _broken(self, what: str) -> ServiceError:
        return _may_pass(ServiceError(f"{self._name} gave {what}", service=self._name), 0.0)


def passing(error: Exception) -> float | None:
    """Whether a request that failed so may succeed later: see `retrying`."""
    if isinstance(error, ServiceTimeoutError):
        return 0.0
    return getattr(error, "_pause", None)


def _may_pass(error: ServiceError, pause: float | None) -> ServiceError:
    error._pause = pause  # type: ignore[attr-defined]
    return error


def address(endpoint: str) -> str:
    """The base address of an endpoint: where it names no path, ``/v1``.

    Example:
        >>> address("http://localhost:8000"), address("https://host/api/v3/")
        ('http://localhost:8000/v1', 'https://host/api/v3')

    Raises:
        InvalidArgumentError: It is no http address, or holds a password.
    """
    parts, host = urlsplit(""), None
    with suppress(ValueError):
        parts = urlsplit(endpoint if isinstance(endpoint, str) else "")
        host = parts.hostname
    if not host or parts.scheme not in ("http", "https"):
        raise InvalidArgumentError(
            f"endpoint is {endpoint!r:.200}; it takes an address like http://localhost:8000/v1"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidArgumentError(
            f"the endpoint at {host} holds a user or password; give the key as api_key_env"
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return parts._replace(path=path or "/v1").geturl()


class _Open:
    """Connections that are open, in one process."""

    def __init__(self, url: str, timeout_s: float, concurrency: int) -> None:
        self.process = os.getpid()
        self._url, self._timeout_s = url, timeout_s
        self._clients: dict[tuple[int, str], AsyncOpenAI] = {}
        self._free = list(range(concurrency))  # a heap: low places first, that few connect
        self._places = asyncio.Semaphore(concurrency)

    @asynccontextmanager
    async def client(self, key: str) -> AsyncIterator[AsyncOpenAI]:
        """Wait for a place, and take it while the request is under way."""
        async with self._places:
            place = heapq.heappop(self._free)
            try:
                yield self._client(place // PER_CLIENT, key)
            finally:
                heapq.heappush(self._free, place)

    def _client(self, number: int, key: str) -> AsyncOpenAI:
        client = self._clients.get((number, key))
        if client is None:
            client = self._clients[number, key] = _connect(self._url, key, self._timeout_s)
        return client

    async def close(self) -> None:
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()

    def close_soon(self) -> Future[None] | None:
        """Close, from whatever thread lets go of the last reference."""
        if not self._clients or self.process != os.getpid() or background_loop().is_closed():
            return None
        return asyncio.run_coroutine_threadsafe(self.close(), background_loop())


# What is open at the end of the process is closed before the loop ends.
_all_open: weakref.WeakSet[_Open] = weakref.WeakSet()


@functools.cache
def _close_at_exit(process: int) -> None:
    atexit.register(_close_all)  # after the loop's own, and so run before it


def _close_all() -> None:
    for opened in list(_all_open):
        closing = opened.close_soon()
        if closing is not None:
            closing.result(EXIT_S)


def _connect(url: str, key: str, timeout_s: float) -> AsyncOpenAI:
    import httpx
    import openai

    limits: Any = httpx.Limits(max_connections=PER_CLIENT, max_keepalive_connections=PER_CLIENT)
    http = openai.DefaultAsyncHttpxClient(limits=limits, verify=_tls(), timeout=timeout_s)
    return openai.AsyncOpenAI(
        base_url=url, api_key=key, max_retries=0, timeout=timeout_s, http_client=http
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all clients: reading the certificates takes longer than a request."""
    import httpx

    return httpx.create_ssl_context()
