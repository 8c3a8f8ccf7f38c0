"""Which steps share an anchor group: by state, by similarity, by history."""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest

from guerdon.credit import gigpo
from guerdon.errors import CreditError
from tests.credit.calls import run

NAN = float("nan")


def anchors(states, **options):
    """The anchor groups of trajectories of one step each, in one group."""
    size = len(states)
    return run(
        gigpo,
        [0.0] * size,
        group=["g"] * size,
        trajectory=range(size),
        step=[0] * size,
        state=states,
        **options,
    ).anchor.tolist()


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Place:
    x: int
    y: int


@dataclass
class Unhashable:
    x: int


@pytest.mark.parametrize(
    "states",
    [
        ["a", "b", "a"],
        [1, 2, 1],
        [1, 1.0, 1],
        [1, True, 1],
        [1.0, True, 1.0],
        [0, False, 0],
        [0, None, 0],
        [b"a", "a", b"a"],
        [bytearray(b"a"), b"a", bytearray(b"a")],
        [NAN, 0.0, float("nan")],
        [0.0, 1.0, -0.0],
        [(1, 2), [1, 2], (1, 2)],
        [(1, (2, "a")), (1, (2, "b")), (1, (2, "a"))],
        [[1, [2]], [1, [2.0]], [1, [2]]],
        [{1, 2}, {1, 3}, {2, 1}],
        [{"a": 1, "b": [1]}, {"a": 1, "b": [True]}, {"b": [1], "a": 1}],
        [{1: "a"}, {True: "a"}, {1: "a"}],
        [{"a": {"b": None}}, {"a": {"b": 0}}, {"a": {"b": None}}],
        [{}, [], {}],
        [Colour.RED, Colour.BLUE, Colour.RED],
        [Place(1, 2), Place(2, 1), Place(1, 2)],
        [np.int64(1), np.int32(1), np.int64(1)],
        [np.float64(NAN), np.float64(1), np.float64(NAN)],
        [np.array([1, 2]), np.array([[1, 2]]), np.array([1, 2])],
        [np.array([1, 2]), np.array([1.0, 2.0]), np.array([1, 2])],
        [np.array([0.0, NAN]), np.array([0.0, 1.0]), np.array([-0.0, NAN])],
        [np.array([NAN]), np.array([1.0]), np.array([np.copysign(NAN, -1)])],
        [np.zeros(2), np.zeros(2, np.int64), np.zeros(2)],
        [np.array(["a", None]), np.array(["b", None]), np.array(["a", None])],
        [np.zeros((2, 2))[:, 0], np.zeros(3), np.zeros(2)],
        ["1", 1, "1"],
    ],
    ids=str,
)
def test_anchors_the_same_state_is_one_of_equal_type_and_content(states):
    assert anchors(states) == [0, 1, 0]


@pytest.mark.parametrize(
    "states",
    [np.array(["a", "b", "a"]), np.array([1, 2, 1]), np.array([[1, 2], [2, 1], [1, 2]])],
    ids=["text", "numbers", "rows"],
)
def test_anchors_states_may_be_an_array(states):
    assert anchors(states) == [0, 1, 0]


def test_anchors_dataclasses_compare_by_their_fields():
    states = [Place(1, 2), Place(1, 2), Place(1.0, 2), Place(True, 2), Unhashable(1), Unhashable(1)]
    assert list(anchors(states)) == [0, 0, 1, 2, 3, 3]


@dataclass
class Board:
    """Compares by its fields, which have no hash."""

    cells: object
    turn: int = 0


def test_anchors_a_dataclass_of_lists_and_arrays_is_a_state():
    states = [Board([1, [2]]), Board(np.arange(3)), Board([1, [2]]), Board([1, [2.0]])]
    assert list(anchors([*states, Board(np.arange(3)), Board([1, [2]], turn=1)])) == [
        0,
        1,
        0,
        2,
        1,
        3,
    ]


def test_anchors_a_dataclass_in_a_state_is_one_too():
    states = [{"board": Board({1, 2})}, (Board({1}),), {"board": Board({2, 1})}]
    assert list(anchors(states)) == [0, 1, 0]


class Raises:
    """A state whose every method raises."""

    def __init__(self, error=OSError):
        self._error = error

    def __hash__(self):
        raise self._error("no hash")


class Incomparable:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise OSError("no comparing")


class Items(dict):
    def items(self):
        raise OSError("no items")


@dataclass
class Half:
    x: int
    y: int = field(init=False)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (Raises(), "Raises"),
        (Raises(TypeError), "Raises"),
        ([1, {"a": Raises()}], "Raises"),
        (Board(Raises()), "Raises"),
        (Board(object()), "object"),
        (Items(a=1), "Items"),
        (Half(1), "Half"),
    ],
    ids=["hash", "type error", "inside", "field", "no content", "items", "unset field"],
)
def test_anchors_errors_of_a_state_are_reported_with_its_row(state, kind):
    with pytest.raises(CreditError, match=f"states can't be compared: {kind}") as refusal:
        anchors(["a", state, "b", state])
    assert refusal.value.rows == (1, 3)


