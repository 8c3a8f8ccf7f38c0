"""Building rubrics from the entries of a configuration."""

from __future__ import annotations

import copy
import functools
import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import BoundArguments, Parameter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from guerdon._problems import Place, Problem
from guerdon._validation import did_you_mean, shown
from guerdon.config.annotations import (
    arguments_of,
    checked_arguments,
    config_class,
    convert,
    fields_of,
    hints,
)
from guerdon.config.loader import Document
from guerdon.config.registry import RubricRegistry, rubric_registry
from guerdon.config.schema import LISTS, NO_ENTRIES, RewardConfig, RubricEntry, of_this_version
from guerdon.errors import GuerdonError, RewardConfigError
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.functions.function import RewardFunction, takes_messages
from guerdon.rubrics.rubric import Rubric
from guerdon.services.config import ServiceConfig

if TYPE_CHECKING:
    from guerdon.services.client import MCPClient

__all__ = ["build_rubric", "build_rubrics", "check_document"]

# Parameters that don't come from a config.
SCORED = ("action", "observation")
CONFIG, CLIENT = "config", "mcp_client"


def build_rubrics(
    config: RewardConfig,
    *,
    mcp: MCPClient | None = None,
    registry: RubricRegistry = rubric_registry,
) -> dict[str, Rubric]:
    """Build every rubric of a configuration.

    Example:
        >>> from guerdon.config import RewardConfig, build_rubrics
        >>> build_rubrics(RewardConfig(per_turn=[
        ...     {"name": "polite", "rubric": "RegexMatch", "config": {"pattern": "please"}},
        ... ]))["polite"]("please come", None)
        1.0

    Args:
        config: The configuration.
        mcp: The services that rubrics may use.
        registry: Where names are looked up.

    Returns:
        Rubrics by the names of their entries, in the order of the file.

    Raises:
        RewardConfigError: There is no entry, or the rubric of one is unknown, or can't be built
            from its config; ``problems`` has a line for each mistake.
    """
    builder = _Builder(mcp, registry, config.folder, tuple(config.mcp_services))
    rubrics: dict[str, Rubric] = {}
    problems: list[Problem] = [] if config.entries else [NO_ENTRIES]
    for key in LISTS:
        for number, entry in enumerate(getattr(config, key)):
            try:
                rubrics[entry.name] = builder.build(entry)
            except _InvalidEntryError as invalid:
                problems += [each.within(key, number) for each in invalid.problems]
    if problems:
        raise config.error(problems)
    return rubrics


def build_rubric(
    entry: RubricEntry,
    *,
    mcp: MCPClient | None = None,
    registry: RubricRegistry = rubric_registry,
    folder: str | Path | None = None,
) -> Rubric:
    """Build the rubric of one entry.

    A class or function with a parameter ``config`` receives the entry's config: as an instance of
    the class that the parameter is annotated with, as a dictionary if it isn't annotated. Without
    such a parameter, the keys of the config are the arguments. A parameter ``mcp_client`` receives
    the services.

    Example:
        >>> from guerdon.config import RubricEntry, build_rubric
        >>> build_rubric(RubricEntry(name="polite", rubric="RegexMatch", config={"patern": "x"}))
        Traceback (most recent call last):
        guerdon.errors.RewardConfigError: config.patern: unknown key; did you mean 'pattern'?
        config.pattern: is required

    Args:
        entry: The entry.
        mcp: The services that it may use.
        registry: Where its name is looked up.
        folder: The folder of a ``file.py:name``; None is the working directory.

    Raises:
        RewardConfigError: The rubric is unknown, or can't be built from its config.
    """
    try:
        return _Builder(mcp, registry, folder).build(entry)
    except _InvalidEntryError as invalid:
        raise Document(None).error(invalid.problems) from invalid


