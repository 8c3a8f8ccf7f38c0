"""`World`: a small world whose transitions are known, so that every advantage can be computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric

__all__ = ["Event", "Outcome", "World"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action may lead to.

    Example:
        >>> from guerdon.arena import Outcome
        >>> Outcome(0.5, "room 2", events=["coin"])
        Outcome(probability=0.5, state='room 2', events=['coin'], done=False)

    Attributes:
        probability: Its probability, in (0, 1].
        state: The state after it, hashable.
        events: What happened, for the rubric; an event that happened twice is listed twice.
        done: Whether the episode ends with it.
    """

    probability: float
    state: Hashable
    events: Sequence[str] = ()
    done: bool = False


class World(ABC):
    """A world with few states, a few actions and known transitions.

    The reward is a tree of rubrics over the events of a step. The world describes its dynamics
    alone: `guerdon.arena.Model` tabulates it, and `WorldEnvironment` lets any policy play it.

    Example:
        >>> from guerdon.arena import Model, Outcome, World
        >>> class Coin(World):
        ...     name = "coin"
        ...     actions = ("keep", "toss")
        ...     max_steps = 1
        ...     weights = {"heads": 1.0, "kept": 0.4}
        ...     def initial(self):
        ...         return "coin"
        ...     def outcomes(self, state, action):
        ...         if action == 0:
        ...             return [Outcome(1.0, "end", ["kept"], done=True)]
        ...         return [Outcome(0.5, "end", ["heads"], done=True),
        ...                 Outcome(0.5, "end", done=True)]
        >>> model = Model.of(Coin())
        >>> model.states, model.expected_reward.tolist()
        (('coin', 'end'), [[0.4, 0.5], [0.0, 0.0]])

    Attributes:
        name: Its name, in lower case with hyphens.
        about: What it is for, in a sentence.
        actions: The names of the actions, which are numbered from 0.
        max_steps: After how many steps an episode is cut off, at least 1.
        weights: The reward of an event, by its name.
        stamped: Whether each observation names its episode and step, like a text with times or
            ids in it, so that no two steps look the same to a method that compares states. The
            policy ignores the stamp.
    """

    name: ClassVar[str]
    about: ClassVar[str] = ""
    actions: Sequence[str]
    max_steps: int
    weights: Mapping[str, float]
    stamped: bool = False

    @abstractmethod
    def initial(self) -> Hashable:
        """Return the state in which every episode begins."""

    @abstractmethod
    def outcomes(self, state: Any, action: int) -> Sequence[Outcome]:
        """Return what an action may lead to; the probabilities add up to 1.

        Args:
            state: A state that is not an end.
            action: The number of the action.
        """

    def rubric(self) -> Rubric:
        """Return the reward: by default a weighted sum of the events of a step."""
        return RubricComposer(
            {name: Event(name) for name in self.weights}, self.weights, normalize=False
        )

    def describe(self, state: Any) -> str:
        """Return a state as text, which must differ for states that differ."""
        return str(state)


class Event(Rubric):
    """Counts an event of the step.

    Example:
        >>> from types import SimpleNamespace
        >>> from guerdon.arena import Event
        >>> Event("coin")("take", SimpleNamespace(events=["coin", "door", "coin"]))
        2.0

    Args:
        name: The event's name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, action: Any, observation: Any) -> float:
        """Return how often it is among the observation's ``events``."""
        return float(list(observation.events).count(self.name))
