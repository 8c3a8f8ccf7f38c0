"""Reads tau-bench's airline data: users, flights, reservations. The data itself isn't included."""

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


@dataclass(frozen=True, slots=True, eq=False)
class AirlineData:
    """The database as it is before any conversation. It is shared and must not be changed.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> AirlineData(users={}, flights={}, reservations={}).tools
        []

    Attributes:
        users: The users by id.
        flights: The flights by number, each with its dates.
        reservations: The reservations by id.
        tools: The tools' JSON Schemas in OpenAI's format, from ``tools.json``; empty without it.
    """

    users: dict[str, Record]
    flights: dict[str, Record]
    reservations: dict[str, Record]
    tools: list[Record] = field(default_factory=list)


def data_path(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the three files.

    It is `folder`, else ``$TAU_AIRLINE_DATA``, else ``$GUERDON_DATA/tau_airline``, else
    ``shared/data/tau_airline`` beside the checkout. The first two are meant: where one is given,
    nothing else is looked at. Each may be a checkout of tau-bench, or the folder itself.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from examples.tau_airline.data import data_path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("users", "flights", "reservations"):
        ...         _ = Path(folder, f"{name}.json").write_text("{}")
        ...     data_path(folder) == Path(folder)
        True

    Args:
        folder: Where to look.

    Raises:
        InvalidArgumentError: None of the places has all three files.
    """
    places = list(_places(folder))
    for place in places:
        for found in (place, place / CHECKOUT):
            if all((found / name).is_file() for name in FILES):
                return found
    raise InvalidArgumentError(
        f"no tau-bench airline data ({', '.join(FILES)}) in {' or '.join(map(str, places))}, "
        f"nor in {CHECKOUT} under it: set TAU_AIRLINE_DATA to its folder or to a checkout"
    )


def _places(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    meant = folder or os.environ.get("TAU_AIRLINE_DATA")
    if meant:
        yield Path(meant)
        return
    if shared := os.environ.get("GUERDON_DATA"):
        yield Path(shared) / "tau_airline"
    yield Path(__file__).parents[3] / "shared" / "data" / "tau_airline"


def load_data(folder: str | os.PathLike[str] | None = None) -> AirlineData:
    """The data of a folder, read once per process and folder.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from examples.tau_airline.data import load_data
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("users", "flights", "reservations"):
        ...         _ = Path(folder, f"{name}.json").write_text("{}")
        ...     load_data(folder).users
        {}

    Args:
        folder: Where to look; see `data_path` for the places without it.

    Raises:
        InvalidArgumentError: The files are not there, or hold something else.
    """
    return _read(data_path(folder).resolve())


@cache
def _read(folder: Path) -> AirlineData:
    tables = {table: _parse(folder / f"{table}.json", kind=dict) for table in TABLES}
    tools = folder / "tools.json"
    return AirlineData(**tables, tools=_parse(tools, kind=list) if tools.is_file() else [])


def _parse(path: Path, *, kind: type) -> Any:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(parsed, kind):
        meant = "an object, records by their ids" if kind is dict else "a list"
        raise InvalidArgumentError(f"{path} must contain {meant}, got {type(parsed).__name__}")
    return parsed
