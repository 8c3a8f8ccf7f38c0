"""`RewardChange`: what changed between two rewards, read from their files and their trees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from guerdon.rollouts.json_forms import as_json
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.functions.decorator import RewardFunction
from guerdon.rubrics.rubric import Rubric

if TYPE_CHECKING:
    from guerdon.config.schema import RewardConfig

__all__ = ["RewardChange", "changes_of_code", "changes_of_configs", "changes_of_rewards"]

LISTS = ("per_turn", "episode_end")
What: TypeAlias = Literal["added", "removed", "moved", "changed", "code"]

# What is told of a value that its file keeps private.
PRIVATE = "(private)"

# Of a container's own state, what its children's weights tell already.
_TOLD_BY_CHILDREN = frozenset(("weights", "factors"))


@dataclass(frozen=True, slots=True)
class RewardChange:
    """One thing that is not the same in two rewards.

    Example:
        >>> str(RewardChange("changed", "per_turn.style.weight", 0.3, 0.5))
        'per_turn.style.weight: 0.3 → 0.5'

    Attributes:
        what: ``added`` or ``removed``; ``moved`` from one list to the other; ``changed``; or
            ``code``, where nothing else differs and the source, or what it was given, does.
        where: The dotted name, as in the file (``per_turn.style.config.limit``) or in the tree.
        before: What it was, as JSON can hold it; of ``code`` the fingerprint.
        after: What it is.
    """

    what: What
    where: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        where = self.where or "the reward"
        if self.what == "added":
            return f"{where}: added, {_said(self.after)}"
        if self.what == "removed":
            return f"{where}: removed, {_said(self.before)}"
        if self.what == "moved":
            return f"{where}: moved from {self.before} to {self.after}"
        if self.what == "code":
            return f"{where}: its code, {self.before} → {self.after}"
        return f"{where}: {_said(self.before)} → {_said(self.after)}"

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON can hold it."""
        return {
            "what": self.what,
            "where": self.where,
            "before": self.before,
            "after": self.after,
        }


def changes_of_configs(before: RewardConfig, after: RewardConfig) -> list[RewardChange]:
    """What changed from one configuration to another.

    Example:
        >>> from guerdon import RewardConfig
        >>> text = '''
        ... schema_version: "1.0"
        ... per_turn: [{name: polite, rubric: RegexMatch, weight: 0.5, config: {pattern: please}}]
        ... '''
        >>> before, after = (RewardConfig.from_yaml(each) for each in
        ...                  (text, text.replace("0.5", "0.7").replace("please", "thanks")))
        >>> [str(change) for change in changes_of_configs(before, after)]
        ['per_turn.polite.weight: 0.5 → 0.7', "per_turn.polite.config.pattern: 'please' → 'thanks'"]

    Args:
        before: The configuration before.
        after: The configuration after. The order of its entries makes no difference.

    Returns:
        The changes: those of entries, then those of the rest. A value that either file keeps
        private isn't told.
    """
    one, other = before.to_dict(), after.to_dict()
    changes = list(_entry_changes(one, other))
    rest = sorted(({*one, *other}) - {*LISTS})
    for key in rest:
        changes += _value_changes(key, one.get(key), other.get(key), missing=None)
    return changes


