"""`AccessControl`: middleware that checks the token, host, origin and framing of requests."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from guerdon._http import is_loopback
from guerdon._validation import has_token
from guerdon.envs.server.monitoring import log

OPEN_PATHS = ("/health",)  # for load balancers, which have no token
HEADERS = {400: {"connection": "close"}, 401: {"www-authenticate": "Bearer"}}


class AccessControl:
    """Middleware that rejects requests without the token, for another host, or of other sites.

    A server that listens on the loopback accepts only host names of the loopback, so that no web
    page reaches it by resolving a name of its own to 127.0.0.1. Requests that a browser sends for
    a page of another site, according to ``Origin`` or ``Sec-Fetch-Site``, are rejected everywhere.
    Without a token, the server's own name counts as another site, because that page may have
    resolved it to the server's address; its address and names in `allowed_hosts` do not.

    Browsers can't send ``Authorization`` for a page or a WebSocket. The address of the page at
    `entrance` may contain the token instead, ``?token=…``: the answer sets a cookie, which is then
    accepted like the header. Browsers send a cookie with each request, whichever page causes it, so
    it is accepted only in requests of the server's own pages. They also send it to servers on other
    ports of the host: it is a digest, from which the token can't be computed.

    Args:
        app: The application.
        token: The bearer token that ``Authorization`` must contain; None accepts everyone.
        allowed_hosts: Further host names that are accepted.
        entrance: The path of the page; None for a server without one, which accepts no cookie.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        allowed_hosts: Collection[str],
        entrance: str | None = None,
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = {host.lower() for host in allowed_hosts}
        self._entrance = entrance
        self._cookie = hmac.new((token or "").encode(), b"guerdon cookie", "sha256").hexdigest()
        # Browsers send a cookie to all ports: servers with other tokens have other names.
        self._cookie_name = f"guerdon-{self._cookie[:8]}"

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Call the application, or reject the request."""
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            app = self._with_cookie(scope) if self._enters(scope) else self._app
            return app(scope, receive, send)
        status, reason = refusal
        return self._reject(scope, receive, send, status=status, reason=reason)

    async def _reject(
        self, scope: Scope, receive: Receive, send: Send, *, status: int, reason: str
    ) -> None:
        log("refused", level="warning", status=status, path=scope["path"], reason=reason)
        if scope["type"] == "websocket":
            await receive()
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
                return
        await JSONResponse({"detail": reason}, status, HEADERS.get(status))(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy in front may see another end of the request (RFC 9112, section 6.1).
            return 400, "a request must not have both Content-Length and Transfer-Encoding"
        host = headers.get("host", "")
        name = _hostname(f"//{host}")
        on_loopback = scope["app"].on_loopback
        if on_loopback is None:  # another ASGI server runs this application
            on_loopback = is_loopback((scope.get("server") or ("",))[0])
        if on_loopback and not self._is_accepted(name):
            return 421, (
                f"the host {host!r:.80} is not accepted; this server listens on the loopback and "
                "accepts localhost and 127.0.0.1 (add further names with allowed_hosts)"
            )
        if self._is_of_other_site(headers, name):
            return 403, "pages of other sites may not use this server (see allowed_hosts)"
        return self._refusal_without_token(scope, headers)

    def _refusal_without_token(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        if self._token is None or _path(scope) in OPEN_PATHS or self._enters(scope):
            return None
        authorization = headers.get("authorization", "")
        if has_token(authorization, self._token):
            return None
        if self._has_cookie(scope):
            if self._is_of_own_page(scope, headers):
                return None
            return 403, "the cookie is for the pages of this server only (see allowed_hosts)"
        problem = "wrong token" if " " in authorization else "no token"
        page = "" if self._entrance is None else ", or open the address of the page that has it"
        return 401, f"{problem}; send the header Authorization: Bearer <token>{page}"

    # The cookie

    def _enters(self, scope: Scope) -> bool:
        """Return whether the request is for the page, with the token in its address."""
        if scope["type"] != "http" or self._token is None or _path(scope) != self._entrance:
            return False
        return _is_same(HTTPConnection(scope).query_params.get("token", ""), self._token)

    def _with_cookie(self, scope: Scope) -> RedirectResponse:
        """Redirect to the same page without the token in its address, and set the cookie."""
        response = RedirectResponse("./", 303)
        is_secure = scope["scheme"] == "https"
        response.set_cookie(
            self._cookie_name, self._cookie, httponly=True, samesite="strict", secure=is_secure
        )
        return response

    def _has_cookie(self, scope: Scope) -> bool:
        if self._entrance is None or self._token is None:
            return False
        return _is_same(HTTPConnection(scope).cookies.get(self._cookie_name, ""), self._cookie)

    def _is_of_own_page(self, scope: Scope, headers: Headers) -> bool:
        """Return whether a page of this server, on the same port, sent the request."""
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is None:  # browsers send one with each WebSocket, and each POST
            return scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        is_own = urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
        return is_own or _hostname(origin) in self._hosts

    # Sites

    def _is_of_other_site(self, headers: Headers, name: str) -> bool:
        origin = headers.get("origin")
        if origin is None:  # browsers send none for images and links
            return headers.get("sec-fetch-site") == "cross-site"
        own = name if self._token is not None or _is_address(name) else None
        return not self._is_accepted(_hostname(origin), own)

    def _is_accepted(self, name: str, own: str | None = None) -> bool:
        return bool(name) and (name in self._hosts or name == own or is_loopback(name))


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _is_same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