def check_document(
    document: Document,
    *,
    mcp: MCPClient | None = None,
    registry: RubricRegistry = rubric_registry,
) -> list[Problem]:
    """Return everything that is wrong with a reward's file, its rubrics included.

    The rubrics of entries with other mistakes are built too, to report the mistakes of both.

    Example:
        >>> from guerdon.config.loader import parse_document
        >>> document = parse_document('{schema_version: 1.0, per_turn: [{rubric: RegexMach}]}')
        >>> for problem in check_document(document):
        ...     print(document.message(problem))
        line 1: per_turn[0].name: is required
        line 1: per_turn[0].rubric: there is no rubric 'RegexMach'; did you mean 'RegexMatch'?

    Args:
        document: The content of the file.
        mcp: The services that its rubrics may use, in place of those of the file.
        registry: Where names are looked up.

    Raises:
        RewardConfigError: It is of another version.
    """
    document = of_this_version(document)
    problems = RewardConfig.problems_in(document)
    data = document.data if isinstance(document.data, Mapping) else {}
    services = data.get("mcp_services")
    names = tuple(map(str, services)) if isinstance(services, Mapping) else ()
    places = {each.place for each in problems}
    with _valid_services(services) as client:
        own = () if mcp is not None else names
        builder = _Builder(mcp or client, registry, document.folder, own)
        for place, entry in _readable_entries(data):
            try:
                builder.build(entry)
            except _InvalidEntryError as invalid:
                found = [each.within(*place) for each in invalid.problems]
                problems += [each for each in found if each.place not in places]
    return problems


@contextmanager
def _valid_services(services: Any) -> Iterator[Any]:
    """A client of the valid services of a file that may be invalid; None if it has no services."""
    from guerdon.services.client import MCPClient

    adapter: TypeAdapter[Any] = TypeAdapter(ServiceConfig)
    valid = {}
    for name, service in services.items() if isinstance(services, Mapping) else ():
        try:
            valid[name] = adapter.validate_python(service)
        except ValidationError:
            continue  # which is reported with the file's other problems
    if valid:
        with MCPClient(valid) as client:
            yield client
    else:
        yield SimpleNamespace(services=()) if services else None


def _readable_entries(data: Mapping[str, Any]) -> Iterator[tuple[Place, RubricEntry]]:
    """The entries of a file that may be invalid, as far as their rubric and config are valid."""
    for key in LISTS:
        entries = data.get(key)
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            if not isinstance(entry, dict):
                continue
            rubric, config = entry.get("rubric"), entry.get("config", {})
            private = entry.get("private")
            if isinstance(rubric, str) and isinstance(config, dict):
                private = tuple(private) if isinstance(private, list) else ()
                yield (
                    (key, number),
                    RubricEntry.model_construct(rubric=rubric, config=config, private=private),
                )


