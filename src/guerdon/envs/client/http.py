"""`HTTPEnvClient`: the stateless HTTP interface of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import httpx
from pydantic import BaseModel

from guerdon._background import SyncWrapper, sync_method
from guerdon._http import ACCEPTED, httpx_options, read_answer, shown_url
from guerdon._validation import check_token
from guerdon.envs.client.config_updates import ConfigClient, field_error_line, versioned
from guerdon.envs.client.session import parse_result
from guerdon.envs.client.tools import ToolClient
from guerdon.envs.client.transport import MAX_MESSAGE, http_url
from guerdon.errors import (
    ClientError,
    ClientTimeoutError,
    ConnectionLostError,
    EpisodeError,
    InvalidArgumentError,
    InvalidObservationError,
    ServerError,
)
from guerdon.types.observation import StepResult

__all__ = ["HTTPEnvClient", "SyncHTTPEnvClient"]


class HTTPEnvClient(ConfigClient, ToolClient):
    """The stateless HTTP interface of a server: each call has a fresh environment.

    Use `EnvClient` for episodes, and this class for what needs none: health, schemas, the reward's
    configuration, and environments with a single step. A step after a reset is refused, as the
    protocol has no sessions over HTTP for steps.

    Example:
        >>> from guerdon import HTTPEnvClient
        >>> async def main():
        ...     async with HTTPEnvClient("http://localhost:8000") as server:
        ...         print((await server.get("/config"))["fingerprint"])
        ...         return await server.step({"message": "hi"})

    Args:
        base_url: The server's address.
        environment_id: The environment's name; by default the server's name for it once the client
            is entered, and its address before.
        token: The server's token.
        timeout_s: Seconds to wait for an answer.
        transport: As of ``httpx.AsyncClient``; `ASGITransport` needs no server.

    Raises:
        InvalidArgumentError: `base_url` is not the address of a server.
    """

    def __init__(
        self,
        base_url: str,
        *,
        environment_id: str | None = None,
        token: str | None = None,
        timeout_s: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = http_url(base_url)
        self._shown = shown_url(self.base_url)
        self._environment_id = environment_id
        self._token = check_token(token)
        self._timeout_s = timeout_s
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        self._was_reset = False

    @property
    def environment_id(self) -> str:
        """The environment's name."""
        return self._environment_id or self._shown

    async def get(self, path: str) -> Any:
        """Return what is at a path: JSON, or text.

        Raises:
            ServerError: The server reported an error; its code is the status.
            ConnectionLostError: Nothing listens there.
            ClientTimeoutError: The answer didn't arrive in time.
        """
        return await self._request("GET", path, None)

    async def post(self, path: str, *, json: Any = None) -> Any:
        """Send JSON to a path and return the answer; raise as `get` does."""
        return await self._request("POST", path, json)

    async def reset(self, /, **kwargs: Any) -> StepResult[dict[str, Any]]:
        """Return the first observation of a fresh environment, which is closed afterwards."""
        result = parse_result(await self.post("/reset", json=kwargs))
        self._was_reset = True
        return result

    async def step(
        self, action: BaseModel | Mapping[str, Any], *, timeout_s: float | None = None
    ) -> StepResult[dict[str, Any]]:
        """Take a step in a fresh environment.

        Args:
            action: The action, a model or a dict.
            timeout_s: Seconds that the environment may take.

        Raises:
            EpisodeError: This client was reset: the step wouldn't belong to that episode.
        """
        if self._was_reset:
            raise EpisodeError(
                "each call over HTTP has a fresh environment, so this step wouldn't belong to the "
                f"episode that reset began; to keep a session, use EnvClient({self._shown!r}), and "
                "for single steps call step without reset"
            )
        fields = action.model_dump(mode="json") if isinstance(action, BaseModel) else dict(action)
        body: dict[str, Any] = {"action": fields}
        if timeout_s is not None:
            body["timeout_s"] = timeout_s
        return parse_result(await self.post("/step", json=body))

    async def state(self) -> dict[str, Any]:
        """Return the state of a fresh environment."""
        state = await self.get("/state")
        if not isinstance(state, dict):
            raise InvalidObservationError(f"{self._shown} sent a state that is {state!r:.60}")
        return state

    async def get_config(self) -> dict[str, Any]:
        """Return the reward configuration of all sessions, in the shape of its file."""
        config: dict[str, Any] = await self.get("/config")
        self._config_version = config.get("version")
        return config

    async def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the reward configuration of all sessions, from their next resets on.

        Args:
            change: The changes by name, in the shape of the file; see `RewardRuntime.update`.
            version: The version that the change is based on; by default the one that this client
                has received last.

        Returns:
            ``{"status": "ok", "config": …, "change": …}``.

        Raises:
            RewardConfigError: The change is invalid; nothing was changed.
            ConfigConflictError: The configuration has been changed since that version.
        """
        sent = versioned(change, version, self._config_version)
        return await self._changed(sent, self.post("/config", json=sent))

    async def close(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def sync(self) -> SyncHTTPEnvClient:
        """Return the same client for synchronous code."""
        return SyncHTTPEnvClient(self)

    async def _rpc(self, request: dict[str, Any]) -> Any:
        return await self.post("/mcp", json=request)

    async def _request(self, method: str, path: str, body: Any) -> Any:
        if self._http is None:
            token = self._token
            self._http = httpx.AsyncClient(
                base_url=self.base_url,
                timeout=None,  # that of httpx is for each part of an answer
                headers=ACCEPTED | ({"Authorization": f"Bearer {token}"} if token else {}),
                transport=self._transport,
                **httpx_options(self.base_url),
            )
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._http.stream(method, path, json=body) as answer,
            ):
                response = await read_answer(answer, max_bytes=MAX_MESSAGE)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"{path}: {body!r:.60} is not JSON-serializable: {error}"
            ) from error
        except TimeoutError as error:
            limit = self._timeout_s
            raise ClientTimeoutError(
                f"{self._shown}{path} didn't answer within {limit:g} s", seconds=limit
            ) from error
        except httpx.DecodingError as error:
            raise ConnectionLostError(f"{self._shown}{path} {error}") from error
        except httpx.HTTPError as error:
            raise ConnectionLostError(f"can't reach {self._shown}{path}: {error}") from error
        return _content(response, path)

    async def __aenter__(self) -> Self:
        if self._environment_id is None:
            try:
                self._environment_id = str((await self.get("/metadata"))["name"])
            except (ClientError, TypeError, KeyError):
                self._environment_id = self._shown
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class SyncClient(SyncWrapper):
    """The methods that both clients have, for synchronous code.

    All synchronous clients share one event loop, in a thread of its own.

    Attributes:
        async_client: The client that it wraps.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.async_client = client

    @property
    def environment_id(self) -> str:
        """The environment's name."""
        return str(self.async_client.environment_id)

    @property
    def base_url(self) -> str:
        """The server's address."""
        return str(self.async_client.base_url)

    get = sync_method(HTTPEnvClient.get)
    post = sync_method(HTTPEnvClient.post)
    get_config = sync_method(HTTPEnvClient.get_config)
    update_config = sync_method(HTTPEnvClient.update_config)
    list_tools = sync_method(HTTPEnvClient.list_tools)
    call_tool = sync_method(HTTPEnvClient.call_tool)


