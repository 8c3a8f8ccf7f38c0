"""`RewardChange`: what changed between two rewards, in their files, their trees and their code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from guerdon.rollouts.json_forms import as_json
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import own_state

if TYPE_CHECKING:
    from guerdon.config.schema import RewardConfig

__all__ = ["RewardChange"]

LISTS = ("per_turn", "episode_end")

# Shown in place of a value that a file keeps private.
PRIVATE = "(private)"

# The state of a container that the weights of its children show already.
_IN_CHILDREN = frozenset(("weights", "factors"))

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class RewardChange:
    """One difference between two rewards.

    Example:
        >>> str(RewardChange("changed", "per_turn.style.weight", 0.3, 0.5))
        'per_turn.style.weight: 0.3 → 0.5'

    Attributes:
        what: ``added`` or ``removed``; ``moved`` from one list to the other; ``changed``; or
            ``code``, if nothing else differs but the source or an argument.
        where: The dotted name, as in the file (``per_turn.style.config.limit``) or in the tree.
        before: The value before, as JSON data; for ``code`` the fingerprint.
        after: The value after.
    """

    what: Literal["added", "removed", "moved", "changed", "code"]
    where: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        before, after = (
            repr(each) if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
            for each in (self.before, self.after)
        )
        details = {
            "added": f"added, {after}",
            "removed": f"removed, {before}",
            "moved": f"moved from {self.before} to {self.after}",
            "changed": f"{before} → {after}",
            "code": f"its code, {self.before} → {self.after}",
        }
        return f"{self.where or 'the reward'}: {details[self.what]}"

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON data."""
        return asdict(self)


# Files -------------------------------------------------------------------------------------------


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
        The changes of entries, then the others. A value that either file keeps private isn't
        shown.
    """
    one, other = before.to_dict(), after.to_dict()
    changes = list(_entry_changes(_entries(one), _entries(other)))
    for key in sorted({*one, *other} - {*LISTS}):
        changes += _differences(key, one.get(key, _MISSING), other.get(key, _MISSING))
    return changes


def _entries(config: Mapping[str, Any]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The list and the content of each entry by its name."""
    return {entry["name"]: (which, entry) for which in LISTS for entry in config[which]}


def _entry_changes(
    before: Mapping[str, tuple[str, Mapping[str, Any]]],
    after: Mapping[str, tuple[str, Mapping[str, Any]]],
) -> Iterator[RewardChange]:
    for name in {**before, **after}:
        was_in, entry = before.get(name, ("", {}))
        now_in, changed = after.get(name, ("", {}))
        private = {*entry.get("private", ()), *changed.get("private", ())}
        one, other = _content(entry, private), _content(changed, private)
        where = f"{now_in or was_in}.{name}"
        if not one or not other:
            yield from _differences(where, one or _MISSING, other or _MISSING)
            continue
        if was_in != now_in:
            yield RewardChange("moved", name, was_in, now_in)
        for key in ("rubric", "weight", "schedule", "private", "config"):
            default = {} if key == "config" else _MISSING
            values = one.get(key, default), other.get(key, default)
            yield from _differences(f"{where}.{key}", *values)


class _Private:
    """A value that a file keeps private: it is compared and not shown."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return PRIVATE


def _content(entry: Mapping[str, Any], private: set[str]) -> dict[str, Any]:
    """An entry without its name, and with its private values hidden."""
    content = {key: value for key, value in entry.items() if key != "name"}
    if "config" in content:
        content["config"] = {
            key: _Private(value) if key in private else value
            for key, value in content["config"].items()
        }
    return content


# Trees -------------------------------------------------------------------------------------------


def changes_of_rewards(
    before: Rubric | RewardFunction, after: Rubric | RewardFunction
) -> list[RewardChange]:
    """What changed from one reward to another, in their trees and their fingerprints.

    The kind, the weight, the declared range, the dependencies and the state of each rubric are
    compared. If these are equal and the fingerprints aren't, the code of the rubric changed.

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
    if _kind(before) != _kind(after):
        return [RewardChange("changed", "", _kind(before), _kind(after))]
    prints = [
        each.fingerprint if isinstance(each, RewardFunction) else each.fingerprint()
        for each in (before, after)
    ]
    return [RewardChange("code", "", *prints)] if prints[0] != prints[1] else []


