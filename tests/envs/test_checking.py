"""check_environment: each fault is found and what is healthy isn't accused."""

import asyncio
import copy
import random
import sys
import threading
import time
from itertools import count
from typing import Any

import pytest
from pydantic import Field, create_model, field_validator

from examples.coding_env.environment import CodingEnvironment
from examples.connect4.environment import Connect4Environment
from guerdon import (
    Action,
    Environment,
    ExponentialDiscountingTrajectoryRubric,
    Observation,
    Rubric,
    RubricDict,
    Sequential,
    State,
    ToolEnvironment,
    ToolErrors,
    WeightedSum,
    check_environment,
    tool,
)
from guerdon.envs import CheckLine, EnvironmentReport
from guerdon.errors import EnvError, EpisodeError, InvalidArgumentError
from tests.envs.worlds import AsyncDown, Board, Deed, Down, Half, Move, Value, World

MADE = "it can be made, with a rubric"
ACTIONS = "there are actions to try"
PLAYED = "an episode can be played"
REWARDED = "every step has a reward"
KEEPS = "steps keep the configuration of the reward"
RANGE = "rewards are in their declared range"
JSON = "observations survive JSON"
FORGETS = "a reset clears the old trajectory"
REPEATABLE = "seed 0 makes it repeatable"
APART = "two instances share nothing"
AFTER = "a step after the end is refused"
CLOSED = "it can be closed"
ALL = [MADE, ACTIONS, PLAYED, REWARDED, KEEPS, RANGE, JSON, FORGETS, REPEATABLE, APART, AFTER]

PATIENCE = 0.2  # seconds that a call may take which blocks for ever


class Ranged(Half):
    score_range = (0.0, 1.0)


class Three(World):
    """Ends with its third step, and has no fault."""

    rubric_of = Ranged

    def step(self, action, timeout_s=None, **kwargs):
        if self.episode.step_count >= 3:
            raise EpisodeError("the episode is over; reset begins one")
        self.episode.step_count += 1
        return self.score(action, self.observed(action))

    def observed(self, action):
        return Board(value=action.value, done=self.episode.step_count == 3)


def statuses(report):
    return {line.name: line.status for line in report.lines}


def only(report, name):
    """Return the detail of the only problem."""
    assert [line.name for line in report.problems] == [name], report.lines
    assert not report.ok
    return report.problems[0].detail


def detail_of(check, name):
    """Return the detail of a problem, from which others may follow."""
    return next(line.detail for line in check.problems if line.name == name)


# Healthy --------------------------------------------------------------------------------------


def test_check_environment_a_healthy_environment_has_every_check_ok_in_order():
    report = check_environment(Three)
    assert [(line.name, line.status) for line in report.lines] == [(name, "ok") for name in ALL]
    assert report.ok
    assert report.problems == []
    report.raise_for_problems()


class OnlyAsync(Environment[Move, Board, State]):
    """Neither reset nor step: only their async twins."""

    def __init__(self):
        super().__init__(rubric=Ranged())
        self.episode = State()

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        await asyncio.sleep(0)
        await self._reset_rubric_async()
        self.episode = State(episode_id=episode_id)
        return Board()

    async def step_async(self, action, timeout_s=None, **kwargs):
        await asyncio.sleep(0)
        if self.episode.step_count == 2:
            raise EpisodeError("the episode is over")
        self.episode.step_count += 1
        return await self.score_async(
            action, Board(value=action.value, done=self.episode.step_count == 2)
        )

    @property
    def state(self):
        return self.episode


class Seeded(Three):
    """Draws from its seed, at the reset and in each step."""

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.chance = random.Random(seed)
        super().reset(seed, episode_id)
        return Board(value=self.chance.random())

    def observed(self, action):
        return Board(value=self.chance.random(), done=self.episode.step_count == 3)


class ShowsItsId(Three):
    """Shows the id that it was given, or a new one if there is none."""

    made_up = count()

    def reset(self, seed=None, episode_id=None, **kwargs):
        super().reset(seed, episode_id or f"episode-{next(self.made_up)}")
        return Board(metadata={"episode": self.episode.episode_id})


