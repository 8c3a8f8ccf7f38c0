"""The columns that `StepBatch` accepts and rejects."""

import copy
import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from guerdon.credit import gigpo
from guerdon.errors import CreditError
from tests.credit.calls import run

NAN, INF = float("nan"), float("inf")

COLUMNS = {
    "rewards": [0.0, 1.0, 0.0, 0.0],
    "group": ["g", "g", "g", "g"],
    "trajectory": ["a", "a", "b", "b"],
    "step": [0, 1, 0, 1],
    "state": ["s", "t", "s", "u"],
}
# The advantages of these columns, with the mean alone: 0.5 + (1 − 0.5), 0.5, …
ADVANTAGES = [1.0, 0.5, -1.0, -0.5]


def credit(**changes):
    return run(gigpo, **({"normalize": "mean"} | COLUMNS | changes))


def refusal_of(**changes):
    with pytest.raises(CreditError) as refusal:
        credit(**changes)
    return refusal.value


def test_step_batch_leaves_its_arguments_unchanged():
    arrays = {name: np.array(column) for name, column in COLUMNS.items()}
    arrays["rewards"][2] = NAN
    given = arrays | {"episode_score": np.array([1.0, 0.0]), "valid": np.array([True, True])}
    before = copy.deepcopy(given)
    out = credit(**given)
    out.advantage[:] = 7
    for name, array in given.items():
        np.testing.assert_array_equal(array, before[name])


