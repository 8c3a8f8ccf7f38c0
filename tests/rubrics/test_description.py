"""describe: what there is to say of each rubric of a tree."""

import json

from hypothesis import given
from hypothesis import strategies as st

from guerdon import (
    Ensemble,
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    RubricDict,
    Sequential,
    WeightedSum,
)
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.state import describe


class Number(Rubric):
    """The answer is a number.

    More than a table needs.
    """

    score_range = (0, 1)
    reads = ("ground_truth",)

    def forward(self, action, observation):
        return 1.0


class Silent(Rubric):
    def forward(self, action, observation):
        return 1.0


class Judge(Silent):
    async def forward(self, action, observation):
        return 1.0


class Final(ExponentialDiscountingTrajectoryRubric):
    """How it ended."""

    def score_trajectory(self, trajectory):
        return 1.0


def by_path(rubric):
    return {each["path"]: each for each in describe(rubric)}


def test_describe_uses_the_first_line_of_a_docstring():
    assert list(describe(Number())) == [
        {
            "path": "",
            "rubric": "Number",
            "measures": "The answer is a number.",
            "range": [0, 1],
            "weight": None,
            "depends_on": ["ground_truth"],
            "async": False,
        }
    ]


def test_describe_reports_none_for_what_is_not_declared():
    (reported,) = describe(Silent())
    assert (reported["measures"], reported["range"], reported["weight"]) == (None, None, None)
    assert reported["depends_on"] == []


def test_describe_names_a_function():
    def polite(action, observation):
        """Says please.

        Twice.
        """
        return 1.0

    (reported,) = describe(as_rubric(polite))
    assert (reported["rubric"], reported["measures"]) == ("polite", "Says please.")


def test_describe_lists_a_tree_depth_first_with_dotted_paths():
    tree = WeightedSum([Sequential(Gate(Number()), Silent()), Number()], [0.75, 0.25])
    assert [each["path"] for each in describe(tree)] == [
        "",
        "rubric_0",
        "rubric_0.rubric_0",
        "rubric_0.rubric_0.rubric",
        "rubric_0.rubric_1",
        "rubric_1",
    ]


def test_describe_reports_the_weights_of_the_parent():
    reported = by_path(WeightedSum([Number(), WeightedSum([Silent()], [2])], [0.75, -0.25]))
    assert {path: each["weight"] for path, each in reported.items()} == {
        "": None,
        "rubric_0": 0.75,
        "rubric_1": -0.25,
        "rubric_1.rubric_0": 2,
    }


def test_describe_reports_conditions_of_children():
    reported = by_path(Sequential(Gate(Number(), 0.5), Silent()))
    assert reported["rubric_0"]["depends_on"] == []
    assert reported["rubric_1"]["depends_on"] == ["rubric_0 ≠ 0"]
    assert reported["rubric_0.rubric"]["depends_on"] == ["passes at 0.5", "ground_truth"]


def test_describe_reports_that_a_trajectory_rubric_needs_the_whole_episode():
    reported = by_path(Sequential(Number(), Final()))
    assert reported["rubric_1"]["depends_on"] == ["rubric_0 ≠ 0", "the whole episode"]


def test_describe_reports_that_a_parent_dispatches():
    reported = by_path(RubricDict({"chess": Number()}))
    assert "its parent choosing 'chess'" in reported["chess"]["depends_on"]


def test_describe_reports_async_members_and_their_ancestors():
    reported = by_path(Sequential(Number(), Gate(Judge())))
    assert {path for path, each in reported.items() if each["async"]} == {
        "",
        "rubric_1",
        "rubric_1.rubric",
    }


def test_describe_lists_a_shared_child_at_each_of_its_places():
    number = Number()
    reported = by_path(WeightedSum([number, Sequential(number)], [1, 0.5]))
    assert {"rubric_0", "rubric_1.rubric_0"} <= set(reported)
    assert reported["rubric_0"]["weight"] == 1


trees = st.recursive(
    st.builds(Number) | st.builds(Silent) | st.builds(Judge),
    lambda inner: (
        st.builds(Gate, inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda children: Sequential(*children))
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda children: WeightedSum(children, [1.0] * len(children))
        )
        | st.lists(inner, min_size=1, max_size=3).map(Ensemble)
        | st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(RubricDict)
    ),
    max_leaves=8,
)


@given(trees)
def test_describe_lists_every_rubric_once_as_json(tree):
    reported = list(describe(tree))
    assert [each["path"] for each in reported] == ["", *(path for path, _ in tree.named_rubrics())]
    for each in reported[1:]:
        assert tree.get_rubric(each["path"])._title() == each["rubric"]
    assert json.loads(json.dumps(reported)) == reported