class _InvalidEntryError(Exception):
    """No rubric can be built from an entry."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(problems)
        self.problems = problems


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds the rubrics of entries.

    Attributes:
        mcp: The services that rubrics may use.
        registry: Where names are looked up.
        folder: The folder of a ``file.py:name``; None is the working directory.
        services: The names of further services, which can't be called now.
    """

    mcp: Any
    registry: RubricRegistry
    folder: str | Path | None
    services: Collection[str] = ()

    def build(self, entry: RubricEntry) -> Rubric:
        """Return the rubric of an entry.

        Raises:
            _InvalidEntryError: None can be built.
        """
        problems = [
            self._unknown_service((CONFIG, key), name)
            for key, name in entry.config.items()
            if (key == "service" or key.endswith("_service"))
            and isinstance(name, str)
            and name not in self._services()
        ]
        try:
            rubric = self._build(entry)
        except _InvalidEntryError as invalid:
            raise _InvalidEntryError(*problems, *invalid.problems) from invalid.__cause__
        if problems:
            raise _InvalidEntryError(*problems)
        return rubric

    def _build(self, entry: RubricEntry) -> Rubric:
        made = entry.rubric
        if isinstance(made, str):
            try:
                made = self.registry.resolve(made, folder=self.folder)
            except RewardConfigError as error:
                raise _InvalidEntryError(Problem(("rubric",), str(error))) from error
        if isinstance(made, Rubric | RewardFunction):
            if entry.config:
                kind = "rubric" if isinstance(made, Rubric) else "reward function on messages"
                message = f"must be absent, as {made!r:.60} is a {kind}, which takes no config"
                raise _InvalidEntryError(Problem((CONFIG,), message))
            return copy.deepcopy(made) if isinstance(made, Rubric) else _as_rubric(made)
        origin = typing.get_origin(made)
        made = origin if isinstance(origin, type) else made  # of Scorer[int]
        if isinstance(made, type) and not _makes_rubrics(made):
            message = f"{made.__name__} is neither a Rubric nor a class of callables"
            raise _InvalidEntryError(Problem(("rubric",), message))
        if not callable(made):
            raise _InvalidEntryError(Problem(("rubric",), f"must be callable, got {made!r:.60}"))
        return self._call(made, entry)

    def _call(self, make: Callable[..., Any], entry: RubricEntry) -> Rubric:
        arguments, takes_all = arguments_of(make)
        by_name = {each.name: each for each in arguments}
        given: dict[str, Any] = {}
        problems: list[Problem] = []
        if self.mcp is not None and CLIENT in by_name:
            given[CLIENT] = self.mcp
        elif CLIENT in by_name and by_name[CLIENT].default is Parameter.empty:
            message = f"{_name(make)} takes {CLIENT}, but no mcp_services are given"
            problems.append(Problem(("rubric",), message))
        scores = is_score(make, {CONFIG, CLIENT, *entry.config})
        if CONFIG in by_name:
            annotation = by_name[CONFIG].annotation
            given[CONFIG], found, known = _config(annotation, entry.config)
        else:
            arguments = [each for each in arguments if each.name != CLIENT]
            arguments = without_scored(arguments) if scores else arguments
            values, found = checked_arguments(arguments, entry.config, takes_all=takes_all)
            given |= values
            known = None if takes_all else [each.name for each in arguments]
        problems += [each.within(CONFIG) for each in found]
        problems += _unknown_private_keys(entry, known)
        if problems:
            raise _InvalidEntryError(*problems)
        if scores:
            return _as_rubric(_partial(make, given))
        with _reporting(make, entry.config):
            made = _partial(make, given)()
        if inspect.iscoroutine(made):
            made.close()
            message = f"{_name(make)} is async; a function that makes a rubric must be sync"
            raise _InvalidEntryError(Problem(("rubric",), message))
        rubric = _as_rubric(made)
        self._check_services(rubric, entry.config)
        return rubric

    def _check_services(self, rubric: Rubric, config: Mapping[str, Any]) -> None:
        """Refuse a tree with a rubric, such as a judge, that uses unknown services."""
        every = (rubric, *(each for _, each in rubric.named_rubrics()))
        used = [name for each in every for name in getattr(each, "service_names", tuple)()]
        problems = []
        for name in dict.fromkeys(used):
            if name not in self._services():
                keys = [
                    key
                    for key, value in config.items()
                    if value == name or (isinstance(value, list) and name in value)
                ]
                problems.append(self._unknown_service((CONFIG, *keys[:1]), name))
        if problems:
            raise _InvalidEntryError(*problems)

    def _services(self) -> set[str]:
        return {*self.services, *(self.mcp.services if self.mcp is not None else ())}

    def _unknown_service(self, place: Place, name: str) -> Problem:
        hint = did_you_mean(name, self._services())
        return Problem(place, f"mcp_services has no service {shown(name)}; {hint}")


def without_scored(arguments: Sequence[Parameter]) -> list[Parameter]:
    """Return the arguments of a scoring function without its action and its observation.

    Example:
        >>> def polite(text, observation, word="please"): ...
        >>> [each.name for each in without_scored(arguments_of(polite)[0])]
        ['word']
    """
    if {each.name for each in arguments}.issuperset(SCORED):
        return [each for each in arguments if each.name not in SCORED]
    return list(arguments[2:])


