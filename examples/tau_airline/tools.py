"""The 14 tools by name, and the database on which they are called."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from examples.tau_airline import bookings, queries
from examples.tau_airline.data import Record
from examples.tau_airline.tables import Tables, ToolError

__all__ = ["END", "TOOLS", "WRITES", "Database", "read_arguments"]

Tool = Callable[..., str]

END = "transfer_to_human_agents"  # ends the conversation
WRITES = frozenset(bookings.__all__)
TOOLS: Mapping[str, Tool] = {
    name: getattr(module, name)
    for module in (bookings, queries)
    for name in module.__all__
    if not name.endswith("_of")
}


def _arguments(tool: Tool) -> type[BaseModel]:
    """Return a strict model of a tool's arguments, from its signature."""
    hints = get_type_hints(tool, include_extras=True)
    names = list(inspect.signature(tool).parameters)[1:]
    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    fields: dict[str, Any] = {name: (hints[name], ...) for name in names}
    return create_model(tool.__name__, __config__=config, **fields)


ARGUMENTS = {name: _arguments(tool) for name, tool in TOOLS.items()}


class Database(Tables):
    """The database of a conversation, with the tools.

    It never changes the initial data. Every call returns an answer: a call that fails returns
    ``Error: `` with the reason, and changes nothing.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.tools import Database
        >>> database = Database(AirlineData(users={}, flights={}, reservations={}))
        >>> database.call("calculate", '{"expression": "2 * (3 + 4)"}')
        '14.0'
        >>> database.call("get_user_details", {"user_id": "sara_doe_496"})
        'Error: user not found'

    Args:
        data: The initial database.
    """

    @property
    def tools(self) -> list[Record]:
        """The tools' JSON Schemas in OpenAI's format; empty if the data has none."""
        return self.data.tools

    def call(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Call a tool.

        Args:
            name: The tool's name.
            arguments: The arguments as a mapping or as JSON text.

        Returns:
            The answer for the agent.
        """
        try:
            parsed = read_arguments(name, arguments)
            return TOOLS[name](self, **parsed)
        except ToolError as error:
            return f"Error: {error}"


def read_arguments(name: str, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """Parse and validate the arguments of a call.

    Example:
        >>> from examples.tau_airline.tools import read_arguments
        >>> read_arguments("cancel_reservation", '{"reservation_id": "ZFA04Y"}')
        {'reservation_id': 'ZFA04Y'}
        >>> read_arguments("cancel_reservation", "{")
        Traceback (most recent call last):
        examples.tau_airline.tables.ToolError: arguments of cancel_reservation must be a JSON object

    Args:
        name: The tool.
        arguments: The arguments as a mapping or as JSON text.

    Raises:
        ToolError: The tool is unknown, or its arguments are invalid.
    """
    if name not in TOOLS:
        raise ToolError(f"unknown tool {name!r:.80}")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ToolError(f"arguments of {name} must be a JSON object") from error
    if not isinstance(arguments, Mapping):
        raise ToolError(f"arguments of {name} must be a JSON object")
    given = dict(arguments)
    try:
        ARGUMENTS[name].model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ToolError(f"invalid argument of {name}: {where}: {first['msg']}") from error
    return given


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