class OwnId(Three):
    """Names each episode itself, in its state alone."""

    made_up = count()

    def reset(self, seed=None, **kwargs):
        return super().reset(seed, f"episode-{next(self.made_up)}")


class Slow(Three):
    def observed(self, action):
        time.sleep(0.001)  # what is slow, here
        return super().observed(action)


class Single(World):
    """Each step is an episode."""

    rubric_of = Ranged
    after_done = "each step is an episode of its own"

    def step(self, action, timeout_s=None, **kwargs):
        return self.score(action, Board(done=True))


class Fussy(Three):
    """Refuses what its schema doesn't say that it refuses, and stays as it was."""

    action_type = Deed

    def step(self, action, timeout_s=None, **kwargs):
        if action.do != "north":
            raise InvalidArgumentError("there is a wall")
        return super().step(action)


class Bare(World):
    """Takes neither seed nor keywords."""

    rubric_of = Ranged
    after_done = "the next step is like any other"

    def reset(self):
        self.episode = State()
        return Board()

    def step(self, action):
        return self.score(action, Board(done=True))


class ShowsMuch(Three):
    """Shows nothing, None, nested and unusual values, all of which JSON supports."""

    def observed(self, action):
        odd = {"none": None, "text": "ü\u2028\n", "list": [[], [{}], [1, 1.5, True]], "1": -0.0}
        return Board(metadata=odd, done=self.episode.step_count == 3)


class SharesWithin(Three):
    """One rubric at two places of one tree is no sharing between instances."""

    def rubric_of(self):
        half = Ranged()
        return WeightedSum([half, Sequential(half)], [0.5, 0.5])


class Credits(Three):
    """Has a trajectory rubric, and forgets it at each reset."""

    class rubric_of(ExponentialDiscountingTrajectoryRubric):
        def score_trajectory(self, trajectory):
            return float(len(trajectory))


class AsyncTree(Three):
    class rubric_of(Ranged):
        async def forward(self, action, observation):
            await asyncio.sleep(0)
            return 0.5


