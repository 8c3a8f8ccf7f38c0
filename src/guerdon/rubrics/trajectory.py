"""Trajectory rubrics: rewards that are known only when the episode is over."""

from __future__ import annotations

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from guerdon._validation import check_number
from guerdon.errors import TrajectoryError
from guerdon.rubrics import step_rewards
from guerdon.rubrics.evaluation import is_async_callable
from guerdon.rubrics.failure import finite
from guerdon.rubrics.recording import Step, current, is_done
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked

__all__ = ["ExponentialDiscountingTrajectoryRubric", "TrajectoryRubric"]

Trajectory = list[tuple[Any, Any]]

# How far into an action or an observation to look for tensors.
DEPTH = 4
GPUS = {"cuda", "mps", "xpu", "hip", "tpu", "gpu"}


class _Recorded(list[tuple[Any, Any]]):
    """The steps so far, with the current one: appending that again has no effect."""

    def append(self, step: tuple[Any, Any]) -> None:
        last = self[-1] if self else None
        if last is None or last[0] is not step[0] or last[1] is not step[1]:
            super().append(step)

    def record(self, step: tuple[Any, Any]) -> None:
        super().append(step)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)  # copies append one by one


class TrajectoryRubric(Rubric):
    """Scores whole episodes, and spreads the score over their steps.

    Implement `score_trajectory` and `compute_step_rewards`. Call the rubric at every step, as any
    other: it returns `intermediate_reward` until ``observation.done`` is true, then the score of
    the trajectory. It sees every environment step of its episode, also those at which a
    `Sequential` or a `Gate` before it stopped the evaluation. `reset` starts the next episode.

    Example:
        >>> from types import SimpleNamespace
        >>> from guerdon import TrajectoryRubric
        >>> class EqualShares(TrajectoryRubric):
        ...     '''The episode was won; each step has an equal share.'''
        ...     def score_trajectory(self, trajectory):
        ...         return 1.0 if trajectory[-1][1].won else 0.0
        ...     def compute_step_rewards(self):
        ...         score = self.score_trajectory(self.trajectory)
        ...         return [score / len(self.trajectory)] * len(self.trajectory)
        >>> rubric = EqualShares()
        >>> rubric("e4", SimpleNamespace(done=False))
        0.0
        >>> rubric("Qf7", SimpleNamespace(done=True, won=True))
        1.0
        >>> rubric.compute_step_rewards()
        [0.5, 0.5]

    Args:
        intermediate_reward: The score of the steps before the last, a finite number.
    """

    state_names = ("intermediate_reward",)
    intermediate_reward = Checked(check_number)
    max_steps = 100_000

    _is_trajectory = True
    _is_stateful = True

    def __init__(self, intermediate_reward: float = 0.0) -> None:
        super().__init__()
        self.intermediate_reward = intermediate_reward
        self._reset_own()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if is_async_callable(cls.score_trajectory):
            cls._is_async = True
        if "score_trajectory" in cls.__dict__ and not hasattr(
            cls.score_trajectory, "__isabstractmethod__"
        ):
            cls.score_trajectory = _scored_once(  # type: ignore[assignment, method-assign]
                cls.score_trajectory
            )

    @property
    def trajectory(self) -> Trajectory:
        """The steps so far, pairs of an action and an observation; a copy."""
        return list(self._trajectory)

    def forward(self, action: Any, observation: Any) -> Any:
        """Record the step; return the intermediate reward, or at the end the final score."""
        frame = current()
        if frame is None or frame.rubric is not self or frame.step is None:
            self._see(Step(self, action, observation))
        if is_done(observation):
            return self.score_trajectory(self._trajectory)
        return self.intermediate_reward

    @abstractmethod
    def score_trajectory(self, trajectory: Trajectory) -> Any:
        """Score an episode; called once per episode.

        Args:
            trajectory: Pairs of an action and an observation, T of them.

        Returns:
            A finite float, by convention in [0, 1] or [-1, 1].
        """

    @abstractmethod
    def compute_step_rewards(self) -> list[float]:
        """Spread the score over the steps.

        Returns:
            T finite floats, one for each step of `trajectory`.
        """

    def _reset_own(self) -> None:
        self._trajectory = _Recorded()
        self._stamps: list[int] = []
        self._final: dict[str, Any] = {}

    def _see(self, step: Step) -> None:
        """Record a step, once."""
        if self._stamps and self._stamps[-1] >= step.stamp:
            return
        if len(self._stamps) >= self.max_steps:
            raise TrajectoryError(
                f"{type(self).__name__} has seen {self.max_steps} steps without a reset(); "
                "reset it when an episode starts, or set max_steps"
            )
        _refuse_gpu(step.action, "action", DEPTH)
        _refuse_gpu(step.observation, "observation", DEPTH)
        if not isinstance(self._trajectory, _Recorded):  # an author's own list
            self._trajectory = _Recorded(self._trajectory)
        self._trajectory.record((step.action, step.observation))
        self._stamps.append(step.stamp)
        self._final = {}  # a new one: a late call may still use the old one

    def _final_score(self) -> float:
        """The score of the episode so far, of which there is at least one step."""
        if self._stamps and is_done(self._trajectory[-1][1]):
            step_rewards.check_known(self, self._stamps[-1])  # without asking a judge again
        score: Any = type(self).score_trajectory
        if not is_async_callable(score):
            return finite(self, self.score_trajectory(self._trajectory))
        if score.__qualname__ not in self._final:
            raise TrajectoryError(
                f"the final score of {type(self).__name__} isn't known: score_trajectory is "
                "async, and the rubric was not awaited at the last step"
            )
        return finite(self, self._final[score.__qualname__])

    def _rewards_by_step(self) -> dict[int, float]:
        return step_rewards.by_step(self)


