"""Reads tau-bench's airline data: the database, the tasks, the policy. It isn't included."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from guerdon.errors import InvalidArgumentError

__all__ = ["AirlineData", "Record", "data_path", "load_data"]

Record = dict[str, Any]

TABLES = ("users", "flights", "reservations")
FILES = [f"{table}.json" for table in TABLES]
CHECKOUT = Path("tau_bench", "envs", "airline", "data")
POLICIES = ("policy.md", "../wiki.md")  # the second in a checkout


@dataclass(frozen=True, slots=True, eq=False)
class AirlineData:
    """The initial database and the tasks. They are shared and must not be changed.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> AirlineData(users={}, flights={}, reservations={}).tools
        []

    Attributes:
        users: The users by ID.
        flights: The flights by number, each with its dates.
        reservations: The reservations by ID.
        tools: The tools' JSON Schemas in OpenAI's format, from ``tools.json``, if it exists.
        tasks: The tasks, from ``tasks.json``, if it exists.
        policy: The agent's instructions, from ``policy.md`` or a checkout's ``wiki.md``.
    """

    users: dict[str, Record]
    flights: dict[str, Record]
    reservations: dict[str, Record]
    tools: list[Record] = field(default_factory=list)
    tasks: list[Record] = field(default_factory=list)
    policy: str = ""

    def __deepcopy__(self, memo: object) -> AirlineData:
        return self  # copies of a rubric share the tables


def data_path(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the data.

    If `folder` or else ``$TAU_AIRLINE_DATA`` is set, only this place is searched. Otherwise
    ``$GUERDON_DATA/tau_airline`` and ``shared/data/tau_airline`` beside the checkout are. Each may
    be the folder itself or a checkout of tau-bench.

    Args:
        folder: The folder to search.

    Raises:
        InvalidArgumentError: No place has the three files of the database.
    """
    places = list(_places(folder))
    for place in places:
        for found in (place, place / CHECKOUT):
            if all((found / name).is_file() for name in FILES):
                return found
    raise InvalidArgumentError(
        f"no tau-bench airline data ({', '.join(FILES)}) in {' or '.join(map(str, places))}, "
        f"nor in {CHECKOUT} below it: set TAU_AIRLINE_DATA to their folder or to a checkout"
    )


def _places(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    explicit = folder or os.environ.get("TAU_AIRLINE_DATA")
    if explicit:
        yield Path(explicit)
        return
    if shared := os.environ.get("GUERDON_DATA"):
        yield Path(shared) / "tau_airline"
    yield Path(__file__).parents[3] / "shared" / "data" / "tau_airline"


def load_data(folder: str | os.PathLike[str] | None = None) -> AirlineData:
    """Return the data of a folder, which is read once per process.

    Args:
        folder: The folder; see `data_path` for the default.

    Raises:
        InvalidArgumentError: A file is missing or invalid.
    """
    return _read(data_path(folder).resolve())


@cache
def _read(folder: Path) -> AirlineData:
    tables = {table: _parse(folder / f"{table}.json", kind=dict) for table in TABLES}
    lists = {
        name: _parse(folder / f"{name}.json", kind=list)
        for name in ("tools", "tasks")
        if (folder / f"{name}.json").is_file()
    }
    policies = [folder / name for name in POLICIES if (folder / name).is_file()]
    policy = policies[0].read_text(encoding="utf-8") if policies else ""
    return AirlineData(**tables, **lists, policy=policy)


def _parse(path: Path, *, kind: type) -> Any:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(parsed, kind):
        expected = "an object with records by ID" if kind is dict else "a list"
        raise InvalidArgumentError(f"{path} must contain {expected}, got {type(parsed).__name__}")
    return parsed