@pytest.mark.parametrize(
    "kind",
    [
        OnlyAsync, Seeded, ShowsItsId, OwnId, Slow, Single, Fussy, Bare, ShowsMuch, SharesWithin,
        Credits, AsyncTree, Connect4Environment, lambda: Connect4Environment(opponent=None),
        lambda: Connect4Environment(agent_first=False), lambda: Three(),
    ],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_check_environment_what_is_healthy_is_not_accused(kind):
    report = check_environment(kind)
    assert report.problems == []
    assert set(statuses(report)) == set(ALL)


def test_check_environment_the_coding_environment_is_not_accused():
    report = check_environment(CodingEnvironment, steps=2)
    assert report.problems == []


def test_check_environment_an_environment_that_never_ends_is_reported_as_a_note():
    report = check_environment(World, steps=4)
    assert report.ok
    line = next(line for line in report.lines if line.name == AFTER)
    assert line.status == "note"
    assert "4 steps; try more, or other actions" in line.detail


def test_check_environment_notes_a_tree_without_a_declared_range():
    report = check_environment(World, steps=2)
    line = next(line for line in report.lines if line.name == RANGE)
    assert line.status == "note"
    assert "score_range" in line.detail


# One fault each -------------------------------------------------------------------------------


def test_check_environment_a_missing_rubric():
    class Forgot(Three):
        def __init__(self):
            super().__init__()
            self.rubric = None

    detail = only(check_environment(Forgot), MADE)
    assert "Forgot has no rubric; set one in __init__" in detail


@pytest.mark.parametrize("thing", [None, 3, State()])
def test_check_environment_reports_a_factory_that_returns_no_environment(thing):
    assert "must return an Environment with a rubric" in only(
        check_environment(lambda: thing), MADE
    )


def test_check_environment_a_reward_outside_of_its_declared_range():
    class Much(Three):
        class rubric_of(Half):
            score_range = (0.0, 0.25)

    detail = only(check_environment(Much), RANGE)
    assert "step 0: the reward is 0.5, outside of [0.0, 0.25]" in detail


def test_check_environment_a_component_outside_of_its_declared_range():
    class Low(Half):
        score_range = (0.75, 1.0)

    class Inside(Three):
        def rubric_of(self):
            return RubricDict({"all": WeightedSum([Ranged(), Low()], [0.5, 0.5])})

        def step(self, action, timeout_s=None, **kwargs):
            self.episode.step_count += 1
            board = Board(done=self.episode.step_count == 3)
            board.reward = self.rubric["all"](action, board)
            board.metadata["reward_components"] = {"all.rubric_1": 0.5}
            return board

        after_done = "it goes on"

    detail = only(check_environment(Inside), RANGE)
    assert "rubric 'all.rubric_1' is 0.5, outside of [0.75, 1.0]" in detail


def test_check_environment_an_action_that_leaves_the_range_only_once_is_found():
    class Rarely(Three):
        class rubric_of(Value):
            score_range = (0.0, 1.0)

    actions = [Move(value=1), Move(value=0), Move(value=-0.5)]
    detail = only(check_environment(Rarely, actions=actions), RANGE)
    assert "step 2" in detail
    assert "-0.5" in detail


class FromTheClock(Three):
    ticks = count()

    def observed(self, action):
        return Board(value=next(self.ticks), done=self.episode.step_count == 3)


class FromNowhere(Three):
    def reset(self, seed=None, episode_id=None, **kwargs):
        super().reset(seed, episode_id)
        return Board(value=random.SystemRandom().random())


class EndsByChance(Three):
    lengths = count()

    def reset(self, seed=None, episode_id=None, **kwargs):
        super().reset(seed, episode_id)
        self.length = next(self.lengths) % 2 + 2
        return Board()

    def observed(self, action):
        return Board(done=self.episode.step_count == self.length)


class HiddenInTheState(Three):
    draws = count()

    def reset(self, seed=None, episode_id=None, **kwargs):
        super().reset(seed, episode_id)
        self.episode = State(episode_id=episode_id, secret=next(self.draws))
        return Board()


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (FromTheClock, "observation.value"),
        (FromNowhere, "observation.value"),
        (EndsByChance, "done"),
        (HiddenInTheState, "state.secret"),
    ],
)
def test_check_environment_what_a_seed_does_not_repeat(kind, where):
    detail = only(check_environment(kind), REPEATABLE)
    assert where in detail


def test_check_environment_what_a_seed_does_not_repeat_reports_what_would_be_right():
    assert "seed" in only(check_environment(FromNowhere), REPEATABLE)


def test_check_environment_the_seed_that_is_asked_for_is_the_one_that_is_used():
    seeds = []

    class Notes(Three):
        def reset(self, seed=None, episode_id=None, **kwargs):
            seeds.append(seed)
            return super().reset(seed, episode_id)

    report = check_environment(Notes, seed=17)
    assert set(seeds) == {17}
    assert "seed 17 makes it repeatable" in statuses(report)


def test_check_environment_an_environment_that_only_repeats_itself_in_new_instances():
    class Remembers(Three):
        def reset(self, seed=None, episode_id=None, **kwargs):
            self.resets = getattr(self, "resets", 0) + 1
            super().reset(seed, episode_id)
            return Board(value=self.resets)

    assert "a second episode" in only(check_environment(Remembers), REPEATABLE)


THING = print  # which JSON has no word for


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (float("nan"), "nan at metadata.x"),
        (float("inf"), "inf at metadata.x"),
        ({"deep": [float("-inf")]}, "-inf at metadata.x"),
        (THING, "metadata.x"),
        ({"deep": [1, THING]}, "metadata.x"),
        ({1, 2}, "metadata.x is [1, 2], not {1, 2}"),
        ((1, 2), "metadata.x is [1, 2], not (1, 2)"),
        ({1: "one"}, "metadata.x"),
        (b"abc", "metadata.x is 'abc', not b'abc'"),
        ("\ud800", "metadata.x"),
    ],
    ids=repr,
)
def test_check_environment_an_observation_that_json_does_not_support(value, detail):
    class Shows(Three):
        def observed(self, action):
            done = self.episode.step_count == 3
            return Board(metadata={"x": value} if done else {}, done=done)

    found = only(check_environment(Shows), JSON)
    assert detail in found
    assert "observation 3" in found


