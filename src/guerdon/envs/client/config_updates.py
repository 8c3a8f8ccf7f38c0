"""Updates of a server's reward configuration, as clients send, merge and repeat them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from guerdon.errors import (
    ConfigConflictError,
    InvalidArgumentError,
    RewardConfigError,
    ServerError,
)

# The keys of an update that are repeated to the session that replaces a lost one.
NAMED = ("weights", "schedules")
LISTS = ("per_turn", "episode_end")
PROGRESS = ("training_step",)
REPORTS = frozenset(("training_step", "episode", "by"))


def versioned(update: Any, version: str | None, seen: str | None = None) -> dict[str, Any]:
    """Return an update with the version that it is based on.

    An update that only reports the progress of training conflicts with nothing, and is sent
    without the version that was `seen` last.

    Example:
        >>> versioned({"weights": {"a": 1.0}}, None, "3-f00")
        {'weights': {'a': 1.0}, 'version': '3-f00'}
        >>> versioned({"training_step": 500}, None, "3-f00")
        {'training_step': 500}

    Raises:
        InvalidArgumentError: The update is not a mapping.
    """
    if not isinstance(update, Mapping):
        raise InvalidArgumentError(f"an update of the configuration is a dict, got {update!r:.60}")
    if version is None and "version" not in update and not is_report(update):
        version = seen
    return dict(update) if version is None else {**update, "version": version}


def is_report(update: Mapping[str, Any]) -> bool:
    """Return whether an update only reports the progress of training."""
    return REPORTS.issuperset(update)


def update_error(error: ServerError, sent: str) -> Exception:
    """Return the exception for a server's refusal of an update; other errors unchanged.

    Args:
        error: What the server reported.
        sent: The version that the update is based on.
    """
    if error.code in ("412", "CONFLICT"):
        return ConfigConflictError(
            str(error.details.get("message", error)),
            sent=sent,
            present=str(error.details.get("version", "")),
        )
    if error.code in ("422", "VALIDATION_ERROR") and error.errors:
        problems = [field_error_line(each) for each in error.errors]
        return RewardConfigError("nothing was changed: " + "; ".join(problems), problems=problems)
    return error


def field_error_line(error: object) -> str:
    """Return the error of a field in one line."""
    if not isinstance(error, Mapping):
        return str(error)
    where = [str(each) for each in error.get("loc", ()) if each != "body"]
    return ": ".join([*where, str(error.get("msg", error))])


class ConfigClient:
    """A client that changes a configuration, and remembers the version that it has seen last."""

    _config_version: str | None = None

    async def _changed(self, sent: dict[str, Any], answering: Awaitable[Any]) -> dict[str, Any]:
        """Return the answer to an update.

        Args:
            sent: The update.
            answering: Its answer.

        Raises:
            RewardConfigError: The server refused it.
        """
        try:
            answer: dict[str, Any] = await answering
        except ServerError as error:
            raise update_error(error, str(sent.get("version", ""))) from error
        if "version" in sent or not is_report(sent):
            self._config_version = answer["config"]["version"]
        return answer


class SessionUpdates:
    """The updates of one session, merged, so that the session that replaces it gets the same.

    Example:
        >>> updates = SessionUpdates()
        >>> entry = {"name": "b", "weight": 2, "config": {"threshold": 0.5}}
        >>> updates.add({"weights": {"a": 1, "b": 1}, "training_step": 7})
        >>> updates.add({"per_turn": [entry], "tree": []})
        >>> updates.merged["weights"]
        {'a': 1, 'b': 2}
        >>> updates.merged["per_turn"]
        [{'name': 'b', 'config': {'threshold': 0.5}}]

    Attributes:
        merged: All updates as one: the latest value of each name.
    """

    def __init__(self) -> None:
        self.merged: dict[str, Any] = {}

    def add(self, update: Mapping[str, Any], *, changed: set[str] | None = None) -> None:
        """Add an update.

        Args:
            update: Weights and schedules may be given in either form.
            changed: What it changed, as in the server's answer; None for everything. An entry of a
                list without a change stays as all sessions have it: a configuration that was
                received may be sent back with one change in it.
        """
        for key, value in update.items():
            if key in NAMED:
                self._add_named(key, value)
            elif key in LISTS:
                for entry in value:
                    self._add_entry(key, entry, changed)
            elif key in PROGRESS or key in (changed or ()):  # the environment's own
                self.merged[key] = value

    def _add_named(self, key: str, values: Mapping[str, Any]) -> None:
        self.merged[key] = {**self.merged.get(key, {}), **values}

    def _add_entry(self, key: str, entry: Mapping[str, Any], changed: set[str] | None) -> None:
        name = entry["name"]
        for field in ("weight", "schedule"):
            if field in entry and (changed is None or f"{key}.{name}.{field}" in changed):
                self._add_named(f"{field}s", {name: entry[field]})
        config = {
            field: value
            for field, value in entry.get("config", {}).items()
            # A field of the only rubric has no name in front.
            if changed is None or f"{name}.{field}" in changed or field in changed
        }
        if config:
            entries = {each["name"]: each["config"] for each in self.merged.get(key, ())}
            entries[name] = {**entries.get(name, {}), **config}
            self.merged[key] = [{"name": each, "config": entries[each]} for each in entries]
