"""`SyncEnvClient`: a client for code that awaits nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from guerdon._background import run
from guerdon.envs.sync_face import SyncFace
from guerdon.types.step_result import StepResult

if TYPE_CHECKING:
    from guerdon.envs.client.client import EnvClient

__all__ = ["SyncEnvClient"]

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")


class SyncEnvClient(SyncFace, Generic[ActT, ObsT, StateT]):
    """An `EnvClient` for code that awaits nothing; made by `EnvClient.sync`.

    All of them share one event loop, in a thread of its own.

    Example:
        >>> from guerdon import EnvClient
        >>> def main():
        ...     with EnvClient.from_url("http://localhost:8000").sync() as environment:
        ...         return environment.reset(seed=7).observation
    """

    def __init__(self, client: EnvClient[ActT, ObsT, StateT]) -> None:
        super().__init__(client)
        self.async_client = client

    @property
    def environment_id(self) -> str:
        """What the environment is called."""
        return self.async_client.environment_id

    @property
    def base_url(self) -> str:
        """The server's address."""
        return self.async_client.base_url

    def connect(self) -> Self:
        """See `EnvClient.connect`."""
        run(self.async_client.connect())
        return self

    def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """See `EnvClient.reset`."""
        return run(self.async_client.reset(**kwargs))

    def step(
        self, action: ActT | Mapping[str, Any], *, timeout_s: float | None = None
    ) -> StepResult[ObsT]:
        """See `EnvClient.step`."""
        return run(self.async_client.step(action, timeout_s=timeout_s))

    def get_config(self) -> dict[str, Any]:
        """See `EnvClient.get_config`."""
        return run(self.async_client.get_config())

    def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """See `EnvClient.update_config`."""
        return run(self.async_client.update_config(change, version=version))

    def get(self, path: str) -> Any:
        """See `EnvClient.get`."""
        return run(self.async_client.get(path))

    def post(self, path: str, *, json: Any = None) -> Any:
        """See `EnvClient.post`."""
        return run(self.async_client.post(path, json=json))

    def state(self) -> StateT:
        """See `EnvClient.state`."""
        return run(self.async_client.state())