def changes_of_rewards(
    before: Rubric | RewardFunction, after: Rubric | RewardFunction
) -> list[RewardChange]:
    """What changed from one reward to another, as their trees and their fingerprints tell.

    Of each rubric in the tree its kind, its weight, its declared range, what it depends on and
    what its `state_dict` holds are compared; where these are the same and the fingerprint isn't,
    its code has changed.

    Example:
        >>> from guerdon import LengthBounds, WeightedSum, RegexMatch
        >>> before = WeightedSum([LengthBounds(1, 60), RegexMatch("please")], [1.0, 0.5])
        >>> after = WeightedSum([LengthBounds(1, 80), RegexMatch("please")], [1.0, 0.25])
        >>> [str(change) for change in changes_of_rewards(before, after)]
        ['rubric_0.maximum: 60 → 80', 'rubric_1.weight: 0.5 → 0.25']

    Args:
        before: A rubric or a reward function.
        after: A rubric or a reward function.
    """
    if isinstance(before, Rubric) and isinstance(after, Rubric):
        changes = list(_tree_changes("", before, after))
        return changes + _code_changes("", before, after, changes)
    kinds = (_kind(before), _kind(after))
    if kinds[0] != kinds[1]:
        return [RewardChange("changed", "", *kinds)]
    prints = (_fingerprint(before), _fingerprint(after))
    return [RewardChange("code", "", *prints)] if prints[0] != prints[1] else []


def changes_of_code(
    before: RubricComposer, after: RubricComposer, changes: list[RewardChange]
) -> list[RewardChange]:
    """Where the code of an entry has changed, and nothing that its file says of it.

    Args:
        before: What was made of the configuration before.
        after: What was made of the configuration after.
        changes: What changed from one configuration to the other.
    """
    told = {change.where.split(".")[1] for change in changes if change.where.startswith(LISTS)}
    told |= {change.where for change in changes if change.what == "moved"}
    found = []
    for name in before.weights:
        if name in after.weights and name not in told:
            prints = [each.get_rubric(name).fingerprint() for each in (before, after)]
            if prints[0] != prints[1]:
                which = LISTS[name in after.episode_end]
                found.append(RewardChange("code", f"{which}.{name}", *prints))
    return found


# Files -----------------------------------------------------------------------------------------


def _entry_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[RewardChange]:
    one, other = _entries(before), _entries(after)
    for name, (which, entry) in one.items():
        if name not in other:
            yield RewardChange("removed", f"{which}.{name}", _without_private(entry, entry))
            continue
        now, changed = other[name]
        if which != now:
            yield RewardChange("moved", name, which, now)
        private = {*entry.get("private", ()), *changed.get("private", ())}
        for key in ("rubric", "weight", "schedule", "private"):
            where = f"{now}.{name}.{key}"
            yield from _value_changes(where, entry.get(key), changed.get(key), missing=None)
        yield from _config_changes(
            f"{now}.{name}.config", entry.get("config", {}), changed.get("config", {}), private
        )
    for name, (which, entry) in other.items():
        if name not in one:
            yield RewardChange("added", f"{which}.{name}", None, _without_private(entry, entry))


