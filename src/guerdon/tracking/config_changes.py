"""Changes of a configuration, as they are told to a logger: one by one, or a whole update."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

from guerdon._validation import is_finite
from guerdon._validation import shown as told
from guerdon.errors import InvalidArgumentError

__all__ = ["NOT_TOLD", "changes_of"]

#: Stands for an argument that wasn't given, where None is one.
NOT_TOLD: Any = object()

#: What is logged of a change, and the weights that it moved.
LoggedChange: TypeAlias = tuple[dict[str, Any], dict[str, float]]


def changes_of(what: Any, said: dict[str, Any], *, fingerprint: str | None) -> list[LoggedChange]:
    """The changes that are meant, each with all that is known of it.

    Args:
        what: A text; or an update, whose ``changes`` are told each; or None, which is no change.
        said: ``before``, ``after``, ``who`` and ``when``, which belong to a text.
        fingerprint: That of the configuration afterwards.

    Raises:
        InvalidArgumentError: Something is missing, or can't be meant.
    """
    if isinstance(what, str):
        missing = [name for name in ("before", "after") if said[name] is NOT_TOLD]
        if missing:
            raise InvalidArgumentError(f"{' and '.join(missing)} of {told(what)} must be given")
        changes = [{"what": what, "from": said["before"], "to": said["after"]}]
        common = {"who": said["who"], "when": said["when"]}
    else:
        extra = [
            name for name, value in said.items() if value is not None and value is not NOT_TOLD
        ]
        if extra:
            raise InvalidArgumentError(
                f"{', '.join(extra)}: these go with a text, such as 'style.weight'; an update says "
                "them itself"
            )
        if what is None:
            return []
        changes = _changes_of_update(what)
        common = {"who": what.get("by"), "when": what.get("when"), "version": what.get("version")}
    if common["when"] is None:
        common["when"] = time.time()
    return [_logged({**each, **common, "fingerprint": fingerprint}) for each in changes]


def _changes_of_update(update: Any) -> list[dict[str, Any]]:
    changes = update.get("changes") if isinstance(update, Mapping) else None
    parts = ("what", "from", "to")
    whole = isinstance(changes, list | tuple) and all(
        isinstance(each, Mapping) and set(parts) <= set(each) and isinstance(each["what"], str)
        for each in changes
    )
    if not whole or changes is None:
        raise InvalidArgumentError(
            f'{told(update)} is no change; it takes what an update gives under "change", which is '
            '{"when", "by", "version", "changes": [{"what", "from", "to"}]}, or a text with before '
            "and after"
        )
    return [{key: each[key] for key in parts} for each in changes]


def _logged(change: dict[str, Any]) -> LoggedChange:
    front, _, field = change["what"].rpartition(".")
    name = front.rpartition(".")[2]
    moved = field == "weight" and name and is_finite(change["to"])
    weights = {name: float(change["to"])} if moved else {}
    return {key: _as_json(value) for key, value in change.items()}, weights


def _as_json(value: Any) -> Any:
    """A value as JSON holds it; what it doesn't hold in words."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return told(value)
