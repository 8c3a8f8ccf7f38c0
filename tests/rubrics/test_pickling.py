"""Pickling trees and reward functions, as into a process that was spawned."""

import asyncio
import copy
import functools
import multiprocessing
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from guerdon._loading import PREFIX
from guerdon.errors import RubricDefinitionError, RubricError
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    LLMJudge,
    NumericAnswer,
    Rubric,
    RubricComposer,
    RubricDict,
    RubricList,
    Sequential,
    WeightedSum,
    as_reward_function,
    as_rubric,
    load_reward,
    reward_function,
)
from guerdon.rubrics.pickling import is_importable
from guerdon.services import ChatModel

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "A: 42"}]


def brief(action, observation):
    """The text is short."""
    return float(len(action.content) < 9)


def scaled(action, observation, factor=1.0):
    return factor * brief(action, observation)


@reward_function
def answered(messages, ground_truth=None):
    return float(ground_truth in messages[-1].text)


def plain(messages):
    return 0.5


renamed = reward_function(plain)


class Won(ExponentialDiscountingTrajectoryRubric):
    async def score_trajectory(self, trajectory):
        await asyncio.sleep(0)
        return 1.0

    @staticmethod
    @reward_function
    def inside(messages):
        return 0.25


class OwnState(Rubric):
    """It pickles as its author wants."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.function = lambda: None

    def __reduce__(self):
        return OwnState, (self.factor,)

    def forward(self, action, observation):
        return self.factor


def played():
    rubric = Won()
    asyncio.run(rubric.evaluate("move", {"done": True}))
    return rubric


def judged(fields):
    return LLMJudge("{b}", ChatModel("http://127.0.0.1:9", "m"), fields=fields)


TREES = {
    "rubric": NumericAnswer,
    "function": lambda: as_rubric(brief),
    "partial": lambda: as_rubric(functools.partial(scaled, factor=0.5)),
    "own": lambda: OwnState(0.5),
    "reward function": lambda: as_rubric(answered),
    "renamed": lambda: as_rubric(renamed),
    "nested": lambda: Sequential(Gate(brief), WeightedSum([NumericAnswer(), answered], [1.0, 0.5])),
    "guarded": lambda: Guarded(brief, retries=1),
    "list": lambda: RubricList([NumericAnswer(), as_rubric(brief)]),
    "dict": lambda: RubricDict({"brief": as_rubric(brief)}),
    "composer": lambda: RubricComposer({"brief": brief}, [1.0]),
    "after an episode": played,
    "judge": lambda: LLMJudge(
        "{action}", ChatModel("http://127.0.0.1:9", "m"), fields={"b": brief}
    ),
    "back": lambda: as_rubric(as_reward_function(NumericAnswer())),
}


@pytest.mark.parametrize("protocol", [2, pickle.DEFAULT_PROTOCOL, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("name", TREES)
def test_rubric_pickles_with_all_below_it(name, protocol):
    tree = TREES[name]()
    again = pickle.loads(pickle.dumps(tree, protocol))
    assert repr(again) == repr(tree)
    assert again.fingerprint() == tree.fingerprint()
    assert [path for path, _ in again.named_rubrics()] == [path for path, _ in tree.named_rubrics()]


def in_another_process(function):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_score, function).result()


def _score(function):
    result = function(CHAT, "42")
    return asyncio.run(result) if function.is_async else result


@pytest.mark.edge
@pytest.mark.parametrize(
    "function",
    [
        answered,
        as_reward_function(Sequential(Gate(brief), WeightedSum([NumericAnswer()], [1.0]))),
        as_reward_function(WeightedSum([Won(gamma=0.5), NumericAnswer()], [0.5, 0.5])),
    ],
    ids=["decorated", "tree", "async"],
)
def test_reward_function_pickles_into_a_spawned_process(function):
    assert in_another_process(function) == _score(function)
    assert _score(function).score == 1.0


@pytest.mark.parametrize("function", [answered, renamed, Won.inside, as_reward_function(Won())])
def test_reward_function_pickles(function):
    again = pickle.loads(pickle.dumps(function))
    assert (again.__name__, again.mode) == (function.__name__, function.mode)
    assert _score(again) == _score(function)
    assert (again is function) == (function in (answered, Won.inside))


def test_as_reward_function_pickles_with_the_weights_of_the_tree():
    tree = RubricComposer({"answer": NumericAnswer()}, [1.0], normalize=False)
    function = as_reward_function(tree)
    tree.update_weights({"answer": 3.0})
    assert pickle.loads(pickle.dumps(function))(CHAT, "42").score == 3.0


# Rewards of a file, whose module another process doesn't have

REWARDS = """
from guerdon import Rubric, Sequential, WeightedSum, reward_function