def _kind(reward: Rubric | RewardFunction) -> str:
    if isinstance(reward, RewardFunction):
        return f"the {reward.mode} reward function {reward.__name__}"
    return f"the rubric {reward._title()}"


def _tree_changes(path: str, before: Rubric, after: Rubric) -> Iterator[RewardChange]:
    """What changed in a rubric and its descendants."""
    if before._title() != after._title():
        yield RewardChange("changed", path, before._title(), after._title())
    else:
        yield from _differences(path, _settings(before), _settings(after))
    one, other = dict(before.named_children()), dict(after.named_children())
    for name in {**one, **other}:
        where = _joined(path, name)
        if name not in one:
            child = {"rubric": other[name]._title(), "weight": after._weight_of(name)}
            yield RewardChange("added", where, None, child)
        elif name not in other:
            child = {"rubric": one[name]._title(), "weight": before._weight_of(name)}
            yield RewardChange("removed", where, child)
        else:
            uses = (
                {"weight": parent._weight_of(name), "depends_on": parent._needs(name)}
                for parent in (before, after)
            )
            yield from _differences(where, *uses)
            yield from _tree_changes(where, one[name], other[name])


def _settings(rubric: Rubric) -> dict[str, Any]:
    """The configuration of a rubric itself."""
    skipped = {*rubric._measured, *(_IN_CHILDREN if rubric._is_container else ())}
    state = {name: value for name, value in own_state(rubric).items() if name not in skipped}
    return state if rubric._is_container else {**state, "score_range": rubric._range()}


def _code_changes(
    path: str, before: Rubric, after: Rubric, changes: list[RewardChange]
) -> list[RewardChange]:
    """The deepest rubrics whose fingerprints differ and nothing else."""
    prints = (before.fingerprint(), after.fingerprint())
    if prints[0] == prints[1]:
        return []
    other = dict(after.named_children())
    below: list[RewardChange] = []
    for name, child in before.named_children():
        if name in other:
            below += _code_changes(_joined(path, name), child, other[name], changes)
    explained = any(_is_within(change.where, path) for change in (*changes, *below))
    return below if explained else [RewardChange("code", path, *prints)]


def changes_of_code(
    before: RubricComposer, after: RubricComposer, changes: list[RewardChange]
) -> list[RewardChange]:
    """The entries of a reward file whose code changed, and nothing else.

    Args:
        before: The rubric that the configuration before describes.
        after: The rubric that the configuration after describes.
        changes: What changed from one configuration to the other.
    """
    changed = {change.where.split(".")[1] for change in changes if change.where.startswith(LISTS)}
    changed |= {change.where for change in changes if change.what == "moved"}
    found = []
    for name in before.weights:
        if name in after.weights and name not in changed:
            prints = [each.get_rubric(name).fingerprint() for each in (before, after)]
            if prints[0] != prints[1]:
                which = LISTS[name in after.episode_end]
                found.append(RewardChange("code", f"{which}.{name}", *prints))
    return found


# Values ------------------------------------------------------------------------------------------


def _differences(where: str, before: Any, after: Any) -> Iterator[RewardChange]:
    """How a value changed; for mappings, each key."""
    if before is after:
        return
    if before is _MISSING:
        yield RewardChange("added", where, None, as_json(after))
    elif after is _MISSING:
        yield RewardChange("removed", where, as_json(before))
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            values = before.get(key, _MISSING), after.get(key, _MISSING)
            yield from _differences(_joined(where, key), *values)
    else:
        # Compared as they are written, as in a fingerprint: true is not 1, and 1 is not 1.0.
        if _written(before) != _written(after):
            yield RewardChange("changed", where, as_json(before), as_json(after))


def _written(value: Any) -> str:
    value = value.value if isinstance(value, _Private) else value
    return json.dumps(as_json(value), sort_keys=True)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_within(where: str, path: str) -> bool:
    return not path or where == path or where.startswith(f"{path}.")
