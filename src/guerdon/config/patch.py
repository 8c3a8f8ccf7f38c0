"""Reading a change of a running reward, with every mistake in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
)

from guerdon._problems import Place, Problem, problems_of
from guerdon._validation import did_you_mean, shown
from guerdon.config.annotations import unknown_keys
from guerdon.config.schedules import Schedule
from guerdon.config.schema import LISTS

MAX_PROBLEMS = 100

# Keys of a rendered configuration that can't be changed. Those in MOVING change as episodes begin,
# so that an older value of the same shape may be sent back.
FIXED = ("schema_version", "mcp_services", "normalize", "curriculum")
MOVING = ("tree", "fingerprint", "progress")


def _check_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"must be one line, got {shown(text)}")
    return text


_Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Count = Annotated[StrictInt, Field(ge=0, lt=2**53)]
_Line = Annotated[StrictStr, Field(max_length=200), AfterValidator(_check_line)]


class _EntryChange(BaseModel):
    """What a change may contain of an entry."""

    model_config = ConfigDict(extra="forbid")

    name: StrictStr
    weight: _Finite = 1.0
    schedule: Schedule | None = None
    config: dict[StrictStr, Any] = {}
    rubric: Any = None
    private: Any = None


class Change(BaseModel):
    """What a change may contain; the keys of any type must not change."""

    model_config = ConfigDict(extra="forbid")

    per_turn: list[_EntryChange] = []
    episode_end: list[_EntryChange] = []
    weights: dict[StrictStr, _Finite] = {}
    schedules: dict[StrictStr, Schedule | None] = {}
    training_step: _Count | None = None
    episode: _Count | None = None
    version: _Line | None = None
    by: _Line | None = None
    schema_version: Any = None
    mcp_services: Any = None
    normalize: Any = None
    curriculum: Any = None
    tree: Any = None
    fingerprint: Any = None
    progress: Any = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a running reward, without what can be changed.

    Attributes:
        name: Its name.
        list: ``"per_turn"`` or ``"episode_end"``.
        rubric: The name of its rubric.
        has_weight: Whether it has a weight.
        tunable: The dotted names in the tree of its tunable fields, by their keys in ``config``.
        private: The keys of its config that aren't disclosed.
        config: The initial values of the others, as JSON can represent them.
    """

    name: str
    list: str
    rubric: str
    has_weight: bool
    tunable: Mapping[str, str]
    private: frozenset[str]
    config: Mapping[str, Any]

    def hides(self, key: str) -> bool:
        """Return whether a key of its config isn't disclosed."""
        return not self.private.isdisjoint((key, key.partition(".")[0]))


@dataclass(slots=True)
class RewardPatch:
    """A change of a running reward.

    Attributes:
        weights: New weights, by the names of entries.
        schedules: New schedules; None removes one.
        tuned: New values of tunable fields, by their dotted names in the tree.
        entries: The names of the entries that it changes.
        own: New values of the environment's own configuration.
        sent: What was sent, as far as it is valid.
        places: The place in the change of each tunable field.
        problems: What can't be done.
    """

    weights: dict[str, float] = field(default_factory=dict)
    schedules: dict[str, Schedule | None] = field(default_factory=dict)
    tuned: dict[str, Any] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)
    own: dict[str, Any] = field(default_factory=dict)
    sent: Change = field(default_factory=Change)
    places: dict[str, Place] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def merged(self, later: RewardPatch) -> RewardPatch:
        """Return the changes of both; those of the later one win."""
        return RewardPatch(
            {**self.weights, **later.weights},
            {**self.schedules, **later.schedules},
            {**self.tuned, **later.tuned},
            self.entries | later.entries,
            {**self.own, **later.own},
        )


