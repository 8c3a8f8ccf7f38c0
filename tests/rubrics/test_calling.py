"""Calling: scores are finite floats, errors keep who they are and say where, __call__ alone."""

import math
import pickle
from decimal import Decimal
from fractions import Fraction

import anyio
import numpy as np
import pytest

from guerdon.errors import AsyncRubricError, InvalidScoreError, RubricError
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)


class Gives(Rubric):
    def __init__(self, value):
        super().__init__()
        self._value = value

    def forward(self, action, observation):
        return self._value


class AsyncGives(Gives):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return self._value


class Raises(Rubric):
    def __init__(self, error):
        super().__init__()
        self._error = error

    def forward(self, action, observation):
        raise self._error


class AsyncRaises(Raises):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        raise self._error


def notes(error):
    return list(map(str, getattr(error, "__notes__", [])))


# Numbers

BAD = [math.nan, math.inf, -math.inf, None, "1.0", [1.0], 1j, Decimal("0.5"), 10**400]
BAD_IDS = [str(bad)[:8] for bad in BAD]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Gives, AsyncGives])
@pytest.mark.parametrize("value", [True, False, np.True_, np.False_], ids=repr)
async def test_call_counts_a_bool_as_zero_or_one(kind, value):
    for rubric in kind(value), Sequential(kind(True), Gate(WeightedSum([kind(value)], [1]), 0.5)):
        found = await rubric.evaluate(None, None)
        assert (type(found), found) == (float, float(value))
    if kind is Gives:
        rubric = WeightedSum([kind(value), lambda action, observation: action == "a"], [1, 2])
        assert rubric("a", None) == rubric.score("a", None).value == float(value) + 2.0


@pytest.mark.parametrize("bad", BAD, ids=BAD_IDS)
def test_call_rejects_a_score_that_is_not_a_finite_float(bad):
    with pytest.raises(
        InvalidScoreError, match=r"Gives\.forward returned .*; a score must be a finite"
    ) as c:
        Gives(bad)(None, None)
    assert c.value.value is bad
    assert isinstance(c.value, (TypeError, ValueError))


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [math.nan, "1", None], ids=str)
@pytest.mark.parametrize("kind", [Gives, AsyncGives])
async def test_call_with_a_bad_score_names_the_path(bad, kind):
    rubric = Sequential(Gives(1.0), Gate(WeightedSum([Gives(1.0), kind(bad)], [1, 1])))
    with pytest.raises(
        InvalidScoreError, match=r"^rubric 'rubric_1\.rubric\.rubric_1': "
    ) as caught:
        await rubric.evaluate(None, None)
    assert caught.value.rubric_path == "rubric_1.rubric.rubric_1"


def test_call_of_a_sync_tree_with_a_bad_score_names_the_path():
    rubric = Sequential(Gives(1.0), Gate(Gives(math.nan)))
    with pytest.raises(InvalidScoreError) as caught:
        rubric(None, None)
    assert str(caught.value) == (
        "rubric 'rubric_1.rubric': Gives.forward returned nan; a score must be a finite float"
    )


def test_weighted_sum_rejects_an_infinite_sum_of_finite_scores():
    with pytest.raises(InvalidScoreError, match=r"WeightedSum.forward returned inf"):
        WeightedSum([Gives(1e308), Gives(1e308)], [1, 1])(None, None)


@pytest.mark.parametrize(
    ("number", "expected"), [(1, 1.0), (0, 0.0), (-3, -3.0), (Fraction(1, 4), 0.25)]
)
def test_call_converts_other_real_numbers_to_float(number, expected):
    rubric = Gives(number)
    assert rubric(None, None) == expected
    assert type(rubric(None, None)) is float
    assert type(rubric.last_score) is float


def test_call_converts_a_number_registered_as_real_to_float():
    class Float32(float):
        """As numpy's float64 is a subclass of float."""

    result = Gives(Float32(0.5))(None, None)
    assert (result, type(result)) == (0.5, float)


