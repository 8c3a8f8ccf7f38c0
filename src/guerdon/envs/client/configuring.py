"""Getting and changing the configuration of a server's reward, and handing one over."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon.envs.client.answers import message
from guerdon.errors import ConfigConflictError, ConfigUpdateError, InvalidArgumentError, ServerError

if TYPE_CHECKING:
    from guerdon.envs.client.http import HTTPEnvClient
    from guerdon.envs.client.wire import Wire

__all__ = ["ConfigFile", "ConfiguredSession", "changed", "merged", "refused"]

# What belongs to one moment, and isn't said again to another session.
PASSING = ("version", "training_step", "episode", "by")


def changed(change: Any, version: str | None) -> dict[str, Any]:
    """What is sent of a change: the change, with the version that it was made to.

    Raises:
        InvalidArgumentError: The change is no mapping.
    """
    if not isinstance(change, Mapping):
        raise InvalidArgumentError(f"{change!r:.60} is no change; give a dict")
    return dict(change) if version is None else {"version": version, **change}


def refused(error: ServerError) -> Exception:
    """What a server's refusal of a change is here; another error is given back as it is."""
    if error.code in ("412", "CONFLICT"):
        return ConfigConflictError(str(error))
    if error.code in ("422", "VALIDATION_ERROR") and error.errors:
        problems = [_line(each) for each in error.errors]
        return ConfigUpdateError("nothing was changed: " + "; ".join(problems), problems=problems)
    return error


def merged(old: Any, new: Any) -> Any:
    """Two changes as one: what the newer says, and what only the older does.

    Example:
        >>> merged({"weights": {"a": 1, "b": 2}}, {"weights": {"b": 3}})
        {'weights': {'a': 1, 'b': 3}}
        >>> merged({"per_turn": [{"name": "a", "weight": 1}]}, {"per_turn": [{"name": "b"}]})
        {'per_turn': [{'name': 'a', 'weight': 1}, {'name': 'b'}]}
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {
            **old,
            **{
                key: value if key == "schedule" or key not in old else merged(old[key], value)
                for key, value in new.items()
            },
        }
    if _is_entries(old) and _is_entries(new):
        known = {each["name"]: each for each in old}
        for each in new:
            known[each["name"]] = merged(known.get(each["name"]), each)
        return list(known.values())
    return new


def _is_entries(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, Mapping) and "name" in each for each in value
    )


class ConfiguredSession:
    """The part of a client that configures its session's reward.

    A session that is lost takes its configuration with it: the next one is configured the same
    before its first reset.
    """

    _wire: Wire | None
    _token: str | None
    _message_timeout_s: float
    base_url: str

    def __init__(self) -> None:
        self._config_version: str | None = None
        self._own_change: dict[str, Any] = {}  # all of this session's, as one
        self._configured = 0  # the session that has it

    async def get_config(self) -> dict[str, Any]:
        """What the reward of this session is configured with, in the shape of its file."""
        told = await self._ask(b'{"type":"config"}', "config")
        self._config_version = told["version"]
        return dict(told)

    async def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change it for this session alone, from its next reset on.

        For all sessions of the server use `HTTPEnvClient.update_config`, or `post`.

        Args:
            change: What to change, by name, in the shape of the file; see `LiveReward.update`.
            version: The version that the change was made to; by default the one that this client
                has seen last, if any.

        Returns:
            ``{"status": "ok", "config": …, "change": …}``.

        Raises:
            ConfigUpdateError: Something in it can't be done, so that nothing was.
            ConfigConflictError: The session's configuration is another by now.
        """
        told = await self._change(changed(change, version or self._config_version))
        kept = {key: value for key, value in change.items() if key not in PASSING}
        self._own_change = merged(self._own_change, kept)
        assert self._wire is not None
        self._configured = self._wire.session
        return told

    async def get(self, path: str) -> Any:
        """Ask the server's stateless face, such as for ``"/metrics"``; see `HTTPEnvClient.get`."""
        async with await self._http() as http:
            return await http.get(path)

    async def post(self, path: str, *, json: Any = None) -> Any:
        """Send it something, such as to ``"/config"``; see `HTTPEnvClient.post`."""
        async with await self._http() as http:
            return await http.post(path, json=json)

    async def _change(self, sent: dict[str, Any]) -> dict[str, Any]:
        try:
            told = await self._ask(message("config", sent), "config")
        except ServerError as error:
            raise refused(error) from error
        self._config_version = told["config"]["version"]
        return dict(told)

    async def _configure_again(self) -> None:
        """Configure a session that has taken the place of one that was lost."""
        assert self._wire is not None
        if not self._is_configured(self._wire.session):
            await self._change(self._own_change)
            self._configured = self._wire.session

    def _is_configured(self, session: int) -> bool:
        assert self._wire is not None
        return not self._own_change or self._configured == session == self._wire.session

    async def _http(self) -> HTTPEnvClient:
        from guerdon.envs.client.http import HTTPEnvClient

        if self._wire is None:
            await self.connect()
        return HTTPEnvClient(
            self.base_url,
            environment_id=self.base_url,
            token=self._token,
            timeout_s=self._message_timeout_s,
        )

    async def connect(self) -> Any:
        """Connect."""
        raise NotImplementedError

    async def _ask(self, text: bytes, kind: str, timeout_s: float | None = None) -> Any:
        raise NotImplementedError


def _from_here(config: Any) -> Any:
    """The same configuration, the files of its rubrics named from the root."""

    def placed(entry: Any) -> Any:
        rubric = entry.get("rubric") if isinstance(entry, Mapping) else None
        if not isinstance(rubric, str) or ".py:" not in rubric:
            return entry
        return {**entry, "rubric": str(Path.cwd() / rubric)}

    if not isinstance(config, Mapping):
        return config
    return {
        key: [placed(entry) for entry in value] if isinstance(value, (list, tuple)) else value
        for key, value in config.items()
    }


def _line(error: object) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    where = [str(each) for each in error.get("loc", ()) if each != "body"]
    return ": ".join([*where, str(error.get("msg", error))])


class ConfigFile:
    """A configuration as a JSON file of its own, in a folder that is removed with it.

    Example:
        >>> file = ConfigFile({"per_turn": []})
        >>> file.path.read_text()
        '{"per_turn": []}'
        >>> file.remove()

    Args:
        config: A mapping, or what has a ``to_dict()``, such as a `RewardConfig`.
        here: Let a ``file.py:name`` in it be looked for from where this process is, not beside
            the file.

    Raises:
        InvalidArgumentError: JSON can't hold it.
    """

    def __init__(self, config: Any, *, here: bool = False) -> None:
        plain = config.to_dict() if hasattr(config, "to_dict") else config
        plain = _from_here(plain) if here else plain
        try:
            text = json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"config: JSON can't hold it: {error}") from error
        self._folder = tempfile.TemporaryDirectory(prefix="guerdon-")
        self.path = Path(self._folder.name, "config.json")
        self.path.write_text(text, encoding="utf-8")

    def share(self) -> None:
        """Let everybody on this machine read it, such as whoever a container runs as."""
        self.path.chmod(0o644)
        Path(self._folder.name).chmod(0o755)

    def remove(self) -> None:
        """Remove the file and its folder."""
        self._folder.cleanup()
