"""`SharedConfig`: the reward configuration of several servers, which all have the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon.config.schema import LISTS
from guerdon.envs.client.config_updates import SessionUpdates, is_report, versioned
from guerdon.envs.client.http import HTTPEnvClient
from guerdon.errors import (
    ConfigConflictError,
    InvalidArgumentError,
    RewardConfigError,
    ServerError,
)

# In these, the same configurations of two servers may differ.
IGNORED = ("version", "progress", "tree", "fingerprint", "mcp_services")


class SharedConfig:
    """The reward configuration of several servers, which all have the same.

    A server with its initial configuration, such as one that was restarted, receives all changes as
    one. If a change fails on a server, all servers that it was sent to receive the former
    configuration. One that gave no answer may make the change later, unless its version is another
    by then: therefore the change is sent to it once more before it is reverted.

    Args:
        urls: The servers' addresses.
        lost: Called with the place of a server in `urls` that may have another configuration than
            the others. It must have no episodes until it joins again.
        token: The servers' token.
        timeout_s: Seconds to wait for an answer.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        lost: Callable[[int], None],
        token: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._servers = [HTTPEnvClient(url, token=token, timeout_s=timeout_s) for url in urls]
        self._lost = lost
        self._turn = asyncio.Lock()
        self._updates: set[asyncio.Task[dict[str, Any]]] = set()
        self._forget()

    def _forget(self) -> None:
        """Take the configuration of the next server as that of all."""
        self._config: dict[str, Any] = {}  # see `_compared`
        self._initial = ""  # the version of a server to which no change was sent
        self._versions: set[str] = set()  # of the present configuration on the servers
        self._changes = SessionUpdates()  # since the initial version, as one
        # The changes that failed, as they were sent to servers that have not reverted them yet.
        self._failed: dict[HTTPEnvClient, dict[str, Any]] = {}
        self._behind: set[HTTPEnvClient] = set()  # servers that may lack the progress of training

    @property
    def is_known(self) -> bool:
        """Whether the configuration of a server is known."""
        return bool(self._config)

    async def join(self, place: int) -> None:
        """Bring a server to the configuration of the others.

        Args:
            place: Its place in `urls`.

        Raises:
            ConfigConflictError: It has a configuration that the others never had.
            ClientError: It can't be reached.
        """
        async with self._turn:
            await self._join(place)

    async def _join(self, place: int) -> str:
        """Bring a server to the present configuration, and return its version of that."""
        server = self._servers[place]
        config = await server.get_config()
        try:
            if not self.is_known:
                self._initial = config["version"]
                self._config = _compared(config)
            if server in self._failed:
                config = await self._revert(server, config)
            if self._changes.merged and (
                config["version"] == self._initial or server in self._behind
            ):
                everything = {**self._changes.merged, "version": config["version"]}
                config = (await server.update_config(everything))["config"]
                self._behind.discard(server)
            version: str = config["version"]
            if _compared(config) != self._config:
                present = ", ".join(sorted(self._versions))
                raise ConfigConflictError(
                    f"{server.base_url} has version {version!r} of the configuration, the other"
                    f" servers of this pool have {present!r}; restart it with their configuration",
                    sent=present,
                    present=version,
                )
        except Exception:
            self._lost(place)
            raise
        self._versions.add(version)
        return version

    async def _revert(self, server: HTTPEnvClient, config: dict[str, Any]) -> dict[str, Any]:
        """Revert a change that a server has made, or may make later."""
        sent = self._failed[server]
        if config["version"] == sent["version"]:
            try:
                config = (await server.update_config(sent))["config"]
            except (ServerError, RewardConfigError):  # refused again, or made meanwhile
                config = await server.get_config()
        if config["version"] != sent["version"]:
            former = {**_as_change(self._config), "version": config["version"]}
            config = (await server.update_config(former))["config"]
        del self._failed[server]
        return config

    async def update(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the configuration of all servers, or of none.

        First all servers are asked for their configurations, then the change is sent to one after
        the other. If one fails, the change is reverted. If the caller is cancelled, the change is
        still completed or reverted.

        Args:
            change: The changes by name, see `HTTPEnvClient.update_config`.
            version: The version that the change is based on, by default the present one.

        Returns:
            The answer of the first server.

        Raises:
            RewardConfigError: The change is invalid, or a server failed. It was reverted, or will
                be before the next episode of the servers that the error names.
            ConfigConflictError: A server has another configuration; nothing was changed.
            ClientError: A server can't be reached; nothing was changed. The progress of training is
                sent to it again when it joins.
        """
        updating = asyncio.ensure_future(self._update(versioned(change, version)))
        self._updates.add(updating)
        updating.add_done_callback(self._updates.discard)
        # If the caller is cancelled, no other code retrieves the error.
        updating.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(updating)

    async def _update(self, sent: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            based_on = sent.pop("version", None)
            if based_on is not None and based_on not in self._versions:
                await self._check(based_on)
                self._forget()  # the former configuration, as the caller has seen this one
            versions = [await self._join(place) for place in range(len(self._servers))]
            if is_report(sent):
                return await self._report(sent)
            return await self._change(sent, versions)

    async def _check(self, version: str) -> None:
        """Check that all servers have a version.

        Raises:
            ConfigConflictError: One has another.
        """
        present = {(await server.get_config())["version"] for server in self._servers}
        if present != {version}:
            raise ConfigConflictError(
                f"the change is based on version {version!r:.100}, but the servers have "
                f"{', '.join(sorted(present))}; nothing was changed",
                sent=version,
                present=min(present),
            )

    async def _report(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Send the progress of training."""
        answer = await self._servers[0].update_config(progress)
        self._changes.merged.update(progress)
        self._behind.update(self._servers[1:])  # one that can't be reached gets it when it joins
        for server in self._servers[1:]:
            await server.update_config(progress)
            self._behind.discard(server)
        return answer

    async def _change(self, change: dict[str, Any], versions: Sequence[str]) -> dict[str, Any]:
        answers = []
        for server, version in zip(self._servers, versions, strict=True):
            self._failed[server] = sent = {**change, "version": version}
            try:
                answers.append(await server.update_config(sent))
            except Exception as error:
                if isinstance(error, (RewardConfigError, InvalidArgumentError)):
                    del self._failed[server]  # it changed nothing
                    if not self._failed:
                        raise
                text = f"{server.base_url} failed: {error}"
                if lost := await self._revert_all():
                    text += f"; the change will be reverted before the next episode of {lost}"
                else:
                    text = f"nothing was changed: {text}"
                raise RewardConfigError(text, problems=[text]) from error
        self._failed.clear()
        answer = answers[0]
        self._config = _compared(answer["config"])
        self._versions = {each["config"]["version"] for each in answers}
        entry = answer.get("change") or {}
        self._changes.add(change, changed={each["what"] for each in entry.get("changes", ())})
        return answer

    async def _revert_all(self) -> str:
        """Revert a change on the servers that it was sent to; return those where that failed."""
        lost = []
        for place, server in enumerate(self._servers):
            if server in self._failed:
                try:
                    await self._join(place)
                except Exception as error:
                    lost.append(f"{server.base_url} ({error})")
                    self._lost(place)
        return ", ".join(lost)

    async def close(self) -> None:
        """Close the connections, once the updates that have begun are completed."""
        try:
            await asyncio.gather(*self._updates, return_exceptions=True)
        finally:
            for server in self._servers:
                await server.close()


def _compared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a configuration all servers have alike."""
    return {key: value for key, value in config.items() if key not in IGNORED}


def _as_change(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change that restores a configuration."""
    entries = {key: [{"schedule": None, **entry} for entry in config[key]] for key in LISTS}
    return {**config, **entries}