class SyncHTTPEnvClient(SyncClient):
    """An `HTTPEnvClient` for synchronous code; made by `HTTPEnvClient.sync`.

    Example:
        >>> from guerdon import HTTPEnvClient
        >>> def main():
        ...     with HTTPEnvClient("http://localhost:8000").sync() as server:
        ...         return server.get("/schema")["action"]
    """

    async_client: HTTPEnvClient

    reset = sync_method(HTTPEnvClient.reset)
    step = sync_method(HTTPEnvClient.step)
    state = sync_method(HTTPEnvClient.state)


def _content(response: httpx.Response, path: str) -> Any:
    """Return the content of a response: JSON, or text."""
    is_json = "json" in response.headers.get("content-type", "")
    try:
        content = response.json() if is_json else response.text
    except ValueError as error:
        raise ConnectionLostError(
            f"{path} returned invalid JSON: {response.text[:80]!r}"
        ) from error
    if response.is_success:
        return content
    detail = content.get("detail", content) if isinstance(content, dict) else content
    errors = detail if isinstance(detail, list) else ()
    message = detail.get("message", detail) if isinstance(detail, dict) else detail
    if errors and all(isinstance(each, dict) for each in errors):
        message = "; ".join(map(field_error_line, errors))
    details = detail if isinstance(detail, dict) else None
    code = str(response.status_code)
    raise ServerError(f"{path}: {message}", code=code, errors=errors, details=details)
