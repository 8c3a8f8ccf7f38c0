"""`EnvClient`: an environment on a server, as if it were here."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ValidationError

from guerdon.envs.amounts import check_seconds
from guerdon.envs.client.answers import message, read_answer
from guerdon.envs.client.configuring import ConfiguredSession
from guerdon.envs.client.http import server_name
from guerdon.envs.client.launching import Container, Launcher, ServerProcess
from guerdon.envs.client.sync import SyncEnvClient
from guerdon.envs.client.wire import Wire, http_url, websocket_url
from guerdon.envs.invalid import say_invalid
from guerdon.envs.tokens import check_token
from guerdon.envs.type_parameters import set_types
from guerdon.errors import ConnectionLostError, InvalidArgumentError, InvalidObservationError
from guerdon.types.action import Action
from guerdon.types.observation import GenericObservation
from guerdon.types.state import State
from guerdon.types.step_result import StepResult

__all__ = ["EnvClient", "GenericEnvClient"]

# Seconds that a server of one's own, which broke a connection, has to be seen as ended.
ENDING_S = 0.5

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")


class EnvClient(ConfiguredSession, Generic[ActT, ObsT, StateT]):
    """An environment on a server, guerdon's or any that speaks OpenEnv's protocol.

    It connects when it is first used, or as a context; one client has one session, in which its
    environment lives. A connection that breaks takes the session with it: a step then raises,
    and the next `reset` connects anew. An answer that comes too late is thrown away, never taken
    for the next one.

    Example:
        >>> from guerdon import EnvClient
        >>> class MazeClient(EnvClient):  # EnvClient[Move, View, MazeState], where there are types
        ...     '''A maze somewhere.'''
        >>> async def main():
        ...     async with MazeClient.from_url("http://localhost:8000") as maze:
        ...         result = await maze.reset(seed=7)
        ...         while not result.done:
        ...             result = await maze.step({"direction": "north"})
        >>> MazeClient.from_url("localhost:8000").base_url
        'http://localhost:8000'

    Args:
        base_url: The server's address.
        environment_id: What to call the environment; by default the server's own name for it,
            once connected, and its address before that.
        action_type: The class of actions, where the client's class doesn't say.
        observation_type: The class of observations.
        state_type: The class of states.
        token: The server's token.
        connect_timeout_s: Seconds that connecting may take.
        message_timeout_s: Seconds that an answer may take.
        max_message_bytes: The largest message to accept.
        keepalive_s: Seconds between two pings, and that one may go unanswered; None: no pings.

    Raises:
        InvalidArgumentError: The address is none.
    """

    action_type: ClassVar[type[Any]] = Action
    observation_type: ClassVar[type[Any]] = GenericObservation
    state_type: ClassVar[type[Any]] = State

    def __init__(
        self,
        base_url: str,
        *,
        environment_id: str | None = None,
        action_type: type[Any] | None = None,
        observation_type: type[Any] | None = None,
        state_type: type[Any] | None = None,
        token: str | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 60.0,
        max_message_bytes: int = 100 * 2**20,
        keepalive_s: float | None = 20.0,
    ) -> None:
        for name, given in (
            ("action_type", action_type),
            ("observation_type", observation_type),
            ("state_type", state_type),
        ):
            if given is not None:
                setattr(self, name, given)
        for what, seconds in (
            ("connect_timeout_s", connect_timeout_s),
            ("message_timeout_s", message_timeout_s),
        ):
            check_seconds(what, seconds)
        self.base_url = http_url(base_url) if base_url else ""
        self._environment_id = environment_id
        self._token = check_token(token)
        self._connect_timeout_s = connect_timeout_s
        self._message_timeout_s = message_timeout_s
        self._wire_options: dict[str, Any] = {
            "token": token,
            "connect_timeout_s": connect_timeout_s,
            "max_message_bytes": max_message_bytes,
            "keepalive_s": keepalive_s,
        }
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._launcher: Launcher | None = None
        self._closed = False
        super().__init__()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_types(cls, EnvClient)

    # Where the server comes from ----------------------------------------------------------------

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """A client of a server that runs somewhere.

        Args:
            url: Its address, such as ``"http://localhost:8000"``.
            **options: As of the class.
        """
        return cls(url, **options)

    @classmethod
    def from_module(
        cls,
        spec: str,
        *,
        config: Any = None,
        startup_timeout_s: float = 60.0,
        **options: Any,
    ) -> Self:
        """A client of a server of its own: started when it connects, stopped when it closes.

        Args:
            spec: What ``guerdon serve`` takes: ``module:name``, ``file.py:name``, a folder, or a
                registered name.
            config: The reward, as a `RewardConfig`, a dict like one or the path of its file, which
                the server gets as a file, in place of the environment's own.
            startup_timeout_s: Seconds that the server may take to be there.
            **options: As of the class.
        """
        client = cls("", **options)
        process = ServerProcess(spec, startup_timeout_s, config=config, token=client._token)
        client._own(process)
        return client

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
        """A client of a container of its own: started when it connects, stopped when it closes.

        The ``docker`` command starts it, with a port of the loopback that docker chooses.

        Args:
            image: The image.
            config: The reward, as a `RewardConfig`, a dict like one or the path of its file. It is
                mounted as a JSON file, read-only, whose path is in the container's
                ``GUERDON_CONFIG``. ``guerdon serve`` takes it from there; what another server does
                with it is its own affair.
            env: Environment variables of the container.
            port: The port that its server listens on, inside.
            startup_timeout_s: Seconds that the server may take to be there.
            **options: As of the class.
        """
        client = cls("", **options)
        container = Container(
            image, startup_timeout_s, config=config, env=env, port=port, token=client._token
        )
        client._own(container)
        return client

    def _own(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._wire_options["patient"] = False  # it doesn't come back by itself

    @property
    def environment_id(self) -> str:
        """What the environment is called."""
        return self._environment_id or self.base_url or "(not started)"

    # Playing -----------------------------------------------------------------------------------

    async def connect(self) -> Self:
        """Connect, and start the server where it is this client's own.

        Raises:
            ConnectionLostError: Nobody listens there.
            ServerError: The server refused.
            ClientTimeoutError: Nobody answered in time.
            LaunchError: The server or the container didn't start.
        """
        self._closed = False
        async with self._connecting:
            if self._launcher is None:
                await self._connect()
            else:
                await self._launch(self._launcher)
        return self

    async def _launch(self, launcher: Launcher) -> None:
        """Connect to a server of one's own, which is started where it isn't there."""
        if self.base_url and not launcher.has_ended():
            try:
                await self._connect()
                return
            except ConnectionLostError:
                await asyncio.sleep(ENDING_S)  # it may be about to end
                if not launcher.has_ended():
                    raise
        self.base_url, self._wire = "", None
        self.base_url = await launcher.start()
        await self._connect()

    async def _connect(self) -> None:
        if self._wire is None:
            self._wire = Wire(websocket_url(self.base_url), **self._wire_options)
            self._configured = 0  # it counts its sessions anew
        await self._wire.ready()
        if self._environment_id is None:
            self._environment_id = await server_name(
                self.base_url, self._token, self._connect_timeout_s
            )

    async def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """Begin an episode, over a new connection where the old one is lost or behind.

        Args:
            **kwargs: ``seed``, ``episode_id``, and whatever else the environment takes.

        Raises:
            ServerError: The server said that something went wrong.
            ConnectionLostError: There is no connection to be had.
            ClientTimeoutError: The answer didn't come in time.
        """
        text = message("reset", kwargs)
        try:
            told = await self._reset(text)
        except ConnectionLostError:
            # A server of one's own that has just died is started again.
            if self._launcher is None or (self._wire is not None and self._wire.is_open):
                raise
            told = await self._reset(text)
        return self._parse_result(told)

    async def _reset(self, text: bytes) -> Any:
        while True:
            await self.connect()
            assert self._wire is not None
            await self._configure_again()
            session = self._wire.session
            told = await self._wire.ask_anew(text, "observation", self._message_timeout_s)
            if self._is_configured(session):
                return told

    async def step(
        self, action: ActT | Mapping[str, Any], *, timeout_s: float | None = None
    ) -> StepResult[ObsT]:
        """Take a step.

        Args:
            action: What the agent does, as a model or as a dict.
            timeout_s: Seconds to wait for the answer, instead of the client's own.

        Raises:
            ServerError: The server said that something went wrong.
            ConnectionLostError: The connection is lost, and the session with it.
            ClientTimeoutError: The answer didn't come in time.
        """
        text = message("step", self._step_payload(action))
        return self._parse_result(await self._ask(text, "observation", timeout_s))

    async def state(self) -> StateT:
        """Where the episode stands."""
        told = await self._ask(b'{"type":"state"}', "state")
        if not isinstance(told, dict):
            raise InvalidObservationError(f"{self.base_url} sent {told!r:.60}, which is no state")
        return self._parse_state(told)

    async def close(self) -> None:
        """End the session, and stop the server where it is this client's own."""
        self._closed = True
        try:
            if self._wire is not None:
                await self._wire.close()
        finally:
            if self._launcher is not None:
                self.base_url = ""
                self._wire = None
                await self._launcher.stop()

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """The same client for code that awaits nothing."""
        return SyncEnvClient(self)

    async def _ask(self, text: bytes, kind: str, timeout_s: float | None = None) -> Any:
        if self._closed:
            raise ConnectionLostError("the client was closed; reset() begins a new session")
        if self._wire is None:
            await self.connect()
        assert self._wire is not None
        limit = self._message_timeout_s
        if timeout_s is not None:
            limit = check_seconds("timeout_s", timeout_s)
        return await self._wire.ask(text, kind, limit)

    # What a subclass may write its own way -------------------------------------------------------

    def _step_payload(self, action: ActT | Mapping[str, Any]) -> Any:
        """What is sent of an action."""
        if isinstance(action, Mapping):
            return action
        if isinstance(action, BaseModel):
            return action.model_dump(mode="json")
        raise InvalidArgumentError(f"{action!r:.60} is no action; give a model or a dict")

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ObsT]:
        """What is made of an answer."""
        answer = read_answer(payload)
        kind = self.observation_type
        try:
            observation = kind.model_validate(answer.fields())
        except ValidationError as error:
            raise InvalidObservationError(
                f"{self.base_url} sent an observation that is no {kind.__name__}: "
                f"{say_invalid(error)}"
            ) from error
        return StepResult(observation, answer.reward, answer.done, answer.metadata)

    def _parse_state(self, payload: dict[str, Any]) -> StateT:
        """What is made of a state."""
        try:
            state: StateT = self.state_type.model_validate(payload)
        except ValidationError as error:
            raise InvalidObservationError(
                f"{self.base_url} sent a state that is no {self.state_type.__name__}: "
                f"{say_invalid(error)}"
            ) from error
        return state

    # As a context ------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connect().__await__()

    async def __aenter__(self) -> Self:
        try:
            return await self.connect()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class GenericEnvClient(EnvClient[dict[str, Any], dict[str, Any], dict[str, Any]]):
    """A client for plain dicts: of an environment whose types aren't at hand.

    Example:
        >>> from guerdon import GenericEnvClient
        >>> def main():
        ...     with GenericEnvClient.from_url("http://localhost:8000").sync() as environment:
        ...         environment.reset(seed=7)
        ...         return environment.step({"message": "hi"}).observation["echoed"]
    """

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[dict[str, Any]]:
        return StepResult(*read_answer(payload))

    def _parse_state(self, payload: dict[str, Any]) -> dict[str, Any]:
        return payload
