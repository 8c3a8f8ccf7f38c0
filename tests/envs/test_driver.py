"""Driver: calls one environment, hands it what it takes, and checks what it gives."""

import asyncio
import sys

import pytest

from guerdon import Environment, Rubric, State
from guerdon.envs.driver import Driver, make
from guerdon.errors import EnvDefinitionError, EnvError, EpisodeError, InvalidObservationError
from tests.envs.worlds import AsyncHalf, Board, Down, Half, Move, World, unsigned


def reset(driver, *arguments):
    """Begin an episode, whichever way the environment is written."""
    if driver.reset_is_async:
        return asyncio.run(driver.reset_async(*arguments))
    return driver.reset(*arguments)


def step(driver, *arguments):
    if driver.step_is_async:
        return asyncio.run(driver.step_async(*arguments))
    return driver.step(*arguments)


def told(driver):
    """What reaches an environment that is told more than it may take."""
    return (
        reset(driver, 3, "e", {"task": 1, "level": 2}).metadata,
        step(driver, Move(), 7.0, {"hint": 1, "level": 2}).metadata,
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
def test_an_environment_that_takes_any_argument_gets_all(kind):
    assert told(Driver(kind())) == (
        {"seed": 3, "episode_id": "e", "task": 1, "level": 2},
        {"timeout_s": 7.0, "hint": 1, "level": 2},
    )


@pytest.mark.parametrize("kind", [TakesNothing, TakesNothingAsync])
def test_an_environment_that_takes_nothing_gets_nothing(kind):
    assert told(Driver(kind())) == ({}, {})


def test_an_environment_that_takes_some_gets_those():
    assert told(Driver(TakesSome())) == ({"seed": 3, "task": 1}, {"hint": 1})


@pytest.mark.parametrize("kind", [TakesAll, TakesAllAsync])
def test_further_arguments_never_take_the_place_of_what_the_caller_said(kind):
    driver = Driver(kind())
    assert reset(driver, 3, None, {"seed": 9, "episode_id": "mine"}).metadata["seed"] == 3
    metadata = step(driver, Move(), 7.0, {"timeout_s": 9, "action": "mine"}).metadata
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
def test_the_driver_knows_what_the_author_wrote(kind, is_async):
    driver = Driver(kind())
    assert (driver.reset_is_async, driver.step_is_async) == is_async


def test_where_both_twins_are_written_the_async_one_plays():
    class Both(World):
        async def step_async(self, action, timeout_s=None, **kwargs):
            return Board(metadata={"twin": "async"})

    assert step(Driver(Both()), Move()).metadata == {"twin": "async"}


# What comes back is checked -------------------------------------------------------------------


@pytest.mark.parametrize("thing", [None, {"done": True}, 0.5, (Board(), 1.0, True, {}), State()])
@pytest.mark.parametrize("method", ["reset", "step", "reset_async", "step_async"])
def test_what_is_no_observation_is_refused_by_the_methods_name(thing, method):
    def gives(self, *args, **kwargs):
        return thing

    async def gives_async(self, *args, **kwargs):
        return thing

    kind = type("Wrong", (World,), {method: gives_async if method.endswith("_async") else gives})
    driver = Driver(kind())
    said = rf"Wrong\.{method} gave .*\({type(thing).__name__}\); it gives an Observation"
    with pytest.raises(InvalidObservationError, match=said):
        ask(driver, method)


@pytest.mark.parametrize("scored", [False, True])
def test_what_is_no_observation_is_refused_also_where_the_rubric_was_called(scored):
    class Wrong(World):
        def step(self, action, timeout_s=None, **kwargs):
            return self.rubric(action, Board()) if scored else self.score(action, Board()).reward

    with pytest.raises(InvalidObservationError, match=r"Wrong\.step gave 1\.0 \(float\)"):
        Driver(Wrong()).step(Move())


@pytest.mark.parametrize("thing", [None, {"step_count": 1}, Board()])
def test_what_is_no_state_is_refused(thing):
    class Wrong(World):
        state = thing

    with pytest.raises(InvalidObservationError, match=r"Wrong\.state gave .*; it gives a State"):
        Driver(Wrong()).state()


def test_a_state_is_given_as_it_is():
    driver = Driver(World())
    driver.reset(None, "e")
    driver.step(Move())
    assert (driver.state().episode_id, driver.state().step_count) == ("e", 1)


# What is raised -------------------------------------------------------------------------------

METHODS = ["reset", "step", "reset_async", "step_async", "state", "close"]


def raising(method, error):
    """A driver of an environment of which one method raises."""

    def raises(self, *args, **kwargs):
        raise error

    async def raises_async(self, *args, **kwargs):
        raise error

    made = {
        "state": property(raises),
        "reset_async": raises_async,
        "step_async": raises_async,
    }
    return Driver(type("Raises", (World,), {method: made.get(method, raises)})())


def ask(driver, method):
    if method.startswith("reset"):
        return reset(driver, None, None)
    if method.startswith("step"):
        return step(driver, Move())
    return getattr(driver, method)()


@pytest.mark.parametrize("method", METHODS)
def test_what_an_environment_raises_is_raised_as_it_is(method):
    error = OSError("the game is down")
    with pytest.raises(OSError, match="the game is down") as caught:
        ask(raising(method, error), method)
    assert caught.value is error


@pytest.mark.parametrize("method", METHODS)
def test_sys_exit_ends_no_process(method):
    with pytest.raises(EnvError, match=rf"Raises\.{method} called sys\.exit\(3\)") as caught:
        ask(raising(method, SystemExit(3)), method)
    assert isinstance(caught.value.exception, SystemExit)


def test_an_environments_own_failure_is_never_taken_for_the_rubrics():
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
        Driver(Later()).step(Move())
    with pytest.raises(EpisodeError, match="no more"):
        Driver(Instead(Down())).step(Move())
    with pytest.raises(ValueError, match="value"):
        Driver(Converted()).step(Move())


def test_a_failed_rubric_of_another_environment_is_that_environments_affair():
    """An environment that steps another inside its own step."""

    class Inner(World):
        def step(self, action, timeout_s=None, **kwargs):
            board = Board()
            return board.with_reward(self.rubric(action, board))

    class Outer(World):
        def step(self, action, timeout_s=None, **kwargs):
            return Inner(Down()).step(action)

    with pytest.raises(OSError, match="the judge is down"):
        Driver(Outer(Half())).step(Move())


def test_a_step_records_nothing_into_the_next():
    class Alternates(World):
        """Scores every other step."""

        def step(self, action, timeout_s=None, **kwargs):
            self.episode.step_count += 1
            board = Board()
            if self.episode.step_count % 2:
                board.reward = self.rubric(action, board)
            return board

    driver = Driver(Alternates())
    assert [unsigned(driver.step(Move()).metadata) for _ in range(3)] == [
        {"reward_components": {}},
        {},
        {"reward_components": {}},
    ]


def test_steps_of_many_tasks_in_one_loop_never_see_each_others_components():
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
        drivers = [Driver(Waits(_named(place))) for place in range(8)]
        async with asyncio.timeout(5):
            return await asyncio.gather(
                *(driver.step_async(Move(value=place)) for place, driver in enumerate(drivers))
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


def test_make_gives_the_driver_of_what_the_factory_makes():
    assert type(make(World).environment) is World


@pytest.mark.parametrize("thing", [None, Board(), World, "world"])
def test_a_factory_that_makes_no_environment_is_told(thing):
    with pytest.raises(EnvDefinitionError, match=r"the factory gave .*; it gives an Environment"):
        make(lambda: thing)


def test_what_a_constructor_raises_is_raised_and_sys_exit_is_no_end():
    def fails():
        raise OSError("no display")

    with pytest.raises(OSError, match="no display"):
        make(fails)
    with pytest.raises(EnvError, match=r"making the environment called sys\.exit\('bye'\)"):
        make(lambda: sys.exit("bye"))


def test_a_missing_rubric_is_told_when_the_environment_is_made():
    class Forgot(World):
        def __init__(self):
            Environment.__init__(self)

    with pytest.raises(EnvDefinitionError, match="Forgot has no rubric"):
        make(Forgot)