def test_check_environment_a_first_observation_that_json_does_not_support():
    class Shows(Three):
        def reset(self, seed=None, episode_id=None, **kwargs):
            super().reset(seed, episode_id)
            return Board(value=float("nan"))

    found = only(check_environment(Shows), JSON)
    assert "observation 0: Board has nan at value" in found
    assert "use a finite number or None" in found


def test_check_environment_a_typed_field_ends_as_what_it_is():
    class Typed(Observation):
        pair: tuple[int, str] = (1, "a")
        some: set[int] = Field({1, 2})
        by_number: dict[int, str] = Field({1: "one"})
        raw: bytes = b"abc"

    class Shows(Three):
        def observed(self, action):
            return Typed(done=self.episode.step_count == 3)

    assert check_environment(Shows).problems == []


def test_check_environment_reports_an_observation_that_cannot_be_copied():
    lock = threading.Lock()

    class Shows(Three):
        def observed(self, action):
            return Board(metadata={"lock": lock}, done=self.episode.step_count == 3)

    assert "metadata.lock" in only(check_environment(Shows), JSON)


def test_check_environment_a_value_that_can_not_be_compared_is_reported_not_raised():
    class Odd:
        def __eq__(self, other):
            raise ValueError("ambiguous")

        __hash__ = None

    class Shows(Three):
        def observed(self, action):
            return Board(metadata={"odd": Odd()}, done=self.episode.step_count == 3)

    assert "metadata.odd" in detail_of(check_environment(Shows), JSON)


def test_check_environment_a_state_that_json_does_not_support():
    class Shows(Three):
        @property
        def state(self):
            return State(thing=THING)

    detail = only(check_environment(Shows), JSON)
    assert "State.thing is not JSON-serializable" in detail


def test_check_environment_a_class_level_list_that_two_instances_share():
    class Shared(Three):
        moves: list[Any] = []  # noqa: RUF012

        def reset(self, seed=None, episode_id=None, **kwargs):
            self.moves.clear()
            return super().reset(seed, episode_id)

        def observed(self, action):
            self.moves.append(action.value)
            return Board(value=len(self.moves), done=self.episode.step_count == 3)

    detail = only(check_environment(Shared), APART)
    assert "another" in detail
    assert "observation.value" in detail
    assert "keep what changes in self" in detail


ONE = Ranged()


@pytest.mark.parametrize(
    ("tree", "detail"),
    [
        (lambda: ONE, "they share the rubric; create it in __init__"),
        (lambda: Sequential(Ranged(), ONE), "share the rubric 'rubric_1'; create it in __init__"),
        (
            lambda: Sequential(Ranged(), WeightedSum([Ranged(), ONE], [0.5, 0.5])),
            "share the rubric 'rubric_1.rubric_1'",
        ),
    ],
    ids=["at the root", "below", "further below"],
)
def test_check_environment_a_rubric_that_two_instances_share(tree, detail):
    assert detail in only(check_environment(lambda: Three(tree())), APART)


def test_check_environment_a_factory_that_returns_the_same_environment_twice():
    one = Three()
    assert only(check_environment(lambda: one), APART)


class Length(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory):
        return float(len(trajectory))


@pytest.mark.parametrize(
    ("tree", "path"),
    [(Length, "the rubric still has it"), (lambda: Sequential(Half(), Length()), "rubric_1")],
    ids=["root", "below"],
)
def test_check_environment_a_reset_that_keeps_the_old_trajectory(tree, path):
    class Keeps(Three):
        def reset(self, seed=None, episode_id=None, **kwargs):
            self.episode = State(episode_id=episode_id)
            return Board()

    detail = detail_of(check_environment(lambda: Keeps(tree())), FORGETS)
    assert path in detail
    assert "call self._reset_rubric() in reset" in detail


class GoesOn(Three):
    def step(self, action, timeout_s=None, **kwargs):
        self.episode.step_count += 1
        return self.score(action, self.observed(action))

    def observed(self, action):
        return Board(done=self.episode.step_count >= 3)


