"""Plain functions wherever a rubric is accepted."""

import functools

import pytest

from guerdon.errors import AsyncRubricError, InvalidChildError
from guerdon.rubrics import (
    FunctionRubric,
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    WeightedSum,
    as_rubric,
)


def plain(action, observation):
    return 0.5


async def awaited(action, observation):
    return 0.5


def scaled(factor, action, observation):
    return factor


async def scaled_async(factor, action, observation):
    return factor


class Callable:
    def __call__(self, action, observation):
        return 0.5


class AsyncCallable:
    async def __call__(self, action, observation):
        return 0.5

    async def method(self, action, observation):
        return 0.5


SYNC = {
    "function": plain,
    "lambda": lambda action, observation: 0.5,
    "partial": functools.partial(scaled, 0.5),
    "object": Callable(),
    "method": Callable().__call__,
    "builtin": max,
}
ASYNC = {
    "function": awaited,
    "partial": functools.partial(scaled_async, 0.5),
    "object": AsyncCallable(),
    "method": AsyncCallable().method,
    "partial of object": functools.partial(AsyncCallable()),
}


class Parent(Rubric):
    """Calls whatever its one member is."""

    def __init__(self, members, key):
        super().__init__()
        self.members = members
        self.key = key

    def forward(self, action, observation):
        return self.members[self.key](action, observation)


CONTAINERS = {
    "Sequential": lambda f: Sequential(f),
    "Gate": lambda f: Gate(f, threshold=0.5),
    "WeightedSum": lambda f: WeightedSum([f], [1.0]),
    "Guarded": lambda f: Guarded(f),
    "RubricList": lambda f: Parent(RubricList([f]), 0),
    "RubricDict": lambda f: Parent(RubricDict({"f": f}), "f"),
    "as_rubric": as_rubric,
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("function", SYNC)
def test_sync_callables_are_rubrics_everywhere(container, function):
    assert CONTAINERS[container](SYNC[function])(0.25, 0.5) == 0.5


@pytest.mark.anyio
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("function", ASYNC)
async def test_async_callables_are_rubrics_everywhere(container, function):
    assert await CONTAINERS[container](ASYNC[function])(None, None) == 0.5


def test_rubrics_are_taken_as_they_are():
    rubric = FunctionRubric(plain)
    assert as_rubric(rubric) is rubric
    assert Sequential(rubric)[0] is rubric


def test_functions_are_drawn_by_name():
    assert repr(as_rubric(plain)) == "plain()"
    assert repr(as_rubric(Callable())) == "Callable()"


@pytest.mark.parametrize(
    "function", [lambda: 1.0, lambda a: 1.0, lambda a, o, x: 1.0, lambda a, o, *, k: 1.0]
)
def test_functions_that_cannot_take_an_action_and_an_observation_are_refused(function):
    with pytest.raises(
        InvalidChildError, match="can't be called with an action and an observation"
    ):
        as_rubric(function)


@pytest.mark.parametrize("thing", [Callable, Gate, int])
def test_classes_are_refused(thing):
    with pytest.raises(InvalidChildError, match=f"{thing.__name__} is a class; make a rubric"):
        as_rubric(thing)


@pytest.mark.parametrize("thing", [None, 1.0, "guerdon:Rubric", [plain], {"a": plain}])
def test_other_things_are_refused(thing):
    with pytest.raises(InvalidChildError, match="is no rubric"):
        as_rubric(thing)


def test_extra_arguments_with_defaults_and_stars_are_fine():
    assert as_rubric(lambda *args: float(len(args)))(1, 2) == 2.0
    assert as_rubric(lambda a, o, k=3: float(k))(1, 2) == 3.0


def test_hidden_coroutine_is_told_and_not_left_unawaited():
    rubric = Sequential(lambda action, observation: awaited(action, observation))
    with pytest.raises(AsyncRubricError, match=r"gave an awaitable.*async"):
        rubric(None, None)


def test_score_of_a_function_is_checked():
    with pytest.raises(ValueError, match="None; a score is a finite float"):
        Sequential(lambda action, observation: None)(None, None)
