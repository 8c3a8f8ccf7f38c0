"""`HTTPEnvClient`: the stateless HTTP face of a server."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx
from pydantic import BaseModel

from guerdon._background import run
from guerdon.envs.client.answers import read_answer
from guerdon.envs.client.configuring import changed, error_line, is_report, refused
from guerdon.envs.client.wire import http_url, is_loopback
from guerdon.envs.sync_face import SyncFace
from guerdon.envs.tokens import check_token
from guerdon.errors import (
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidObservationError,
    ServerError,
)
from guerdon.types.step_result import StepResult

__all__ = ["HTTPEnvClient", "SyncHTTPEnvClient"]


class HTTPEnvClient:
    """The stateless HTTP face of a server: each call has a fresh environment.

    For episodes use `EnvClient`; this face is for what needs none: health, schemas, what the
    reward is made of, and environments of a single step.

    Example:
        >>> from guerdon import HTTPEnvClient
        >>> async def main():
        ...     async with HTTPEnvClient("http://localhost:8000") as server:
        ...         print((await server.get("/config"))["fingerprint"])
        ...         return await server.step({"message": "hi"})

    Args:
        base_url: The server's address.
        environment_id: What to call the environment; by default the server's own name for it,
            once it was asked (as a context it is), and its address before that.
        token: The server's token.
        timeout_s: Seconds that an answer may take.

    Raises:
        InvalidArgumentError: The address is none.
    """

    def __init__(
        self,
        base_url: str,
        *,
        environment_id: str | None = None,
        token: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.base_url = http_url(base_url)
        self._environment_id = environment_id
        self._token = check_token(token)
        self._timeout_s = timeout_s
        self._http: httpx.AsyncClient | None = None
        self._config_version: str | None = None

    @property
    def environment_id(self) -> str:
        """What the environment is called."""
        return self._environment_id or self.base_url

    async def get(self, path: str) -> Any:
        """Ask for what stands at a path.

        Raises:
            ServerError: The server said that something is wrong; its code is the status.
            ConnectionLostError: Nobody listens there.
            ClientTimeoutError: The answer didn't come in time.
        """
        return await self._ask("GET", path, None)

    async def post(self, path: str, *, json: Any = None) -> Any:
        """Send something to a path; raises as `get` does."""
        return await self._ask("POST", path, json)

    async def reset(self, **kwargs: Any) -> StepResult[dict[str, Any]]:
        """Reset a fresh environment."""
        return StepResult(*read_answer(await self.post("/reset", json=kwargs)))

    async def step(
        self, action: BaseModel | Mapping[str, Any], *, timeout_s: float | None = None
    ) -> StepResult[dict[str, Any]]:
        """Take a step in a fresh environment.

        Args:
            action: What the agent does, as a model or as a dict.
            timeout_s: Seconds that the environment may take.
        """
        given = action.model_dump(mode="json") if isinstance(action, BaseModel) else dict(action)
        body: dict[str, Any] = {"action": given}
        if timeout_s is not None:
            body["timeout_s"] = timeout_s
        return StepResult(*read_answer(await self.post("/step", json=body)))

    async def state(self) -> dict[str, Any]:
        """The state of a fresh environment."""
        state = await self.get("/state")
        if not isinstance(state, dict):
            raise InvalidObservationError(f"{self.base_url} sent {state!r:.60}, which is no state")
        return state

    async def get_config(self) -> dict[str, Any]:
        """What the reward of every session is configured with, in the shape of its file."""
        told: dict[str, Any] = await self.get("/config")
        self._config_version = told.get("version")
        return told

    async def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change it for every session, from their next resets on.

        Args:
            change: What to change, by name, in the shape of the file; see `LiveReward.update`.
            version: The version that the change was made to; by default the one that this client
                has seen last, if any.

        Returns:
            ``{"status": "ok", "config": …, "change": …}``.

        Raises:
            RewardConfigError: Something in it can't be done, so that nothing was.
            ConfigConflictError: Somebody else has changed it since.
        """
        sent = changed(change, version, self._config_version)
        try:
            told: dict[str, Any] = await self.post("/config", json=sent)
        except ServerError as error:
            raise refused(error, str(sent.get("version", ""))) from error
        if "version" in sent or not is_report(change):
            self._config_version = told["config"]["version"]
        return told

    async def close(self) -> None:
        """Let go of the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def sync(self) -> SyncHTTPEnvClient:
        """The same client for code that awaits nothing."""
        return SyncHTTPEnvClient(self)

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        if self._http is None:
            self._http = httpx.AsyncClient(
                base_url=self.base_url,
                timeout=self._timeout_s,
                headers=_headers(self._token),
                **transport_options(self.base_url),
            )
        try:
            response = await self._http.request(method, path, json=body)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{path}: JSON can't hold {body!r:.60}: {error}") from error
        except httpx.TimeoutException as error:
            limit = self._timeout_s
            raise ClientTimeoutError(
                f"{self.base_url}{path} didn't answer within {limit:g} s", seconds=limit
            ) from error
        except httpx.HTTPError as error:
            raise ConnectionLostError(f"can't reach {self.base_url}{path}: {error}") from error
        return _content(response, path)

    async def __aenter__(self) -> Self:
        if self._environment_id is None:
            self._environment_id = await server_name(self.base_url, self._token, self._timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class SyncHTTPEnvClient(SyncFace):
    """An `HTTPEnvClient` for code that awaits nothing; made by `HTTPEnvClient.sync`.

    Example:
        >>> from guerdon import HTTPEnvClient
        >>> def main():
        ...     with HTTPEnvClient("http://localhost:8000").sync() as server:
        ...         return server.get("/schema")["action"]
    """

    def __init__(self, client: HTTPEnvClient) -> None:
        super().__init__(client)
        self.async_client = client

    @property
    def environment_id(self) -> str:
        """What the environment is called."""
        return self.async_client.environment_id

    def get(self, path: str) -> Any:
        """See `HTTPEnvClient.get`."""
        return run(self.async_client.get(path))

    def post(self, path: str, *, json: Any = None) -> Any:
        """See `HTTPEnvClient.post`."""
        return run(self.async_client.post(path, json=json))

    def reset(self, **kwargs: Any) -> StepResult[dict[str, Any]]:
        """See `HTTPEnvClient.reset`."""
        return run(self.async_client.reset(**kwargs))

    def step(
        self, action: BaseModel | Mapping[str, Any], *, timeout_s: float | None = None
    ) -> StepResult[dict[str, Any]]:
        """See `HTTPEnvClient.step`."""
        return run(self.async_client.step(action, timeout_s=timeout_s))

    def get_config(self) -> dict[str, Any]:
        """See `HTTPEnvClient.get_config`."""
        return run(self.async_client.get_config())

    def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """See `HTTPEnvClient.update_config`."""
        return run(self.async_client.update_config(change, version=version))

    def state(self) -> dict[str, Any]:
        """See `HTTPEnvClient.state`."""
        return run(self.async_client.state())


def transport_options(base_url: str) -> dict[str, Any]:
    """How to reach an address: without certificates where there are none, nor proxies within.

    Example:
        >>> transport_options("http://localhost:8000")
        {'verify': False, 'trust_env': False}
    """
    return {"verify": base_url.startswith("https"), "trust_env": not is_loopback(base_url)}


async def server_name(base_url: str, token: str | None, timeout_s: float) -> str:
    """What a server calls its environment; its address where it doesn't say.

    Example:
        >>> async def main():
        ...     return await server_name("http://localhost:8000", None, 5.0)
    """
    try:
        async with httpx.AsyncClient(
            timeout=timeout_s, headers=_headers(token), **transport_options(base_url)
        ) as http:
            response = await http.get(f"{base_url}/metadata")
            return str(response.raise_for_status().json()["name"])
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        return base_url


def _headers(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token is not None else {}


def _content(response: httpx.Response, path: str) -> Any:
    """What a response holds: JSON, or the text of what is none."""
    is_json = "json" in response.headers.get("content-type", "")
    try:
        content = response.json() if is_json else response.text
    except ValueError as error:
        raise ConnectionLostError(f"{path} gave what is no JSON: {response.text[:80]!r}") from error
    if response.is_success:
        return content
    detail = content.get("detail", content) if isinstance(content, dict) else content
    errors = detail if isinstance(detail, list) else ()
    said = detail.get("message", detail) if isinstance(detail, dict) else detail
    if errors and all(isinstance(each, dict) for each in errors):
        said = "; ".join(map(error_line, errors))
    told = detail if isinstance(detail, dict) else None
    code = str(response.status_code)
    raise ServerError(f"{path}: {said}", code=code, errors=errors, details=told)
