"""EnvAdapter: passes an environment the arguments that it accepts, and checks its results."""

import asyncio
import re

import pytest

from guerdon import Environment, Rubric, State
from guerdon.envs import reset_arguments
from guerdon.envs.runner import EnvAdapter
from guerdon.errors import (
    EnvDefinitionError,
    EpisodeError,
    InvalidArgumentError,
    InvalidObservationError,
)
from tests.envs.worlds import AsyncHalf, Board, Down, Half, Move, World, unsigned


async def awaited(awaitable):
    return await awaitable


def reset(adapter, *arguments):
    """Begin an episode, whichever way the environment is written."""
    result = adapter.reset(*arguments)
    return asyncio.run(awaited(result)) if adapter.reset_is_async else result


def step(adapter, *arguments):
    result = adapter.step(*arguments)
    return asyncio.run(awaited(result)) if adapter.step_is_async else result


def received(adapter):
    """Return the arguments that reach an environment, of more than it accepts."""
    extra = reset_arguments(adapter.environment, {"task": 1, "level": 2})
    return (
        reset(adapter, 3, "e", extra).metadata,
        step(adapter, Move(), 7.0, {"hint": 1, "level": 2}).metadata,
    )


# Arguments go where the signature takes them --------------------------------------------------


class Echoes(Environment[Move, Board, State]):
    state = State()

    def __init__(self):
        super().__init__(rubric=Half())


class TakesAll(Echoes):
    def reset(self, seed=None, episode_id=None, **kwargs):
        return Board(metadata={"seed": seed, "episode_id": episode_id, **kwargs})

    def step(self, action, timeout_s=None, **kwargs):
        return Board(metadata={"timeout_s": timeout_s, **kwargs})


class TakesAllAsync(Echoes):
    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        return Board(metadata={"seed": seed, "episode_id": episode_id, **kwargs})

    async def step_async(self, action, timeout_s=None, **kwargs):
        return Board(metadata={"timeout_s": timeout_s, **kwargs})


class TakesNothing(Echoes):
    def reset(self):
        return Board()

    def step(self, action):
        return Board()


class TakesNothingAsync(Echoes):
    async def reset_async(self):
        return Board()

    async def step_async(self, action):
        return Board()


class TakesSome(Echoes):
    def reset(self, *, task, seed=0):
        return Board(metadata={"seed": seed, "task": task})

    def step(self, action, hint=None):
        return Board(metadata={"hint": hint})


@pytest.mark.parametrize("kind", [TakesAll, TakesAllAsync])
def test_env_adapter_an_environment_that_takes_any_argument_gets_all(kind):
    assert received(EnvAdapter(kind())) == (
        {"seed": 3, "episode_id": "e", "task": 1, "level": 2},
        {"timeout_s": 7.0, "hint": 1, "level": 2},
    )


@pytest.mark.parametrize("kind", [TakesNothing, TakesNothingAsync])
def test_env_adapter_an_environment_that_takes_nothing_gets_nothing(kind):
    assert received(EnvAdapter(kind())) == ({}, {})


def test_env_adapter_an_environment_that_takes_some_gets_those():
    assert received(EnvAdapter(TakesSome())) == ({"seed": 3, "task": 1}, {"hint": 1})


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (TakesSome, "tsk", "did you mean 'task'?"),
        (TakesSome, "sed", "did you mean 'seed'?"),
        (TakesNothing, "level", "known: "),
        (TakesNothingAsync, "level", "known: "),
    ],
)
def test_env_adapter_refuses_a_reset_argument_that_the_environment_does_not_accept(
    kind, name, hint
):
    with pytest.raises(InvalidArgumentError, match=f"reset takes no '{name}'; {re.escape(hint)}"):
        reset(EnvAdapter(kind()), 3, "e", {name: 1})


@pytest.mark.parametrize("kind", [TakesAll, TakesAllAsync])
def test_env_adapter_further_arguments_never_take_the_place_of_what_the_caller_passed(kind):
    adapter = EnvAdapter(kind())
    assert reset(adapter, 3, None, {"seed": 9, "episode_id": "mine"}).metadata["seed"] == 3
    metadata = step(adapter, Move(), 7.0, {"timeout_s": 9, "action": "mine"}).metadata
    assert metadata == {"timeout_s": 7.0}