def read_patch(
    sent: Any,
    *,
    entries: Mapping[str, Entry],
    rendered: Mapping[str, Mapping[str, Any]],
    render: Callable[[], Mapping[str, Any]],
    own: Mapping[str, Any],
) -> RewardPatch:
    """Read a change.

    Args:
        sent: A part of a rendered configuration: entries by name with what changes in them; or
            ``weights`` and ``schedules`` by the names of entries; ``training_step`` and
            ``episode``. What is sent back unchanged changes nothing.
        entries: The entries by name.
        rendered: The rendered entries by name.
        render: Renders the whole configuration.
        own: The environment's own configuration.

    Returns:
        The change, with its problems.
    """
    if not isinstance(sent, Mapping):
        return RewardPatch(problems=[f"a change must be an object, got {shown(sent)}"])
    sent, changed = split_own(sent, own)
    problems: list[Problem] = []
    try:
        change = Change.model_validate(sent)
    except ValidationError as error:
        problems = list(unknown_keys(Change, sent))
        places = {each.place for each in problems}
        problems += [each for each in problems_of(error, sent) if each.place not in places]
        change = Change.model_validate(_without(sent, problems))
    patch = RewardPatch(sent=change, own=changed)
    reader = _PatchReader(patch, entries, rendered)
    problems += islice(reader.read(change, render), MAX_PROBLEMS + 1)
    patch.problems = [str(each) for each in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        patch.problems.append("and more")
    return patch


def split_own(
    sent: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a change into that of the reward, and that of the environment's own configuration."""
    rest = {key: value for key, value in sent.items() if key not in own}
    changed = {
        key: value for key, value in sent.items() if key in own and not _is_same(own[key], value)
    }
    return rest, changed


def _without(sent: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """A change without the keys that have problems, so that the others can be checked."""
    keyed = ("weights", "schedules")
    bad = {each.place[: 2 if each.place[0] in keyed else 1] for each in problems}
    return {
        key: {name: each for name, each in value.items() if (key, name) not in bad}
        if key in keyed and isinstance(value, Mapping)
        else value
        for key, value in sent.items()
        if (key,) not in bad
    }


@dataclass(frozen=True, slots=True)
class _PatchReader:
    """Adds a change to a patch, and yields what can't be done of it."""

    patch: RewardPatch
    entries: Mapping[str, Entry]
    rendered: Mapping[str, Mapping[str, Any]]

    def read(self, change: Change, render: Callable[[], Mapping[str, Any]]) -> Iterator[Problem]:
        for key in change.model_fields_set.intersection((*FIXED, *MOVING)):
            is_unchanged = _is_same if key in FIXED else _is_alike
            if not is_unchanged(render().get(key), getattr(change, key)):
                yield Problem((key,), "can't be changed while training runs; change the file")
        for name, weight in change.weights.items():
            yield from self._set(self.patch.weights, name, weight, ("weights", name))
        for name, schedule in change.schedules.items():
            yield from self._set(self.patch.schedules, name, schedule, ("schedules", name))
        for key in LISTS:
            for number, entry in enumerate(getattr(change, key)):
                yield from self._read_entry((key, number), entry)

    def _read_entry(self, place: Place, entry: _EntryChange) -> Iterator[Problem]:
        name, given = entry.name, entry.model_fields_set
        target = self.entries.get(name)
        if target is None or target.list != place[0]:
            yield self._unknown((*place, "name"), name)
            return
        present = self.rendered[name]
        if "weight" in given and entry.weight != present["weight"]:
            yield from self._set(self.patch.weights, name, entry.weight, (*place, "weight"))
        if "schedule" in given:
            schedule = entry.schedule
            if present.get("schedule") != (schedule.to_spec() if schedule is not None else None):
                yield from self._set(self.patch.schedules, name, schedule, (*place, "schedule"))
        for key in given.intersection(("rubric", "private")):
            if key not in present or getattr(entry, key) != present[key]:
                reason = "nothing that is received over the network may name code"
                message = f"can't be changed while training runs: {reason}"
                yield Problem((*place, key), message)
        changed = {
            key: value
            for key, value in entry.config.items()
            if key not in present["config"] or not _is_same(present["config"][key], value)
        }
        yield from self._tune(name, changed, (*place, "config"))

    def _tune(self, name: str, changed: Mapping[str, Any], place: Place) -> Iterator[Problem]:
        tunable = self.entries[name].tunable
        for key, value in changed.items():
            if key in tunable:
                self.patch.tuned[tunable[key]] = value
                self.patch.places[tunable[key]] = (*place, key)
                self.patch.entries.add(name)
            else:
                fields = f"the tunable fields of {name!r} are {sorted(tunable)}"
                yield Problem((*place, key), f"can't be changed while training runs; {fields}")

    def _set(
        self, values: dict[str, Any], name: str, value: Any, place: Place
    ) -> Iterator[Problem]:
        if name not in self.entries:
            yield self._unknown(place, name)
        elif not self.entries[name].has_weight:
            yield Problem(place, f"{name!r} has no weight; only a RubricComposer has weights")
        elif name in values:
            yield Problem(place, f"is given twice for {name!r}")
        else:
            values[name] = value
            self.patch.entries.add(name)

    def _unknown(self, place: Place, name: str) -> Problem:
        if name in self.entries:
            return Problem(place, f"{name!r} is in {self.entries[name].list} and can't be moved")
        return Problem(place, f"unknown entry {shown(name)}; {did_you_mean(name, self.entries)}")


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
