"""`Observation`, which an environment returns for an action, and `StepResult` of its client."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from guerdon._background import wait_for
from guerdon._validation import as_score
from guerdon.errors import EnvDefinitionError
from guerdon.types.arrays import MaybeArray

__all__ = ["GenericObservation", "Observation", "StepResult"]

ObsT = TypeVar("ObsT")

# The key of the metadata that says the same as an observation's `truncated`.
TRUNCATED = "truncated"

# Methods of a class that may change what an assignment does.
_ASSIGNING = ("_number", "__setattr__", "__get_pydantic_core_schema__")


class Observation(BaseModel):
    """What an environment returns for one step. Subclass it with the fields of your environment.

    It is mutable: the environment creates it, its rubric scores it, and the reward is set on it.

    Example:
        >>> from guerdon import Observation
        >>> class Board(Observation):
        ...     cells: list[int]
        >>> board = Board(cells=[0, 1, 2])
        >>> board.reward is None, board.done
        (True, False)
        >>> board.with_reward(1).reward
        1.0

    Attributes:
        done: Whether the episode has ended.
        truncated: Whether it has ended for another reason than its own, such as a limit on its
            steps, so that more reward could have followed; `done` is true then, too. Clients find
            it in the metadata. A class may declare a field of that name with another meaning.
        reward: A finite float (a bool counts as 0 or 1); None after a reset, or if scoring failed:
            then ``metadata["reward_error"]`` contains the reason.
        metadata: ``reward_components`` (dotted names to floats), ``reward_error``,
            ``step_rewards`` at the end of an episode, ``agent`` (the one that acts next) and
            ``agent_rewards`` with several agents, ``truncated``, ``error``, and what the
            environment adds.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, ser_json_inf_nan="constants"
    )

    # Whether an assigned reward is only checked to be a finite float or None, see `set_score`.
    _takes_any_score: ClassVar[bool] = True

    done: bool = False
    # Not sent as a field: clients of OpenEnv refuse fields that they don't know.
    truncated: Annotated[bool, SkipJsonSchema()] = Field(default=False, exclude=True)
    reward: float | None = Field(default=None, allow_inf_nan=False)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls._takes_any_score = _takes_any_score(cls)
        kind = cls.model_fields["reward"].annotation
        if kind is not Any and type(None) not in get_args(kind):
            raise EnvDefinitionError(
                f"`reward` of {cls.__name__} must accept None, which marks a failure, got {kind}; "
                "Observation already declares the field"
            )

    @field_validator("reward", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if value is None or type(value) is float:
            return value
        number = as_score(value)
        if number is None and hasattr(value, "__await__"):
            value = wait_for(value)  # of a tree with an async member, called in a sync step
            number = as_score(value)
        if number is not None:
            return number
        raise ValueError(f"a reward is a finite number or None, not {value!r:.60}")

    def with_reward(self, reward: float | None) -> Self:
        """Set the reward, and return the same observation.

        Args:
            reward: A finite number, or None.

        Raises:
            pydantic.ValidationError: It is neither.
        """
        self.reward = reward
        return self


def _takes_any_score(cls: type[Observation]) -> bool:
    """Whether no code of a subclass takes part when a finite float is assigned to its reward."""
    own = cls.__mro__[: cls.__mro__.index(Observation)]
    validators = cls.__pydantic_decorators__
    concerned = [
        name
        for name, each in (validators.field_validators | validators.validators).items()
        if {"reward", "*"} & {*each.info.fields}
    ]
    return (
        concerned == ["_number"]
        and not (validators.root_validators or validators.model_validators)
        and not any("reward" in get_annotations(kind) for kind in own)
        and not any(name in vars(kind) for kind in own for name in _ASSIGNING)
        and not cls.model_config.get("frozen")
    )


def set_score(observation: Observation, score: float | None) -> None:
    """Set the reward to a rubric's score; a float is known to be finite, and isn't checked again.

    Example:
        >>> board = Observation()
        >>> set_score(board, 0.5)
        >>> board.reward
        0.5
    """
    if score.__class__ is float and observation._takes_any_score:
        observation.__dict__["reward"] = score
        observation.__pydantic_fields_set__.add("reward")
    else:
        observation.reward = score


def has_flag(observation: Observation) -> bool:
    """Whether `truncated` is the field of `Observation`, and not one of a subclass."""
    return bool(type(observation).model_fields[TRUNCATED].exclude)


def agree_on_truncation(observation: Observation) -> None:
    """Let `truncated` and the metadata of an observation that ends its episode say the same.

    Example:
        >>> last = Observation(done=True, truncated=True)
        >>> agree_on_truncation(last)
        >>> last.metadata
        {'truncated': True}
    """
    metadata = observation.metadata
    if observation.truncated is True:
        metadata[TRUNCATED] = True
    elif metadata.get(TRUNCATED) is True and has_flag(observation):
        observation.__dict__[TRUNCATED] = True


class GenericObservation(Observation):
    """An observation of an environment whose types aren't known: it accepts any field.

    Example:
        >>> from guerdon.types import GenericObservation
        >>> GenericObservation.model_validate({"echoed": "hi", "reward": 0.5}).echoed
        'hi'
    """

    model_config = ConfigDict(extra="allow")

    truncated: Annotated[Any, SkipJsonSchema()] = Field(default=False, exclude=True)

    __pydantic_extra__: dict[str, MaybeArray] = Field(init=False)


@dataclass(slots=True)
class StepResult(Generic[ObsT]):
    """What a client returns for a reset or a step.

    Example:
        >>> from guerdon import StepResult
        >>> StepResult({"echoed": "hi"}, reward=0.5).reward
        0.5

    Attributes:
        observation: The observation, a model or a dict.
        reward: A finite float, or None.
        done: Whether the episode has ended.
        metadata: Further data of the environment, including the reward's components.
        truncated: Whether the episode has ended for another reason than its own.
    """

    observation: ObsT
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False

    def __post_init__(self) -> None:
        if self.done and self.metadata.get(TRUNCATED) is True:
            self.truncated = True