class ExponentialDiscountingTrajectoryRubric(TrajectoryRubric):
    """Spreads the final score over the steps of an episode, discounted back from the last one.

    For an episode of T steps that ends with R_final::

        r_t = gamma ** (T - 1 - t) * R_final

    Example:
        >>> from types import SimpleNamespace
        >>> from guerdon import ExponentialDiscountingTrajectoryRubric
        >>> class Won(ExponentialDiscountingTrajectoryRubric):
        ...     '''The game was won.'''
        ...     def score_trajectory(self, trajectory):
        ...         return 1.0 if trajectory[-1][1].won else 0.0
        >>> rubric = Won(gamma=0.5)
        >>> for done in False, False, True:
        ...     reward = rubric("move", SimpleNamespace(done=done, won=done))
        >>> rubric.compute_step_rewards()
        [0.25, 0.5, 1.0]

    Args:
        gamma: The discount, in [0, 1].
        intermediate_reward: The score of the steps before the last, a finite number.

    Raises:
        InvalidArgumentError: `gamma` is outside [0, 1].
    """

    state_names = ("gamma",)
    tunable = ("gamma",)
    gamma = Checked(check_number, low=0, high=1)

    def __init__(self, gamma: float = 0.99, intermediate_reward: float = 0.0) -> None:
        super().__init__(intermediate_reward=intermediate_reward)
        self.gamma = gamma

    def compute_step_rewards(self) -> list[float]:
        """Return the final score, discounted from the last step back to the first."""
        if not self._trajectory:
            return []
        final, steps = self._final_score(), len(self._trajectory)
        return [final * self.gamma ** (steps - 1 - t) for t in range(steps)]


def _scored_once(score: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Remember the score of a rubric's own trajectory until the next step."""

    def own(self: TrajectoryRubric, trajectory: Any) -> bool:
        mine = self._trajectory
        return trajectory is mine or (
            len(trajectory) == len(mine) and all(map(operator.is_, trajectory, mine))
        )

    name = score.__qualname__  # a function could not be pickled
    if is_async_callable(score):

        @functools.wraps(score)
        async def score_async(self: TrajectoryRubric, trajectory: Any) -> Any:
            if not own(self, trajectory):
                return await score(self, trajectory)
            final = self._final
            if name not in final:
                final[name] = await score(self, trajectory)
            return final[name]

        return score_async

    @functools.wraps(score)
    def score_once(self: TrajectoryRubric, trajectory: Any) -> Any:
        if not own(self, trajectory):
            return score(self, trajectory)
        final = self._final
        if name not in final:
            final[name] = score(self, trajectory)
        return final[name]

    return score_once


def _refuse_gpu(value: Any, where: str, depth: int) -> None:
    """Reject a tensor on an accelerator: those of an episode would fill its memory."""
    if depth == 0 or value is None or isinstance(value, (str, bytes, int, float, type)):
        return
    device = getattr(value, "device", None)
    kind = getattr(device, "type", device)
    is_on_gpu = isinstance(kind, str) and kind.split(":")[0] in GPUS
    if is_on_gpu or getattr(value, "is_cuda", False) is True:
        raise TrajectoryError(
            f"{where} is a tensor on {device or 'a GPU'}, where a trajectory would keep it for the "
            "whole episode; move it first: tensor.detach().cpu()"
        )
    if isinstance(value, Mapping):
        parts = [(f"{where}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{where}[{index}]", item) for index, item in enumerate(value[:64])]
    else:
        attributes = getattr(value, "__dict__", {})
        parts = [(f"{where}.{name}", item) for name, item in attributes.items()]
    for place, item in parts:
        _refuse_gpu(item, place, depth - 1)
