"""`tool`: functions that an agent may call, with JSON Schemas of their annotations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, NotRequired, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict  # that of typing lacks what pydantic needs before 3.12

from guerdon._validation import check_number, shown
from guerdon.errors import EnvDefinitionError
from guerdon.types.tool_calls import RESERVED, Tool

__all__ = ["tool"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

# The marker of a method that is a tool.
OPTIONS = "_guerdon_tool"


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A tool, and what calls it.

    Attributes:
        spec: Its description.
        function: What to call with the arguments; of a method, with the environment first.
        arguments: Validates the arguments.
        defaults: The values of arguments that may be left out.
        ends: Whether a call that succeeds ends the episode.
        when: Whether the agent may call it now, as a function of the environment.
        cost: What a call costs.
    """

    spec: Tool
    function: Callable[..., Any]
    _: KW_ONLY
    arguments: TypeAdapter[dict[str, Any]] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    ends: bool = False
    when: Callable[[Any], bool] | None = None
    cost: float = 0.0


def tool(
    function: FunctionT | None = None,
    *,
    name: str | None = None,
    ends: bool = False,
    when: Callable[[Any], bool] | None = None,
    cost: float = 0.0,
) -> Any:
    """Make a method of a `ToolEnvironment` a tool that the agent may call.

    Its description is the docstring up to ``Args:``, whose entries describe the arguments. Their
    types are those of the annotations: whatever pydantic can validate. The agent gets what the
    method returns: a text, an image, a pydantic model or what JSON can represent. An exception is
    the result of the call, for the agent to read; `EnvError` and its subclasses are failures of the
    environment, and end the episode without a reward.

    Example:
        >>> from guerdon import ToolEnvironment, tool
        >>> class Bookings(ToolEnvironment):
        ...     @tool
        ...     def seats_left(self, flight: str) -> int:
        ...         '''Count the free seats.
        ...
        ...         Args:
        ...             flight: The flight's number, such as HAT170.
        ...         '''
        ...         return 3
        >>> Bookings.seats_left.__name__
        'seats_left'

    Args:
        function: The method, sync or async.
        name: The tool's name; by default the method's.
        ends: Whether a call that succeeds ends the episode.
        when: A function of the environment that returns whether the tool is visible now; by default
            it always is.
        cost: What a call costs, at least 0. It is added up in ``metadata["tool_cost"]``, for a
            rubric such as `ToolCost`.

    Raises:
        EnvDefinitionError: An argument has no type, or can't be passed by name.
        InvalidArgumentError: An option is invalid.
    """
    check_number("cost", cost, low=0)
    if function is None:
        return partial(tool, name=name, ends=ends, when=when, cost=cost)
    made = tool_of(function, name=name, skip=1)
    setattr(function, OPTIONS, replace(made, ends=ends, when=when, cost=cost))
    return function


def tool_of(function: Callable[..., Any], *, name: str | None = None, skip: int = 0) -> Any:
    """Return a function as a tool; its first `skip` parameters are not arguments."""
    name = function.__name__ if name is None else name
    if name in RESERVED or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise EnvDefinitionError(
            f"the name of a tool must have 1 to 64 letters, digits, _ or -, and must not be one of "
            f"{', '.join(sorted(RESERVED))}, got {shown(name)}"
        )
    description, about = _described(inspect.getdoc(function) or "")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise EnvDefinitionError(
            f"the types of the tool {name} can't be read: {error}; define them before it"
        ) from error
    fields: dict[str, Any] = {}
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    for parameter in parameters:
        fields[parameter.name] = _field(name, parameter, hints, about)
    make: Any = TypedDict
    typed = make(name, fields)
    typed.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(typed)
        schema = adapter.json_schema()
    except PydanticUserError as error:
        raise EnvDefinitionError(f"the arguments of the tool {name}: {error.message}") from error
    for key in ("title", "additionalProperties"):
        schema.pop(key, None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)
    spec = Tool(name=name, description=description, input_schema={"properties": {}, **schema})
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    return ToolFunction(spec, function, arguments=adapter, defaults=defaults)


def _field(
    name: str, parameter: inspect.Parameter, hints: Mapping[str, Any], about: Mapping[str, str]
) -> Any:
    if parameter.name not in hints:
        raise EnvDefinitionError(f"the tool {name}: annotate `{parameter.name}` with its type")
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise EnvDefinitionError(f"the tool {name}: `{parameter}` can't be passed by name")
    extra: Any = {}
    if parameter.default is not parameter.empty:
        extra = {"default": to_jsonable_python(parameter.default, fallback=repr)}
    kind, described = hints[parameter.name], about.get(parameter.name)
    field: Any = Annotated[kind, Field(description=described, json_schema_extra=extra)]
    return NotRequired[field] if extra else field


def _described(doc: str) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and those of the arguments."""
    text, _, rest = doc.partition("\nArgs:\n")
    text = re.split(r"\n(?:Returns|Raises|Example|Examples|Yields):\n", text)[0]
    about: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if line.strip() and not line.startswith(" "):
            break  # another section
        entry = re.match(r" {4}(\w+)(?: \([^)]*\))?: (.*)", line)
        if entry:
            name, about[entry[1]] = entry[1], entry[2]
        elif name and line.strip():
            about[name] += " " + line.strip()
    return " ".join(text.split()), about