# How an environment is written ----------------------------------------------------------------


class Mixed(World):
    """Only its steps are async."""

    step = Environment.step

    async def step_async(self, action, timeout_s=None, **kwargs):
        await asyncio.sleep(0)
        return await self.score_async(action, Board())


@pytest.mark.parametrize(
    ("kind", "is_async"),
    [
        (TakesAll, (False, False)),
        (TakesAllAsync, (True, True)),
        (Mixed, (False, True)),
        (World, (False, False)),
    ],
)
def test_env_adapter_the_driver_knows_what_the_author_wrote(kind, is_async):
    adapter = EnvAdapter(kind())
    assert (adapter.reset_is_async, adapter.step_is_async) == is_async


def test_env_adapter_where_both_twins_are_written_the_async_one_plays():
    class Both(World):
        async def step_async(self, action, timeout_s=None, **kwargs):
            return Board(metadata={"twin": "async"})

    assert step(EnvAdapter(Both()), Move()).metadata == {"twin": "async"}


# What comes back is checked -------------------------------------------------------------------


@pytest.mark.parametrize("thing", [None, {"done": True}, 0.5, (Board(), 1.0, True, {}), State()])
@pytest.mark.parametrize("method", ["reset", "step", "reset_async", "step_async"])
def test_env_adapter_rejects_what_is_not_an_observation_with_the_methods_name(thing, method):
    def gives(self, *args, **kwargs):
        return thing

    async def gives_async(self, *args, **kwargs):
        return thing

    kind = type("Wrong", (World,), {method: gives_async if method.endswith("_async") else gives})
    adapter = EnvAdapter(kind())
    problem = rf"Wrong\.{method} must return an Observation, got .*\({type(thing).__name__}\)"
    with pytest.raises(InvalidObservationError, match=problem):
        ask(adapter, method)


@pytest.mark.parametrize("scored", [False, True])
def test_env_adapter_rejects_what_is_not_an_observation_after_the_rubric_was_called(scored):
    class Wrong(World):
        def step(self, action, timeout_s=None, **kwargs):
            return self.rubric(action, Board()) if scored else self.score(action, Board()).reward

    with pytest.raises(
        InvalidObservationError, match=r"Wrong\.step must return an Observation, got 1\.0 \(float\)"
    ):
        EnvAdapter(Wrong()).step(Move())


@pytest.mark.parametrize("thing", [None, {"step_count": 1}, Board()])
def test_env_adapter_rejects_what_is_not_a_state(thing):
    class Wrong(World):
        state = thing

    with pytest.raises(InvalidObservationError, match=r"Wrong\.state must return a State"):
        EnvAdapter(Wrong()).state()


def test_env_adapter_a_state_is_returned_unchanged():
    adapter = EnvAdapter(World())
    adapter.reset(None, "e")
    adapter.step(Move())
    assert (adapter.state().episode_id, adapter.state().step_count) == ("e", 1)


# What is raised -------------------------------------------------------------------------------

METHODS = ["reset", "step", "reset_async", "step_async", "state", "close"]


def raising(method, error):
    """A adapter of an environment of which one method raises."""

    def raises(self, *args, **kwargs):
        raise error

    async def raises_async(self, *args, **kwargs):
        raise error

    made = {
        "state": property(raises),
        "reset_async": raises_async,
        "step_async": raises_async,
    }
    return EnvAdapter(type("Raises", (World,), {method: made.get(method, raises)})())


def ask(adapter, method):
    if method.startswith("reset"):
        return reset(adapter, None, None)
    if method.startswith("step"):
        return step(adapter, Move())
    return getattr(adapter, method)()


@pytest.mark.parametrize("method", METHODS)
def test_env_adapter_what_an_environment_raises_is_raised_unchanged(method):
    error = OSError("the game is down")
    with pytest.raises(OSError, match="the game is down") as caught:
        ask(raising(method, error), method)
    assert caught.value is error


