"""Reading a change of a running reward, with every mistake in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from guerdon._validation import did_you_mean, is_finite, shown
from guerdon.config.schedules import Schedule, parse_schedule
from guerdon.config.schema import LISTS
from guerdon.errors import RewardConfigError

__all__ = ["PatchTarget", "RewardPatch", "read_patch"]

MAX_PROBLEMS = 100
MAX_TEXT = 200

# Keys of a rendered configuration that can't be changed, but may be sent back unchanged.
FIXED = ("schema_version", "mcp_services", "normalize", "curriculum")

# Keys that change by themselves as episodes begin: an older value of the same shape is no mistake.
MOVING = ("tree", "fingerprint", "progress")
KNOWN = (*LISTS, "weights", "schedules", "training_step", "episode", "version", "by")


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """What can be changed of an entry.

    Attributes:
        list: ``"per_turn"`` or ``"episode_end"``.
        has_weight: Whether it has a weight.
        tunable: The dotted names in the tree of its tunable fields, by their keys in ``config``.
    """

    list: str
    has_weight: bool
    tunable: Mapping[str, str]


@dataclass(slots=True)
class RewardPatch:
    """A change of a running reward.

    Attributes:
        weights: New weights, by the names of entries.
        schedules: New schedules; None removes one.
        tuned: New values of tunable fields, by their dotted names in the tree.
        entries: The names of the entries that it changes.
        training_step: The current step of the trainer.
        episode: The current episode.
        version: The version that the change is based on.
        by: Who makes the change.
        places: The place of each tunable field in the change.
        problems: What can't be done, a line each.
    """

    weights: dict[str, float] = field(default_factory=dict)
    schedules: dict[str, Schedule | None] = field(default_factory=dict)
    tuned: dict[str, Any] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)
    training_step: int | None = None
    episode: int | None = None
    version: str | None = None
    by: str | None = None
    places: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def merged(self, later: RewardPatch) -> RewardPatch:
        """Return the changes of both; those of the later one win."""
        return RewardPatch(
            {**self.weights, **later.weights},
            {**self.schedules, **later.schedules},
            {**self.tuned, **later.tuned},
            self.entries | later.entries,
        )


def read_patch(
    sent: Any,
    *,
    targets: Mapping[str, PatchTarget],
    entries: Mapping[str, Mapping[str, Any]],
    render: Callable[[], Mapping[str, Any]],
) -> RewardPatch:
    """Read a change.

    Args:
        sent: A part of a rendered configuration: entries by name with what changes in them; or
            ``weights`` and ``schedules`` by the names of entries; ``training_step`` and
            ``episode``. What is sent back unchanged changes nothing.
        targets: What can be changed, by the names of entries.
        entries: The rendered entries by name.
        render: Renders the whole configuration.

    Returns:
        The change, with its problems.
    """
    reader = _PatchReader(targets, entries, render)
    try:
        if isinstance(sent, Mapping):
            for key, value in sent.items():
                reader.read(key, value)
        else:
            reader.patch.problems.append(f"a change must be an object, got {shown(sent)}")
    except _TooManyProblemsError:
        reader.patch.problems.append("and more")
    return reader.patch


class _TooManyProblemsError(Exception):
    """So many problems were found that the others are not looked for."""


class _PatchReader:
    def __init__(
        self,
        targets: Mapping[str, PatchTarget],
        entries: Mapping[str, Mapping[str, Any]],
        render: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.patch = RewardPatch()
        self._targets, self._entries, self._render = targets, entries, render

    def read(self, key: str, value: Any) -> None:
        if key in LISTS:
            self._read_list(key, value)
        elif key in ("weights", "schedules"):
            self._read_named(key, value)
        elif key in ("training_step", "episode"):
            is_count = isinstance(value, int) and not isinstance(value, bool)
            self._set(key, value, is_count and 0 <= value < 2**53, "an integer >= 0")
        elif key in ("version", "by"):
            is_line = isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()
            self._set(key, value, is_line, f"one line of at most {MAX_TEXT} characters")
        elif key not in (*FIXED, *MOVING):
            self._refuse(f"{key!s:.80}", f"unknown field; {did_you_mean(key, KNOWN)}")
        elif not (_is_same if key in FIXED else _is_alike)(self._render().get(key), value):
            self._refuse(key, "can't be changed while training runs; change the file")

    def _refuse(self, where: str, message: str) -> None:
        self.patch.problems.append(f"{where}: {message}")
        if len(self.patch.problems) == MAX_PROBLEMS:
            raise _TooManyProblemsError

    def _refuse_name(self, where: str, name: Any) -> None:
        self._refuse(where, f"unknown entry {shown(name)}; {did_you_mean(name, self._targets)}")

    def _set(self, key: str, value: Any, is_valid: bool, expected: str) -> None:
        if is_valid:
            setattr(self.patch, key, value)
        else:
            self._refuse(key, f"must be {expected}, got {shown(value)}")

    def _read_named(self, key: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            self._refuse(key, f"must be an object, got {shown(value)}")
            return
        read = self._read_weight if key == "weights" else self._read_schedule
        for name, each in value.items():
            if name in self._targets:
                read(f"{key}.{name}", name, each)
            else:
                self._refuse_name(key, name)

    def _read_list(self, key: str, value: Any) -> None:
        if not isinstance(value, list):
            self._refuse(key, f"must be a list of entries, got {shown(value)}")
            return
        for number, entry in enumerate(value):
            where = f"{key}[{number}]"
            name = entry.get("name") if isinstance(entry, Mapping) else None
            if not isinstance(name, str):
                self._refuse(where, "must be an object with a 'name'")
            elif name not in self._targets:
                self._refuse_name(f"{where}.name", name)
            elif self._targets[name].list != key:
                message = f"{name!r} is in {self._targets[name].list} and can't be moved"
                self._refuse(f"{where}.name", message)
            else:
                self._read_entry(where, name, entry)

    def _read_entry(self, where: str, name: str, entry: Mapping[str, Any]) -> None:
        present = self._entries[name]
        for key, value in entry.items():
            if key in present and _is_same(present[key], value):
                continue
            here = f"{where}.{key!s:.80}"
            if key == "weight":
                self._read_weight(here, name, value)
            elif key == "schedule":
                self._read_schedule(here, name, value)
            elif key == "config":
                self._read_config(here, name, value, present["config"])
            elif key in ("rubric", "private"):
                reason = "nothing that is received over the network may name code"
                self._refuse(here, f"can't be changed while training runs: {reason}")
            else:
                hint = did_you_mean(key, ("weight", "schedule", "config"))
                self._refuse(here, f"unknown field; {hint}")

    def _read_weight(self, where: str, name: str, value: Any) -> None:
        if self._can_set(where, name, self.patch.weights):
            if is_finite(value):
                self.patch.weights[name] = float(value)
            else:
                self._refuse(where, f"must be a finite number, got {shown(value)}")

    def _read_schedule(self, where: str, name: str, spec: Any) -> None:
        if self._can_set(where, name, self.patch.schedules):
            try:
                self.patch.schedules[name] = None if spec is None else parse_schedule(spec)
            except RewardConfigError as error:
                for problem in error.problems:
                    self._refuse(where, problem)

    def _can_set(self, where: str, name: str, given: Mapping[str, Any]) -> bool:
        if not self._targets[name].has_weight:
            self._refuse(where, f"{name!r} has no weight; only a RubricComposer has weights")
        elif name in given:
            self._refuse(where, f"is given twice for {name!r}")
        else:
            self.patch.entries.add(name)
            return True
        return False

    def _read_config(self, where: str, name: str, sent: Any, present: Mapping[str, Any]) -> None:
        if not isinstance(sent, Mapping):
            self._refuse(where, f"must be an object, got {shown(sent)}")
            return
        tunable = self._targets[name].tunable
        for key, value in sent.items():
            here = f"{where}.{key!s:.80}"
            if key in present and _is_same(present[key], value):
                continue
            if key in tunable:
                self.patch.tuned[tunable[key]] = value
                self.patch.places[tunable[key]] = here
                self.patch.entries.add(name)
            else:
                message = "can't be changed while training runs; the tunable fields of"
                self._refuse(here, f"{message} {name!r} are {sorted(tunable)}")


def _is_same(present: Any, sent: Any) -> bool:
    """Whether a value is sent back unchanged; 1 and 1.0 are the same, 1 and True aren't."""
    if isinstance(present, Mapping) and isinstance(sent, Mapping):
        return present.keys() == sent.keys() and all(
            _is_same(present[key], sent[key]) for key in present
        )
    if isinstance(present, list) and isinstance(sent, list):
        return len(present) == len(sent) and all(map(_is_same, present, sent))
    return bool(isinstance(present, bool) == isinstance(sent, bool) and present == sent)


def _is_alike(present: Any, sent: Any) -> bool:
    """Whether a value has the shape of the present one."""
    if isinstance(present, Mapping):
        return isinstance(sent, Mapping) and present.keys() == sent.keys()
    if isinstance(present, list):
        return isinstance(sent, list) and len(present) == len(sent)
    return isinstance(sent, type(present))
