"""`tool_schema`: an action class as a tool that a model may call."""

from __future__ import annotations

import inspect
import re
from typing import Any

from guerdon.types.action import Action

__all__ = ["tool_schema"]


def tool_schema(
    action_type: type[Action], *, name: str | None = None, description: str | None = None
) -> dict[str, Any]:
    """Return an action class as a tool in OpenAI's format.

    The arguments of a call are the fields of an action, without `metadata`.

    Example:
        >>> from guerdon import Action
        >>> from guerdon.types import tool_schema
        >>> class DropDisc(Action):
        ...     '''Drops a disc into a column.'''
        ...     column: int
        >>> function = tool_schema(DropDisc)["function"]
        >>> function["name"], function["description"]
        ('drop_disc', 'Drops a disc into a column.')
        >>> function["parameters"]["properties"], function["parameters"]["required"]
        ({'column': {'type': 'integer'}}, ['column'])

    Args:
        action_type: The class; the environment's is its `action_type`.
        name: The tool's name; by default the name of the class in snake case.
        description: What it does; by default the first paragraph of the class's docstring.
    """
    parameters = action_type.model_json_schema()
    for key in ("title", "description"):
        parameters.pop(key, None)
    parameters["properties"].pop("metadata", None)
    for each in parameters["properties"].values():
        each.pop("title", None)
    if description is None:
        description = inspect.cleandoc(action_type.__doc__ or "").partition("\n\n")[0]
    if name is None:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", action_type.__name__).lower()
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