def test_env_adapter_distinguishes_failures_of_environment_and_rubric():
    class Later(World):
        """Its rubric scored; what failed came afterwards."""

        def step(self, action, timeout_s=None, **kwargs):
            board = Board()
            board.reward = self.rubric(action, board)
            raise OSError("the game is down")

    class Instead(World):
        """Its rubric failed; what it raises is its own."""

        def step(self, action, timeout_s=None, **kwargs):
            try:
                self.rubric(action, Board())
            except OSError as error:
                raise EpisodeError("no more") from error

    class Converted(World):
        def step(self, action, timeout_s=None, **kwargs):
            board = Board()
            board.value = "no number"
            return self.score(action, board)

    with pytest.raises(OSError, match="the game is down"):
        EnvAdapter(Later()).step(Move())
    with pytest.raises(EpisodeError, match="no more"):
        EnvAdapter(Instead(Down())).step(Move())
    with pytest.raises(ValueError, match="value"):
        EnvAdapter(Converted()).step(Move())


def test_env_adapter_a_failed_rubric_of_another_environment_is_that_environments_affair():
    """An environment that steps another inside its own step."""

    class Inner(World):
        def step(self, action, timeout_s=None, **kwargs):
            board = Board()
            return board.with_reward(self.rubric(action, board))

    class Outer(World):
        def step(self, action, timeout_s=None, **kwargs):
            return Inner(Down()).step(action)

    with pytest.raises(OSError, match="the judge is down"):
        EnvAdapter(Outer(Half())).step(Move())


def test_env_adapter_a_step_records_nothing_into_the_next():
    class Alternates(World):
        """Scores every other step."""

        def step(self, action, timeout_s=None, **kwargs):
            self.episode.step_count += 1
            board = Board()
            if self.episode.step_count % 2:
                board.reward = self.rubric(action, board)
            return board

    adapter = EnvAdapter(Alternates())
    assert [unsigned(adapter.step(Move()).metadata) for _ in range(3)] == [
        {"reward_components": {}},
        {},
        {"reward_components": {}},
    ]


def test_env_adapter_steps_of_many_tasks_in_one_loop_never_see_each_others_components():
    class Waits(World):
        step = Environment.step

        async def step_async(self, action, timeout_s=None, **kwargs):
            board = Board()
            board.reward = await self._apply_rubric_async(action, board) + action.value
            await here.wait()  # all are in the middle of their step
            return board

    async def main():
        global here
        here = asyncio.Barrier(8)
        adapters = [EnvAdapter(Waits(_named(place))) for place in range(8)]
        async with asyncio.timeout(5):
            return await asyncio.gather(
                *(adapter.step(Move(value=place)) for place, adapter in enumerate(adapters))
            )

    for place, board in enumerate(asyncio.run(main())):
        assert board.reward == place + 0.5
        assert unsigned(board.metadata) == {"reward_components": {f"child_{place}": 0.5}}


def _named(place):
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            setattr(self, f"child_{place}", AsyncHalf())

        async def forward(self, action, observation):
            return await getattr(self, f"child_{place}")(action, observation)

    return Parent()


# Making one -----------------------------------------------------------------------------------


def test_env_adapter_contains_the_environment():
    environment = World()
    assert EnvAdapter(environment).environment is environment


@pytest.mark.parametrize("thing", [None, Board(), World, "world"])
def test_env_adapter_refuses_what_is_not_an_environment(thing):
    with pytest.raises(EnvDefinitionError, match="the factory must return an Environment"):
        EnvAdapter(thing)


def test_env_adapter_a_missing_rubric_is_reported_when_the_environment_is_made():
    class Forgot(World):
        def __init__(self):
            Environment.__init__(self)

    with pytest.raises(EnvDefinitionError, match="Forgot has no rubric"):
        EnvAdapter(Forgot())


# Arguments for reset, from a row


class Task(Echoes):
    def reset(self, seed=None, *, task=0):
        return Board()


class AsyncTask(Echoes):
    async def reset_async(self, task, **kwargs):
        return Board()


class Foreign:
    def reset(self, level):
        """Not one of guerdon's environments."""


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        (Task, ["seed", "task"]),
        (AsyncTask, ["level", "prompt", "seed", "task"]),
        (Foreign, ["level"]),
        (Foreign(), ["level"]),
    ],
)
def test_reset_arguments_returns_those_that_reset_accepts(environment, names):
    row = {"prompt": "?", "task": 2, "seed": 3, "level": 1, "self": 4}
    assert reset_arguments(environment, row) == {name: row[name] for name in row if name in names}
