"""Getting and changing the configuration of a server's reward, and handing one over."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon.config.config import RewardConfig
from guerdon.envs.client.answers import message
from guerdon.errors import ConfigConflictError, InvalidArgumentError, RewardConfigError, ServerError

if TYPE_CHECKING:
    from guerdon.envs.client.http import HTTPEnvClient
    from guerdon.envs.client.wire import Wire

__all__ = [
    "ConfigFile",
    "ConfiguredSession",
    "changed",
    "differing",
    "error_line",
    "is_report",
    "merged",
    "refused",
]

# What of a change is said again to the session that takes the place of one that was lost.
NAMED = ("weights", "schedules")
LISTS = ("per_turn", "episode_end")
PROGRESS = ("training_step",)
REPORTS = frozenset(("training_step", "episode", "by"))


def changed(change: Any, version: str | None, seen: str | None = None) -> dict[str, Any]:
    """What is sent of a change: the change, with the version that it was made to.

    What only reports how far training is changes nothing that others may have changed, and is
    sent without the version that was `seen` last.

    Example:
        >>> changed({"weights": {"a": 1.0}}, None, "3-f00")
        {'weights': {'a': 1.0}, 'version': '3-f00'}
        >>> changed({"training_step": 500}, None, "3-f00")
        {'training_step': 500}

    Raises:
        InvalidArgumentError: The change is no mapping.
    """
    if not isinstance(change, Mapping):
        raise InvalidArgumentError(f"{change!r:.60} is no change; give a dict")
    if version is None and "version" not in change and not is_report(change):
        version = seen
    return dict(change) if version is None else {**change, "version": version}


def is_report(change: Mapping[str, Any]) -> bool:
    """Whether a change only reports how far training is."""
    return REPORTS.issuperset(change)


def refused(error: ServerError, sent: str) -> Exception:
    """What a server's refusal of a change is here; another error is given back as it is.

    Args:
        error: What the server said.
        sent: The version that the change was made to.
    """
    if error.code in ("412", "CONFLICT"):
        said = str(error.details.get("message", error))
        present = str(error.details.get("version", ""))
        return ConfigConflictError(said, sent=sent, present=present)
    if error.code in ("422", "VALIDATION_ERROR") and error.errors:
        problems = [error_line(each) for each in error.errors]
        return RewardConfigError("nothing was changed: " + "; ".join(problems), problems=problems)
    return error


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Two changes as one: what the newer says, and what only the older does.

    Weights and schedules are said in one way, whichever way they were sent, and what a server
    tells beside them is left out.

    Example:
        >>> merged({"weights": {"a": 1, "b": 2}}, {"per_turn": [{"name": "b", "weight": 3}]})
        {'weights': {'a': 1, 'b': 3}}
        >>> entry = {"name": "a", "config": {"threshold": 0.5}}
        >>> merged({}, {"per_turn": [entry], "tree": [], "training_step": 7})
        {'per_turn': [{'name': 'a', 'config': {'threshold': 0.5}}], 'training_step': 7}
    """
    one: dict[str, Any] = {}
    for change in (old, new):
        for key, value in change.items():
            if key in NAMED:
                _add(one, key, value)
            elif key in LISTS:
                for entry in value:
                    _add_entry(one, key, entry)
            elif key in PROGRESS:
                one[key] = value
    return one


