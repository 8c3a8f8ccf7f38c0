"""`Change`: what somebody asks to have changed, read with every mistake that is in it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from guerdon._validation import is_finite
from guerdon._validation import shown as say
from guerdon.config.schedules import Schedule, parse_schedule
from guerdon.errors import RewardConfigError

__all__ = ["Change", "Present", "read_change"]

LISTS = ("per_turn", "episode_end")

# How much of a wrong name is compared with those there are, and how many mistakes are told.
MAX_NAME = 100
MAX_PROBLEMS = 100

# What `GET /config` tells that can't be changed: it may be sent back as it was told.
FIXED = ("schema_version", "mcp_services", "normalize", "curriculum")

# What it tells that moves by itself, as episodes begin: what was told a moment ago is no mistake.
MOVING = ("tree", "fingerprint", "progress")
KNOWN = (*LISTS, "weights", "schedules", "training_step", "episode", "version", "by")


@dataclass(frozen=True, slots=True)
class Present:
    """What there is to be changed.

    Attributes:
        told: The configuration as `GET /config` tells it.
        lists: In which of the two lists each entry stands, by its name.
        weighed: The names of the entries that have a weight.
        tunable: The dotted names of the fields that may be changed.
        paths: The dotted name of an entry's rubric in the tree, by the entry's name.
    """

    told: Mapping[str, Any]
    lists: Mapping[str, str]
    weighed: frozenset[str]
    tunable: frozenset[str]
    paths: Mapping[str, str]


@dataclass(slots=True)
class Change:
    """What somebody asks to have changed.

    Attributes:
        weights: New weights, by the names of entries.
        schedules: New schedules; None takes one away.
        tuned: New values of tunable fields, by their dotted names in the tree.
        training_step: The step that the trainer is at.
        episode: The episode that it is at.
        version: The version that the change was made to.
        by: Who asks.
        where: Where each tunable field stood in what was sent.
        problems: What can't be done, a line each.
    """

    weights: dict[str, float] = field(default_factory=dict)
    schedules: dict[str, Schedule | None] = field(default_factory=dict)
    tuned: dict[str, Any] = field(default_factory=dict)
    training_step: int | None = None
    episode: int | None = None
    version: str | None = None
    by: str | None = None
    where: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_change(sent: Any, present: Present) -> Change:  # noqa: C901
    """Read what was sent, against what there is.

    Args:
        sent: A part of the file's shape: entries by name with what changes of them; or
            ``weights`` and ``schedules`` by the names of entries; ``training_step`` and
            ``episode``. What is sent as it is told already changes nothing.
        present: What there is.

    Returns:
        The change, with its problems.
    """
    change = Change()
    if not isinstance(sent, Mapping):
        change.problems.append(f"a change is an object, not {type(sent).__name__}")
        return change
    for key, value in sent.items():
        if len(change.problems) > MAX_PROBLEMS:
            break
        if key in LISTS:
            _read_list(change, key, value, present)
        elif key == "weights":
            for name, weight in _named(change, key, value, present):
                _read_weight(change, f"weights.{name}", name, weight, present)
        elif key == "schedules":
            for name, spec in _named(change, key, value, present):
                _read_schedule(change, f"schedules.{name}", name, spec, present)
        elif key in ("training_step", "episode"):
            _read_count(change, key, value)
        elif key in ("version", "by"):
            _read_text(change, key, value)
        elif key in FIXED:
            _read_fixed(change, key, value, _same(present.told.get(key), value))
        elif key in MOVING:
            _read_fixed(change, key, value, _is_like(present.told.get(key), value))
        else:
            change.problems.append(f"{key!s:.80}: there is no such field; there are {list(KNOWN)}")
    if len(change.problems) > MAX_PROBLEMS:
        change.problems[MAX_PROBLEMS:] = ["and more"]
    return change


def _read_list(change: Change, key: str, value: Any, present: Present) -> None:
    if not isinstance(value, list):
        change.problems.append(f"{key}: it takes a list of entries, not {type(value).__name__}")
        return
    for place, entry in enumerate(value):
        if len(change.problems) > MAX_PROBLEMS:
            break
        where = f"{key}[{place}]"
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str):
            change.problems.append(f"{where}: an entry is an object with a 'name'")
        elif name not in present.lists:
            change.problems.append(_unknown(f"{where}.name", name, present))
        elif present.lists[name] != key:
            change.problems.append(
                f"{where}.name: {name!r} stands in {present.lists[name]}; it can't be moved while "
                "training runs"
            )
        else:
            _read_entry(change, where, name, entry, present)


def _read_entry(
    change: Change, where: str, name: str, entry: Mapping[str, Any], present: Present
) -> None:
    told = next(each for each in present.told[present.lists[name]] if each["name"] == name)
    for key, value in entry.items():
        here = f"{where}.{key}"
        if key == "name" or (key in told and key != "config" and _same(told[key], value)):
            continue
        if key == "weight":
            _read_weight(change, here, name, value, present)
        elif key == "schedule":
            _read_schedule(change, here, name, value, present)
        elif key == "config":
            _read_config(change, here, name, value, told["config"], present)
        elif key in ("rubric", "private"):
            change.problems.append(
                f"{here}: it can't be changed while training runs, since nothing that comes over "
                "the network names code; change the file"
            )
        else:
            change.problems.append(
                f"{here!s:.120}: there is no such field; there are weight, schedule and config"
            )


def _read_config(
    change: Change, where: str, name: str, sent: Any, told: Mapping[str, Any], present: Present
) -> None:
    if not isinstance(sent, Mapping):
        change.problems.append(f"{where}: it takes an object, not {type(sent).__name__}")
        return
    path = present.paths[name]
    prefix = f"{path}." if path else ""
    may = [each.removeprefix(prefix) for each in sorted(present.tunable) if each.startswith(prefix)]
    for key, value in sent.items():
        if key in told and _same(told[key], value):
            continue
        if key in may:
            change.tuned[prefix + key] = value
            change.where[prefix + key] = f"{where}.{key}"
        else:
            change.problems.append(
                f"{where}.{key!s:.80}: it can't be changed while training runs; "
                + (f"of {name!r} there may be {may}" if may else f"of {name!r} nothing may")
            )


def _read_weight(change: Change, where: str, name: str, value: Any, present: Present) -> None:
    if name not in present.weighed:
        change.problems.append(
            f"{where}: {name!r} stands alone, with a weight of 1; a RubricComposer weighs several"
        )
    elif name in change.weights:
        change.problems.append(f"{where}: the weight of {name!r} is given twice")
    elif not is_finite(value):
        change.problems.append(f"{where}: it is {say(value)}; it takes a finite number")
    else:
        change.weights[name] = float(value)


def _read_schedule(change: Change, where: str, name: str, spec: Any, present: Present) -> None:
    if name not in present.weighed:
        change.problems.append(f"{where}: {name!r} stands alone and has no weight to move")
        return
    if name in change.schedules:
        change.problems.append(f"{where}: the schedule of {name!r} is given twice")
        return
    try:
        change.schedules[name] = None if spec is None else parse_schedule(spec)
    except RewardConfigError as error:
        change.problems.extend(f"{where}.{each}" for each in error.problems)


def _read_count(change: Change, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        change.problems.append(f"{key}: it is {say(value)}; it takes an int from 0 on")
    else:
        setattr(change, key, value)


def _read_text(change: Change, key: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        change.problems.append(
            f"{key}: it is {say(value)}; it takes a text of 200 characters on one line"
        )
    else:
        setattr(change, key, value)


def _read_fixed(change: Change, key: str, value: Any, is_told: bool) -> None:
    if not is_told:
        change.problems.append(
            f"{key}: it can't be changed while training runs; weights, schedules and tunable "
            "fields can; change the file"
        )


def _is_like(told: Any, sent: Any) -> bool:
    """Whether something has the form of what is told, numbers and fingerprints aside."""
    if isinstance(told, Mapping) and isinstance(sent, Mapping):
        return told.keys() == sent.keys() and all(_is_like(told[key], sent[key]) for key in told)
    if isinstance(told, list) and isinstance(sent, list):
        return len(told) == len(sent) and all(map(_is_like, told, sent))
    return isinstance(sent, type(told)) or (_is_plain(told) and _is_plain(sent))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _named(change: Change, key: str, value: Any, present: Present) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        change.problems.append(f"{key}: it takes an object, not {type(value).__name__}")
        return []
    known = []
    for name, each in value.items():
        if len(change.problems) > MAX_PROBLEMS:
            break
        if name in present.lists:
            known.append((name, each))
        else:
            change.problems.append(_unknown(key, name, present))
    return known


def _unknown(where: str, name: Any, present: Present) -> str:
    near = difflib.get_close_matches(str(name)[:MAX_NAME], present.lists, n=1)
    said = f"did you mean {near[0]!r}?" if near else f"there are {list(present.lists)}"
    return f"{where}: there is no entry {say(name)}; {said}"


def _same(told: Any, sent: Any) -> bool:
    """Whether something is sent as it was told; 1 and 1.0 are the same, 1 and True aren't."""
    if isinstance(told, Mapping) and isinstance(sent, Mapping):
        return told.keys() == sent.keys() and all(_same(told[key], sent[key]) for key in told)
    if isinstance(told, (list, tuple)) and isinstance(sent, (list, tuple)):
        return len(told) == len(sent) and all(map(_same, told, sent))
    return bool(isinstance(told, bool) == isinstance(sent, bool) and told == sent)
