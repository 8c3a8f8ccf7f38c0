"""The 14 tools by name, and the database on which they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from examples.tau_airline import bookings, queries
from examples.tau_airline.tables import Tables, ToolError

__all__ = ["END", "TOOLS", "WRITES", "Database", "InvalidCallError"]

END = "transfer_to_human_agents"  # ends the conversation
WRITES = frozenset(bookings.__all__)
TOOLS: Mapping[str, Callable[..., str]] = {
    name: getattr(module, name)
    for module in (bookings, queries)
    for name in module.__all__
    if not name.endswith("_of")
}
CONFIG = ConfigDict(arbitrary_types_allowed=True)
VALIDATED = {name: validate_call(config=CONFIG)(tool) for name, tool in TOOLS.items()}


class InvalidCallError(ToolError):
    """There is no such tool, or its arguments are invalid."""


class Database(Tables):
    """The database of an episode, with the tools. It never changes the initial data.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.tools import Database
        >>> database = Database(AirlineData(users={}, flights={}, reservations={}))
        >>> database.call("calculate", {"expression": "2 * (3 + 4)"})
        '14.0'
        >>> database.call("get_user_details", {"user_id": "sara_doe_496"})
        Traceback (most recent call last):
        examples.tau_airline.tables.ToolError: Error: user not found

    Args:
        data: The initial database.
    """

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool.

        Args:
            name: The tool's name.
            arguments: Its arguments by name.

        Returns:
            The answer for the agent.

        Raises:
            InvalidCallError: The tool is unknown, or its arguments are invalid.
            ToolError: The tool failed, and changed nothing.
        """
        if name not in VALIDATED:
            raise InvalidCallError(f"unknown tool {name!r:.80}")
        try:
            return VALIDATED[name](self, **arguments)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InvalidCallError(
                f"invalid argument of {name}: {where}: {first['msg']}"
            ) from error
