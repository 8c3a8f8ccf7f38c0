"""What makes the rubric of an entry, or says why none can be made."""

from __future__ import annotations

import copy
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon.config.config import RubricEntry
from guerdon.config.documents import Problem, near
from guerdon.config.making.arguments import Argument, accepted_by, arguments_of
from guerdon.config.making.calling import called, given_first, is_score, without_scored
from guerdon.config.making.config_classes import config_class
from guerdon.config.making.registry import RubricRegistry
from guerdon.config.making.validating import checked, config_of
from guerdon.errors import GuerdonError, RewardConfigError
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.functions.decorator import RewardFunction, takes_messages
from guerdon.rubrics.rubric import Rubric

if TYPE_CHECKING:
    from guerdon.services.client import MCPClient

__all__ = ["Maker"]

# Parameters of a rubric that are given by their names.
CONFIG, CLIENT = "config", "mcp_client"


class _Refused(Exception):
    """An entry that no rubric can be made of."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(problems)
        self.problems = list(problems)


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes rubrics of entries.

    Attributes:
        mcp: The services that rubrics may use.
        registry: Where names are looked up.
        folder: Where ``file.py:name`` is looked for; None is the present directory.
        services: The names of further services, which nobody may be able to call now.
    """

    mcp: MCPClient | None
    registry: RubricRegistry
    folder: str | Path | None
    services: Collection[str] = ()

    def rubric(self, entry: RubricEntry) -> Rubric | list[Problem]:
        """The rubric of an entry, or what is wrong with it."""
        services = self._unknown_services(entry.config)
        try:
            found = self._found(entry.rubric)
            made = self._made(found, entry)
        except _Refused as refused:
            return [*services, *refused.problems]
        return services or made

    def _found(self, rubric: Any) -> Any:
        if not isinstance(rubric, str):
            return rubric
        try:
            return self.registry.resolve(rubric, folder=self.folder)
        except RewardConfigError as error:
            raise _Refused(Problem(("rubric",), str(error))) from error

    def _unknown_services(self, config: Mapping[str, Any]) -> list[Problem]:
        known = {*self.services, *(self.mcp.services if self.mcp is not None else ())}
        return [
            Problem(("config", key), f"there is no service {name!r:.60} in mcp_services; "
                    + near(name, sorted(known)))
            for key, name in config.items()
            if (key == "service" or key.endswith("_service"))
            and isinstance(name, str) and name not in known
        ]  # fmt: skip

    def _made(self, found: Any, entry: RubricEntry) -> Rubric:
        if isinstance(found, Rubric):
            _refuse_config(entry, "is a rubric that is made already")
            return copy.deepcopy(found)
        if isinstance(found, RewardFunction):
            _refuse_config(entry, "is a reward function on messages")
            return _as_rubric(found)
        found = _class_of(found)
        if isinstance(found, type) and not _makes_rubrics(found):
            said = f"{found.__name__} is a class, but no Rubric, and can't be called as one"
            raise _Refused(Problem(("rubric",), said))
        if not callable(found):
            raise _Refused(Problem(("rubric",), f"it is {found!r:.60}, which makes no rubric"))
        return self._called(found, entry)

    def _called(self, found: Callable[..., Any], entry: RubricEntry) -> Rubric:
        arguments, takes_all = arguments_of(found)
        by_name = {each.name: each for each in arguments}
        given, problems = self._client(found, by_name)
        # f(action, observation), whose other arguments the config gives
        score = is_score(found, {CONFIG, CLIENT, *entry.config})
        if CONFIG in by_name:
            annotation = by_name[CONFIG].annotation
            _refuse_annotation(found, annotation)
            kind = config_class(annotation)
            value, wrong = _guarded(lambda: config_of(annotation, entry.config), kind, entry)
            given[CONFIG], known = value, accepted_by(kind)
        else:
            rest = [each for each in arguments if each.name != CLIENT]
            rest = without_scored(rest) if score else rest
            values, wrong = checked(rest, entry.config, takes_all=takes_all)
            given, known = given | values, None if takes_all else [each.name for each in rest]
        problems += [each.within(CONFIG) for each in wrong]
        problems += _misspelt(entry, known)
        if problems:
            raise _Refused(*problems)
        if score:
            return _as_rubric(given_first(found, given))
        made = _as_rubric(_call(found, given, entry))
        self._check_services(made, entry)
        return made

    def _check_services(self, made: Rubric, entry: RubricEntry) -> None:
        """Refuse what asks services that there are none of, such as a judge."""
        known = sorted({*self.services, *(self.mcp.services if self.mcp is not None else ())})
        every = (made, *(each for _, each in made.named_rubrics()))
        asked = [name for each in every for name in getattr(each, "service_names", tuple)()]
        problems = []
        for name in dict.fromkeys(asked):
            if name not in known:
                said = f"there is no service {name!r:.60} in mcp_services; {near(name, known)}"
                keys = [key for key, value in entry.config.items() if _holds(value, name)]
                problems.append(Problem((CONFIG, *keys[:1]), said))
        if problems:
            raise _Refused(*problems)

    def _client(
        self, found: Any, by_name: Mapping[str, Argument]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """The services, where a parameter takes them."""
        if CLIENT not in by_name:
            return {}, []
        if self.mcp is not None:
            return {CLIENT: self.mcp}, []
        if not by_name[CLIENT].is_required:
            return {}, []
        said = f"{_name(found)} takes {CLIENT}, and no mcp_services are given"
        return {}, [Problem(("rubric",), said)]


def _makes_rubrics(kind: type) -> bool:
    return issubclass(kind, Rubric) or any("__call__" in vars(each) for each in kind.__mro__[:-1])


def _class_of(found: Any) -> Any:
    """The class of a generic one whose types are said; everything else as it is."""
    origin = typing.get_origin(found)
    return origin if isinstance(origin, type) else found


def _refuse_annotation(found: Any, annotation: Any) -> None:
    """Refuse a class as the type of a config that no config can be."""
    if annotation in (Any, inspect.Parameter.empty) or not isinstance(annotation, type):
        return
    try:
        is_strange = not issubclass(dict, annotation)
    except TypeError:  # such as a protocol
        return
    if is_strange and config_class(annotation) is None:
        said = (
            f"{_name(found)} takes its config as {annotation.__name__}; it takes a dataclass, a "
            "model of pydantic, a class of attrs, a NamedTuple, a TypedDict or a dict"
        )
        raise _Refused(Problem(("rubric",), said))


def _holds(value: Any, name: str) -> bool:
    return value == name or (isinstance(value, list) and name in value)


def _call(make: Any, given: dict[str, Any], entry: RubricEntry) -> Any:
    made = _guarded(lambda: called(make, given), make, entry)
    if inspect.iscoroutine(made):
        made.close()
        said = f"{_name(make)} is async; what makes a rubric is a plain function"
        raise _Refused(Problem(("rubric",), said))
    return made


def _guarded(make: Callable[[], Any], what: Any, entry: RubricEntry) -> Any:
    """What a person's own code makes; what it raises is told where the config says it."""
    try:
        return make()
    except (Exception, SystemExit) as error:
        said = str(error)
        if not isinstance(error, GuerdonError):
            said = f"making {_name(what)} raised {type(error).__name__}: {said}"
        about = [key for key in entry.config if re.search(rf"(?<!\w){re.escape(key)}(?!\w)", said)]
        place = ("config", about[0]) if len(about) == 1 else ("config",)
        where = place if entry.config else ("rubric",)
        raise _Refused(Problem(where, said)) from error


def _as_rubric(made: Any) -> Rubric:
    try:
        return as_rubric(RewardFunction(made) if takes_messages(made) else made)
    except GuerdonError as error:
        raise _Refused(Problem(("rubric",), str(error))) from error


def _refuse_config(entry: RubricEntry, what: str) -> None:
    if entry.config:
        said = f"{entry.rubric!r:.60} {what}, and takes no config; leave it out"
        raise _Refused(Problem(("config",), said))


def _misspelt(entry: RubricEntry, known: list[str] | None) -> list[Problem]:
    """Private keys that there are none of: what they should have kept would be told."""
    if known is None:
        return []
    names = list(dict.fromkeys((*entry.config, *known)))
    return [
        Problem(
            ("private", number), f"there is no key {key!r:.60} in the config; {near(key, names)}"
        )
        for number, key in enumerate(entry.private)
        if isinstance(key, str) and key not in names
    ]


def _name(thing: Any) -> str:
    return getattr(thing, "__name__", None) or f"{thing!r:.60}"
