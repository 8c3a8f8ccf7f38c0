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

from guerdon.config.curriculum import (
    Curriculum,
    CurriculumStage,
    EpisodeMeans,
    Progress,
    StageCondition,
    Stages,
)
from guerdon.errors import InvalidArgumentError, StateError

FORMAT = {"component": "format", "mean_above": 0.5, "over": 3}
LAST = {"name": "last", "weights": {"task": 2.0}}


def curriculum(**until):
    return Curriculum([{"name": "first", "weights": {"task": 0.0}, "until": until}, LAST])


def moved(made, values, name="format"):
    """Return the numbers, from 1, of the episodes after which it moved on."""
    return [
        number for number, value in enumerate(values, 1) if made.observe({name: value} if value
        is not ... else {})
    ]  # fmt: skip


# Moving on


def test_curriculum_stage_has_its_weights():
    made = curriculum(episodes=1)
    assert made.stage.weights == {"task": 0.0}
    assert made.observe({})
    assert made.stage == CurriculumStage(**LAST)


def test_curriculum_moves_on_after_a_number_of_episodes():
    assert moved(curriculum(episodes=3), [1.0] * 9) == [3]


def test_curriculum_stays_in_the_last_stage():
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
        ([0.5, 0.5, 0.5], []),  # above the threshold, not at it
        ([0.5, 0.5, 0.51], [3]),
        ([1, ..., None, 1, ..., 1], [6]),  # absent components are not in the mean
        ([-1e9, 1e9, 1e9, 1e9], [3]),
    ],
    ids=str,
)
def test_curriculum_moves_on_when_the_mean_is_above(values, after):
    assert moved(curriculum(**FORMAT), values) == after


def test_curriculum_requires_both_conditions():
    assert moved(curriculum(episodes=5, **FORMAT), [1] * 6) == [5]
    assert moved(curriculum(episodes=2, **FORMAT), [0, 0, 0, 0, 1, 1]) == [6]


def test_curriculum_stage_begins_without_earlier_values():
    made = Curriculum(
        [{"name": "a", "until": FORMAT}, {"name": "b", "until": FORMAT}, {"name": "c"}]
    )
    assert moved(made, [1] * 7) == [3, 6]


def test_curriculum_ignores_other_components():
    made = curriculum(**FORMAT)
    assert moved(made, [1] * 9, name="task") == []
    assert made.episodes == 9


VALUES = st.floats(-1e308, 1e308, allow_subnormal=False) | st.sampled_from([0.1, 0.3, 0.7])


@given(st.lists(VALUES, max_size=40), st.integers(1, 5), st.sampled_from([-1.0, 0.1, 0.3, 0.7]))
def test_curriculum_mean_is_exact(values, over, bar):
    made = curriculum(component="format", mean_above=bar, over=over)
    expected = [
        end
        for end in range(over, len(values) + 1)
        if sum(map(Fraction, values[end - over : end])) > over * (Fraction(bar) + Fraction(1e-9))
    ][:1]
    assert moved(made, values) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", True, 10**400], ids=repr)
def test_curriculum_observe_refuses_a_component_that_is_not_finite(value):
    made = curriculum(episodes=1)
    with pytest.raises(InvalidArgumentError, match="must be a finite number or None"):
        made.observe({"task": 1.0, "format": value})
    assert made.episodes == 0
    assert made.stage.name == "first"


def test_curriculum_keeps_a_bounded_number_of_values():
    made = curriculum(component="format", mean_above=2.0, over=10)
    moved(made, [1.0] * 1000)
    assert len(made.state_dict()["recent"]) == 10


def test_curriculum_observe_is_thread_safe():
    stages = [{"name": str(n), "until": {"episodes": 100}} for n in range(9)]
    made = Curriculum([*stages, {"name": "last"}])
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda _: made.observe({"format": 1.0}), range(1000)))
    assert sum(ends) == 9
    assert (made.stage.name, made.episodes) == ("last", 100)


# State


@given(st.lists(st.sampled_from([0.0, 0.1, 0.7, 1.0, None]), max_size=30), st.integers(0, 30))
def test_curriculum_load_state_dict_continues(values, cut):
    whole, before, after = (curriculum(**FORMAT) for _ in range(3))
    expected = moved(whole, values)
    found = moved(before, values[:cut])
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    found += [cut + number for number in moved(after, values[cut:])]
    assert found == expected
    assert after.state_dict() == whole.state_dict()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_curriculum_can_be_copied_and_pickled(again):
    made = curriculum(**FORMAT)
    moved(made, [1, 1])
    other = again(made)
    assert moved(other, [1]) == [1]
    assert made.episodes == 2
    assert made.stage.name == "first"


def test_curriculum_load_state_dict_finds_the_stage_by_name():
    made = Curriculum([{"name": "new", "until": {"episodes": 1}}, LAST])
    before = curriculum(episodes=1)
    before.observe({})
    made.load_state_dict(before.state_dict())
    assert made.stage.name == "last"