class Tensor:
    """An object with ``__array__``, such as a tensor."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        if self.values == "elsewhere":
            raise TypeError("it is on a GPU")
        return np.array(self.values, dtype)


@pytest.mark.parametrize("form", [tuple, np.array, Tensor, deque], ids=lambda form: form.__name__)
def test_step_batch_accepts_lists_tuples_and_arrays(form):
    given = {name: form(column) for name, column in COLUMNS.items()}
    assert credit(**given).advantage.tolist() == ADVANTAGES


def test_step_batch_accepts_a_range():
    out = run(gigpo, [1.0, 0.0], group=[0, 0], trajectory=range(2), step=[0, 0], state=range(2))
    assert out.mask.all()


def test_step_batch_accepts_numbers_of_any_kind():
    out = credit(rewards=[0, Fraction(1), None, np.float32(0)])
    assert out.advantage.tolist() == ADVANTAGES


def test_step_ids_may_have_gaps_and_be_negative():
    assert credit(step=[-3, 2.5, 7, 2**40]).advantage.tolist() == ADVANTAGES


def test_step_batch_sorts_ids_of_several_types():
    trajectory = [("x", 1), ("x", 1), None, None]
    assert credit(trajectory=trajectory).advantage.tolist() == ADVANTAGES


@pytest.mark.parametrize(
    "score",
    [
        [3.0, 3.0, 1.0, 1.0],
        [3.0, 1.0],
        {"b": 1, "a": 3},
        np.array([3, 1]),
        {"a": 3, "b": 1, "c": 9},
    ],
    ids=["rows", "trajectories", "mapping", "array", "larger mapping"],
)
def test_step_batch_accepts_scores_by_row_by_trajectory_or_by_id(score):
    assert credit(episode_score=score).episode.tolist() == [1.0, 1.0, -1.0, -1.0]


def test_step_batch_scores_of_trajectories_are_in_the_order_of_their_first_rows():
    trajectory = ["z", "a", "a", "z"]
    assert credit(trajectory=trajectory, episode_score=[3, 1]).episode.tolist() == [1, -1, -1, 1]


def test_step_batch_without_scores_sums_the_rewards():
    out = credit(rewards=[NAN, 3.0, 1.0, NAN], default_step_reward=100.0)
    assert out.episode.tolist() == [1.0, 1.0, -1.0, -1.0]


def test_step_batch_uses_the_default_for_a_missing_reward():
    out = credit(rewards=[NAN, 3.0, 1.0, NAN], default_step_reward=0.5)
    assert out.returns.tolist() == [3.5, 3.0, 1.5, 0.5]


def test_step_batch_the_score_is_added_at_the_end_of_a_trajectory_without_rewards():
    out = credit(
        rewards=[NAN, NAN, 0.25, NAN],
        step=[1, 0, 0, 1],
        episode_score=[2.0, 9.0],
        default_step_reward=0.5,
    )
    assert out.returns.tolist() == [2.5, 3.0, 0.75, 0.5]


@pytest.mark.parametrize(
    "valid",
    [[True, True, False, True], [True, False], {"a": 1, "b": 0}, np.array([1, 1, 0, 0])],
    ids=["rows", "trajectories", "mapping", "array"],
)
def test_step_batch_rows_of_an_invalid_trajectory_take_no_part(valid):
    out = credit(valid=valid, rewards=[0.0, 1.0, INF, NAN], state=["s", "t", object(), "u"])
    assert out.mask.tolist() == [True, True, False, False]
    assert out.advantage.tolist() == [0.0] * 4
    assert out.returns.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert out.anchor.tolist() == [0, 1, -1, -1]


def test_step_batch_an_invalid_trajectory_needs_no_score():
    out = credit(valid={"a": True, "b": False}, episode_score=[1.0, NAN])
    assert out.mask.tolist() == [True, True, False, False]
    out = credit(valid=[True, False], rewards=[0.0, 1.0, NAN, NAN])
    assert out.mask.tolist() == [True, True, False, False]


def test_step_batch_where_nothing_is_valid_nothing_has_an_advantage():
    out = credit(valid=[False, False])
    assert not out.mask.any()
    assert out.advantage.tolist() == [0.0] * 4
    assert out.anchor.tolist() == [-1] * 4


def test_step_batch_accepts_no_rows():
    out = run(gigpo, [], group=[], trajectory=[], step=[], state=[], history=2)
    assert out.advantage.shape == out.anchor.shape == out.mask.shape == (0,)
    assert out.diagnostics.notes == ("The batch is empty.",)
    none = np.empty(0)
    out = run(gigpo, none, group=none, trajectory=none, step=none, state=none, episode_score=none)
    assert out.advantage.dtype == np.float64


def masked(values, *places):
    return np.ma.array(values, mask=[place in places for place in range(len(values))])


@pytest.mark.parametrize(
    "rewards", [masked([0.0, 1.0, 99.0, 0.0], 2), masked([0, 1, 99, 0], 2)], ids=["floats", "ints"]
)
def test_step_batch_treats_masked_rewards_as_missing(rewards):
    without = credit(rewards=[0.0, 1.0, None, 0.0], default_step_reward=0.25)
    out = credit(rewards=rewards, default_step_reward=0.25)
    assert out.advantage.tolist() == without.advantage.tolist()
    assert out.returns.tolist() == [1.0, 1.0, 0.25, 0.0]


def test_step_batch_treats_a_masked_score_as_missing():
    assert refusal_of(episode_score=masked([1.0, 7.0], 1)).rows == (2,)
    out = credit(episode_score=masked([1.0, 7.0], 1), valid=[True, False])
    assert out.advantage[:2].tolist() == [0.0, 0.0]


def test_step_batch_accepts_a_masked_array_without_masked_entries():
    given = {name: np.ma.array(column) for name, column in COLUMNS.items()}
    assert credit(**given).advantage.tolist() == ADVANTAGES


@pytest.mark.parametrize("name", ["group", "trajectory", "step", "state", "valid"])
def test_step_batch_rejects_masked_entries_in_required_columns(name):
    given = {**COLUMNS, "valid": [True] * 4}[name]
    assert name in str(refusal_of(**{name: masked(given, 3)}))


class Opaque:
    pass


OPAQUE = Opaque()


@dataclass(frozen=True)
class Name:
    of: object


@pytest.mark.parametrize("column", ["group", "trajectory"])
@pytest.mark.parametrize(
    "one",
    [frozenset("ab"), OPAQUE, ("q", OPAQUE), (1, ("q", frozenset("ab"))), Name(OPAQUE)],
    ids=["set", "address", "address in a tuple", "set in a tuple", "address in a field"],
)
def test_step_batch_rejects_ids_whose_order_changes_between_processes(column, one):
    refusal = refusal_of(**{column: [one, one, "b", "b"]})
    assert "has no order that is the same in every process in rows 0, 1" in str(refusal)
    assert refusal.rows == (0, 1)


def test_step_batch_accepts_ids_that_compare_by_content():
    ids = [Name("a"), Name("a"), Name(("b", 1)), Name(("b", 1))]
    assert credit(trajectory=ids).advantage.tolist() == ADVANTAGES


class Unhashable:
    def __hash__(self):
        raise OSError("no hash")


class Incomparable:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise OSError("no comparing")


@pytest.mark.parametrize("column", ["group", "trajectory"])
def test_step_batch_rejects_ids_whose_hash_raises(column):
    refusal = refusal_of(**{column: ["a", Unhashable(), "b", Unhashable()]})
    assert f"`{column}` is not hashable in rows 1, 3" in str(refusal)


def test_step_batch_rejects_ids_whose_comparison_raises():
    refusal = refusal_of(trajectory=[Incomparable() for _ in range(4)])
    assert "`trajectory` is not hashable" in str(refusal)
    assert refusal.rows


@pytest.mark.parametrize("rewards", [list, tuple, deque], ids=lambda form: form.__name__)
@pytest.mark.parametrize("truth", [True, np.True_], ids=["Python's", "numpy's"])
def test_step_batch_rejects_booleans_among_rewards(rewards, truth):
    refusal = refusal_of(rewards=rewards([0.0, truth, 0.5, truth]))
    assert "`rewards` is not a number in rows 1, 3" in str(refusal)
    assert refusal.rows == (1, 3)


@pytest.mark.parametrize(
    "score", [[True, 0.5], {"a": True, "b": 0.5}, [1.0, 1.0, False, False]], ids=str
)
def test_step_batch_rejects_booleans_among_scores(score):
    assert "`episode_score` is not a number" in str(refusal_of(episode_score=score))


@pytest.mark.parametrize(
    ("changes", "message", "rows"),
    [
        (
            {"state": ["s"]},
            "lengths differ: rewards 4, trajectory 4, step 4, group 4, state 1",
            (),
        ),
        ({"trajectory": ["a", "a", "b"]}, "trajectory 3", ()),
        (
            {"rewards": 1.0},
            "`rewards` must be a sequence or an array with one entry for each row, got a float",
            (),
        ),
        (
            {"rewards": np.array(1.0)},
            "`rewards` must be a sequence or an array with one entry for each row, got a ndarray",
            (),
        ),
        (
            {"rewards": (r for r in [0.0] * 4)},
            "`rewards` must be a sequence or an array with one entry for each row, got a generator",
            (),
        ),
        ({"rewards": [[0.0]] * 4}, "`rewards` must be 1-d, got shape (4, 1)", ()),
        ({"rewards": [[0.0], [1.0, 2.0], [0.0], [0.0]]}, "`rewards` can't be read as an array", ()),
        ({"rewards": ["0", "1", "2", "3"]}, "`rewards` must contain numbers, got <U1 values", ()),
        ({"rewards": [True, False, 1.0, 1.0]}, "`rewards` is not a number in rows 0, 1", (0, 1)),
        (
            {"rewards": [0.0, 1j, 0.0, 0.0]},
            "`rewards` must contain numbers, got complex128 values",
            (),
        ),
        ({"rewards": [0.0, None, "x", True]}, "`rewards` is not a number in rows 2, 3", (2, 3)),
        ({"rewards": [10**400, 0, 0, 0]}, "too large for a float", ()),
        ({"rewards": [0.0, INF, 0.0, -INF]}, "`rewards` is infinite in rows 1, 3", (1, 3)),
        (
            {"rewards": Tensor("elsewhere")},
            "`rewards` can't be read as an array: it is on a GPU",
            (),
        ),
        (
            {"group": "gggg"},
            "`group` must be a sequence or an array with one entry for each row, got a str",
            (),
        ),
        (
            {"group": {"g"}},
            "`group` must be a sequence or an array with one entry for each row, got a set",
            (),
        ),
        ({"group": ["g", [], "g", {}]}, "`group` is not hashable in rows 1, 3", (1, 3)),
        (
            {"group": [NAN, 1.0, 1.0, NAN]},
            "`group` has no order that is the same in every process in rows 0, 3",
            (0, 3),
        ),
        ({"group": np.zeros((4, 2))}, "`group` must be 1-d, got shape (4, 2)", ()),
        (
            {"group": ["g", "h", "g", "g"]},
            "trajectory 'a' of group 'g' is in group 'h' in row 1",
            (1,),
        ),
        ({"step": [0, 1, 0, NAN]}, "`step` is not finite in row 3", (3,)),
        ({"step": [0, INF, 0, 1]}, "`step` is not finite in row 1", (1,)),
        ({"step": [0, None, 0, 1]}, "`step` is not finite in row 1", (1,)),
        (
            {"step": ["0", "1", "0", "1"]},
            "`step` must contain numbers, got <U1 values",
            (),
        ),
        ({"step": [0, 1, 1, 1]}, "a step of a trajectory is repeated in row 3", (3,)),
        (
            {"step": [False, True, False, True]},
            "`step` must contain numbers, got bool values",
            (),
        ),
        (
            {"episode_score": [1.0, 2.0, 3.0]},
            "must have 4 entries (one for each row) or 2 (one for each trajectory), got 3",
            (),
        ),
        ({"episode_score": {"a": 1.0}}, "`episode_score` lacks the trajectories 'b'", ()),
        (
            {"episode_score": 1.0},
            "`episode_score` must be a sequence or an array with one entry for each row, got a",
            (),
        ),
        ({"episode_score": [1.0, 2.0, 0.0, 0.0]}, "differs within a trajectory in row 1", (1,)),
        ({"episode_score": [1.0, NAN, 0.0, 0.0]}, "differs within a trajectory in row 1", (1,)),
        ({"episode_score": [1.0, NAN]}, "not finite for the trajectories 'b', which", (2,)),
        (
            {"episode_score": {"a": INF, "b": None}},
            "not finite for the trajectories 'a', 'b'",
            (0, 2),
        ),
        ({"rewards": [NAN, NAN, 1.0, NAN]}, "neither a reward nor an `episode_score` for", (0,)),
        (
            {"valid": [True]},
            "`valid` must have 4 entries (one for each row) or 2 (one for each trajectory), got 1",
            (),
        ),
        ({"valid": {"a": True}}, "`valid` lacks the trajectories 'b'", ()),
        ({"valid": [0.5, 1.0]}, "`valid` must contain booleans", ()),
        ({"valid": ["no", "yes"]}, "`valid` must contain booleans", ()),
        ({"valid": [None, True]}, "`valid` must contain booleans", ()),
        (
            {"default_step_reward": None},
            "`default_step_reward` must be a finite number, got None",
            (),
        ),
    ],
    ids=lambda value: None if type(value) is dict else re.sub(r"\W+", " ", str(value)),
)
def test_step_batch_rejects_invalid_columns_with_their_rows(changes, message, rows):
    refusal = refusal_of(**changes)
    assert message in str(refusal)
    assert refusal.rows == rows


def test_step_batch_error_lists_the_first_rows_and_has_all_of_them():
    refusal = refusal_of(**{name: column * 3 for name, column in COLUMNS.items()})
    assert refusal.rows == tuple(range(4, 12))
    assert "in rows 4, 5, 6, 7, 8 and 3 more" in str(refusal)
