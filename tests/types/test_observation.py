"""Observation: what came of a step, and the number on it."""

import asyncio
import gc
import math
import threading
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from guerdon import Observation, Rubric
from guerdon._background import run
from guerdon.errors import AsyncRubricError
from guerdon.types import GenericObservation, StepResult


class Board(Observation):
    cells: list[int] = Field(default_factory=list)


class Judge(Rubric):
    async def forward(self, action, observation):
        await asyncio.sleep(0)
        return 0.25


REAL = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63),
    st.fractions(max_denominator=1000, min_value=-1000, max_value=1000),
)
# Whatever else Python and JSON have.
ELSE = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, 10**400, Fraction(10**400), 1j, object()]),
    st.text(),
    st.binary(),
    st.lists(st.floats(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


# The reward -----------------------------------------------------------------------------------


@given(REAL)
def test_observation_reward_is_any_finite_number_as_a_float(number):
    for observation in (Observation(reward=number), Observation().with_reward(number)):
        assert type(observation.reward) is float
        assert observation.reward == float(number)


@given(ELSE)
def test_observation_rejects_other_rewards(thing):
    with pytest.raises(ValidationError, match="reward"):
        Observation(reward=thing)
    observation = Observation(reward=0.5)
    with pytest.raises(ValidationError, match="reward"):
        observation.with_reward(thing)
    with pytest.raises(ValidationError, match="reward"):
        observation.reward = thing
    assert observation.reward == 0.5


def test_observation_error_states_what_a_reward_is():
    with pytest.raises(ValidationError, match="a finite number or None, not '1'"):
        Observation(reward="1")
    with pytest.raises(ValidationError, match="a finite number or None, not Decimal"):
        Observation(reward=Decimal("0.5"))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", '"1"', "[]", "{}"])
def test_observation_a_reward_that_comes_as_json_is_checked_too(text):
    with pytest.raises(ValidationError, match="reward"):
        Observation.model_validate_json(f'{{"reward": {text}}}')


def test_observation_a_reward_may_be_none_or_one_of_openenvs_bools():
    assert Observation().reward is None
    assert Observation(reward=0.5).with_reward(None).reward is None
    assert Observation.model_validate_json('{"reward": null}').reward is None
    assert Observation.model_validate_json('{"reward": true}').reward == 1.0


def test_observation_with_reward_returns_the_same_observation():
    board = Board(cells=[1])
    assert board.with_reward(1) is board
    assert (board.reward, board.cells) == (1.0, [1])


def test_observation_an_awaitable_is_waited_for():
    judge = Judge()
    observation = Observation()
    observation.reward = judge(None, observation)
    assert observation.reward == 0.25
    assert Observation(reward=judge(None, None)).reward == 0.25


def test_observation_an_awaitable_is_waited_for_inside_of_a_running_event_loop_too():
    async def main():
        return Observation().with_reward(Judge()(None, None)).reward

    assert asyncio.run(main()) == 0.25


def test_observation_rejects_an_awaitable_without_a_number():
    async def word():
        return "good"

    with pytest.raises(ValidationError, match="not 'good'"):
        Observation(reward=word())


def test_observation_raises_what_an_awaitable_reward_raises():
    async def down():
        raise OSError("the judge is down")

    observation = Observation(reward=0.5)
    with pytest.raises(OSError, match="the judge is down"):
        observation.reward = down()
    assert observation.reward == 0.5


def test_observation_rejects_an_awaitable_reward_on_the_background_loop_and_closes_it():
    async def main():
        with pytest.raises(AsyncRubricError, match="async twin"):
            Observation().with_reward(Judge()(None, None))

    run(main())
    gc.collect()  # here a coroutine that was never awaited would be reported


# The rest -------------------------------------------------------------------------------------


def test_observation_an_unknown_field_is_refused_and_a_generic_observation_takes_any():
    with pytest.raises(ValidationError, match="cell"):
        Board(cell=[1])
    taken = GenericObservation.model_validate({"cell": [1], "reward": 1})
    assert (taken.cell, taken.reward) == ([1], 1.0)
    with pytest.raises(ValidationError, match="reward"):
        GenericObservation(reward="1")


def test_observation_an_observation_is_mutable_and_checked_when_changed():
    board = Board()
    board.cells, board.done = [1, 2], True
    assert (board.cells, board.done) == ([1, 2], True)
    with pytest.raises(ValidationError):
        board.cells = "full"
    with pytest.raises(ValidationError):
        board.metadata = None


def test_observation_metadata_is_not_shared():
    one, other = Board(), Board()
    one.metadata["seen"] = True
    assert other.metadata == {}


@given(
    st.lists(st.integers(), max_size=3),
    st.booleans(),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=3),
)
def test_observation_an_observation_survives_json(cells, done, reward, metadata):
    board = Board(cells=cells, done=done, reward=reward, metadata=metadata)
    assert Board.model_validate_json(board.model_dump_json()) == board


def test_observation_rewards_set_from_many_threads_at_once_are_each_their_own():
    async def number(value):
        await asyncio.sleep(0)
        return value

    barrier = threading.Barrier(8, timeout=5)
    rewards = {}

    def play(place):
        barrier.wait()
        rewards[place] = Observation(reward=number(place)).reward

    threads = [threading.Thread(target=play, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert rewards == {place: float(place) for place in range(8)}


# Truncated ----------------------------------------------------------------------------------------


def test_observation_truncated_is_no_field_of_what_is_sent():
    last = Observation(done=True, truncated=True)
    assert last.truncated
    assert "truncated" not in last.model_dump()
    assert "truncated" not in Observation.model_json_schema()["properties"]


def test_step_result_truncated_is_read_from_the_metadata_of_an_end():
    metadata = {"truncated": True}
    assert StepResult(None, done=True, metadata=metadata).truncated
    assert not StepResult(None, done=False, metadata=metadata).truncated
    assert not StepResult(None, done=True).truncated


def test_generic_observation_keeps_another_field_of_that_name():
    assert GenericObservation.model_validate({"truncated": "42 lines"}).truncated == "42 lines"
