"""The pages of `guerdon.viewer` and of a served environment, as routes of Starlette."""

from __future__ import annotations

import os
import re
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from guerdon.errors import GuerdonError

MAIN = "main.js"  # the module that the document names
PAGES = Path(__file__).parent / "viewer" / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_IMPORT = re.compile(r'^import \{ [\w$]+(?:, [\w$]+)* \} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let) )", re.MULTILINE)
_NAME = re.compile(r"^(?:async function\*?|function\*?|class|const|let) +([\w$]+)", re.MULTILINE)


class WithHeaders:
    """Middleware that adds `HEADERS` to every answer, refusals included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and add the headers to its answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def page_routes(module: str = MAIN) -> list[Route]:
    """Return the routes of a page: its document, its styles, and its modules as one.

    Args:
        module: The module that the document loads.
    """

    def get_page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        type_ = TYPES.get(Path(name).suffix)
        file = PAGES / name
        if type_ is None or name not in os.listdir(PAGES):
            raise HTTPException(404, f"there is no page {name!r:.80}")
        # One request in place of one for each module.
        content = bundled_modules(PAGES, module) if name == module else file.read_text("utf-8")
        if name == "index.html":
            content = content.replace(MAIN, module)
        return Response(content, media_type=type_)

    zipped = [Middleware(GZipMiddleware)]
    return [Route(path, get_page, middleware=zipped) for path in ("/", "/{name}")]


def bundled_modules(page: Path, main: str = MAIN) -> str:
    """The modules that a module imports, and itself, as one module.

    Each is after those that it imports. They must import names from each other with
    ``import { a, b } from "./x.js";``, without renaming them, and define different names at the top
    level.

    Args:
        page: The folder of the modules.
        main: The module to begin with.

    Raises:
        GuerdonError: A module imports or exports in another way, or two define the same name.
    """
    sources: dict[str, str] = {}
    owners: dict[str, str] = {}
    pending: set[str] = set()

    def add(name: str) -> None:
        if name in sources or name in pending:  # modules may import each other
            return
        pending.add(name)
        source = (page / name).read_text(encoding="utf-8")
        for imported in _IMPORT.findall(source):
            add(imported)
        source = _EXPORT.sub("", _IMPORT.sub("", source))
        if found := re.search(r"^(?:import|export)\b.*", source, re.MULTILINE):
            raise GuerdonError(f"{name} can't be bundled: {found[0]!r:.100}")
        for own in _NAME.findall(source):
            if owners.setdefault(own, name) != name:
                raise GuerdonError(f"{name} and {owners[own]} both define {own}")
        sources[name] = source

    add(main)
    return "\n".join(f"// {name}\n{source}" for name, source in sources.items())