def differing(change: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """What of a change is a session's own, by what the server answered.

    What the lists say as it was before stays that of all, as it does at the server: a told
    configuration may be sent back with a change in it.

    Example:
        >>> sent = {"per_turn": [{"name": "a", "weight": 2}, {"name": "b", "weight": 1}]}
        >>> answer = {"change": {"changes": [{"what": "per_turn.a.weight", "from": 1, "to": 2}]}}
        >>> differing(sent, answer)
        {'per_turn': [{'name': 'a', 'weight': 2}, {'name': 'b'}]}
    """
    remembered = answer.get("change") or {}
    what = {each["what"] for each in remembered.get("changes", ())}

    def own(which: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        name = entry["name"]
        kept: dict[str, Any] = {"name": name}
        for key in ("weight", "schedule"):
            if key in entry and f"{which}.{name}.{key}" in what:
                kept[key] = entry[key]
        config = entry.get("config", {})
        # The field of one that stands alone has no name before its own.
        config = {key: config[key] for key in config if not what.isdisjoint((f"{name}.{key}", key))}
        return {**kept, "config": config} if config else kept

    return {
        key: [own(key, entry) for entry in value] if key in LISTS else value
        for key, value in change.items()
    }


def _add_entry(one: dict[str, Any], which: str, entry: Mapping[str, Any]) -> None:
    name = entry["name"]
    for key, plural in (("weight", "weights"), ("schedule", "schedules")):
        if key in entry:
            _add(one, plural, {name: entry[key]})
    if entry.get("config"):
        entries = {each["name"]: each["config"] for each in one.get(which, ())}
        entries[name] = {**entries.get(name, {}), **entry["config"]}
        one[which] = [{"name": each, "config": config} for each, config in entries.items()]


def _add(one: dict[str, Any], key: str, values: Mapping[str, Any]) -> None:
    one[key] = {**one.get(key, {}), **values}


class ConfiguredSession:
    """The part of a client that configures its session's reward.

    A session that is lost takes its configuration with it: the next one is configured the same
    before its first reset.
    """

    _wire: Wire | None
    _token: str | None
    _message_timeout_s: float
    _closed: bool
    base_url: str

    def __init__(self) -> None:
        self._config_version: str | None = None
        self._own_change: dict[str, Any] = {}  # all of this session's, as one
        self._configured = 0  # the session that has it

    async def get_config(self) -> dict[str, Any]:
        """What the reward of this session is configured with, in the shape of its file."""
        await self._configure_again()
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
            RewardConfigError: Something in it can't be done, so that nothing was.
            ConfigConflictError: The session's configuration is another by now.
        """
        changed(change, version)  # refuses what is none
        await self._configure_again()  # after which another version may have been seen
        sent = changed(change, version, self._config_version)
        told = await self._change(sent)
        self._own_change = merged(self._own_change, differing(change, told))
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
            raise refused(error, str(sent.get("version", ""))) from error
        if "version" in sent or not is_report(sent):
            self._config_version = told["config"]["version"]
        return dict(told)

    async def _configure_again(self) -> None:
        """Configure a session that has taken the place of one that was lost."""
        if self._wire is None and not self._closed:
            await self.connect()
        wire = self._wire
        if wire is None or self._closed or self._configured == wire.session:
            return
        self._config_version = None  # what it saw was the lost one's
        if self._own_change:
            await self._change(self._own_change)
        self._configured = wire.session

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


def _from_root(config: Any, folder: Path) -> Any:
    """The same configuration, the files of its rubrics named from the root."""

    def placed(entry: Any) -> Any:
        rubric = entry.get("rubric") if isinstance(entry, Mapping) else None
        if not isinstance(rubric, str) or ".py:" not in rubric:
            return entry
        return {**entry, "rubric": str(folder.resolve() / rubric)}

    if not isinstance(config, Mapping):
        return config
    return {
        key: [placed(entry) for entry in value] if isinstance(value, (list, tuple)) else value
        for key, value in config.items()
    }


def error_line(error: object) -> str:
    """What is wrong with a field, in a line."""
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
        config: A mapping, a `RewardConfig`, or the path of a file of one.
        here: Let a ``file.py:name`` in it be looked for beside the file that it was read from, or
            from where this process is, not beside the new file.

    Raises:
        InvalidArgumentError: JSON can't hold it.
    """

    def __init__(self, config: Any, *, here: bool = False) -> None:
        if isinstance(config, (str, Path)):
            config = RewardConfig.from_file(config)
        plain = config.to_dict() if hasattr(config, "to_dict") else config
        if here:
            document = getattr(config, "document", None)
            plain = _from_root(plain, getattr(document, "folder", None) or Path.cwd())
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
