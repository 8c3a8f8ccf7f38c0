"""`Guard`: who may talk to a server: the right token, the right host, no other site's pages."""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from guerdon.envs.server.connection import Receive, Scope, Send
from guerdon.envs.server.logs import log

__all__ = ["Guard", "is_loopback"]

OPEN = ("/health",)  # what a load balancer asks, which has no token


class Guard:
    """Refuses, before anything else happens, what isn't meant for this server.

    A server that listens on the loopback alone answers only to names of the loopback, so that no
    web page reaches it by pointing a name of its own there; and what a browser sends for a page
    of another site (it says so in ``Origin``) is refused everywhere.

    Args:
        app: The ASGI application behind it.
        token: What ``Authorization: Bearer …`` must hold; None lets everybody in.
        allowed_hosts: Further names that the server goes by.

    Attributes:
        loopback_only: Whether the server listens on the loopback alone; None where that isn't
            known.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        *,
        token: str | None,
        allowed_hosts: Collection[str],
    ) -> None:
        self._app = app
        self._token = token.encode() if token is not None else None
        self._hosts = {host.lower() for host in allowed_hosts}
        self.loopback_only: bool | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "lifespan":
            refused = self._refusal(scope)
            if refused is not None:
                await _refuse(scope, receive, send, *refused)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = _hostname(f"//{host}")
        loopback_only = self.loopback_only
        if loopback_only is None:  # some other server runs this: as the connection looks
            loopback_only = is_loopback((scope.get("server") or ("",))[0])
        if loopback_only and not self._is_ours(name):
            return 421, (
                f"this server is no {host!r:.80}; it listens on the loopback alone and answers to "
                "localhost and 127.0.0.1 (allow further names with allowed_hosts)"
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._is_ours(_hostname(origin.decode("latin-1")), name):
            return 403, "pages of other sites may not use this server (see allowed_hosts)"
        if self._token is not None and scope["path"] not in OPEN:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                said = "wrong token" if given else "no token"
                return 401, f"{said}; send the header Authorization: Bearer <token>"
        return None

    def _is_ours(self, name: str, own: str | None = None) -> bool:
        if not name:
            return False
        return name in self._hosts or name == own or is_loopback(name)


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(name: Any) -> bool:
    """Whether an address is of the loopback."""
    try:
        address = ipaddress.ip_address(str(name))
        mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1
        return (mapped or address).is_loopback
    except ValueError:
        return str(name) == "localhost"


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, said: str) -> None:
    log("refused", level="warning", status=status, path=scope["path"], reason=said)
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": said[:120]})
            return
        kind = "websocket.http.response"
    body = json.dumps({"detail": said}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