def test_call_that_fails_keeps_last_score():
    rubric = Gives(0.5)
    rubric(None, None)
    rubric._value = math.nan
    with pytest.raises(InvalidScoreError):
        rubric(None, None)
    assert rubric.last_score == 0.5


# Errors of authors


class OwnError(Exception):
    def __init__(self, code, *, hint):
        super().__init__(code)
        self.code = code
        self.hint = hint


def test_call_raises_an_authors_exception_unchanged_with_the_path():
    error = OwnError(7, hint="x")
    with pytest.raises(OwnError) as caught:
        Sequential(Gives(1.0), Gate(Raises(error)))(None, None)
    assert caught.value is error
    assert (error.code, error.hint) == (7, "x")
    assert notes(error) == ["raised in rubric 'rubric_1.rubric' of Sequential"]


def test_call_exception_of_a_root_names_its_class():
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        Raises(error)(None, None)
    assert notes(error) == ["raised in rubric Raises"]


def test_call_exception_raised_twice_has_one_note_with_the_last_path():
    error = OSError("down")
    leaf = Raises(error)
    first, second = Sequential(Gate(leaf)), WeightedSum([Gives(1.0), leaf], [1, 1])
    for rubric, path in [
        (first, "'rubric_0.rubric' of Sequential"),
        (first, "'rubric_0.rubric' of Sequential"),
        (second, "'rubric_1' of WeightedSum"),
        (leaf, "Raises"),
    ]:
        with pytest.raises(OSError, match="down"):
            rubric(None, None)
        assert notes(error) == [f"raised in rubric {path}"]


def test_call_exception_keeps_the_notes_of_its_author():
    error = OSError("down")
    error.add_note("try again")
    with pytest.raises(OSError, match="down"):
        Gate(Raises(error))(None, None)
    assert notes(error) == ["try again", "raised in rubric 'rubric' of Gate"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Raises, AsyncRaises])
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda r: Sequential(AsyncGives(1.0), r), "rubric_1"),
        (lambda r: WeightedSum([AsyncGives(1.0), Gate(r)], [1, 1]), "rubric_1.rubric"),
        (lambda r: Guarded(r), "rubric"),
        (lambda r: Guarded(r, timeout=5), "rubric"),
        (lambda r: Guarded(r, retries=2), "rubric"),
        (lambda r: Sequential(Guarded(Gate(r), retries=1, timeout=5)), "rubric_0.rubric.rubric"),
    ],
)
async def test_call_exception_keeps_its_identity_through_async_containers_and_guards(
    kind, wrap, path
):
    error = OwnError(7, hint="x")
    rubric = wrap(kind(error))
    for _ in range(2):
        with pytest.raises(OwnError) as caught:
            await rubric.evaluate(None, None)
        assert caught.value is error
        assert notes(error) == [f"raised in rubric {path!r} of {type(rubric).__name__}"]


def test_call_path_of_an_exception_that_a_parent_wraps_is_the_parents():
    class Wraps(Rubric):
        def __init__(self):
            super().__init__()
            self.inner = Raises(OSError("down"))

        def forward(self, action, observation):
            try:
                return self.inner(action, observation)
            except OSError as error:
                raise ValueError("no score") from error

    with pytest.raises(ValueError, match="no score") as caught:
        Gate(Wraps())(None, None)
    assert notes(caught.value) == ["raised in rubric 'rubric' of Gate"]
    assert notes(caught.value.__cause__) == ["raised in rubric Raises"]


def test_call_exception_names_the_path_through_a_rubric_dict():
    class ByTask(Rubric):
        def __init__(self):
            super().__init__()
            self.tasks = RubricDict({"a": Raises(OSError("down"))})

        def forward(self, action, observation):
            return self.tasks["a"](action, observation)

    with pytest.raises(OSError, match="down") as caught:
        Sequential(ByTask())(None, None)
    assert notes(caught.value) == ["raised in rubric 'rubric_0.tasks.a' of Sequential"]