class Short(Rubric):
    def forward(self, action, observation):
        return 1.0


def function(action, observation):
    return 0.5


@reward_function
def decorated(messages):
    return 0.25


def plain(messages):
    return 0.125


renamed = reward_function(plain)
tree = Sequential(Short(), WeightedSum([Short(), function, decorated], [1.0, 1.0, 1.0]))
short = Short()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(REWARDS)
    yield path
    for name in [name for name in sys.modules if name.startswith(f"{PREFIX}rewards_")]:
        del sys.modules[name]


NAMES = {"tree": 1.75, "short": 1.0, "function": 0.5, "decorated": 0.25, "renamed": 0.125}


@pytest.mark.parametrize("name", NAMES)
def test_load_reward_of_a_file_pickles_with_its_file(file, name):
    pickled = pickle.dumps(as_reward_function(load_reward(f"{file}:{name}")))
    [module] = [name for name in sys.modules if name.startswith(f"{PREFIX}rewards_")]
    del sys.modules[module]  # as in a process that was spawned
    assert pickle.loads(pickled)(CHAT).score == NAMES[name]


@pytest.mark.edge
@pytest.mark.parametrize("name", ["tree", "decorated"])
def test_load_reward_of_a_file_pickles_into_a_spawned_process(file, name):
    function = as_reward_function(load_reward(f"{file}:{name}"))
    assert in_another_process(function).score == NAMES[name]


def test_load_reward_of_a_file_is_copied_without_the_file(file):
    tree = load_reward(f"{file}:tree")
    file.unlink()
    assert copy.deepcopy(tree).fingerprint() == tree.fingerprint()


# What can't be pickled


def local():
    class Local(Rubric):
        def forward(self, action, observation):
            return 1.0

    return Local()


def attribute():
    rubric = NumericAnswer()
    rubric.key = [lambda action: action]
    return rubric


def hooked():
    rubric = NumericAnswer()
    rubric.register_forward_hook(lambda *args: None)
    return rubric


UNPICKLABLE = {
    "lambda": (lambda: lambda action, observation: 1.0, "<lambda>"),
    "partial": (lambda: functools.partial(lambda a, o, more: 1.0, more=1), "<lambda>"),
    "class": (local, r"local.<locals>.Local"),
    "attribute": (attribute, r"attribute.<locals>.<lambda>"),
    "hook": (hooked, r"hooked.<locals>.<lambda>"),
    "reward function": (lambda: reward_function(lambda messages: 1.0), "<lambda>"),
    "judge": (lambda: judged({"b": lambda action, observation: action}), "<lambda>"),
}


@pytest.mark.parametrize("name", UNPICKLABLE)
def test_rubric_that_cannot_be_pickled_is_named_by_its_path(name):
    make, what = UNPICKLABLE[name]
    tree = Sequential(NumericAnswer(), WeightedSum([brief, make()], [1.0, 1.0]))
    for each in (tree, as_reward_function(tree)):
        with pytest.raises(
            RubricDefinitionError, match=rf"^rubric 'rubric_1.rubric_1': .*{what} of .* be pickled"
        ) as raised:
            pickle.dumps(each)
        assert raised.value.rubric_path == "rubric_1.rubric_1"


def test_rubric_that_cannot_be_pickled_and_is_the_root_is_named_by_its_code():
    with pytest.raises(AttributeError, match=r"local.<locals>.Local"):
        pickle.dumps(local())
    with pytest.raises(RubricError, match=r"^.*<lambda> of tests.rubrics.test_pickling can't be"):
        pickle.dumps(as_reward_function(lambda action, observation: 1.0))


@pytest.mark.parametrize("name", UNPICKLABLE)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_rubric_that_cannot_be_pickled_is_copied(name, again):
    tree = Sequential(UNPICKLABLE[name][0]())
    other = again(tree)
    assert repr(other) == repr(tree)
    assert type(other.__dict__["_children"]) is dict


def test_rubric_with_a_lambda_is_pickled_by_cloudpickle():
    cloudpickle = pytest.importorskip("cloudpickle")
    tree = Sequential(lambda action, observation: 0.5, local())
    again = pickle.loads(cloudpickle.dumps(as_reward_function(tree)))
    assert again(CHAT).score == 1.0


def test_is_importable_knows_what_another_process_finds():
    assert is_importable(brief)
    assert is_importable(answered)
    assert is_importable(Won)
    assert not is_importable(plain_of())
    assert not is_importable(answered.function)


def plain_of():
    def inner():
        return None

    return inner
