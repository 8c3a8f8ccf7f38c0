"""`SharedConfig`: the reward configuration of several servers, which all have the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.config.schema import LISTS
from guerdon.envs.client.config_updates import is_report, update_error, versioned
from guerdon.envs.client.http import HTTPEnvClient
from guerdon.errors import (
    ClientError,
    ConfigConflictError,
    InvalidArgumentError,
    RewardConfigError,
    ServerError,
)

# Configurations that are kept, for servers that join later.
MAX_STATES = 1001


@dataclass(slots=True, eq=False)
class _State:
    """A configuration that the servers have or had.

    Attributes:
        versions: Its versions on the servers; empty until a server has confirmed one.
        change: The change that makes the next state of it; None for the present one.
        is_reverted: Whether the change after that one reverts it. A server that refuses it can
            skip both.
    """

    versions: set[str] = field(default_factory=set)
    change: dict[str, Any] | None = None
    is_reverted: bool = False


class SharedConfig:
    """The reward configuration of several servers, which all have the same.

    Versions depend only on the initial configuration and on the changes. A server with an earlier
    version, such as one that was restarted, receives the changes that it lacks in their order, and
    then has the version of the others. A change that failed is followed by one that reverts it, so
    that a server that made the change, although its answer was lost, is reverted too.

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
        self._states = [_State()]
        # The servers that didn't answer to a change, with the state that they may have.
        self._in_doubt: dict[HTTPEnvClient, _State] = {}
        self._report: dict[str, Any] = {}  # the progress of training
        self._turn = asyncio.Lock()
        self._updates: set[asyncio.Task[dict[str, Any]]] = set()

    @property
    def is_known(self) -> bool:
        """Whether the version of a server is known."""
        return bool(self._states[0].versions)

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

    async def _join(self, place: int) -> dict[str, Any]:
        """Bring a server to the present configuration, and return that."""
        server = self._servers[place]
        config = await server.get_config()
        try:
            return await self._catch_up(server, config)
        except Exception:
            self._lost(place)
            raise

    async def _catch_up(self, server: HTTPEnvClient, config: dict[str, Any]) -> dict[str, Any]:
        at = self._states.index(self._state(server, config["version"]))
        while self._states[at].change is not None:
            before = config["version"]
            try:
                config = (await self._send(server, at, before))["config"]
                at += 1
            except (ServerError, RewardConfigError):
                if not self._states[at].is_reverted:
                    raise
                config = await server.get_config()  # the change may have been made nevertheless
                at += 1 if config["version"] != before else 2
                self._states[at].versions.add(config["version"])
        if self._report:
            await self._post(server, self._report)
        return config

    async def _send(self, server: HTTPEnvClient, at: int, version: str) -> dict[str, Any]:
        """Send the change of a state to a server that has that state in this version."""
        change, after = self._states[at].change or {}, self._states[at + 1]
        try:
            answer = await self._post(server, {**change, "version": version})
        except ClientError:
            self._in_doubt[server] = after
            raise
        self._in_doubt.pop(server, None)
        after.versions.add(answer["config"]["version"])
        return answer

    def _state(self, server: HTTPEnvClient, version: str) -> _State:
        """Return the state that a server has."""
        for state in self._states:
            if version in state.versions:
                return state
        state = self._in_doubt.get(server, self._states[0])
        if state in self._states and (server in self._in_doubt or not state.versions):
            state.versions.add(version)
            return state
        present = ", ".join(sorted(self._states[-1].versions))
        raise ConfigConflictError(
            f"{server.base_url} has version {version!r} of the configuration, the other servers"
            f" of this pool have {present!r}; restart it with their configuration",
            sent=present,
            present=version,
        )

    async def update(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the configuration of all servers, or of none.

        First all servers are asked for their versions, then the change is sent to one after the
        other. If one fails, the change is reverted on all. If the caller is cancelled, the change
        is still completed or reverted.

        Args:
            change: The changes by name, see `HTTPEnvClient.update_config`.
            version: The version that the change is based on, by default the present one.

        Returns:
            The answer of the first server.

        Raises:
            RewardConfigError: The change is invalid, or a server failed. It was reverted, or will
                be before the next episode of the servers that the error names.
            ConfigConflictError: A server has another version; nothing was changed.
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
            if based_on is not None and based_on not in self._states[-1].versions:
                await self._accept(based_on)
            configs = [await self._join(place) for place in range(len(self._servers))]
            if is_report(sent):
                return await self._send_report(sent)
            return await self._change(sent, configs)

    async def _send_report(self, sent: dict[str, Any]) -> dict[str, Any]:
        answer = await self._post(self._servers[0], sent)
        self._report.update(sent)  # a server that can't be reached now gets it when it joins
        for server in self._servers[1:]:
            await self._post(server, sent)
        return answer

    async def _accept(self, version: str) -> None:
        """Take a version as the present one, if all servers have it."""
        present = [(await server.get_config())["version"] for server in self._servers]
        if set(present) != {version}:
            raise ConfigConflictError(
                f"the change is based on version {version!r:.100}, but the servers have "
                f"{', '.join(sorted(set(present)))}; nothing was changed",
                sent=version,
                present=present[0],
            )
        self._states = [_State({version})]

    async def _change(self, sent: dict[str, Any], configs: list[dict[str, Any]]) -> dict[str, Any]:
        self._add(sent)
        answers: list[dict[str, Any]] = []
        for server, config in zip(self._servers, configs, strict=True):
            try:
                answers.append(await self._send(server, -2, config["version"]))
            except Exception as error:
                if not answers and isinstance(error, (RewardConfigError, InvalidArgumentError)):
                    self._drop_last()
                    raise
                lost = await self._revert(configs[0])
                text = f"{server.base_url} failed: {error}"
                if lost:
                    text += f"; the change will be reverted before the next episode of {lost}"
                else:
                    text = f"nothing was changed: {text}"
                raise RewardConfigError(text, problems=[text]) from error
        if self._states[-1].versions <= self._states[-2].versions:  # it changed nothing
            self._drop_last()
        return answers[0]

    def _add(self, change: dict[str, Any]) -> None:
        self._states[-1].change = change
        self._states = [*self._states, _State()][-MAX_STATES:]

    def _drop_last(self) -> None:
        self._states.pop()
        self._states[-1].change = None

    async def _revert(self, before: dict[str, Any]) -> str:
        """Restore the former configuration of all servers; return those where that failed."""
        undo = {key: each for key, each in before.items() if key not in ("version", "progress")}
        undo["schedules"] = {
            entry["name"]: entry.get("schedule") for key in LISTS for entry in before[key]
        }
        for key in LISTS:
            entries = before[key]
            undo[key] = [{k: v for k, v in each.items() if k != "schedule"} for each in entries]
        self._states[-2].is_reverted = True
        self._add(undo)
        lost = []
        for place, server in enumerate(self._servers):
            try:
                await self._join(place)
            except Exception as error:
                lost.append(f"{server.base_url} ({error})")
                self._lost(place)
        return ", ".join(lost)

    async def _post(self, server: HTTPEnvClient, change: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await server.post("/config", json=dict(change))
        except ServerError as error:
            await server.close()  # the next request needs a new connection after some errors
            raise update_error(error, str(change.get("version", ""))) from error
        return answer

    async def close(self) -> None:
        """Close the connections, once the updates that have begun are completed."""
        try:
            await asyncio.gather(*self._updates, return_exceptions=True)
        finally:
            for server in self._servers:
                await server.close()