def test_call_exception_can_be_pickled():
    error = ValueError("no score")
    with pytest.raises(ValueError, match="no score"):
        Sequential(Raises(error), lambda action, observation: 1.0)(None, None)
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is ValueError
    assert notes(other) == ["raised in rubric 'rubric_0' of Sequential"]


def test_call_does_not_catch_exits_and_interrupts():
    for error in (KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)) as caught:
            Sequential(Raises(error))(None, None)
        assert caught.value is error


# Async children of sync parents


def parent_of(child, how):
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.judge = child

        def forward(self, action, observation):
            return how(self.judge(action, observation))

    return Parent()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "how",
    [
        lambda score: score * 0.5,
        lambda score: 0.5 * score,
        lambda score: 1.0 if score == 0.0 else 0.5,
        lambda score: 1.0,
        lambda score: float(score > 0.5),
        lambda score: max(score, 0.0),
        lambda score: None,
        lambda score: f"{score:g}",
    ],
)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("evaluate", [False, True])
async def test_call_of_an_async_child_by_a_sync_parent_names_both(how, nested, evaluate):
    rubric = parent_of(AsyncGives(0.5), how)
    if nested:
        rubric = Sequential(Gives(1.0), rubric)
    with pytest.raises(
        AsyncRubricError, match=r"Parent called 'judge'.*AsyncGives.*await"
    ) as caught:
        await (rubric.evaluate(None, None) if evaluate else rubric(None, None))
    assert caught.value.rubric_path == ("rubric_1" if nested else "")


@pytest.mark.anyio
@pytest.mark.parametrize("child", [AsyncGives(0.5), Gate(AsyncGives(0.5), threshold=0.5)])
async def test_call_of_a_sync_parent_may_return_the_awaitable_of_its_child(child):
    rubric = parent_of(child, lambda score: score)
    result = rubric(None, None)
    assert hasattr(result, "__await__")
    assert await result == 0.5
    assert await Sequential(rubric).evaluate(None, None) == 0.5
    assert rubric.last_score == 0.5


@pytest.mark.anyio
async def test_call_of_an_async_parent_raises_its_own_error_despite_an_unawaited_child():
    error = OwnError(7, hint="x")

    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.a = AsyncRaises(error)
            self.b = AsyncGives(1.0)

        async def forward(self, action, observation):
            a, b = self.a(action, observation), self.b(action, observation)
            return await a + await b

    with pytest.raises(OwnError) as caught:
        await Parent()(None, None)
    assert caught.value is error
    assert notes(error) == ["raised in rubric 'a' of Parent"]


@pytest.mark.anyio
async def test_call_of_an_async_parent_that_does_not_await_a_child_names_both():
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.judge = AsyncGives(1.0)

        async def forward(self, action, observation):
            return self.judge(action, observation) * 0.5

    with pytest.raises(AsyncRubricError, match="Parent called 'judge'"):
        await Parent()(None, None)


# __call__ alone


class ByCall(Rubric):
    """Keeps its own episode."""

    def __init__(self):
        super().__init__()
        self._trajectory = []

    def __call__(self, action, observation):
        self._trajectory.append((action, observation))
        return float(len(self._trajectory))

    def reset(self):
        self._trajectory = []


class AsyncByCall(ByCall):
    async def __call__(self, action, observation):
        await anyio.lowlevel.checkpoint()
        self._trajectory.append((action, observation))
        return float(len(self._trajectory))


def test_overridden_call_replaces_forward():
    rubric = ByCall()
    assert [rubric(None, None), rubric(None, None)] == [1.0, 2.0]
    assert rubric.last_score == 2.0
    rubric.reset()
    assert rubric(None, None) == 1.0


