"""The schema of a reward's file: `RewardConfig` and `RubricEntry`."""

from __future__ import annotations

import copy
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SkipValidation,
    StrictBool,
    StrictStr,
    ValidationError,
)

from guerdon._loading import name_of
from guerdon._problems import Place, Problem, place_text, problems_of, written
from guerdon._validation import did_you_mean, shown
from guerdon.config.annotations import unknown_keys
from guerdon.config.curriculum import Stages
from guerdon.config.loader import Document, parse_document, read_document, to_yaml
from guerdon.config.schedules import Schedule
from guerdon.errors import RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric
from guerdon.services.config import ServiceConfig

__all__ = ["RewardConfig", "RubricEntry"]

logger = logging.getLogger("guerdon.config")

#: The version that is written and read.
SCHEMA_VERSION = "1.0"

#: The keys of the lists of entries.
LISTS = ("per_turn", "episode_end")

NO_ENTRIES = Problem((), "must have at least one entry in per_turn or episode_end")

NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
MAX_NAME = 100


def _check_name(name: str) -> str:
    if len(name) <= MAX_NAME and re.fullmatch(NAME, name):
        return name
    raise ValueError(
        f"must consist of up to {MAX_NAME} letters, digits, '-' and '_', beginning with a letter, "
        f"got {written(name)}"
    )


def _check_free(name: str) -> str:
    if RubricComposer._is_reserved(name):
        raise ValueError(f"must not be {name!r}, which is an attribute of RubricComposer")
    return name


def _check_rubric(rubric: Any) -> Any:
    if isinstance(rubric, str):
        is_valid = bool(rubric.strip())
    else:
        is_valid = isinstance(rubric, Rubric) or callable(rubric)
    if is_valid:
        return rubric
    raise ValueError(
        "must be a registered name, a class path such as package.module.Class, or file.py:name, "
        f"got {written(rubric)}"
    )


_Name = Annotated[
    StrictStr,
    AfterValidator(_check_name),
    Field(json_schema_extra={"pattern": NAME, "maxLength": MAX_NAME}),
]


class RubricEntry(BaseModel):
    """One rubric of a reward.

    Example:
        >>> from guerdon.config import RubricEntry
        >>> entry = RubricEntry("polite", "RegexMatch", config={"pattern": "please"})
        >>> entry.weight
        1.0

    Args:
        name: The name of its component: letters, digits, ``-`` and ``_``, beginning with a letter.
        rubric: A registered name; a dotted class path; ``file.py:name``; in code also a class, a
            function, or a rubric, which is copied for each tree.
        weight: A finite number; below 0 it is a penalty.
        config: The config or the arguments of the rubric.
        schedule: A factor that multiplies the weight as training goes on.
        private: The keys of `config` that a server doesn't disclose.

    Raises:
        pydantic.ValidationError: An argument is invalid.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    name: Annotated[_Name, AfterValidator(_check_free)]
    rubric: Annotated[Any, SkipValidation, BeforeValidator(_check_rubric)]
    weight: Annotated[float, Field(strict=True, allow_inf_nan=False)] = 1.0
    config: dict[StrictStr, Any] = {}
    schedule: Schedule | None = None
    private: tuple[StrictStr, ...] = ()

    def __init__(self, *given: Any, **data: Any) -> None:
        names = ("name", "rubric", "weight")
        if len(given) > len(names):
            raise TypeError(f"only {', '.join(names)} are positional, got {len(given)} arguments")
        super().__init__(**dict(zip(names, given, strict=False)), **data)

    # An entry in a dict has fields, which pydantic then doesn't pass as keyword arguments.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as a file has it.

        Raises:
            RewardConfigError: A file can't contain its rubric or its config.
        """
        data: dict[str, Any] = {"name": self.name, "rubric": self._rubric_name()}
        data["weight"] = self.weight
        if self.config:
            try:
                data["config"] = json.loads(json.dumps(self.config, allow_nan=False))
            except (TypeError, ValueError) as error:
                message = f"{self.name}: config: a file can't contain it: {error}"
                raise RewardConfigError(message) from None
        if self.schedule is not None:
            data["schedule"] = self.schedule.to_spec()
        if self.private:
            data["private"] = list(self.private)
        return data

    def _rubric_name(self) -> str:
        rubric = self.rubric
        if isinstance(rubric, str):
            return rubric
        module = str(getattr(rubric, "__module__", None))
        found: Any = sys.modules.get(module) if module != "__main__" else None
        for part in getattr(rubric, "__qualname__", "<none>").split("."):
            found = getattr(found, part, None)
        if found is None or found != rubric:  # another process would not find it by its path
            raise RewardConfigError(
                f"{self.name}: rubric: a file can't contain {rubric!r:.60}; use its class path, or "
                "register it"
            )
        return name_of(rubric)


