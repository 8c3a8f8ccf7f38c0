"""How `build_rubric` calls classes and functions of any signature."""

import functools
from typing import Generic, TypeVar

import pytest

from guerdon import RegexMatch, Rubric, reward_function
from guerdon.config import RubricEntry, build_rubric
from guerdon.errors import RewardConfigError

T = TypeVar("T")


class Scored(Rubric):
    def forward(self, action, observation):
        return 1.0


class ByPosition(Scored):
    def __init__(self, longest: int, /, *, rest: int = 0):
        super().__init__()
        self.longest = longest


class ConfigByPosition(Scored):
    def __init__(self, config, mcp_client=None, /):
        super().__init__()
        self.config = config


class Of(Scored, Generic[T]):
    def __init__(self, longest: int = 1):
        super().__init__()
        self.longest = longest


def with_all_defaults(pattern: str = "please", ignore_case: bool = True):
    return RegexMatch(pattern, ignore_case=ignore_case)


def annotated_factory(pattern, ignore_case) -> Rubric:
    return RegexMatch(pattern, ignore_case=ignore_case)


def config_first(config, action, observation):
    return config["score"]


def by_position(action, observation, /, score: float = 0.5):
    return score


def keyed(action, observation, *, score: float):
    return score


def any_names(text, seen, *, score: float = 0.5):
    return score


def only(config):
    """A factory whose only parameter is `config`."""
    return lambda action, observation: config["score"]


def make(rubric, **config):
    return build_rubric(RubricEntry(name="it", rubric=rubric, config=config))


def refused(rubric, **config):
    with pytest.raises(RewardConfigError) as caught:
        make(rubric, **config)
    return list(caught.value.problems)


def test_build_rubric_passes_positional_only_parameters():
    assert make(ByPosition, longest=3).longest == 3
    assert make(ConfigByPosition, x=1).config == {"x": 1}
    assert refused(ByPosition) == ["config.longest: is required"]


def test_build_rubric_calls_a_factory_with_defaults():
    assert make(with_all_defaults)("please", None) == 1.0
    assert make(with_all_defaults, pattern="thanks")("please", None) == 0.0


def test_build_rubric_calls_a_factory_annotated_with_a_rubric():
    assert len(refused(annotated_factory)) == 2
    assert make(annotated_factory, pattern="A", ignore_case=True)("a", None) == 1.0


@pytest.mark.parametrize(
    ("function", "config", "score"),
    [
        pytest.param(config_first, {"score": 0.25}, 0.25, id="config_first"),
        pytest.param(by_position, {}, 0.5, id="by_position"),
        pytest.param(by_position, {"score": 0.25}, 0.25, id="by_position_and_more"),
        pytest.param(keyed, {"score": 0.25}, 0.25, id="by_name"),
        pytest.param(any_names, {"score": 0.25}, 0.25, id="other_names"),
        pytest.param(only, {"score": 0.25}, 0.25, id="factory"),
        pytest.param(functools.partial(keyed, score=0.75), {}, 0.75, id="partial"),
        pytest.param(functools.partial(keyed, score=0.75), {"score": 0.25}, 0.25, id="partial_set"),
    ],
)
def test_build_rubric_calls_functions_of_any_signature(function, config, score):
    assert make(function, **config)("a", None) == score


def test_build_rubric_reports_missing_arguments_of_a_scoring_function():
    assert refused(keyed) == ["config.score: is required"]
    wrong = refused(functools.partial(keyed), score="high")
    assert wrong == ['config.score: must be a finite number, got "high"']


def test_build_rubric_accepts_a_generic_class_with_types():
    assert make(Of[int], longest=3).longest == 3


def test_build_rubric_refuses_a_batch_function():
    @reward_function(mode="batch")
    def ranked(rollouts_messages):
        return [0.5] * len(rollouts_messages)

    assert refused(ranked)[0].startswith("rubric: ranked compares the rollouts of a batch")
