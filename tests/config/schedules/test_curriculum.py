import copy
import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from guerdon.config.schedules.curriculum import Curriculum, CurriculumSpec, Stage, Until
from guerdon.errors import InvalidArgumentError, StateError

FORMAT = {"component": "format", "mean_above": 0.5, "over": 3}
LAST = {"name": "last", "weights": {"task": 2.0}}


def curriculum(**until):
    return Curriculum([{"name": "first", "weights": {"task": 0.0}, "until": until}, LAST])


def moved(made, values, name="format"):
    """After which of several episodes it moved on, from 1."""
    return [
        number for number, value in enumerate(values, 1) if made.observe({name: value} if value
        is not ... else {})
    ]  # fmt: skip


# Moving on


def test_the_weights_are_those_of_the_stage():
    made = curriculum(episodes=1)
    assert made.stage.weights == {"task": 0.0}
    assert made.observe({})
    assert made.stage == Stage(**LAST)


def test_it_moves_on_after_so_many_episodes():
    assert moved(curriculum(episodes=3), [1.0] * 9) == [3]


def test_it_never_leaves_the_last_stage():
    made = Curriculum([LAST])
    assert moved(made, [1.0] * 5) == []
    assert made.episodes == 5


@pytest.mark.parametrize(
    ("values", "after"),
    [
        ([1, 1, 1], [3]),  # not before there are three
        ([1, 1], []),
        ([0, 0, 0, 1, 1], [5]),  # the last three: 0, 1, 1
        ([1, 0, 0, 1, 0, 0, 1, 0], []),
        ([0.5, 0.5, 0.5], []),  # above the bar, not at it
        ([0.5, 0.5, 0.51], [3]),
        ([1, ..., None, 1, ..., 1], [6]),  # what wasn't there is in no mean
        ([-1e9, 1e9, 1e9, 1e9], [3]),
    ],
    ids=str,
)
def test_it_moves_on_when_the_mean_of_the_last_three_is_above(values, after):
    assert moved(curriculum(**FORMAT), values) == after


def test_both_conditions_must_hold():
    assert moved(curriculum(episodes=5, **FORMAT), [1] * 6) == [5]
    assert moved(curriculum(episodes=2, **FORMAT), [0, 0, 0, 0, 1, 1]) == [6]


def test_a_stage_begins_with_no_memory_of_the_one_before():
    made = Curriculum(
        [{"name": "a", "until": FORMAT}, {"name": "b", "until": FORMAT}, {"name": "c"}]
    )
    assert moved(made, [1] * 7) == [3, 6]


def test_other_components_are_of_no_matter():
    made = curriculum(**FORMAT)
    assert moved(made, [1] * 9, name="task") == []
    assert made.episodes == 9


VALUES = st.floats(-1e308, 1e308, allow_subnormal=False) | st.sampled_from([0.1, 0.3, 0.7])


@given(st.lists(VALUES, max_size=40), st.integers(1, 5), st.sampled_from([-1.0, 0.1, 0.3, 0.7]))
def test_it_is_the_mean_worked_out_anew(values, over, bar):
    made = curriculum(component="format", mean_above=bar, over=over)
    expected = [
        end
        for end in range(over, len(values) + 1)
        if sum(map(Fraction, values[end - over : end])) > over * Fraction(bar)
    ][:1]
    assert moved(made, values) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", True, 10**400], ids=repr)
def test_a_component_that_is_no_number_is_refused_and_the_episode_not_counted(value):
    made = curriculum(episodes=1)
    with pytest.raises(InvalidArgumentError, match=r"the component 'format' is .* finite number"):
        made.observe({"task": 1.0, "format": value})
    assert made.episodes == 0
    assert made.stage.name == "first"


def test_what_it_keeps_is_bounded():
    made = curriculum(component="format", mean_above=2.0, over=10)
    moved(made, [1.0] * 1000)
    assert len(made.state_dict()["recent"]) == 10


def test_threads_lose_no_episode():
    stages = [{"name": str(n), "until": {"episodes": 100}} for n in range(9)]
    made = Curriculum([*stages, {"name": "last"}])
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda _: made.observe({"format": 1.0}), range(1000)))
    assert sum(ends) == 9
    assert (made.stage.name, made.episodes) == ("last", 100)


# State


@given(st.lists(st.sampled_from([0.0, 0.1, 0.7, 1.0, None]), max_size=30), st.integers(0, 30))
def test_it_goes_on_from_a_state_as_if_it_had_never_stopped(values, cut):
    whole, before, after = (curriculum(**FORMAT) for _ in range(3))
    expected = moved(whole, values)
    found = moved(before, values[:cut])
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    found += [cut + number for number in moved(after, values[cut:])]
    assert found == expected
    assert after.state_dict() == whole.state_dict()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_goes_on_by_itself(again):
    made = curriculum(**FORMAT)
    moved(made, [1, 1])
    other = again(made)
    assert moved(other, [1]) == [1]
    assert made.episodes == 2
    assert made.stage.name == "first"


