"""The server of the page of ``guerdon view``."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from guerdon._pages import WithHeaders, page_routes
from guerdon._validation import check_token
from guerdon.envs.server.access import AccessControl
from guerdon.errors import InvalidArgumentError
from guerdon.viewer.columns import Array
from guerdon.viewer.files import ViewedFile, packed_header

__all__ = ["ViewerApp"]

BINARY = "application/octet-stream"
# Seconds that a request waits for changes, and between two looks at the files.
CHANGES_S = 20.0
LOOK_S = 0.5


class ViewerApp(Starlette):
    """The page of some files, and the data that it requests, as a Starlette application.

    The page's address has the token, ``/?token=…``; the answer sets a cookie.

    Example:
        >>> from guerdon.viewer import FileIndex, ViewedFile, ViewerApp
        >>> def app(path):
        ...     return ViewerApp([ViewedFile(FileIndex(path))], token="s3cret")

    Args:
        files: The files.
        token: The token; a request must have it as a cookie or as ``Authorization: Bearer …``.
        allowed_hosts: Further host names of the server, as for `guerdon.create_app`.

    Attributes:
        on_loopback: Whether the server listens on the loopback; None if that is unknown.

    Raises:
        InvalidArgumentError: The token is empty, or can't be sent in a header.
    """

    def __init__(
        self,
        files: Sequence[ViewedFile],
        token: str,
        *,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        self.on_loopback: bool | None = None
        self._files = files
        self._is_stopping = False
        # What takes time and memory is done for one request at a time.
        self._one_at_a_time = threading.Lock()
        check_token(token)
        api = {"files": self._get_files, "columns": self._get_columns, "rows": self._get_rows,
               "search": self._get_search, "order": self._get_order, "join": self._get_join,
               "changes": self._get_changes}  # fmt: skip
        super().__init__(
            routes=[
                *(Route(f"/api/{name}", endpoint) for name, endpoint in api.items()),
                *page_routes(),
            ],
            middleware=[
                Middleware(WithHeaders),
                Middleware(AccessControl, token=token, allowed_hosts=allowed_hosts, entrance="/"),
            ],
            exception_handlers={InvalidArgumentError: _refused, HTTPException: _refused},
        )

    def stop(self) -> None:
        """Answer the requests that wait for changes: the server stops."""
        self._is_stopping = True

    # The data

    def _file(self, request: Request, name: str = "file") -> ViewedFile:
        number = _integers(request, name)
        if len(number) != 1 or not 0 <= number[0] < len(self._files):
            raise HTTPException(404, f"`{name}` must be the number of one of the files")
        return self._files[number[0]]

    def _get_files(self, request: Request) -> Response:
        for file in self._files:
            file.refresh()
        infos = [
            {"index": number, "version": file.version, **file.info()}
            for number, file in enumerate(self._files)
        ]
        # Not JSONResponse, which can't encode half of a pair of surrogates.
        return Response(json.dumps({"files": infos}), media_type="application/json")

    def _get_columns(self, request: Request) -> Response:
        file = self._file(request)
        columns = file.columns(request.query_params.getlist("names"))
        return StreamingResponse(_packed(*columns), media_type=BINARY)

    def _get_rows(self, request: Request) -> Response:
        brief = request.query_params.get("brief") == "1"
        rows = self._file(request).read(_integers(request, "at"), brief=brief)
        return Response(b'{"rows": [' + b",".join(rows) + b"]}", media_type="application/json")

    def _get_search(self, request: Request) -> Response:
        text = request.query_params.get("q", "")
        with self._one_at_a_time:
            found, is_cut = self._file(request).search(text)
        headers = {"guerdon-truncated": "1"} if is_cut else {}
        return Response(found.tobytes(), media_type=BINARY, headers=headers)

    def _get_order(self, request: Request) -> Response:
        with self._one_at_a_time:
            order = self._file(request).order(request.query_params.get("by", ""))
        return Response(order.tobytes(), media_type=BINARY)

    def _get_join(self, request: Request) -> Response:
        file, other = self._file(request), self._file(request, "other")
        with self._one_at_a_time:
            found = file.join(other.index)
        return Response(found.tobytes(), media_type=BINARY)

    async def _get_changes(self, request: Request) -> Response:
        known = request.query_params.getlist("versions")
        deadline = time.monotonic() + CHANGES_S
        while True:
            versions = await anyio.to_thread.run_sync(self._refreshed)
            is_over = self._is_stopping or time.monotonic() > deadline
            if versions != known or is_over or await request.is_disconnected():
                return JSONResponse({"versions": versions})
            await anyio.sleep(LOOK_S)

    def _refreshed(self) -> list[str]:
        for file in self._files:
            file.refresh()
        return [file.version for file in self._files]


def _integers(request: Request, name: str) -> list[int]:
    """The integers of a parameter, which may be repeated, or have several with commas."""
    given = ",".join(request.query_params.getlist(name)).split(",")
    try:
        return [int(each) for each in given if each]
    except ValueError:
        raise HTTPException(400, f"`{name}` must be integers") from None


def _packed(header: dict[str, Any], columns: Iterator[Iterator[Array]]) -> Iterator[bytes]:
    """The header and the columns of an answer, each beginning at a multiple of 8 bytes."""
    yield packed_header(header)
    for column, parts in zip(header["columns"], columns, strict=True):
        for part in parts:
            yield part.tobytes()
        yield bytes(-column["bytes"] % 8)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    return JSONResponse({"error": str(error)}, 400)
