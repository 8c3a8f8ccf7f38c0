"""What a running reward tells of its configuration, in the shape of the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from guerdon._loading import (
    name_of,
)
from guerdon.config.live.prototype import Prototype, Settings
from guerdon.config.schema import RewardConfig
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric

__all__ = ["Entry", "as_json", "entries_of", "tell_entry", "tell_rest"]


class Entry(NamedTuple):
    """One entry of a running reward.

    Attributes:
        name: Its name.
        list: ``"per_turn"`` or ``"episode_end"``.
        rubric: What its rubric is called.
        path: Where its rubric stands in the tree.
        config: What it was configured with, as it may be told.
        private: The keys of its configuration that aren't told.
        weighed: Whether it has a weight.
    """

    name: str
    list: str
    rubric: str
    path: str
    config: Mapping[str, Any]
    private: frozenset[str] = frozenset()
    weighed: bool = True

    def hides(self, key: str) -> bool:
        """Whether a key of its configuration, or a field of that dotted name, isn't told."""
        return not self.private.isdisjoint((key, key.partition(".")[0]))


def entries_of(prototype: Prototype, config: RewardConfig | None) -> list[Entry]:
    """The entries of a running reward: as its file has them, or as its tree is made."""
    rubric = prototype.rubric
    if config is not None:
        return [
            _of_file(each, which)
            for which in ("per_turn", "episode_end")
            for each in getattr(config, which)
        ]
    if isinstance(rubric, RubricComposer):
        return [
            Entry(
                name,
                "episode_end" if name in rubric.episode_end else "per_turn",
                name_of(type(child)),
                name,
                _of_containers(child),
            )
            for name, child in rubric.named_children()
        ]
    alone = Entry("reward", "per_turn", name_of(type(rubric)), "", _of_containers(rubric))
    return [alone._replace(weighed=False)]


def as_json(value: Any) -> Any:
    """A value as JSON can hold it; infinities and NaN by their names."""
    return _named_numbers(to_jsonable_python(value, fallback=str))


def tell_entry(entry: Entry, prototype: Prototype, settings: Settings) -> dict[str, Any]:
    """An entry as it is now, as JSON can hold it."""
    prefix = f"{entry.path}." if entry.path else ""
    tunable = {
        path.removeprefix(prefix): settings.tuned.get(path, value)
        for path, value in prototype.base.items()
        if path.startswith(prefix)
    }
    config = {
        key: value for key, value in {**entry.config, **tunable}.items() if not entry.hides(key)
    }
    told = {
        "name": entry.name,
        "rubric": entry.rubric,
        "weight": settings.weights.get(entry.name, 1.0),
        "config": as_json(config),
    }
    schedule = settings.schedules.get(entry.name)
    if schedule is not None:
        told["schedule"] = schedule.to_spec()
    return told


def tell_rest(config: RewardConfig | None, rubric: Rubric) -> dict[str, Any]:
    """What a configuration says beside its entries, as it may be told: no keys, no secrets."""
    if config is None:
        return {"normalize": rubric.normalize} if isinstance(rubric, RubricComposer) else {}
    told: dict[str, Any] = {
        "normalize": config.normalize,
        "mcp_services": {name: each.public() for name, each in config.mcp_services.items()},
    }
    if config.curriculum is not None:
        stages = [each.model_dump(mode="json", exclude_none=True) for each in config.curriculum]
        told["curriculum"] = stages
    return told


def _named_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _named_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_named_numbers(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value


def _of_file(each: Any, which: str) -> Entry:
    rubric = each.rubric
    if not isinstance(rubric, str):
        kind = rubric if isinstance(rubric, type) else type(rubric)
        rubric = getattr(rubric, "__qualname__", None) or name_of(kind)
    private = frozenset(each.private)
    return Entry(each.name, which, rubric, each.name, each.config, private)


def _of_containers(rubric: Rubric) -> dict[str, Any]:
    """The weights and thresholds of a tree.

    What an author's own classes hold isn't told, be they containers or not: it may be a key, or
    the answer that the agent is to find.
    """
    told: dict[str, Any] = {}
    for path, node in [("", rubric), *rubric.named_rubrics()]:
        if node._is_container:
            prefix = f"{path}." if path else ""
            told |= {
                f"{prefix}{name}": getattr(node, name)
                for kind in reversed(type(node).__mro__)
                if kind.__module__.partition(".")[0] == "guerdon"
                for name in kind.__dict__.get("state_names", ())
                if name not in node._measured
            }
    return told