def test_a_state_is_found_by_the_name_of_its_stage():
    made = Curriculum([{"name": "new", "until": {"episodes": 1}}, LAST])
    before = curriculum(episodes=1)
    before.observe({})
    made.load_state_dict(before.state_dict())
    assert made.stage.name == "last"


def test_a_window_that_became_shorter_keeps_the_last_values():
    before = curriculum(component="format", mean_above=0.5, over=9)
    moved(before, [0, 0, 0, 1, 1])
    made = curriculum(**FORMAT)
    made.load_state_dict(before.state_dict())
    assert made.state_dict()["recent"] == [0, 1, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stage": "gone"}, r"at stage 'gone'; there are \['first', 'last'\]"),
        ({"stage": None}, "at stage None"),
        ({"episodes": -1}, "episodes is -1"),
        ({"episodes": 1.5}, "episodes is 1.5"),
        ({"recent": [math.nan]}, "recent is"),
        ({"recent": "1"}, "recent is '1'"),
        ({"more": 1}, "doesn't fit"),
    ],
    ids=str,
)
def test_a_state_that_does_not_fit_is_refused_whole(change, said):
    made = curriculum(**FORMAT)
    moved(made, [1, 1])
    before = made.state_dict()
    with pytest.raises(StateError, match=said):
        made.load_state_dict({**before, "stage": "last", **change})
    assert made.state_dict() == before
    with pytest.raises(StateError, match="doesn't fit"):
        made.load_state_dict([])


# What is no curriculum


REFUSED = {
    "none": ([], "there are 0 stages; it takes from 1 to 1,000"),
    "no list": (3, "valid tuple"),
    "one name twice": ([{"name": "last", "until": {"episodes": 1}}, LAST], r"\[1\].name: stage 0"),
    "no until": ([{"name": "first"}, LAST], r"\[0\].until: it is missing"),
    "until at the end": ([{"name": "a", "until": {"episodes": 1}}], r"\[0\].until: nothing comes"),
    "empty until": ([{"name": "a", "until": {}}, LAST], r"\[0\].until: it says no condition"),
    "half an until": (
        [{"name": "a", "until": {"component": "x"}}, LAST],
        r"\[0\].until: it lacks mean_above and over",
    ),
    "no episode": ([{"name": "a", "until": {"episodes": 0}}, LAST], "greater than or equal to 1"),
    "half an episode": ([{"name": "a", "until": {"episodes": 1.5}}, LAST], "valid integer"),
    "true episodes": ([{"name": "a", "until": {"episodes": True}}, LAST], "valid integer"),
    "a wide window": ([{"name": "a", "until": FORMAT | {"over": 10_001}}, LAST], "10000"),
    "a bar of NaN": ([{"name": "a", "until": FORMAT | {"mean_above": math.nan}}, LAST], "finite"),
    "a weight of NaN": ([{"name": "a", "weights": {"x": math.nan}}], r"\[0\].weights.x: .*finite"),
    "a weight of text": ([{"name": "a", "weights": {"x": "1"}}], r"\[0\].weights.x: .*number"),
    "no name": ([{"weights": {}}], r"\[0\].name: Field required"),
    "an unknown key": ([{"name": "a", "wieghts": {}}], r"\[0\].wieghts: Extra"),
}


@pytest.mark.parametrize(("stages", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_curriculum_is_refused(stages, said):
    with pytest.raises(InvalidArgumentError, match=said):
        Curriculum(stages)


class File(BaseModel):
    curriculum: CurriculumSpec | None = None


def test_a_field_of_a_model_holds_stages_and_tells_the_place_of_each_mistake():
    stages = [{"name": "a", "until": FORMAT}, LAST]
    file = File(curriculum=stages)
    assert Curriculum(file.curriculum).stage.until == Until(**FORMAT)
    assert File.model_validate_json(file.model_dump_json()) == file
    with pytest.raises(ValidationError) as caught:
        File(curriculum=[LAST, LAST])
    assert [error["loc"] for error in caught.value.errors()] == [
        ("curriculum", 0, "until"),
        ("curriculum", 1, "name"),
    ]
    assert File.model_json_schema()["$defs"].keys() == {"Stage", "Until"}


def test_a_wrong_stage_is_all_that_is_told():
    with pytest.raises(InvalidArgumentError) as caught:
        Curriculum([{"name": "a", "weigths": {}}])
    assert str(caught.value).endswith("meant: [0].weigths: Extra inputs are not permitted")
