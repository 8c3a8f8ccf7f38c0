"""`WorldEnvironment`: a world that any policy plays, in process or served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guerdon._validation import check_choice
from guerdon.arena.chance import derive, uniform
from guerdon.arena.model import Model
from guerdon.arena.world import World
from guerdon.envs.environment import Environment
from guerdon.errors import EpisodeError, InvalidActionError
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import State

__all__ = ["WorldAction", "WorldEnvironment", "WorldObservation"]


class WorldAction(Action):
    """An action of a world.

    Attributes:
        action: Its name.
    """

    action: str


class WorldObservation(Observation):
    """What a policy sees of a world.

    Attributes:
        state: The number of the state.
        text: The state as text, and the names of the actions.
        events: What the last step led to; the rubric reads it.
    """

    state: int
    text: str
    events: Sequence[str] = ()


class WorldEnvironment(Environment[WorldAction, WorldObservation, State]):
    """A world as an environment, whose reward is the world's rubric.

    Its luck is a function of the seed, so that an episode with the same seed and actions is the
    same as in the tables of the `Model`.

    Example:
        >>> from guerdon.arena import Crossroads, WorldAction, WorldEnvironment
        >>> environment = WorldEnvironment(Crossroads())
        >>> print(environment.reset(seed=7).text)
        crossroads
        actions: left, right
        >>> environment.step(WorldAction(action="right")).state
        2
        >>> environment.step(WorldAction(action="left")).reward
        0.5

    Args:
        world: The world, or its model.

    Raises:
        InvalidArgumentError: The world is invalid.
    """

    def __init__(self, world: World | Model) -> None:
        self.model = world if isinstance(world, Model) else Model.of(world)
        self.world = self.model.world
        super().__init__(rubric=self.world.rubric())
        self._seed, self._at, self._step_count = 0, 0, -1
        self._episode_id: str | None = None

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> WorldObservation:
        """Begin an episode."""
        self._reset_rubric()
        self._seed = seed if seed is not None else derive(self._seed, 1)
        self._at, self._step_count, self._episode_id = 0, 0, episode_id
        return self._observation([], done=False)

    def step(
        self, action: WorldAction, timeout_s: float | None = None, **kwargs: Any
    ) -> WorldObservation:
        """Take an action.

        Raises:
            EpisodeError: No episode is running.
            InvalidActionError: The world has no such action.
        """
        if self._step_count < 0:
            raise EpisodeError("no episode is running; call reset")
        model, turn = self.model, self._step_count
        check_choice("action", action.action, tuple(self.world.actions), error=InvalidActionError)
        number = list(self.world.actions).index(action.action)
        draw = uniform(self._seed, 2 * turn + 1)
        place = int((draw >= model.cumulative[self._at, number]).sum())
        outcome = model.outcomes[self._at][number][place]
        self._at = int(model.next[self._at, number, place])
        self._step_count = turn + 1
        done = outcome.done or self._step_count == model.horizon
        observation = self._observation(list(outcome.events), done=done)
        if done:
            self._step_count = -1
        return self.score(action, observation)

    @property
    def state(self) -> State:
        """The state of the episode."""
        return State(episode_id=self._episode_id, step_count=max(self._step_count, 0))

    def _observation(self, events: list[str], *, done: bool) -> WorldObservation:
        text = self.world.describe(self.model.states[self._at])
        if self.world.stamped:
            text = f"time {self._seed}.{self._step_count}\n{text}"
        return WorldObservation(
            state=self._at,
            text=f"{text}\nactions: {', '.join(self.world.actions)}",
            events=events,
            done=done,
        )
