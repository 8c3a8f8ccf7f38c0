"""What makes the rubric of an entry, or says why none can be made."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon.errors import ConfigError, GuerdonError
from guerdon.functions.decorator import RewardFunction, takes_messages
from guerdon.rewards.config.config import RubricEntry
from guerdon.rewards.config.documents import Problem, near
from guerdon.rewards.making.arguments import (
    Argument,
    accepted_by,
    arguments_of,
    checked,
    config_class,
    config_of,
)
from guerdon.rewards.making.registry import RubricRegistry
from guerdon.rubrics.function import as_rubric
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
        except ConfigError as error:
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
            return as_rubric(found)
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
        rest = [each for each in arguments if each.name not in (CONFIG, CLIENT)]
        # f(action, observation), whose other arguments the config gives
        ours = {CONFIG, CLIENT, *entry.config}
        is_score = not isinstance(found, type) and _takes_two(found, ours)
        if CONFIG in by_name:
            kind = config_class(by_name[CONFIG].annotation)
            value, wrong = _guarded(lambda: config_of(kind, entry.config), kind, entry)
            given[CONFIG], known = value, accepted_by(kind)
        else:
            rest = rest[2:] if is_score else rest
            values, wrong = checked(rest, entry.config, takes_all=takes_all)
            given, known = given | values, None if takes_all else [each.name for each in rest]
        problems += [each.within(CONFIG) for each in wrong]
        problems += _misspelt(entry, known)
        if problems:
            raise _Refused(*problems)
        if is_score:
            return _as_rubric(functools.partial(found, **given) if given else found)
        return _as_rubric(_call(found, given, entry))

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


def _takes_two(found: Any, names: set[str]) -> bool:
    """Whether a function can be called with an action and an observation, the rest being given."""
    try:
        signature = inspect.signature(found)
        kept = [each for name, each in signature.parameters.items() if name not in names]
        signature.replace(parameters=kept).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _call(make: Any, given: dict[str, Any], entry: RubricEntry) -> Any:
    made = _guarded(lambda: make(**given), make, entry)
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