class RewardConfig(BaseModel):
    """A reward: its rubrics with their weights, and the services that they use.

    Example:
        >>> from guerdon import RewardConfig
        >>> config = RewardConfig.from_yaml('''
        ... schema_version: "1.0"
        ... per_turn:
        ...   - {name: polite, rubric: RegexMatch, weight: 0.5, config: {pattern: please}}
        ... ''')
        >>> config.per_turn[0].weight
        0.5
        >>> RewardConfig.from_yaml('''
        ... schema_version: "1.0"
        ... per_turn:
        ...   - {name: polite, rubric: RegexMatch, wieght: 0.5}
        ... ''')
        Traceback (most recent call last):
        guerdon.errors.RewardConfigError: line 4: per_turn[0].wieght: unknown key; did you mean 'weight'?

    In code it may be created without entries, and extended with `model_copy`; a file, or a reward
    that is built, must have one.

    Args:
        schema_version: The version of the file's format.
        per_turn: The rubrics that score every step.
        episode_end: The rubrics that score the last step of an episode.
        normalize: Map the scores of each rubric to [0, 1], by its declared range, or by the
            observed one (``observed``).
        mcp_services: Tools and models by name.
        curriculum: Stages with weights of their own, and conditions to move on.

    Raises:
        RewardConfigError: The configuration is invalid; ``problems`` has a line for each mistake.
    """  # noqa: E501  the error message is one line

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: StrictStr = SCHEMA_VERSION
    per_turn: tuple[RubricEntry, ...] = ()
    episode_end: tuple[RubricEntry, ...] = ()
    normalize: StrictBool | Literal["observed"] = True
    mcp_services: dict[_Name, ServiceConfig] = {}
    curriculum: Stages | None = None

    _document: Document = PrivateAttr(default=Document(None))

    def __init__(self, **data: Any) -> None:
        document = Document(data)
        document = of_this_version(document) if "schema_version" in data else document
        self._read(document, may_be_empty=True)

    def _read(self, document: Document, *, may_be_empty: bool = False) -> None:
        problems = self._fill(document)
        if may_be_empty:
            problems = [each for each in problems if each is not NO_ENTRIES]
        if problems:
            raise document.error(problems)
        self._document = document

    def _fill(self, document: Document) -> list[Problem]:
        """Set the fields from a document; return what is wrong with it."""
        data = document.data
        problems = list(document.problems)
        if not isinstance(data, Mapping):
            return [*problems, Problem((), f"must be a mapping, got {written(data)}")]
        odd = [key for key in data if not isinstance(key, str)]
        if odd:
            return [Problem((), f"the keys must be strings, got {shown(odd[0])}")]
        found = list(unknown_keys(RewardConfig, data))
        places = {each.place for each in (*problems, *found)}
        try:
            super().__init__(**data)
        except ValidationError as error:
            found += [each for each in problems_of(error, data) if each.place not in places]
        found += _inconsistencies(data)
        places = {each.place for each in problems}
        return problems + [each for each in found if each.place not in places]

    @classmethod
    def problems_in(cls, document: Document) -> list[Problem]:
        """Return everything that is wrong with a document of the present version."""
        return cls.__new__(cls)._fill(document)

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """Return the configuration of a document.

        Raises:
            RewardConfigError: The document is invalid.
        """
        config = cls.__new__(cls)
        config._read(of_this_version(document))
        return config

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a file: JSON if its name ends in ``.json``, YAML otherwise.

        A ``file.py:name`` in it is relative to its folder.

        Raises:
            RewardConfigError: The file can't be read, or is invalid.
        """
        return cls.from_document(read_document(path))

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Read YAML.

        Raises:
            RewardConfigError: The text can't be read, or is invalid.
        """
        return cls.from_document(parse_document(text))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read JSON.

        Raises:
            RewardConfigError: The text can't be read, or is invalid.
        """
        return cls.from_document(parse_document(text, is_json=True))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the content of a file.

        Raises:
            RewardConfigError: The content is invalid.
        """
        return cls.from_document(Document(data))

    @property
    def entries(self) -> tuple[RubricEntry, ...]:
        """All entries: those of every step, then those of the end."""
        return (*self.per_turn, *self.episode_end)

    @property
    def folder(self) -> Path | None:
        """The folder of the file that it was read from; None if there is none."""
        return self._document.folder

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other fields, which are checked like those of a new configuration.

        Raises:
            RewardConfigError: The copy would be invalid.
        """
        data = {name: getattr(self, name) for name in type(self).model_fields} | dict(update or {})
        config = type(self).__new__(type(self))
        config._read(
            Document(copy.deepcopy(data) if deep else data, self._document.file), may_be_empty=True
        )
        return config

    def error(self, problems: Iterable[Problem]) -> RewardConfigError:
        """Return the error that lists problems of this configuration with their lines."""
        return self._document.error(problems)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a file; `from_dict` makes an equal configuration again.

        Raises:
            RewardConfigError: A file can't contain a rubric or a config.
        """
        data: dict[str, Any] = {
            "schema_version": self.schema_version,
            "normalize": self.normalize,
            "per_turn": [each.to_dict() for each in self.per_turn],
            "episode_end": [each.to_dict() for each in self.episode_end],
        }
        if self.mcp_services:
            data["mcp_services"] = {
                name: service.model_dump(mode="json", exclude_defaults=True)
                | {"type": service.type}
                for name, service in self.mcp_services.items()
            }
        return data | self.curriculum_dict()

    def curriculum_dict(self) -> dict[str, Any]:
        """Return the key ``curriculum`` of a file, if there is a curriculum."""
        if self.curriculum is None:
            return {}
        stages = [each.model_dump(mode="json", exclude_none=True) for each in self.curriculum]
        return {"curriculum": stages}

    def to_yaml(self) -> str:
        """Return the configuration as YAML; `from_yaml` makes an equal one again."""
        return to_yaml(self.to_dict())

    def to_json(self) -> str:
        """Return the configuration as JSON; `from_json` makes an equal one again."""
        return json.dumps(self.to_dict(), indent=2)

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same content, wherever it was read from."""
        if not isinstance(other, RewardConfig):
            return NotImplemented
        return self.__dict__ == other.__dict__


# Between the parts ---------------------------------------------------------------------------


def _inconsistencies(data: Mapping[str, Any]) -> Iterator[Problem]:
    """Duplicate names, and references to unknown names; the data may be invalid otherwise."""
    names: dict[str, Place] = {}
    for key in LISTS:
        for number, entry in enumerate(_items(data.get(key))):
            name = _get(entry, "name")
            first = names.setdefault(name, (key, number)) if isinstance(name, str) else ()
            if first not in ((), (key, number)):
                message = f"must be unique; {place_text(first)} is also named {name!r}"
                yield Problem((key, number, "name"), message)
    if not any(data.get(key) for key in LISTS):
        yield NO_ENTRIES
    for place, name in _references(data.get("curriculum")):
        if names and name not in names:
            yield Problem(place, f"unknown entry {shown(name)}; {did_you_mean(name, names)}")


def _references(curriculum: Any) -> Iterator[tuple[Place, str]]:
    """The names of entries in the stages of a curriculum."""
    for number, stage in enumerate(_items(curriculum)):
        weights, component = _get(stage, "weights"), _get(_get(stage, "until"), "component")
        for name in weights if isinstance(weights, Mapping) else ():
            yield ("curriculum", number, "weights", name), name
        if isinstance(component, str):
            yield ("curriculum", number, "until", "component"), component


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) else ()


def _get(thing: Any, key: str) -> Any:
    """The value at a key of a mapping, or an attribute of a model."""
    return thing.get(key) if isinstance(thing, Mapping) else getattr(thing, key, None)


# Versions ------------------------------------------------------------------------------------

_warned: set[str] = set()  # the files without a version


def of_this_version(document: Document) -> Document:
    """Return a document with its version.

    One without a version is taken to be of the present one, with a warning in the log, once a file.

    Raises:
        RewardConfigError: It is of another version.
    """
    data = document.data
    if not isinstance(data, Mapping):
        return document  # which is invalid in every version
    if "schema_version" not in data:
        if document.file is None or document.file not in _warned:
            _warned.add(document.file or "")
            logger.warning(
                '%s has no schema_version and is read as version %s; add schema_version: "%s"',
                document.file or "a reward's configuration", SCHEMA_VERSION, SCHEMA_VERSION,
            )  # fmt: skip
    elif str(version := data["schema_version"]) != SCHEMA_VERSION:
        text = f"must be {SCHEMA_VERSION!r}, got {written(version)}"
        raise document.error([Problem(("schema_version",), text)])
    return replace(document, data={**data, "schema_version": SCHEMA_VERSION})
