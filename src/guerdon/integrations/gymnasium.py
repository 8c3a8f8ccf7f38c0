"""Gymnasium: environments of guerdon as Gymnasium's, one or many at once, and the reverse."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias, Unpack

import numpy as np
from pydantic import Field, create_model

from guerdon._background import run
from guerdon.envs.environment import Environment
from guerdon.envs.pool.pool import EnvPool
from guerdon.envs.runner import reset_arguments
from guerdon.errors import EnvError, EpisodeError, InvalidActionError
from guerdon.integrations.spaces import SpaceOptions, spaces_of
from guerdon.integrations.stepping import LocalEnvironment, MakeEnv, OnInvalid, ends, reward_of
from guerdon.rubrics.function import as_rubric
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import State

# isort: split
# After `spaces`, whose error names what to install.
import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

__all__ = ["GymnasiumEnv", "GymnasiumObservation", "GymnasiumVectorEnv", "from_gymnasium"]

SEEDS = 2**31

Info: TypeAlias = dict[str, Any]


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """An environment of guerdon as a `gymnasium.Env`.

    `info` is the observation's metadata, with the reward's components. An exception of the
    environment, such as that of an illegal action, is raised unchanged.

    Example:
        >>> from examples.connect4.environment import Connect4Environment
        >>> from gymnasium import spaces
        >>> from guerdon.integrations.gymnasium import GymnasiumEnv
        >>> game = GymnasiumEnv(
        ...     Connect4Environment,
        ...     observation_space=spaces.Text(42, charset="XO."),
        ...     to_observation=lambda observation: "".join(observation.board),
        ... )
        >>> game.action_space
        Discrete(7)
        >>> board, info = game.reset(seed=5)
        >>> board, reward, terminated, truncated, info = game.step(3)
        >>> board.count("X"), reward, terminated, info["reward_components"]
        (1, 0.0, False, {})

    Args:
        env: An environment class, or a function that returns an environment.
        on_invalid: What a failed reward does: ``"raise"``, or a number, which then is the reward of
            a step that truncates its episode; `info` has the reason.
        render_mode: ``"ansi"``: `render` returns the text of the last observation.
        **options: See `SpaceOptions`.

    Raises:
        InvalidArgumentError: A field has no space, or a space was given without its function.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        env: MakeEnv,
        *,
        on_invalid: OnInvalid = "raise",
        render_mode: str | None = None,
        **options: Unpack[SpaceOptions],
    ) -> None:
        self._local = LocalEnvironment(env)
        self._actions, self._seen = spaces_of(self._local.environment, options)
        self.action_space, self.observation_space = self._actions.space, self._seen.space
        self.on_invalid, self.render_mode = on_invalid, render_mode

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Begin an episode.

        Args:
            seed: The seed; without one, the next of those that the last seed determines.
            options: Arguments of the environment's `reset`; it gets those that it accepts.
        """
        super().reset(seed=seed)
        seed = int(self.np_random.integers(SEEDS)) if seed is None else seed
        first = self._local.reset(seed, options)
        return self._seen.to_element(first), dict(first.metadata)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Take a step.

        Raises:
            EnvError: The reward failed, with ``on_invalid="raise"``.
        """
        observation = self._local.step(self._actions.to_fields(action))
        reward = reward_of(observation.reward, self.on_invalid, observation, of="the step")
        element = self._seen.to_element(observation)
        ending = ends(observation, failed=observation.reward is None)
        return element, reward, *ending, dict(observation.metadata)

    def render(self) -> str | None:
        """Return the text of the last observation, in the mode ``"ansi"``."""
        return self._local.render(self.render_mode)

    def close(self) -> None:
        """Close the environment."""
        self._local.close()


