"""What there is to say of a tree of rubrics, for people and for clients."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from guerdon.rubrics.function import unwrapped
from guerdon.rubrics.rubric import Rubric

__all__ = ["describe"]


def describe(
    rubric: Rubric, path: str = "", parent: Rubric | None = None
) -> Iterator[dict[str, Any]]:
    """What there is to say of each rubric of a tree, depth first."""
    name = path.rpartition(".")[2]
    needs = [parent._needs(name)] if parent is not None else []
    if rubric._is_trajectory:
        needs.append("the whole episode")
    if parent is not None and parent._dispatches:
        needs.append(f"its parent choosing {name!r}")
    declared = rubric._range()
    yield {
        "path": path,
        "rubric": rubric._title(),
        "measures": _first_line(rubric._described()),
        "range": list(declared) if declared is not None else None,
        "weight": parent._weight_of(name) if parent is not None else None,
        "depends_on": [need for need in (*needs, *rubric.reads) if need],
        "async": rubric._look().is_async,
    }
    for child_name, child in rubric.named_children():
        yield from describe(child, f"{path}.{child_name}" if path else child_name, rubric)


def _first_line(thing: object) -> str | None:
    doc = getattr(unwrapped(thing), "__doc__", None)
    return inspect.cleandoc(doc).partition("\n")[0] if doc else None