def _entries(config: Mapping[str, Any]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    return {entry["name"]: (which, entry) for which in LISTS for entry in config[which]}


def _without_private(entry: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without its name, which is told elsewhere, and without its secrets."""
    private = set(told.get("private", ()))
    shown = {key: value for key, value in entry.items() if key != "name"}
    if "config" in shown:
        shown["config"] = {
            key: PRIVATE if key in private else value for key, value in shown["config"].items()
        }
    return shown


def _config_changes(
    where: str, before: Mapping[str, Any], after: Mapping[str, Any], private: set[str]
) -> Iterator[RewardChange]:
    for key in {**before, **after}:
        for change in _value_changes(
            f"{where}.{key}", before.get(key, _MISSING), after.get(key, _MISSING), missing=_MISSING
        ):
            yield _hidden(change) if key in private else change


def _hidden(change: RewardChange) -> RewardChange:
    return RewardChange(
        change.what,
        change.where,
        None if change.what == "added" else PRIVATE,
        None if change.what == "removed" else PRIVATE,
    )


_MISSING = object()


def _value_changes(where: str, before: Any, after: Any, *, missing: Any) -> Iterator[RewardChange]:
    """How a value changed; of mappings, each key that did."""
    if before is missing and after is missing:
        return
    if before is missing:
        yield RewardChange("added", where, None, as_json(after))
    elif after is missing:
        yield RewardChange("removed", where, as_json(before))
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            one, other = before.get(key, _MISSING), after.get(key, _MISSING)
            yield from _value_changes(f"{where}.{key}", one, other, missing=_MISSING)
    elif not _same(before, after):
        yield RewardChange("changed", where, as_json(before), as_json(after))


# Trees -----------------------------------------------------------------------------------------


def _tree_changes(path: str, before: Rubric, after: Rubric) -> Iterator[RewardChange]:
    """What changed in a rubric and in those below it that both trees have."""
    prefix = f"{path}." if path else ""
    if before._title() != after._title():
        yield RewardChange("changed", path, before._title(), after._title())
    else:
        for key, values in _pairs(_state(before), _state(after)):
            yield from _value_changes(f"{prefix}{key}", *values, missing=_MISSING)
        ranges = (before._range(), after._range())
        if not before._is_container and ranges[0] != ranges[1]:
            told = (list(each) if each is not None else None for each in ranges)
            yield RewardChange("changed", f"{prefix}score_range", *told)
    one, other = dict(before.named_children()), dict(after.named_children())
    for name, (child, now) in _pairs(one, other):
        where = f"{prefix}{name}"
        if child is _MISSING:
            yield RewardChange("added", where, None, _node(after, name, now))
        elif now is _MISSING:
            yield RewardChange("removed", where, _node(before, name, child))
        else:
            yield from _place_changes(where, name, before, after)
            yield from _tree_changes(where, child, now)


def _place_changes(where: str, name: str, before: Rubric, after: Rubric) -> Iterator[RewardChange]:
    """What changed in how a parent uses its child."""
    told = {
        "weight": (before._weight_of(name), after._weight_of(name)),
        "depends_on": (before._needs(name), after._needs(name)),
    }
    for what, values in told.items():
        if not _same(*values):
            yield RewardChange("changed", f"{where}.{what}", *values)


def _state(rubric: Rubric) -> dict[str, Any]:
    skipped = {*rubric._measured, *(_TOLD_BY_CHILDREN if rubric._is_container else ())}
    return {name: value for name, value in rubric._own_state().items() if name not in skipped}


def _node(parent: Rubric, name: str, child: Rubric) -> dict[str, Any]:
    return {"rubric": child._title(), "weight": parent._weight_of(name)}


def _code_changes(
    path: str, before: Rubric, after: Rubric, changes: list[RewardChange]
) -> list[RewardChange]:
    """The deepest rubrics whose fingerprints differ where nothing else does."""
    prints = (before.fingerprint(), after.fingerprint())
    if prints[0] == prints[1]:
        return []
    one, other = dict(before.named_children()), dict(after.named_children())
    below: list[RewardChange] = []
    for name in one:
        if name in other:
            where = f"{path}.{name}" if path else name
            below += _code_changes(where, one[name], other[name], changes)
    explained = any(_is_within(change.where, path) for change in (*changes, *below))
    return below if explained else [RewardChange("code", path, *prints)]


def _is_within(where: str, path: str) -> bool:
    return not path or where == path or where.startswith(f"{path}.")


def _pairs(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in {**one, **other}:
        yield name, (one.get(name, _MISSING), other.get(name, _MISSING))


# Both ------------------------------------------------------------------------------------------


def _same(one: Any, other: Any) -> bool:
    """Whether two values are written alike, which is what makes a fingerprint differ."""
    written = (json.dumps(as_json(each), sort_keys=True) for each in (one, other))
    return next(written) == next(written)


def _kind(reward: Rubric | RewardFunction) -> str:
    if isinstance(reward, RewardFunction):
        return f"the {reward.mode} reward function {reward.__name__}"
    return f"the rubric {reward._title()}"


def _fingerprint(reward: Rubric | RewardFunction) -> str:
    return reward.fingerprint if isinstance(reward, RewardFunction) else reward.fingerprint()


def _said(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