def test_curriculum_load_state_dict_keeps_the_last_values():
    before = curriculum(component="format", mean_above=0.5, over=9)
    moved(before, [0, 0, 0, 1, 1])
    made = curriculum(**FORMAT)
    made.load_state_dict(before.state_dict())
    assert made.state_dict()["recent"] == [0, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage": "gone"}, r"`stage` must be one of \['first', 'last'\], got 'gone'"),
        ({"stage": None}, "stage: must be a string, got null"),
        ({"episodes": -1}, "episodes: must be greater than or equal to 0, got -1"),
        ({"episodes": 1.5}, "got 1.5"),
        ({"recent": [math.nan]}, r"recent\[0\]: must be a finite number"),
        ({"recent": "1"}, 'recent: must be a list, got "1"'),
        ({"more": 1}, "more: unknown key"),
    ],
    ids=str,
)
def test_curriculum_load_state_dict_refuses_an_invalid_state(change, message):
    made = curriculum(**FORMAT)
    moved(made, [1, 1])
    before = made.state_dict()
    with pytest.raises(StateError, match=message):
        made.load_state_dict({**before, "stage": "last", **change})
    assert made.state_dict() == before
    with pytest.raises(StateError, match="must be a mapping, got a list"):
        made.load_state_dict([])


# Invalid stages


REFUSED = {
    "none": ([], "must have from 1 to 1,000 stages, got 0"),
    "no list": (3, "must be a list, got 3"),
    "one name twice": (
        [{"name": "last", "until": {"episodes": 1}}, LAST],
        r"must be unique; stage 0",
    ),
    "no until": ([{"name": "first"}, LAST], r"\[0\].until: is required"),
    "until at the end": ([{"name": "a", "until": {"episodes": 1}}], r"\[0\].until: must be absent"),
    "empty until": ([{"name": "a", "until": {}}, LAST], r"\[0\].until: must have episodes, or"),
    "half an until": (
        [{"name": "a", "until": {"component": "x"}}, LAST],
        r"\[0\].until: .* it lacks mean_above and over",
    ),
    "no episode": (
        [{"name": "a", "until": {"episodes": 0}}, LAST],
        "or equal to 1, got 0",
    ),
    "half an episode": ([{"name": "a", "until": {"episodes": 1.5}}, LAST], "must be an integer"),
    "true episodes": ([{"name": "a", "until": {"episodes": True}}, LAST], "must be an integer"),
    "a wide window": ([{"name": "a", "until": FORMAT | {"over": 10_001}}, LAST], "10000"),
    "a bar of NaN": ([{"name": "a", "until": FORMAT | {"mean_above": math.nan}}, LAST], "finite"),
    "a weight of NaN": ([{"name": "a", "weights": {"x": math.nan}}], r"\[0\].weights.x: .*finite"),
    "a weight of text": ([{"name": "a", "weights": {"x": "1"}}], r"\[0\].weights.x: .*number"),
    "no name": ([{"weights": {}}], r"\[0\].name: is required"),
    "an unknown key": ([{"name": "a", "wieghts": {}}], r"\[0\].wieghts: unknown key"),
}


@pytest.mark.parametrize(("stages", "message"), REFUSED.values(), ids=REFUSED)
def test_curriculum_refuses_invalid_stages(stages, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Curriculum(stages)


class File(BaseModel):
    curriculum: Stages | None = None


def test_stages_is_the_type_of_a_field_of_a_pydantic_model():
    stages = [{"name": "a", "until": FORMAT}, LAST]
    file = File(curriculum=stages)
    assert Curriculum(file.curriculum).stage.until == StageCondition(**FORMAT)
    assert File.model_validate_json(file.model_dump_json()) == file
    with pytest.raises(ValidationError) as caught:
        File(curriculum=[LAST, LAST])
    assert [error["loc"] for error in caught.value.errors()] == [
        ("curriculum", 0, "until"),
        ("curriculum", 1, "name"),
    ]
    assert File.model_json_schema()["$defs"].keys() == {"CurriculumStage", "StageCondition"}


def test_curriculum_reports_only_the_invalid_stage():
    with pytest.raises(InvalidArgumentError) as caught:
        Curriculum([{"name": "a", "weigths": {}}])
    assert str(caught.value).endswith("invalid: [0].weigths: unknown key; did you mean 'weights'?")


# Progress


def test_progress_fork_follows_its_parent():
    progress = Progress()
    own = progress.fork()
    progress.report(training_step=5)
    assert (own.training_step, own.begin(), progress.begin(), own.episode) == (5, 0, 1, 2)


def test_progress_fork_has_its_own_reports():
    progress = Progress()
    own, other = progress.fork(), progress.fork()
    own.report(training_step=7, episode=100)
    assert (own.begin(), own.begin(), own.training_step) == (100, 101, 7)
    assert (progress.episode, progress.training_step) == (2, 0)
    assert (other.episode, other.training_step) == (2, 0)
    assert own.to_dict() == {"episode": 102, "training_step": 7, "stage": None}


def test_progress_forks_share_the_curriculum():
    progress = Progress(Curriculum([{"name": "one", "until": {"episodes": 1}}, {"name": "two"}]))
    own = progress.fork()
    own.curriculum.observe({})
    assert progress.to_dict()["stage"] == own.to_dict()["stage"] == "two"


def test_episode_means_skips_sums_that_are_too_large():
    received = []
    means = EpisodeMeans(received.append)
    means({"a": 1e308, "b": 1.0}, False)
    means({"a": 1e308, "b": 0.0}, True)
    assert received == [{"b": 0.5}]
