"""What an `LLMJudge` is configured with, checked as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.checks.inputs import number_within
from guerdon.rubrics.judge.judgement import check_aggregate
from guerdon.rubrics.judge.template import look_up, part_of
from guerdon.rubrics.judge.verdict_text import Scale

__all__ = ["Field", "JudgeSettings", "JudgeValues", "Setting", "check_fields"]

MAX_SAMPLES = 1000

# Where a field of a prompt comes from: a path, or a function of action and observation.
Field: TypeAlias = "str | Callable[[Any, Any], Any]"


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """See `LLMJudge`, whose arguments they are.

    Raises:
        InvalidArgumentError: One can't be meant.
    """

    score_range: Scale = (0.0, 1.0)
    samples: int = 1
    aggregate: str = "mean"
    temperature: float | None = None
    max_tokens: int | None = None
    system: str | None = None
    version: str = ""

    def __post_init__(self) -> None:
        low_high = self.score_range
        numbers = isinstance(low_high, (tuple, list)) and len(low_high) == 2 and all(
            type(number) in (int, float) and math.isfinite(number) for number in low_high
        )  # fmt: skip
        if not numbers or not low_high[0] < low_high[1]:
            raise InvalidArgumentError(
                f"score_range is {low_high!r:.80}; it takes two finite numbers, the lower first"
            )
        object.__setattr__(self, "score_range", (float(low_high[0]), float(low_high[1])))
        if type(self.samples) is not int or not 1 <= self.samples <= MAX_SAMPLES:
            raise InvalidArgumentError(
                f"samples is {self.samples!r:.80}; it takes an int from 1 to {MAX_SAMPLES}"
            )
        check_aggregate(self.aggregate)
        if self.temperature is not None:
            number_within(self.temperature, "temperature", low=0.0, high=2.0)
        most = self.max_tokens
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidArgumentError(
                f"max_tokens is {most!r:.80}; it takes an int of at least 1, or None"
            )
        for name, text in (("system", self.system or ""), ("version", self.version)):
            if not isinstance(text, str):
                raise InvalidArgumentError(f"{name} is {text!r:.80}; it takes a text")


class Setting:
    """One of the settings as an attribute of the judge; setting it checks it with the others."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, judge: Any, kind: type | None = None) -> Any:
        return self if judge is None else getattr(judge._settings, self._name)

    def __set__(self, judge: Any, value: Any) -> None:
        judge._settings = replace(judge._settings, **{self._name: value})


class JudgeValues(Mapping[str, Any]):
    """What the places of a prompt may name: action, observation, fields, parts of the observation.

    Example:
        >>> values = JudgeValues("Oslo", {"metadata": {"question": "Where?"}}, {})
        >>> values["action"], values["question"]
        ('Oslo', 'Where?')

    Args:
        action: What the agent did.
        observation: What came of it.
        fields: Where further fields come from.
    """

    def __init__(self, action: Any, observation: Any, fields: Mapping[str, Field]) -> None:
        self._both = {"action": action, "observation": observation}
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        if name in self._both:
            return self._both[name]
        field = self._fields.get(name)
        if field is not None:
            return look_up(field, self._both) if isinstance(field, str) else field(
                self._both["action"], self._both["observation"]
            )  # fmt: skip
        observation = self._both["observation"]
        found, value = part_of(observation, name)
        if not found:
            _, metadata = part_of(observation, "metadata")
            found, value = part_of(metadata, name)
        if not found:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        if name in self._both or name in self._fields:
            return True
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter((*self._both, *self._fields))

    def __len__(self) -> int:
        return len(self._both) + len(self._fields)


def check_fields(fields: Mapping[str, Field] | None) -> dict[str, Field]:
    """Check where fields come from.

    Raises:
        InvalidArgumentError: A name or a source can't be meant.
    """
    if fields is not None and not isinstance(fields, Mapping):
        raise InvalidArgumentError(f"fields is {fields!r:.80}; it takes names with their sources")
    for name, source in (fields or {}).items():
        if not isinstance(name, str) or not name.isidentifier() or name in _TAKEN:
            raise InvalidArgumentError(
                f"fields names {name!r:.80}; it takes identifiers other than {sorted(_TAKEN)}"
            )
        begins = isinstance(source, str) and source.partition(".")[0] in _TAKEN
        if not begins and not callable(source):
            raise InvalidArgumentError(
                f"fields[{name!r}] is {source!r:.80}; it takes a path such as "
                "'observation.metadata.reference', or a function of action and observation"
            )
    return dict(fields or {})


_TAKEN: Collection[str] = ("action", "observation")