def test_overridden_call_is_checked_hooked_recorded_and_composed():
    rubric = Sequential(ByCall(), Gives(0.5))
    seen = []
    rubric.rubric_0.register_forward_hook(lambda r, a, o, result: seen.append(result))
    assert rubric(None, None) == 0.5
    assert seen == [1.0]
    assert rubric.score(None, None).components() == {"rubric_0": 2.0, "rubric_1": 0.5}
    rubric.reset()
    assert rubric.score(None, None)["rubric_0"].value == 1.0

    class Bad(Rubric):
        def __call__(self, action, observation):
            return math.nan

    with pytest.raises(InvalidScoreError, match="Bad"):
        Bad()(None, None)


@pytest.mark.anyio
async def test_overridden_async_call_replaces_forward():
    rubric = AsyncByCall()
    assert await rubric(None, None) == 1.0
    assert await WeightedSum([rubric, Gives(1.0)], [1, 10])(None, None) == 12.0
    assert await rubric.evaluate(None, None) == 3.0


def test_overridden_call_may_use_super():
    class Doubled(Gives):
        def __call__(self, action, observation):
            return 2 * super().__call__(action, observation)

    class Plus(Doubled):
        def __call__(self, action, observation):
            return 1 + super().__call__(action, observation)

    assert Doubled(0.5)(None, None) == 1.0
    assert Plus(0.5)(None, None) == 2.0
    assert Gate(Plus(0.5)).score(None, None).components() == {"rubric": 2.0}


@pytest.mark.anyio
async def test_overridden_async_call_may_use_super():
    class Doubled(AsyncGives):
        async def __call__(self, action, observation):
            return 2 * await super().__call__(action, observation)

    class Plus(Doubled):
        async def __call__(self, action, observation):
            return 1 + await super().__call__(action, observation)

    assert await Doubled(0.5)(None, None) == 1.0
    assert await Plus(0.5)(None, None) == 2.0


@pytest.mark.anyio
async def test_overridden_sync_call_may_return_the_awaitable_of_an_async_forward():
    class Counted(AsyncGives):
        calls = 0

        def __call__(self, action, observation):
            self.calls += 1
            return super().__call__(action, observation)

    rubric = Counted(0.5)
    assert await rubric(None, None) == 0.5
    assert await Sequential(rubric).evaluate(None, None) == 0.5
    assert rubric.calls == 2


def test_overridden_call_whose_super_has_no_forward_is_an_error():
    class Hollow(Rubric):
        def __call__(self, action, observation):
            return super().__call__(action, observation)

    with pytest.raises(RubricError, match=r"Hollow.__call__ calls super"):
        Hollow()(None, None)


def test_overridden_call_mixes_step_and_final_rewards():
    """As in the RFC: a reward for each move, another one at the end of the game."""

    class Chess(TrajectoryRubric):
        def __init__(self):
            super().__init__()
            self.legal = Gives(1.0)

        def __call__(self, action, observation):
            self._trajectory.append((action, observation))
            step = 0.25 * self.legal(action, observation)
            if observation["done"]:
                return step + self.score_trajectory(self._trajectory)
            return step

        def score_trajectory(self, trajectory):
            return float(len(trajectory))

        def compute_step_rewards(self):
            return [0.25] * len(self._trajectory)

    rubric = Chess()
    moves = [{"done": False}, {"done": False}, {"done": True}]
    assert [rubric("e4", move) for move in moves] == [0.25, 0.25, 3.25]
    assert len(rubric.trajectory) == 3
    assert rubric.compute_step_rewards() == [0.25] * 3
    rubric.reset()
    assert rubric.trajectory == []
    assert rubric("e4", {"done": True}) == 1.25


def test_overridden_call_of_a_discounting_rubric_mixes_rewards():
    class Chess(ExponentialDiscountingTrajectoryRubric):
        def __call__(self, action, observation):
            delayed = super().__call__(action, observation)
            return delayed + 0.125 * len(self._trajectory)

        def score_trajectory(self, trajectory):
            return 1.0

    rubric = Sequential(Chess(gamma=0.5))
    assert rubric("e4", {"done": False}) == 0.125
    assert rubric("e5", {"done": True}) == 1.25
    assert rubric.rubric_0.compute_step_rewards() == [0.5, 1.0]
