"""`EnvClient`: an environment on a server, with the interface of a local one."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Any, Generic, Self, TypeVar

import httpx
from pydantic import BaseModel

from guerdon._background import run, sync_method
from guerdon._http import shown_url
from guerdon._validation import check_seconds, check_token
from guerdon.envs.client.config_updates import ConfigClient, SessionUpdates, versioned
from guerdon.envs.client.http import HTTPEnvClient, SyncClient
from guerdon.envs.client.launchers import DockerLauncher, Launcher, ProcessLauncher
from guerdon.envs.client.session import (
    Connector,
    RemoteSession,
    encode_message,
    observation_of,
    parse_result,
    validated,
)
from guerdon.envs.client.tools import ToolClient
from guerdon.envs.client.transport import (
    NetworkTransport,
    WebSocketTransport,
    http_url,
    websocket_url,
)
from guerdon.envs.environment import set_types
from guerdon.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    InvalidObservationError,
)
from guerdon.types.observation import GenericObservation, StepResult
from guerdon.types.state import State

__all__ = ["EnvClient", "GenericEnvClient", "SyncEnvClient"]

# Seconds to wait for the end of a launched server that broke a connection.
ENDING_S = 0.5

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")


class EnvClient(ConfigClient, ToolClient, Generic[ActT, ObsT, StateT]):
    """A client of an environment on a server, guerdon's or any that speaks OpenEnv's protocol.

    It connects when it is first used or entered, and has one session, with an environment of its
    own. If the connection breaks, the session is lost: a step then raises, and the next `reset`
    connects again. An answer that arrives too late is discarded, never taken for the next one.

    Example:
        >>> from guerdon import EnvClient
        >>> class MazeClient(EnvClient):  # EnvClient[Move, View, MazeState] for typed results
        ...     '''A client of the maze.'''
        >>> async def main():
        ...     async with MazeClient("http://localhost:8000") as maze:
        ...         result = await maze.reset(seed=7)
        ...         while not result.done:
        ...             result = await maze.step({"direction": "north"})
        >>> MazeClient("localhost:8000").base_url
        'http://localhost:8000'

    Args:
        base_url: The server's address; None with a `launcher` or a `transport`.
        launcher: Starts the server when the client connects, and stops it when the client closes.
        transport: Opens the connections; by default a `NetworkTransport()`, which can be given
            other limits. `ASGITransport` connects to an application in the same process.
        environment_id: The environment's name; by default the server's name for it once
            connected, and its address before.
        observation_type: The class of observations; by default the type parameter of the client's
            class.
        state_type: The class of states, likewise.
        token: The server's token.
        connect_timeout_s: Seconds to wait for a connection.
        message_timeout_s: Seconds to wait for an answer.

    Raises:
        InvalidArgumentError: `base_url` is not the address of a server, or another argument is
            invalid.
    """

    observation_type: type[Any] = GenericObservation
    state_type: type[Any] = State

    def __init__(
        self,
        base_url: str | None = None,
        *,
        launcher: Launcher | None = None,
        transport: WebSocketTransport | None = None,
        environment_id: str | None = None,
        observation_type: type[Any] | None = None,
        state_type: type[Any] | None = None,
        token: str | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 60.0,
    ) -> None:
        self.observation_type = observation_type or type(self).observation_type
        self.state_type = state_type or type(self).state_type
        if base_url is None and launcher is None and transport is not None:
            base_url = "http://localhost"
        if (base_url is None) == (launcher is None):
            raise InvalidArgumentError("an EnvClient takes either `base_url` or `launcher`")
        self.base_url = "" if base_url is None else http_url(base_url)
        self._launcher = launcher
        self._environment_id = environment_id
        self._token = check_token(token)
        self._connect_timeout_s = check_seconds("connect_timeout_s", connect_timeout_s)
        self._message_timeout_s = check_seconds("message_timeout_s", message_timeout_s)
        self._transport = transport or NetworkTransport()
        self._session: RemoteSession | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._updates = SessionUpdates()
        self._configured = 0  # the number of the session that has the updates

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_types(cls, EnvClient)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Return a client of a running server, such as ``"http://localhost:8000"``."""
        return cls(url, **options)

    @classmethod
    def from_module(
        cls, spec: str, *, config: Any = None, startup_timeout_s: float = 60.0, **options: Any
    ) -> Self:
        """Return a client that runs its server in a process; see `ProcessLauncher`."""
        launcher = ProcessLauncher(spec, config=config, startup_timeout_s=startup_timeout_s)
        return cls(launcher=launcher, **options)

    @classmethod
    def from_docker_image(
        cls,
        image: str,
        *,
        config: Any = None,
        env: Mapping[str, str] | None = None,
        port: int = 8000,
        startup_timeout_s: float = 120.0,
        **options: Any,
    ) -> Self:
        """Return a client that runs its server in a container; see `DockerLauncher`."""
        launcher = DockerLauncher(
            image, config=config, env=env, port=port, startup_timeout_s=startup_timeout_s
        )
        return cls(launcher=launcher, **options)

    @property
    def environment_id(self) -> str:
        """The environment's name."""
        return self._environment_id or shown_url(self.base_url) or "(not started)"

    # Connecting ---------------------------------------------------------------------------------

    async def connect(self) -> Self:
        """Connect; launch the server first if the client has a launcher.

        Raises:
            ConnectionLostError: Nothing listens there.
            ServerError: The server refused.
            ClientTimeoutError: The server didn't answer in time.
            LaunchError: The server didn't start.
        """
        self._closed = False
        async with self._connecting:
            if self._launcher is None:
                await self._connect()
            else:
                await self._connect_or_launch(self._launcher)
        return self

    async def _connect_or_launch(self, launcher: Launcher) -> None:
        if self.base_url:
            try:
                await self._connect()
                return
            except ConnectionLostError:
                if not await launcher.has_ended():
                    await asyncio.sleep(ENDING_S)  # it may be about to end
                    if not await launcher.has_ended():
                        raise
        self.base_url, self._session = "", None
        self.base_url = await launcher.start(self._token)
        await self._connect()

    async def _connect(self) -> None:
        if self._session is None:
            connector = Connector(
                websocket_url(self.base_url),
                token=self._token,
                transport=self._transport,
                connect_timeout_s=self._connect_timeout_s,
                retries=self._launcher is None,  # a launched server doesn't restart by itself
            )
            self._session = RemoteSession(connector)
            self._configured = 0
        await self._session.open()
        if self._environment_id is None:
            self._environment_id = self._session.environment_id
        if self._environment_id is None:
            async with await self._http_client() as http:
                self._environment_id = http.environment_id

    async def _connected(self) -> RemoteSession:
        """Return the session, whose connection may be lost; connect if there never was one."""
        if self._closed:
            raise ConnectionLostError("the client was closed; reset() begins a new session")
        if self._session is None:
            await self.connect()
        assert self._session is not None
        return self._session

    async def close(self) -> None:
        """End the session, and stop the server if the client launched it."""
        self._closed = True
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            if self._launcher is not None:
                self.base_url, self._session = "", None
                await self._launcher.stop()

    # Episodes -----------------------------------------------------------------------------------

    async def reset(self, /, **kwargs: Any) -> StepResult[ObsT]:
        """Begin an episode, in a new session if the present one is lost or busy.

        Args:
            **kwargs: ``seed``, ``episode_id``, and further arguments of the environment.

        Raises:
            ServerError: The server reported an error.
            ConnectionLostError: The server can't be reached.
            ClientTimeoutError: The answer didn't arrive in time.
        """
        message = encode_message("reset", kwargs)
        await self.connect()
        try:
            payload = await self._reset(message)
        except ConnectionLostError:
            if self._closed or (self._session is not None and self._session.is_open):
                raise
            await self.connect()  # which launches a server that has just ended again
            payload = await self._reset(message)
        return self._parse_result(payload)

    async def _reset(self, message: bytes) -> Any:
        session = await self._configured_session()
        return await session.request(message, "observation", self._message_timeout_s)

    async def step(
        self, action: ActT | Mapping[str, Any], *, timeout_s: float | None = None
    ) -> StepResult[ObsT]:
        """Take a step.

        Args:
            action: The action, a model or a dict.
            timeout_s: Seconds to wait for the answer; by default `message_timeout_s`.

        Raises:
            ServerError: The server reported an error.
            ConnectionLostError: The connection is lost, and the session with it.
            ClientTimeoutError: The answer didn't arrive in time.
        """
        message = encode_message("step", self._step_payload(action))
        if timeout_s is not None:
            timeout_s = check_seconds("timeout_s", timeout_s)
        session = await self._connected()
        limit = timeout_s or self._message_timeout_s
        return self._parse_result(await session.request(message, "observation", limit))

    async def state(self) -> StateT:
        """Return the state of the episode."""
        state = await self._request(b'{"type":"state"}', "state")
        if not isinstance(state, dict):
            where = shown_url(self.base_url)
            raise InvalidObservationError(f"{where} sent a state that is {state!r:.60}")
        return self._parse_state(state)

    async def _rpc(self, request: dict[str, Any]) -> Any:
        return await self._request(encode_message("mcp", request), "mcp")

    async def _request(self, message: bytes, kind: str) -> Any:
        session = await self._connected()
        return await session.request(message, kind, self._message_timeout_s)

    # Configuration ------------------------------------------------------------------------------

    async def get_config(self) -> dict[str, Any]:
        """Return the reward configuration of this session, in the shape of its file."""
        await self._configured_session()
        config = await self._request(b'{"type":"config"}', "config")
        self._config_version = config["version"]
        return dict(config)

    async def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the reward configuration of this session alone, from its next reset on.

        A session that replaces a lost one gets the same changes before its first reset. Use
        `HTTPEnvClient.update_config` or `post` to change all sessions of the server.

        Args:
            change: The changes by name, in the shape of the file; see `RewardRuntime.update`.
            version: The version that the change is based on; by default the one that this client
                has received last.

        Returns:
            ``{"status": "ok", "config": …, "change": …}``.

        Raises:
            RewardConfigError: The change is invalid; nothing was changed.
            ConfigConflictError: The session's configuration has another version by now.
        """
        versioned(change, version)  # rejects what is not a mapping before connecting
        session = await self._configured_session()  # after which another version may be seen
        answer = await self._update(versioned(change, version, self._config_version))
        entry = answer.get("change") or {}
        self._updates.add(change, changed={each["what"] for each in entry.get("changes", ())})
        self._configured = session.number
        return answer

    async def _update(self, sent: dict[str, Any]) -> dict[str, Any]:
        message = encode_message("config", sent)
        return await self._changed(sent, self._request(message, "config"))

    async def _configured_session(self) -> RemoteSession:
        """Return the session; repeat the updates to one that has replaced another."""
        session = await self._connected()
        if self._configured != session.number:
            self._config_version = None  # of the session that was lost
            if self._updates.merged:
                await self._update(self._updates.merged)
            self._configured = session.number
        return session

    # HTTP ---------------------------------------------------------------------------------------

    async def get(self, path: str) -> Any:
        """Return what is at a path of the server, such as ``"/metrics"``."""
        async with await self._http_client() as http:
            return await http.get(path)

    async def post(self, path: str, *, json: Any = None) -> Any:
        """Send JSON to a path of the server, such as ``"/config"``."""
        async with await self._http_client() as http:
            return await http.post(path, json=json)

    async def _http_client(self) -> HTTPEnvClient:
        if self._session is None:
            await self.connect()
        transport = self._transport
        return HTTPEnvClient(
            self.base_url,
            environment_id=self._environment_id,
            token=self._token,
            timeout_s=self._message_timeout_s,
            transport=transport if isinstance(transport, httpx.AsyncBaseTransport) else None,
        )

    # What a subclass may override ---------------------------------------------------------------

    def _step_payload(self, action: ActT | Mapping[str, Any]) -> Any:
        """Return what is sent for an action."""
        if isinstance(action, (dict, Mapping, BaseModel)):  # a dict is recognized the fastest
            return action
        raise InvalidArgumentError(f"an action is a model or a dict, got {action!r:.60}")

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ObsT]:
        """Return the result for the answer to a reset or a step."""
        result = parse_result(payload)
        observation = observation_of(result, self.observation_type, server=self.base_url)
        return StepResult(observation, result.reward, result.done, result.metadata)

    def _parse_state(self, payload: dict[str, Any]) -> StateT:
        """Return the state for the answer of a server."""
        state: StateT = validated(payload, self.state_type, what="a state", server=self.base_url)
        return state

    # Context ------------------------------------------------------------------------------------

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return the same client for synchronous code."""
        return SyncEnvClient(self)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connect().__await__()

    async def __aenter__(self) -> Self:
        try:
            return await self.connect()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class GenericEnvClient(EnvClient[dict[str, Any], dict[str, Any], dict[str, Any]]):
    """A client with plain dicts, for an environment whose classes aren't available.

    Example:
        >>> from guerdon.envs import GenericEnvClient
        >>> def main():
        ...     with GenericEnvClient("http://localhost:8000").sync() as environment:
        ...         environment.reset(seed=7)
        ...         return environment.step({"message": "hi"}).observation["echoed"]
    """

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[dict[str, Any]]:
        return parse_result(payload)

    def _parse_state(self, payload: dict[str, Any]) -> dict[str, Any]:
        return payload


class SyncEnvClient(SyncClient, Generic[ActT, ObsT, StateT]):
    """An `EnvClient` for synchronous code; made by `EnvClient.sync`.

    Example:
        >>> from guerdon import EnvClient
        >>> def main():
        ...     with EnvClient("http://localhost:8000").sync() as environment:
        ...         return environment.reset(seed=7).observation
    """

    async_client: EnvClient[ActT, ObsT, StateT]

    reset = sync_method(EnvClient[ActT, ObsT, StateT].reset)
    step = sync_method(EnvClient[ActT, ObsT, StateT].step)
    state = sync_method(EnvClient[ActT, ObsT, StateT].state)

    def connect(self) -> Self:
        """Connect; see `EnvClient.connect`."""
        run(self.async_client.connect())
        return self