def _config(
    annotation: Any, config: Mapping[str, Any]
) -> tuple[Any, list[Problem], list[str] | None]:
    """A config as an annotation specifies, its problems, and the keys that it accepts."""
    kind = config_class(annotation)
    fields = fields_of(kind)
    known = list(fields) if fields is not None else None
    with _reporting(kind, config):
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        value, problems = convert(annotation, dict(config), strict=not is_model)
    about = [_about(config, each.message) if not each.place else () for each in problems]
    problems = [each.within(*place) for each, place in zip(problems, about, strict=True)]
    return value, problems, known


def is_score(make: Any, given: Collection[str]) -> bool:
    """Return whether a function scores an action and an observation itself, or makes a rubric.

    Example:
        >>> def polite(action, observation, *, word="please"): ...
        >>> def factory(word="please", strict=True): ...
        >>> is_score(polite, ()), is_score(factory, ())
        (True, False)

    Args:
        make: A class or function.
        given: The names of the parameters that are not the action or the observation.
    """
    if isinstance(make, type):
        return False
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return False
    if set(SCORED) <= signature.parameters.keys():
        return True
    result = hints(make).get("return")
    if isinstance(result, type) and issubclass(result, Rubric):
        return False
    kept = [each for name, each in signature.parameters.items() if name not in given]
    try:
        signature.replace(parameters=kept).bind(None, None)
    except (TypeError, ValueError):
        return False
    return kept[0].default is Parameter.empty


def _partial(make: Callable[..., Any], given: Mapping[str, Any]) -> Callable[..., Any]:
    """A callable with arguments by name, also those that it takes by position only."""
    if not given:
        return make
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # a callable from C may have none
        return functools.partial(make, **given)
    known = {name: given[name] for name in signature.parameters if name in given}
    rest = {name: value for name, value in given.items() if name not in known}
    bound = BoundArguments(signature, known)
    return functools.partial(make, *bound.args, **bound.kwargs, **rest)


def _makes_rubrics(kind: type) -> bool:
    return issubclass(kind, Rubric) or any("__call__" in vars(each) for each in kind.__mro__[:-1])


def _as_rubric(made: Any) -> Rubric:
    try:
        return as_rubric(RewardFunction(made) if takes_messages(made) else made)
    except GuerdonError as error:
        raise _InvalidEntryError(Problem(("rubric",), str(error))) from error


@contextmanager
def _reporting(make: Any, config: Mapping[str, Any]) -> Iterator[None]:
    """Report what the user's own code raises as a problem of the config."""
    try:
        yield
    except (Exception, SystemExit) as error:
        message = str(error)
        if not isinstance(error, GuerdonError):
            message = f"{_name(make)} raised {type(error).__name__}: {message}"
        place = (CONFIG, *_about(config, message)) if config else ("rubric",)
        raise _InvalidEntryError(Problem(place, message)) from error


def _about(config: Mapping[str, Any], message: str) -> tuple[str, ...]:
    """The only key of a config that a message names."""
    found = [key for key in config if re.search(rf"(?<!\w){re.escape(key)}(?!\w)", message)]
    return (found[0],) if len(found) == 1 else ()


def _unknown_private_keys(entry: RubricEntry, known: list[str] | None) -> list[Problem]:
    """The private keys that don't exist: a misspelled one would disclose another."""
    if known is None:
        return []
    names = list(dict.fromkeys((*entry.config, *known)))
    return [
        Problem(("private", number), f"the config has no key {shown(key)}; {hint}")
        for number, key in enumerate(entry.private)
        if isinstance(key, str) and key not in names
        for hint in [did_you_mean(key, names)]
    ]


def _name(thing: Any) -> str:
    return getattr(thing, "__name__", None) or f"{thing!r:.60}"
