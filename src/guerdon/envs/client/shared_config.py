"""`SharedConfig`: the reward configuration of several servers, which all have the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from guerdon.config.schema import LISTS
from guerdon.envs.client.config_updates import is_report, update_error, versioned
from guerdon.envs.client.http import HTTPEnvClient
from guerdon.errors import ClientError, ConfigConflictError, RewardConfigError, ServerError

# Changes that are kept, for servers that join later.
MAX_CHANGES = 1000


class SharedConfig:
    """The reward configuration of several servers, which all have the same.

    Versions depend only on the initial configuration and on the changes. A server with an earlier
    version, such as one that was restarted, receives the changes that it lacks in their order, and
    then has the version of the others.

    Args:
        urls: The servers' addresses.
        token: The servers' token.
        timeout_s: Seconds to wait for an answer.
    """

    def __init__(
        self, urls: Sequence[str], *, token: str | None = None, timeout_s: float = 60.0
    ) -> None:
        self._servers = [HTTPEnvClient(url, token=token, timeout_s=timeout_s) for url in urls]
        self._versions: list[str] = []  # the present one is the last
        self._changes: list[dict[str, Any]] = []  # from each version to the next
        self._report: dict[str, Any] = {}  # the progress of training
        self._turn = asyncio.Lock()

    @property
    def is_known(self) -> bool:
        """Whether the version that all servers have is known."""
        return bool(self._versions)

    async def join(self, place: int) -> None:
        """Bring a server to the configuration of the others.

        Args:
            place: Its place in `urls`.

        Raises:
            ConfigConflictError: It has a configuration that the others never had.
            ClientError: It can't be reached.
        """
        async with self._turn:
            await self._join(self._servers[place])

    async def _join(self, server: HTTPEnvClient) -> dict[str, Any]:
        config = await server.get_config()
        version = config["version"]
        if not self._versions:
            self._versions = [version]
        if version in self._versions:
            for change in self._changes[self._versions.index(version) :]:
                config = (await self._post(server, {**change, "version": version}))["config"]
                version = config["version"]
        if version != self._versions[-1]:
            raise ConfigConflictError(
                f"{server.base_url} has version {version!r} of the configuration, the other servers"
                f" of this pool have {self._versions[-1]!r}; restart it with their configuration",
                sent=self._versions[-1],
                present=version,
            )
        if self._report:
            await self._post(server, self._report)
        return config

    async def update(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the configuration of all servers, or of none.

        First all servers are asked for their versions, then the change is sent to one after the
        other. If one refuses it or fails, the others get their former configuration again.

        Args:
            change: The changes by name, see `HTTPEnvClient.update_config`.
            version: The version that the change is based on, by default the present one.

        Returns:
            The answer of the first server.

        Raises:
            RewardConfigError: The change is invalid; nothing was changed.
            ConfigConflictError: A server has another version; nothing was changed.
            ClientError: A server can't be reached; nothing was changed.
        """
        sent = versioned(change, version)
        async with self._turn:
            based_on = sent.pop("version", None)
            if based_on is not None and based_on not in self._versions[-1:]:
                self._versions, self._changes = [based_on], []
            configs = [await self._join(server) for server in self._servers]
            if is_report(sent):
                self._report.update(sent)
                answers = [await self._post(server, sent) for server in self._servers]
                return answers[0]
            return await self._change(sent, configs[0])

    async def _change(self, sent: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        changed: list[HTTPEnvClient] = []
        answers: list[dict[str, Any]] = []
        for server in self._servers:
            try:
                answer = await self._post(server, {**sent, "version": self._versions[-1]})
            except (ClientError, RewardConfigError) as error:
                if not changed:
                    raise
                self._add(sent, answers[0])
                raise await self._reverted(changed, server, before, error) from error
            changed.append(server)
            answers.append(answer)
        self._add(sent, answers[0])
        return answers[0]

    def _add(self, change: dict[str, Any], answer: Mapping[str, Any]) -> None:
        version = answer["config"]["version"]
        if version != self._versions[-1]:
            self._versions = [*self._versions, version][-MAX_CHANGES - 1 :]
            self._changes = [*self._changes, change][-MAX_CHANGES:]

    async def _reverted(
        self,
        changed: Sequence[HTTPEnvClient],
        failed: HTTPEnvClient,
        before: dict[str, Any],
        error: Exception,
    ) -> RewardConfigError:
        """Restore the former configuration of some servers, and return the error of the update.

        The server that failed may have taken the change; it is brought along when it joins again.
        """
        undo = {key: each for key, each in before.items() if key not in ("version", "progress")}
        undo["schedules"] = {
            entry["name"]: entry.get("schedule") for key in LISTS for entry in before[key]
        }
        for key in LISTS:
            entries = before[key]
            undo[key] = [{k: v for k, v in each.items() if k != "schedule"} for each in entries]
        text = f"nothing was changed: {failed.base_url} failed: {error}"
        try:
            answers = [
                await self._post(server, {**undo, "version": self._versions[-1]})
                for server in changed
            ]
        except (ClientError, RewardConfigError) as problem:
            text = (
                f"{failed.base_url} failed, and the change of the other servers could not be "
                f"reverted, so that they may differ: {problem}"
            )
        else:
            self._add(undo, answers[0])
        return RewardConfigError(text, problems=[text])

    async def _post(self, server: HTTPEnvClient, change: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await server.post("/config", json=dict(change))
        except ServerError as error:
            raise update_error(error, str(change.get("version", ""))) from error
        return answer

    async def close(self) -> None:
        """Close the connections."""
        for server in self._servers:
            await server.close()