def test_check_environment_a_step_after_the_end_that_is_taken_and_not_documented():
    detail = only(check_environment(GoesOn), AFTER)
    assert "raise EpisodeError, or document in after_done what it does" in detail


def test_check_environment_a_step_after_the_end_that_is_taken_as_documented():
    class Documented(GoesOn):
        after_done = "it stays where it was"

    report = check_environment(Documented)
    assert statuses(report) == dict.fromkeys(statuses(check_environment(Three)), "ok")


def test_check_environment_notes_a_step_after_the_end_that_raises_another_error():
    class Raises(GoesOn):
        def step(self, action, timeout_s=None, **kwargs):
            if self.episode.step_count == 3:
                raise IndexError("no more rows")
            return super().step(action)

    report = check_environment(Raises)
    assert report.ok
    assert statuses(report)[AFTER] == "note"
    assert "it raises IndexError; raise EpisodeError instead" in report.lines[-1].detail


def test_check_environment_a_step_without_a_reward():
    class Unscored(Three):
        def step(self, action, timeout_s=None, **kwargs):
            board = super().step(action)
            return board if not board.done else Board(done=True)

    detail = only(check_environment(Unscored), REWARDED)
    assert "step 2 has none; return self.score(action, observation)" in detail


@pytest.mark.parametrize("down", [Down, AsyncDown])
@pytest.mark.parametrize("below", [False, True], ids=["root", "below"])
def test_check_environment_a_rubric_that_fails(down, below):
    detail = only(
        check_environment(lambda: Three(Sequential(Half(), down()) if below else down())),
        REWARDED,
    )
    assert "OSError: the judge is down" in detail
    assert ("rubric 'rubric_1'" in detail) == below


def test_check_environment_reports_an_episode_that_is_over_when_it_begins():
    class Over(Three):
        def reset(self, seed=None, episode_id=None, **kwargs):
            super().reset(seed, episode_id)
            return Board(done=True)

    report = check_environment(Over)
    assert not report.ok
    assert "reset" in report.problems[0].detail
    assert not any("IndexError" in line.detail for line in report.lines)


# What raises or hangs -------------------------------------------------------------------------


class Breaks(Three):
    """Does something bad in one of its methods, from some call of it on, over all instances."""

    where = ""
    late = 0
    calls: Any = None

    def bad(self):
        raise OSError("the disk is gone")

    def at(self, where):
        if where == self.where and next(self.calls) >= self.late:
            self.bad()

    def __init__(self):
        self.at("__init__")
        super().__init__()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.at("reset")
        return super().reset(seed, episode_id)

    def step(self, action, timeout_s=None, **kwargs):
        self.at("step")
        return super().step(action)

    @property
    def state(self):
        self.at("state")
        return self.episode

    def close(self):
        self.at("close")


def breaks(where, late=0, **attributes):
    return type("Breaks", (Breaks,), {"where": where, "late": late, "calls": count(), **attributes})


@pytest.fixture
def gate():
    """Lets go what hangs, at the end of the test."""
    gate = threading.Event()
    before = set(threading.enumerate())
    yield gate
    gate.set()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "guerdon-check":
            thread.join(5)
            assert not thread.is_alive()


WHERE = [
    ("__init__", MADE), ("reset", PLAYED), ("step", PLAYED), ("state", PLAYED), ("close", CLOSED),
]  # fmt: skip


@pytest.mark.parametrize(("where", "name"), WHERE)
def test_check_environment_what_raises_is_reported_not_raised(where, name):
    detail = only(check_environment(breaks(where)), name)
    assert "OSError: the disk is gone" in detail


@pytest.mark.parametrize(("where", "name"), WHERE)
def test_check_environment_what_exits_is_reported_and_ends_nothing(where, name):
    def bad(self):
        raise SystemExit(3)

    assert "sys.exit(3)" in only(check_environment(breaks(where, bad=bad)), name)


@pytest.mark.parametrize(("where", "name"), WHERE)
def test_check_environment_what_hangs_is_reported_after_the_timeout(where, name, gate):
    def bad(self):
        gate.wait()

    report = check_environment(breaks(where, bad=bad), timeout_s=PATIENCE)
    assert "took longer than 0.2 s" in only(report, name)


