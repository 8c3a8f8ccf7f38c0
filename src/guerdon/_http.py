"""Addresses without secrets, sockets of servers, and answers of bounded size for httpx, httpx2."""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal
from urllib.parse import urlsplit

from guerdon.errors import LaunchError

# The most bytes of an answer, after decompression.
MAX_ANSWER = 16 * 2**20
# The encodings that clients accept. Of these, 64 KiB decompress to 64 MiB at most; other encodings
# decompress to any size before it can be counted.
ENCODINGS = ("", "identity", "gzip", "deflate")
ACCEPTED = {"accept-encoding": "gzip, deflate"}


def shown_url(url: object) -> str:
    """Return an address for messages and logs: without user, password, query and fragment.

    Example:
        >>> shown_url("https://me:secret@host:8000/v1?key=secret")
        'https://host:8000/v1'
    """
    return re.sub(r"(?<=//)[^/]*@", "", re.split(r"[?#]", str(url), maxsplit=1)[0])


def is_loopback(name: object) -> bool:
    """Return whether an address is one of the loopback.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::ffff:127.0.0.1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        address = ipaddress.ip_address(str(name))
        mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1
        return bool((mapped or address).is_loopback)
    except ValueError:
        return str(name) == "localhost"


def is_loopback_url(url: str) -> bool:
    """Return whether an address belongs to this machine, which no proxy leads to."""
    name = urlsplit(url).hostname or ""
    return is_loopback(name) or name.endswith(".localhost")


def httpx_options(base_url: str) -> dict[str, Any]:
    """Return the options of an httpx client for an address: certificates and proxies if needed.

    Example:
        >>> httpx_options("http://localhost:8000")
        {'verify': False, 'trust_env': False}
    """
    verify = _tls_context() if base_url.startswith("https") else False
    return {"verify": verify, "trust_env": not is_loopback_url(base_url)}


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """The TLS context of all clients: reading the certificates takes longer than a request."""
    import httpx

    return httpx.create_ssl_context()


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket with an address, on which a server can listen.

    Raises:
        LaunchError: The address can't be listened on.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        raise LaunchError(f"can't listen on {host}:{port}: {reason}") from error
    return bound


def url_of(bound: socket.socket) -> str:
    """Return the URL of a server that listens on a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_asgi(
    app: Any,
    bound: socket.socket,
    *,
    grace_s: int,
    lifespan: Literal["on", "off"] = "off",
    ready: Callable[[], None] | None = None,
    stopping: Callable[[], None] | None = None,
) -> None:
    """Serve an application without WebSockets until SIGTERM or ctrl-C, with uvicorn.

    Args:
        app: The ASGI application.
        bound: The socket.
        grace_s: Seconds that running requests have when the server stops.
        lifespan: Whether the application has a lifespan.
        ready: Called once the server listens.
        stopping: Called when it stops, before it waits for running requests.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        ws="none",
        lifespan=lifespan,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_s,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started and ready is not None:
                ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if stopping is not None:
                stopping()
            await super().shutdown(sockets=sockets)
            self._captured_signals.clear()  # the process goes on: the signal was handled

    Server(config).run(sockets=[bound])


def hide_query(request: Any) -> None:
    """Hide the query of a request's address in the logs of httpx and httpx2.

    Example:
        >>> import httpx
        >>> request = httpx.Request("GET", "http://host/v1?key=secret")
        >>> hide_query(request)
        >>> str(request.url), request.url.raw_path
        ('http://host/v1', b'/v1?key=secret')
    """
    url_class: Any = type(request.url)
    request.url = _shown_class(url_class)(request.url)


@functools.cache
def _shown_class(url_class: Any) -> Any:
    class ShownURL(url_class):  # type: ignore[misc]
        def __str__(self) -> str:
            return shown_url(super().__str__())

    return ShownURL


async def read_answer(response: Any, *, max_bytes: int = MAX_ANSWER) -> Any:
    """Read the answer to a request that was sent with ``stream=True``, and close it.

    Example:
        >>> import asyncio
        >>> import httpx
        >>> request = httpx.Request("GET", "http://host")
        >>> response = httpx.Response(200, content=b"Hi", request=request)
        >>> asyncio.run(read_answer(response)).text
        'Hi'

    Args:
        response: A response of httpx or httpx2.
        max_bytes: The most bytes, after decompression.

    Returns:
        A response of the same class with the content.

    Raises:
        DecodingError: Of the response's library: it is larger, or has an encoding that was not
            requested.
    """
    library = import_module(type(response).__module__.partition(".")[0])
    encoding = response.headers.get("content-encoding", "").lower()
    content, problem = bytearray(), None
    try:
        if encoding not in ENCODINGS:
            problem = f"answered with the content-encoding {encoding!r:.60}"
        else:
            async for part in response.aiter_bytes():
                content += part
                if len(content) > max_bytes:
                    problem = f"answered with more than {max_bytes} bytes"
                    break
    except library.DecodingError as error:
        problem = f"answered with invalid {encoding}: {error}"
    finally:
        await response.aclose()
    if problem is not None:
        raise library.DecodingError(problem, request=response.request)
    kept = response.headers.copy()
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        kept.pop(name, None)
    return type(response)(
        response.status_code,
        headers=kept,
        content=bytes(content),
        request=response.request,
        extensions=response.extensions,
    )
