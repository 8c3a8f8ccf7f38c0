"""The effect of a write on the database, in a form that can be compared.

An effect describes the change only, so that the same write has the same effect after any other
writes: it has the differences of numbers, the items added to lists, and the order numbers of new
IDs.
"""

from __future__ import annotations

import json
from typing import Any

from examples.tau_airline.tables import Table, Tables

__all__ = ["effect"]


def effect(before: Tables, after: Tables) -> str:
    """Return the changes between two states as canonical JSON; ``""`` if there are none.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.effects import effect
        >>> from examples.tau_airline.tables import Tables
        >>> before = Tables(AirlineData(users={"u": {"bags": 1}}, flights={}, reservations={}))
        >>> after = before.copy()
        >>> after.users.edit("u")["bags"] = 3
        >>> effect(before, after)
        '{"u": {"bags": {"by": 2.0}}}'

    Args:
        before: The state before a write.
        after: The state after the write, which was created as a copy of `before`.
    """
    changes = {
        **_changes(before.users, after.users),
        **_changes(before.flights, after.flights),
        **_changes(before.reservations, after.reservations),
    }
    if not changes:
        return ""
    plain = json.loads(json.dumps(changes), parse_int=float)  # 348 and 348.0 are the same amount
    text = json.dumps(plain, sort_keys=True)
    for number, name in enumerate(after.issued[len(before.issued) :]):
        text = text.replace(json.dumps(name), f'"new {number}"')
    return text


def _changes(before: Table, after: Table) -> dict[str, Any]:
    return {key: _change(before.get(key), after.get(key)) for key in before.differences(after)}


def _change(old: Any, new: Any) -> Any:
    match old, new:
        case dict(), dict():
            kept = {key: _change(old[key], new[key]) for key in old if key in new}
            changed = {key: change for key, change in kept.items() if change is not None}
            gone = {key: "gone" for key in old if key not in new}
            return {**changed, **gone, **{key: new[key] for key in new if key not in old}} or None
        case list(), list() if new[: len(old)] == old:
            return {"added": new[len(old) :]} if len(new) > len(old) else None
        case int() | float(), int() | float():
            return {"by": round(new - old, 6)} if new != old else None
    return {"to": new} if new != old else None