def test_check_environment_an_async_step_that_hangs_is_reported_after_the_timeout():
    class Hangs(OnlyAsync):
        async def step_async(self, action, timeout_s=None, **kwargs):
            await asyncio.sleep(1)

    detail = only(check_environment(Hangs, timeout_s=PATIENCE), PLAYED)
    assert "took longer than 0.2 s" in detail


@pytest.mark.parametrize("where", ["__init__", "reset", "step", "state", "close"])
def test_check_environment_what_raises_later_on_is_reported_not_raised(where):
    never = breaks(where, 10**6)
    assert check_environment(never).ok
    calls = next(never.calls)
    assert calls > 1
    for late in range(0, calls, max(1, calls // 8)):
        report = check_environment(breaks(where, late))
        assert "OSError" in " ".join(line.detail for line in report.lines), late
        assert not report.ok or statuses(report)[AFTER] == "note"


def test_check_environment_a_constructor_that_raises_is_not_blamed_on_the_actions():
    assert "actions" not in only(check_environment(breaks("__init__")), MADE)


@pytest.mark.parametrize("where", ["reset", "state"])
def test_check_environment_suggests_other_actions_only_for_failed_steps(where):
    assert "actions were sampled" not in only(check_environment(breaks(where)), PLAYED)


def test_check_environment_a_step_that_refuses_every_sampled_action_reports_to_give_some():
    class Wall(Three):
        def step(self, action, timeout_s=None, **kwargs):
            raise InvalidArgumentError("there is a wall")

    detail = only(check_environment(Wall), PLAYED)
    assert "there is a wall" in detail
    assert "sampled: pass some that are valid" in detail


@pytest.mark.parametrize("method", ["reset", "step"])
def test_check_environment_reports_a_method_that_returns_no_observation(method):
    kind = type("Gives", (Three,), {method: lambda self, *args, **kwargs: {"value": 1}})
    assert f"Gives.{method} must return" in only(check_environment(kind), PLAYED)


def test_check_environment_reports_a_state_of_another_type():
    kind = type("Gives", (Three,), {"state": {"step_count": 1}})
    assert "Gives.state must return a State, got dict" in only(check_environment(kind), PLAYED)


# Closing --------------------------------------------------------------------------------------


def closing(parent, **attributes):
    """A class that notes what is made and closed."""
    made, closed = [], []

    class Noted(parent):
        def __init__(self):
            super().__init__()
            made.append(self)

        def close(self):
            closed.append(self)
            super().close()

    for name, value in attributes.items():
        setattr(Noted, name, value)
    return Noted, made, closed


@pytest.mark.parametrize(
    "parent", [Three, breaks("reset"), breaks("step", 5), breaks("close"), FromTheClock],
    ids=["healthy", "reset", "second episode", "close", "unrepeatable"],
)  # fmt: skip
def test_check_environment_every_environment_that_was_made_is_closed_once(parent):
    kind, made, closed = closing(parent)
    check_environment(kind)
    assert made
    assert sorted(map(id, closed)) == sorted(map(id, made))


# Actions --------------------------------------------------------------------------------------


def noting(kind=Three):
    taken = []

    class Notes(kind):
        def step(self, action, timeout_s=None, **kwargs):
            taken.append(action)
            return super().step(action)

    return Notes, taken


def test_check_environment_actions_are_played_in_turn_whether_they_are_models_or_mappings():
    kind, taken = noting()
    assert check_environment(kind, actions=[Move(value=2), {"value": 3}]).ok
    assert [action.value for action in taken[:3]] == [2, 3, 2]
    assert {type(action) for action in taken} == {Move}


def test_check_environment_no_more_steps_are_played_than_asked_for():
    kind, taken = noting(World)
    check_environment(kind, steps=2)
    assert len({id(action) for action in taken}) == 2


@pytest.mark.parametrize(
    ("actions", "detail"),
    [
        ([], "no actions were given"),
        ([{"valeu": 1}], "valeu"),
        ([{"value": 1}, {"value": "much"}], "value"),
        (["left"], "left"),
        ([Deed()], "Deed"),
    ],
    ids=["none", "unknown field", "wrong type", "no action", "another class"],
)
def test_check_environment_actions_that_can_not_be_played(actions, detail):
    found = only(check_environment(Three, actions=actions), ACTIONS)
    assert detail in found
    assert "\n" not in found


def test_check_environment_actions_that_can_not_be_sampled_say_to_give_some():
    square = create_model("Square", __base__=Action, at=(str, Field(pattern="^[a-h][1-8]!$")))
    kind = type("Chess", (Three,), {"action_type": square})
    assert "pass some" in only(check_environment(kind), ACTIONS)


def test_check_environment_given_actions_are_not_changed():
    actions = [{"value": 1.0}]
    before = copy.deepcopy(actions)
    check_environment(Three, actions=actions)
    assert actions == before


@pytest.mark.parametrize("wrong", [{"timeout_s": -1}, {"timeout_s": float("nan")}, {"steps": 0}])
def test_check_environment_amounts_that_can_not_be_meant_are_refused(wrong):
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        check_environment(Three, **wrong)


# The report -----------------------------------------------------------------------------------


def test_check_environment_a_report_lists_every_problem_when_asked_to_raise():
    lines = [
        CheckLine("one", "problem", "is wrong"),
        CheckLine("two", "ok"),
        CheckLine("three", "note", "may be meant"),
        CheckLine("four", "problem", "is bad"),
    ]
    report = EnvironmentReport(lines)
    assert not report.ok
    assert report.problems == [lines[0], lines[3]]
    with pytest.raises(EnvError, match=r"^one: is wrong; four: is bad$"):
        report.raise_for_problems()


def test_check_environment_notes_are_not_problems():
    report = EnvironmentReport([CheckLine("one", "note", "may be meant"), CheckLine("two", "ok")])
    assert report.ok
    report.raise_for_problems()


def test_check_environment_several_faults_are_all_reported():
    class Both(GoesOn):
        class rubric_of(Half):
            score_range = (0.0, 0.25)

        def observed(self, action):
            return Board(metadata={"x": {1}}, done=self.episode.step_count >= 3)

    report = check_environment(Both)
    assert [line.name for line in report.problems] == [RANGE, JSON, AFTER]
    with pytest.raises(EnvError) as caught:
        report.raise_for_problems()
    for name in (RANGE, JSON, AFTER):
        assert name in str(caught.value)


@pytest.mark.parametrize("ends", ["exits", "hangs"])
def test_check_environment_an_action_class_whose_validator_does_not_end_is_reported(ends):
    free = threading.Event()

    class Odd(Action):
        value: int

        @field_validator("value")
        @classmethod
        def look(cls, value):
            if ends == "exits":
                sys.exit(3)
            free.wait(10)
            return value

    class Uses(World):
        action_type = Odd

    report = check_environment(Uses, timeout_s=0.2)
    free.set()
    assert report.lines[-1].name == "there are actions to try"
    assert report.lines[-1].status == "problem"


def test_check_environment_reports_a_rubric_whose_fingerprint_moves():
    class Counting(Rubric):
        tunable = ("seen",)

        def __init__(self, seen=0):
            super().__init__()
            self.seen = seen

        def forward(self, action, observation):
            self.seen += 1
            return 0.5

    class Moves(Three):
        rubric_of = Counting

    detail = detail_of(check_environment(Moves), KEEPS)
    assert detail.startswith("the fingerprint of the rubric changed while the episode ran")


class Locked(ToolEnvironment):
    """A door whose second tool is visible once it is unlocked."""

    def __init__(self):
        super().__init__(rubric=ToolErrors())

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.is_open = False
        return self.begin("Go in.", episode_id=episode_id)

    def say(self, content):
        return "Go on."

    @tool
    def unlock(self) -> str:
        self.is_open = True
        return "open"

    @tool(when=lambda self: self.is_open, ends=True)
    def enter(self) -> str:
        return "inside"


def test_check_environment_plays_the_tools_of_a_tool_environment():
    report = check_environment(Locked, steps=10)
    assert [line.name for line in report.lines if line.status == "problem"] == []
    with Locked() as environment:  # before the first episode, there is no state to look at
        assert [each.name for each in environment.list_tools()] == ["unlock"]