def nested():
    state = []
    state.append(state)
    return state


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (object(), "object"),
        ((x for x in ()), "generator"),
        ([1, {"a": (object(),)}], "object"),
        (nested(), r"list \(RecursionError"),
        (Place, "type"),
    ],
    ids=["object", "generator", "inside", "endless", "class"],
)
def test_anchors_rejects_states_without_content_with_their_rows(state, kind):
    with pytest.raises(CreditError, match=f"states can't be compared: {kind}") as refusal:
        anchors(["a", state, "b", state])
    assert refusal.value.rows == (1, 3)
    assert "rows 1, 3" in str(refusal.value)


def test_anchors_the_state_of_an_invalid_row_may_be_anything():
    assert anchors(["a", object(), "a"], valid=[True, False, True]) == [0, -1, 0]


def test_anchors_rejects_a_string_as_column():
    with pytest.raises(
        CreditError,
        match="`state` must be a sequence or an array with one entry for each row, got a str",
    ):
        run(gigpo, [0.0], group=[0], trajectory=[0], step=[0], state="a")


def test_anchors_similar_texts_share_a_group_at_the_threshold():
    states = ["go to shelf 1", "look", "go to shelf 2"]
    assert anchors(states, similarity=0.9) == [0, 1, 0]
    assert anchors(states, similarity=1.0) == [0, 1, 2]


def test_anchors_similarity_stays_inside_a_group():
    credit = run(
        gigpo,
        [0.0] * 2,
        group=["g", "h"],
        trajectory=[0, 1],
        step=[0, 0],
        state=["shelf 1", "shelf 2"],
        similarity=0.5,
    )
    assert credit.anchor.tolist() == [0, 1]


def test_anchors_similarity_does_not_depend_on_the_order_of_the_rows():
    # b is near a and near c, which aren't near each other: who comes first decides.
    states = ["aaaaaa", "aaabbb", "bbbbbb"]
    table = {"group": ["g"] * 3, "step": [0] * 3, "similarity": 0.5}
    forward = run(gigpo, [0.0] * 3, trajectory=[0, 1, 2], state=states, **table).anchor
    backward = run(gigpo, [0.0] * 3, trajectory=[2, 1, 0], state=states[::-1], **table).anchor
    assert forward.tolist() == backward[::-1].tolist() == [0, 0, 1]
    other = run(gigpo, [0.0] * 3, trajectory=[2, 1, 0], state=states, **table).anchor
    assert other.tolist() == [1, 0, 0]


def test_anchors_ids_of_numpy_are_in_the_order_of_numbers():
    states = ["aaaaaa", "aaabbb", "bbbbbb"]
    table = {"group": ["g"] * 3, "step": [0] * 3, "state": states, "similarity": 0.5}
    ids = list(np.array([10, 2, 1]))  # as text 1, 10, 2
    assert run(gigpo, [0.0] * 3, trajectory=ids, **table).anchor.tolist() == [1, 0, 0]


def test_anchors_similarity_compares_texts_only():
    with pytest.raises(CreditError, match="`state` is not text in row 1; `similarity`") as refusal:
        anchors(["a", 1], similarity=0.9)
    assert refusal.value.rows == (1,)


#           a                   b                   c
STATES = ["s", "x", "y", "x", "s", "x", "y", "z", "t", "x", "y", "z"]
WALKS = {
    "group": ["g"] * 12,
    "trajectory": ["a"] * 4 + ["b"] * 4 + ["c"] * 4,
    "step": [0, 1, 2, 3] * 3,
    "state": STATES,
}


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (0, [0, 1, 2, 1, 0, 1, 2, 3, 4, 1, 2, 3]),
        # x after s, x after y, x after t are three; y always comes after x, z after y
        (1, [0, 1, 2, 3, 0, 1, 2, 4, 5, 6, 2, 4]),
        # y after s x and y after t x are two, z after x y is one
        (2, [0, 1, 2, 3, 0, 1, 2, 4, 5, 6, 7, 4]),
        (3, [0, 1, 2, 3, 0, 1, 2, 4, 5, 6, 7, 8]),
        (9, [0, 1, 2, 3, 0, 1, 2, 4, 5, 6, 7, 8]),
    ],
)
def test_anchors_with_history_the_states_before_must_be_the_same(history, expected):
    assert run(gigpo, [0.0] * 12, **WALKS, history=history).anchor.tolist() == expected


def test_anchors_history_is_in_the_order_of_the_steps():
    order = np.random.default_rng(0).permutation(12)
    shuffled = {name: [column[row] for row in order] for name, column in WALKS.items()}
    credit = run(gigpo, [0.0] * 12, **shuffled, history=2)
    assert (
        credit.anchor.tolist() == run(gigpo, [0.0] * 12, **WALKS, history=2).anchor[order].tolist()
    )


def test_anchors_rejects_states_whose_comparison_raises():
    with pytest.raises(CreditError, match="state"):
        anchors([Incomparable(), Incomparable(), "b"])
