"""`RewardConfig`: a reward, as it is described in a file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

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
from pydantic_core import PydanticCustomError

from guerdon._loading import (
    name_of,
)
from guerdon.config.consistency import inconsistencies
from guerdon.config.documents import Document, Problem
from guerdon.config.mistakes import problems_of, told_value
from guerdon.config.reading import parse_document, read_document
from guerdon.config.schedules.curriculum import CurriculumSpec
from guerdon.config.schedules.schedule_spec import ScheduleSpec
from guerdon.config.versions import SCHEMA_VERSION, config_migrations
from guerdon.config.writing import to_yaml
from guerdon.errors import RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric
from guerdon.services.config import ServiceConfig

__all__ = ["RewardConfig", "RubricEntry"]

NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
MAX_NAME = 100


def _check_form(name: str) -> str:
    if len(name) > MAX_NAME or not re.fullmatch(NAME, name):
        raise PydanticCustomError(
            "name",
            "{told} can't be a name; it takes up to {longest} letters, digits, - and _, a letter "
            "first",
            {"told": told_value(name), "longest": MAX_NAME},
        )
    return name


def _check_free(name: str) -> str:
    if RubricComposer._is_reserved(name):
        raise PydanticCustomError(
            "name", "{told} is a name of RubricComposer's own; take another", {"told": repr(name)}
        )
    return name


def _check_rubric(rubric: Any) -> Any:
    if (isinstance(rubric, str) and rubric.strip()) or isinstance(rubric, Rubric):
        return rubric
    if not isinstance(rubric, str) and callable(rubric):
        return rubric
    raise PydanticCustomError(
        "rubric",
        "it is {told}; it takes a registered name, a class path such as package.module.Class, or "
        "file.py:name",
        {"told": told_value(rubric)},
    )


_FORM = {"pattern": NAME, "maxLength": MAX_NAME}

Name = Annotated[StrictStr, AfterValidator(_check_form), Field(json_schema_extra=_FORM)]
EntryName = Annotated[Name, AfterValidator(_check_free)]


class RubricEntry(BaseModel):
    """One rubric of a reward.

    Example:
        >>> from guerdon.config import RubricEntry
        >>> entry = RubricEntry(name="polite", rubric="RegexMatch", config={"pattern": "please"})
        >>> entry.weight
        1.0

    Args:
        name: What its component is called: letters, digits, ``-`` and ``_``, a letter first.
        rubric: A registered name; a dotted class path; ``file.py:name``; in code also a class, a
            function or a rubric, of which each tree that is made has a copy.
        weight: A finite number; below 0 it is a penalty.
        config: What the rubric is made with: what its config class takes, or its arguments.
        schedule: A factor that multiplies the weight as training goes on.
        private: The keys of `config` that aren't told to whoever asks a server.

    Raises:
        pydantic.ValidationError: It can't be meant.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    name: EntryName
    rubric: Annotated[Any, SkipValidation, BeforeValidator(_check_rubric)]
    weight: Annotated[float, Field(strict=True, allow_inf_nan=False)] = 1.0
    config: dict[StrictStr, Any] = {}
    schedule: ScheduleSpec | None = None
    private: tuple[StrictStr, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The entry as a file has it.

        Raises:
            RewardConfigError: Its rubric or its config is something that a file can't hold.
        """
        told: dict[str, Any] = {"name": self.name, "rubric": self._rubric_name()}
        told["weight"] = self.weight
        if self.config:
            told["config"] = _as_json(self.config, f"{self.name}: config")
        if self.schedule is not None:
            told["schedule"] = self.model_dump(mode="json", include={"schedule"})["schedule"]
        if self.private:
            told["private"] = list(self.private)
        return told

    def _rubric_name(self) -> str:
        rubric = self.rubric
        if isinstance(rubric, str):
            return rubric
        if not _is_at_its_path(rubric):
            raise RewardConfigError(
                f"{self.name}: rubric: it is {rubric!r:.60}, which a file can't hold; name it by "
                "its class path, or register it"
            )
        return name_of(rubric)


def _is_at_its_path(thing: Any) -> bool:
    """Whether what a class or function is called finds it again, in another process too."""
    module = str(getattr(thing, "__module__", None))
    found: Any = sys.modules.get(module) if module != "__main__" else None
    for part in getattr(thing, "__qualname__", "<none>").split("."):
        found = getattr(found, part, None)
    return found is not None and found == thing


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
        guerdon.errors.RewardConfigError: line 4: per_turn[0].wieght: there is no such key; did you mean 'weight'?

    Args:
        schema_version: The version of the file's form.
        per_turn: What scores every step.
        episode_end: What scores the last step of an episode.
        normalize: Map the scores of each rubric to [0, 1].
        mcp_services: Tools and models by name.
        curriculum: Stages with weights of their own, and conditions to move on.

    Raises:
        RewardConfigError: It can't be meant. `RewardConfigError.problems` has a line for each mistake.
        RewardConfigError: It is of another version.
    """  # noqa: E501

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: StrictStr = SCHEMA_VERSION
    per_turn: tuple[RubricEntry, ...] = ()
    episode_end: tuple[RubricEntry, ...] = ()
    normalize: StrictBool = True
    mcp_services: dict[Name, ServiceConfig] = {}
    curriculum: CurriculumSpec | None = None

    _document: Document = PrivateAttr(default=Document(None))

    def __init__(self, **data: Any) -> None:
        document = Document(data)
        if "schema_version" in data:
            document = config_migrations.present(document)
        self._read(document)

    def _read(self, document: Document) -> None:
        problems = self._take(document)
        if problems:
            raise document.error(problems)
        self._document = document

    def _take(self, document: Document) -> list[Problem]:
        """Become what a document says; what is wrong with it."""
        if not isinstance(document.data, Mapping):
            said = f"it is {told_value(document.data)}; a reward is a mapping"
            return [*document.problems, Problem((), said)]
        odd = [key for key in document.data if not isinstance(key, str)]
        if odd:
            return [Problem((), f"the key {odd[0]!r:.60} is no text")]
        told = {each.place for each in document.problems}
        found: list[Problem] = []
        try:
            super().__init__(**document.data)
        except ValidationError as error:
            found = problems_of(error, document.data, RewardConfig)
        found += inconsistencies(document.data)
        return [*document.problems, *(each for each in found if each.place not in told)]

    @classmethod
    def problems_in(cls, document: Document) -> tuple[Document, list[Problem]]:
        """A document in the present version, and what is wrong with it.

        Raises:
            RewardConfigError: It is of another version, of which nothing is known.
        """
        document = config_migrations.present(document)
        return document, cls.__new__(cls)._take(document)

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The configuration that a document says.

        Raises:
            RewardConfigError: It can't be meant.
        """
        config = cls.__new__(cls)
        config._read(config_migrations.present(document))
        return config

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a file: JSON where its name ends in ``.json``, YAML otherwise.

        A ``file.py:name`` in it is looked for beside it.

        Raises:
            RewardConfigError: It can't be read, or not be meant.
        """
        return cls.from_document(read_document(path))

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Read YAML.

        Raises:
            RewardConfigError: It can't be read, or not be meant.
        """
        return cls.from_document(parse_document(text))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read JSON.

        Raises:
            RewardConfigError: It can't be read, or not be meant.
        """
        return cls.from_document(parse_document(text, is_json=True))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Take what a file would say.

        Raises:
            RewardConfigError: It can't be meant.
        """
        return cls.from_document(Document(data))

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON Schema of a reward's file, with which editors complete it."""
        from guerdon.config.schema import reward_schema

        return reward_schema()

    @property
    def entries(self) -> tuple[RubricEntry, ...]:
        """All rubrics: those of every step, then those of the end."""
        return (*self.per_turn, *self.episode_end)

    @property
    def document(self) -> Document:
        """What it was read from, for the lines of messages."""
        return self._document

    def error(self, problems: Iterable[Problem]) -> RewardConfigError:
        """The error that tells problems of this configuration with their lines."""
        made: RewardConfigError = self._document.error(problems)
        return made

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a file has it; `from_dict` makes an equal one again.

        Raises:
            RewardConfigError: It holds something that a file can't.
        """
        told: dict[str, Any] = {
            "schema_version": self.schema_version,
            "normalize": self.normalize,
            "per_turn": [each.to_dict() for each in self.per_turn],
            "episode_end": [each.to_dict() for each in self.episode_end],
        }
        if self.mcp_services:
            told["mcp_services"] = {
                name: service.model_dump(mode="json", exclude_defaults=True)
                | {"type": service.type}
                for name, service in self.mcp_services.items()
            }
        if self.curriculum is not None:
            told["curriculum"] = [
                each.model_dump(mode="json", exclude_none=True) for each in self.curriculum
            ]
        return told

    def to_yaml(self) -> str:
        """The configuration as YAML; `from_yaml` makes an equal one again."""
        return to_yaml(self.to_dict())

    def to_json(self) -> str:
        """The configuration as JSON; `from_json` makes an equal one again."""
        return json.dumps(self.to_dict(), indent=2)

    def __eq__(self, other: object) -> bool:
        """Whether the other says the same, wherever it was read from."""
        if not isinstance(other, RewardConfig):
            return NotImplemented
        return self.__dict__ == other.__dict__


def _as_json(value: Any, where: str) -> Any:
    """A copy, made of what JSON can hold."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RewardConfigError(f"{where}: a file can't hold it: {error}") from None