class GymnasiumVectorEnv(VectorEnv[Any, Any, Any]):
    """An `EnvPool` as a `gymnasium.vector.VectorEnv`.

    Its autoreset mode is ``NEXT_STEP``: the step after an episode's end ignores the action, begins
    the next episode, and has the reward 0 and no end, as in Gymnasium's own vector environments.
    Each key of the metadata is an array of objects in `infos`, beside a mask ``_key``.

    Example:
        >>> from examples.connect4.environment import Connect4Environment
        >>> from gymnasium import spaces
        >>> from guerdon.integrations.gymnasium import GymnasiumVectorEnv
        >>> games = GymnasiumVectorEnv(
        ...     Connect4Environment,
        ...     num_envs=3,
        ...     observation_space=spaces.Text(42, charset="XO."),
        ...     to_observation=lambda observation: "".join(observation.board),
        ... )
        >>> boards, infos = games.reset(seed=5)
        >>> boards, rewards, terminated, truncated, infos = games.step([3, 3, 2])
        >>> games.close()
        >>> rewards
        array([0., 0., 0.])

    Args:
        env: An environment class, or a function that returns an environment.
        num_envs: The number of environments, at least 1.
        pool: A pool that wasn't opened, such as that of a server: ``EnvPool("http://…", n=64)``.
            By default one of `env` in threads. It is closed with this environment.
        on_invalid: What a failed reward does, or an environment that raised: ``"raise"``, or a
            number. The observation of an environment that raised is its previous one.
        **options: See `SpaceOptions`.

    Raises:
        InvalidArgumentError: As for `GymnasiumEnv`.
    """

    def __init__(
        self,
        env: MakeEnv,
        num_envs: int = 1,
        *,
        pool: EnvPool | None = None,
        on_invalid: OnInvalid = "raise",
        **options: Unpack[SpaceOptions],
    ) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._described = env if isinstance(env, type) else LocalEnvironment(env).close()
        self._actions, self._seen = both = spaces_of(self._described, options)
        self._pool = EnvPool(env, num_envs) if pool is None else pool
        self.num_envs, self.on_invalid = self._pool.n, on_invalid
        self.single_action_space, self.single_observation_space = [each.space for each in both]
        self.action_space = batch_space(self._actions.space, self.num_envs)
        self.observation_space = batch_space(self._seen.space, self.num_envs)
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        run(self._pool.__aenter__())

    def reset(self, *, seed: Any = None, options: Info | None = None) -> tuple[Any, Info]:
        """Begin an episode in each environment.

        Args:
            seed: One for each; an int ``s`` means ``s, s + 1, …``. The first determines the seeds
                of the episodes that follow.
            options: Arguments of the environments' `reset`, which get those that they accept.

        Raises:
            EnvError: An environment failed.
        """
        given_seeds = [seed] if isinstance(seed, int) else seed or []
        super().reset(seed=next((each for each in given_seeds if each is not None), None))
        given = None
        if options is not None:
            given = [reset_arguments(self._described, options)] * self.num_envs
        self._last = run(self._begin(range(self.num_envs), seed, given))
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        return self._seen.to_batch(self._last), self._infos(self._last)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Take a step in each environment; those whose episode has ended begin another.

        Raises:
            EnvError: A reward failed or an environment raised, with ``on_invalid="raise"``, or an
                environment failed in its reset.
        """
        observations = run(self._stepped(actions))
        rewards = np.array([each.reward for each in observations], dtype=np.float64)
        failed = np.isnan(rewards) & ~self._over
        rewards[self._over] = 0.0
        ended = np.array([ends(each, failed=False) for each in observations], dtype=np.bool_)
        for slot in np.flatnonzero(failed):
            failure = observations[slot]
            ended[slot] = ends(failure, failed=True)
            if "error" in failure.metadata:  # it has no fields
                update = {"metadata": failure.metadata}
                observations[slot] = self._last[slot].model_copy(update=update)
        self._over, self._last = ended[:, 0] | ended[:, 1], observations
        rewards[failed] = [
            reward_of(None, self.on_invalid, observations[slot], of=f"environment {slot}")
            for slot in np.flatnonzero(failed)
        ]
        infos = self._infos(observations)
        return self._seen.to_batch(observations), rewards, ended[:, 0], ended[:, 1], infos

    async def _stepped(self, actions: Any) -> list[Any]:
        """Step the environments whose episode runs, and reset the others at the same time."""
        pairs = zip(self._over.tolist(), iterate(self.action_space, actions), strict=True)
        given = [None if is_over else self._actions.to_fields(each) for is_over, each in pairs]
        if not self._over.any():
            return list(await self._pool.step_batch(given))
        slots = np.flatnonzero(self._over).tolist()
        stepped, begun = await asyncio.gather(self._pool.step_batch(given), self._begin(slots))
        firsts = iter(begun)
        return [next(firsts) if each is None else each for each in stepped]

    async def _begin(self, slots: Sequence[int], seeds: Any = None, options: Any = None) -> Any:
        """Reset environments, with seeds that the last seed determines unless some are given."""
        if seeds is None:
            seeds = self.np_random.integers(SEEDS, size=len(slots)).tolist()
        observations = await self._pool.reset_batch(seeds, slots, options=options)
        for slot, each in zip(slots, observations, strict=True):
            if "error" in each.metadata:
                raise EnvError(f"the reset of environment {slot} failed: {each.metadata['error']}")
        return observations

    def _infos(self, observations: list[Any]) -> Info:
        given = [each.metadata for each in observations]
        infos: Info = {}
        for key in dict.fromkeys(key for metadata in given for key in metadata):
            infos[key] = np.fromiter((each.get(key) for each in given), dtype=object)
            infos[f"_{key}"] = np.array([key in metadata for metadata in given])
        return infos

    def close_extras(self, **kwargs: Any) -> None:
        """Close the pool."""
        run(self._pool.close())


# Gymnasium's environments as environments of guerdon -------------------------------------------


class GymnasiumObservation(Observation):
    """An observation of an environment of Gymnasium.

    Example:
        >>> from guerdon.integrations.gymnasium import GymnasiumObservation
        >>> GymnasiumObservation(content=[0.1, 0.2], points=1.0).element is None
        True

    Attributes:
        content: What `to_content` returned for it.
        points: The reward of the environment itself; 0 after a reset.
        truncated: Whether the episode ended for another reason than its own.
        element: The element of the environment's space, for rubrics; clients don't receive it.
        info: What the environment returned beside it, likewise.
    """

    content: Any = None
    points: float = 0.0
    truncated: bool = False

    element: Any = Field(default=None, exclude=True)
    info: dict[str, Any] = Field(default_factory=dict, exclude=True)


def from_gymnasium(
    id: str, rubric: Any, *, to_content: Callable[[Any], Any] | None = None, **make: Any
) -> type[Environment[Any, GymnasiumObservation, State]]:
    """Return an environment class that plays one of Gymnasium's environments, scored by a rubric.

    Its action has one field, `action`; options of a reset are passed on.

    Example:
        >>> from guerdon.integrations.gymnasium import from_gymnasium
        >>> def upright(action, observation):
        ...     '''The pole is upright.'''
        ...     return 1.0 - abs(observation.element[2])
        >>> CartPole = from_gymnasium("CartPole-v1", upright)
        >>> with CartPole() as environment:
        ...     first = environment.reset(seed=1)
        ...     observation = environment.step(CartPole.action_type(action=1))
        >>> len(observation.content), observation.points, round(observation.reward, 2)
        (4, 1.0, 0.97)

    Args:
        id: The ID, as for `gymnasium.make`. An ID may name a module to import: it must not come
            from the network.
        rubric: A rubric, of which each environment gets a copy, or a function.
        to_content: Turns an element of the observation space into JSON; by default lists of
            numbers, which are large for images.
        **make: Further arguments of `gymnasium.make`.

    Raises:
        gymnasium.error.Error: There is no such environment.
    """
    prototype = as_rubric(rubric)
    with gymnasium.make(id, **make) as sample:
        space, seen = sample.action_space, sample.observation_space
    name = id.title().replace("/", "").replace("-", "")

    def observed(element: Any, info: Any, **fields: Any) -> GymnasiumObservation:
        content = to_content(element) if to_content else seen.to_jsonable([element])[0]
        return GymnasiumObservation(content=content, element=element, info=info, **fields)

    action_type = create_model(f"{name}Action", __base__=Action, action=_annotation(space))

    class Played(Environment[action_type, GymnasiumObservation, State]):  # type: ignore[valid-type]
        def __init__(self) -> None:
            super().__init__(rubric=copy.deepcopy(prototype))
            self._env = gymnasium.make(id, disable_env_checker=True, **make)
            self._state = State()
            self._is_running = False

        def reset(self, seed: Any = None, episode_id: Any = None, **options: Any) -> Any:
            self._reset_rubric()
            self._is_running = False
            first = observed(*self._env.reset(seed=seed, options=options or None))
            self._is_running = True
            self._state = State(episode_id=episode_id)
            return first

        def step(self, action: Any, timeout_s: Any = None, **kwargs: Any) -> Any:
            if not self._is_running:
                raise EpisodeError("no episode is running; call reset() to begin one")
            element = space.from_jsonable([action.action])[0]
            if element not in space:
                raise InvalidActionError(f"`action` must be in {space}, got {action.action!r:.60}")
            element, points, terminated, truncated, info = self._env.step(element)
            self._is_running = not (terminated or truncated)
            self._state.step_count += 1
            ending = {"done": not self._is_running, "truncated": bool(truncated and not terminated)}
            return self.score(action, observed(element, info, points=float(points), **ending))

        @property
        def state(self) -> State:
            return self._state

        def close(self) -> None:
            self._env.close()

    Played.__name__ = Played.__qualname__ = name
    Played.__doc__ = f"Gymnasium's {id}."
    return Played


def _annotation(space: Any) -> Any:
    """The type of a space's actions in JSON."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Annotated[int, Field(ge=start, lt=start + int(space.n))]
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        number = Annotated[float, Field(ge=float(space.low.min()), le=float(space.high.max()))]
        length = space.shape[0]
        return Annotated[list[number], Field(min_length=length, max_length=length)]
    return Any
