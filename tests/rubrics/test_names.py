"""Names of rubrics: given to containers by mappings, and shown with scores."""

import copy
import pickle

import pytest

from guerdon import (
    Gate,
    LengthBounds,
    NumericAnswer,
    RegexMatch,
    Rubric,
    RubricDict,
    Sequential,
    WeightedSum,
)
from guerdon.errors import GuerdonError, InvalidArgumentError
from guerdon.rubrics import as_rubric


class Right(Rubric):
    """Always 1."""

    def forward(self, action, observation):
        return 1.0


def named():
    return WeightedSum(
        {"correct": NumericAnswer(expected="42"), "brief": LengthBounds(maximum=20)},
        weights={"brief": 0.2, "correct": 1.0},
    )


def test_weighted_sum_names_its_components():
    rubric = named()
    score = rubric.score("A: 42", None)
    assert (score.value, score.components()) == (1.2, {"correct": 1.0, "brief": 1.0})
    assert rubric.weights == {"correct": 1.0, "brief": 0.2}
    assert [child.weight for child in score.children] == [1.0, 0.2]


def test_names_hold_in_copies_and_pickles():
    for copied in (copy.deepcopy(named()), pickle.loads(pickle.dumps(named()))):
        assert copied.fingerprint() == named().fingerprint()
        assert copied.get_rubric("rubric_1") is copied.brief
        assert copied("A: 42", None) == 1.2


def test_weights_by_name_can_be_set_by_name_or_in_order():
    rubric = named()
    rubric.weights = {"brief": 2.0, "correct": 1.0}
    assert rubric("A: 42", None) == 3.0
    rubric.weights = [0.5, 0.25]
    assert rubric.weights == {"correct": 0.5, "brief": 0.25}
    state = rubric.state_dict()
    other = named()
    other.load_state_dict(state)
    assert other.fingerprint() == rubric.fingerprint()


@pytest.mark.parametrize(
    ("names", "weights", "expected"),
    [
        (["a", "b"], {"a": 1.0}, r"missing \['b'\], unknown \[\]"),
        (["a"], {"a": 1.0, "c": 2.0}, r"missing \[\], unknown \['c'\]"),
        (["correct"], {"corect": 1.0}, r"missing \['correct'\], unknown \['corect'\]"),
        (["a", "b"], [1.0], "got 2 rubrics and 1 weights"),
        (["a"], "1", "one number per rubric"),
        (["a"], 1.0, "one number per rubric"),
        (["a"], None, "one number per rubric"),
        (["a"], {"a": float("nan")}, r"`weights\['a'\]` must be a finite number"),
        (["a", "b"], {}, r"missing \['a', 'b'\]"),
        (["rubric_1"], [1.0], "'rubric_1' can't be the name of rubric 0"),
    ],
)
def test_weighted_sum_rejects_weights_that_do_not_match(names, weights, expected):
    with pytest.raises(InvalidArgumentError, match=expected):
        WeightedSum({name: Right() for name in names}, weights)


@pytest.mark.parametrize("name", ["a.b", "", "score", "forward", "reset", "children", 1])
def test_containers_reject_an_invalid_name(name):
    with pytest.raises(GuerdonError):
        WeightedSum({name: Right()}, [1.0])
    with pytest.raises(GuerdonError):
        Sequential({name: Right()})


def test_sequential_and_gate_take_names():
    rubric = Sequential({"format": Gate({"labelled": RegexMatch("A:")}), "answer": named()})
    assert [path for path, _ in rubric.named_rubrics()] == [
        "format", "format.labelled", "answer", "answer.correct", "answer.brief",
    ]  # fmt: skip
    assert rubric("A: 42", None) == 1.2
    stopped = rubric.score("42", None)
    assert stopped.value == 0.0
    assert stopped["answer"].reason == "format scored 0"


def test_paths_by_place_lead_to_rubrics_with_names():
    rubric = Sequential({"format": Gate({"labelled": RegexMatch("A:")}), "answer": named()})
    for path, name in (
        ("rubric_0", "format"), ("rubric_0.rubric", "format.labelled"), ("rubric_1", "answer"),
        ("rubric_1.rubric_1", "answer.brief"), ("answer.rubric_0", "answer.correct"),
    ):  # fmt: skip
        assert rubric.get_rubric(path) is rubric.get_rubric(name)
    for path in ("rubric_2", "rubric_0.rubric_0", "rubric"):
        with pytest.raises(KeyError, match="no rubric at"):
            rubric.get_rubric(path)


def test_sequential_keeps_the_order_of_its_names():
    rubric = Sequential({"last": RegexMatch("a"), "first": RegexMatch("b")})
    rubric.last = None
    rubric.last = RegexMatch("c")
    assert [name for name, _ in rubric.named_children()] == ["last", "first"]


def test_a_gate_takes_one_rubric():
    for names in ([], ["a", "b"]):
        with pytest.raises(GuerdonError, match="one child"):
            Gate({name: Right() for name in names})


def test_sequential_takes_a_rubric_dict_as_a_rubric():
    rubric = Sequential(RubricDict({"a": Right()}))
    assert [name for name, _ in rubric.named_children()] == ["rubric_0"]


def test_lists_still_number_their_rubrics():
    rubric = WeightedSum([Right(), Right()], [1.0, 2.0])
    assert (rubric.weights, rubric.rubric_1(None, None)) == ([1.0, 2.0], 1.0)
    assert rubric.get_rubric("rubric_1") is rubric.rubric_1


def test_scores_have_the_class_and_the_label_of_each_rubric():
    def polite(action, observation):
        return float("please" in action)

    rubric = Sequential(Gate(as_rubric(polite)), WeightedSum({"right": Right()}, [1.0]))
    for action in ("please", "now"):  # scored, and skipped
        nodes = {
            path: (node.rubric, node.label) for path, node in rubric.score(action, None).walk()
        }
        assert nodes == {
            "": ("Sequential", None), "rubric_0": ("Gate", None),
            "rubric_0.rubric": ("polite", None), "rubric_1": ("WeightedSum", None),
            "rubric_1.right": ("Right", "right"),
        }  # fmt: skip
    assert rubric.score("please", None).to_dict()["children"][0]["rubric"] == "Gate"
