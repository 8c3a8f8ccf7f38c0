"""state_dict, load_state_dict, fingerprint."""

import copy
import datetime
import decimal
import enum
import fractions
import functools
import json
import logging
import operator
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import types
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import RubricError, StateError
from guerdon.rubrics import (
    Ensemble,
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    RegexMatch,
    Rubric,
    RubricComposer,
    RubricDict,
    RubricList,
    Sequential,
    WeightedSum,
    as_rubric,
)
from guerdon.rubrics.functions import as_reward_function, load_reward, reward_function


class Short(Rubric):
    score_range = (0.0, 1.0)

    def __init__(self, longest=5, words=("a", "b")):
        super().__init__()
        self.longest = longest
        self.words = words
        self.note = None
        self._private = 3
        self.function = len

    def forward(self, action, observation):
        return float(len(action) <= self.longest)


class Strict(Rubric):
    """Takes positive limits only."""

    def __init__(self, limit=1.0):
        super().__init__()
        self.limit = limit

    def __setattr__(self, name, value):
        if name == "limit" and value <= 0:
            raise ValueError(f"limit {value} is not positive")
        super().__setattr__(name, value)

    def forward(self, action, observation):
        return self.limit


class Won(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory):
        return 1.0


def tree():
    return Sequential(
        Gate(Short(longest=7), threshold=0.5),
        WeightedSum([Short(), Won(gamma=0.9)], [0.7, -0.3]),
        RubricDict({"a": Guarded(Short(), timeout=2.5, retries=1, on_error="minimum")}),
        RubricList([Strict(2.0)]),
    )


def short(longest):
    return {"longest": longest, "words": ("a", "b"), "note": None}


# state_dict


def test_state_dict_is_the_public_configuration_of_the_whole_tree():
    expected = {
        "rubric_0.threshold": 0.5,
        **{f"rubric_0.rubric.{k}": v for k, v in short(7).items()},
        "rubric_1.weights": [0.7, -0.3],
        **{f"rubric_1.rubric_0.{k}": v for k, v in short(5).items()},
        "rubric_1.rubric_1.intermediate_reward": 0.0,
        "rubric_1.rubric_1.gamma": 0.9,
        "rubric_2.a.timeout": 2.5,
        "rubric_2.a.retries": 1,
        "rubric_2.a.on_error": "minimum",
        **{f"rubric_2.a.rubric.{k}": v for k, v in short(5).items()},
        "rubric_3.rubric_0.limit": 2.0,
    }
    assert tree().state_dict() == expected


def test_state_dict_contains_no_scores_and_no_episode():
    rubric = Sequential(Won())
    before = rubric.state_dict()
    rubric("x", {"done": True})
    assert rubric.state_dict() == before


def test_state_dict_is_a_copy():
    rubric = Short(words=["x"])
    rubric.state_dict()["words"].append("y")
    assert rubric.words == ["x"]


def test_state_dict_leaves_out_what_json_can_not_represent():
    rubric = Short()
    rubric.infinite, rubric.places, rubric.keyed = float("inf"), {1, 2}, {1: 2}
    assert set(rubric.state_dict()) == {"longest", "words", "note"}


# load_state_dict


class ClueQuality(Rubric):
    """Keeps the scores of an episode, as the RFC's rubrics do."""

    def __init__(self, limit=3):
        super().__init__()
        self.limit = limit
        self.clue_scores: list[float] = []
        self.turns = 0
        self.words = ["a"]

    def forward(self, action, observation):
        self.clue_scores.append(0.5)
        self.turns += 1
        self.last_clue = action
        return 0.5

    def reset(self):
        self.clue_scores = []
        self.turns = 0


def test_state_dict_and_fingerprint_leave_out_what_forward_changes():
    rubric = ClueQuality()
    state, fingerprint = rubric.state_dict(), rubric.fingerprint()
    for _ in range(3):
        rubric("clue", None)
    assert (rubric.state_dict(), rubric.fingerprint()) == (state, fingerprint)
    rubric.reset()
    assert (rubric.state_dict(), rubric.fingerprint()) == (state, fingerprint)
    assert copy.deepcopy(rubric).fingerprint() == fingerprint


def test_state_dict_and_fingerprint_have_what_changes_in_place_before_the_first_call():
    rubric, other = ClueQuality(), ClueQuality()
    parent = WeightedSum([rubric], [1.0])
    rubric.words.append("b")
    assert rubric.fingerprint() != other.fingerprint()
    assert parent.state_dict()["rubric_0.words"] == ["a", "b"]
    fingerprint = parent.fingerprint()
    parent("clue", None)
    rubric.words.append("c")
    assert parent.fingerprint() == fingerprint
    other.reset()
    other.turns = 7  # assigned by `reset`, too
    assert other.fingerprint() == ClueQuality().fingerprint()


def test_fingerprint_leaves_out_what_forward_changes_in_a_helper():
    class Counts(ClueQuality):
        def forward(self, action, observation):
            self.note(action)
            return 0.5

        def note(self, action):
            self.clue_scores = [*self.clue_scores, 0.5]
            self.latest = action

        def allow(self, word):
            self.words = [*self.words, word]

    rubric = Counts()
    fingerprint = rubric.fingerprint()
    assert [rubric("clue", None) for _ in range(3)] == [0.5] * 3
    assert len(rubric.clue_scores) == 3
    assert rubric.fingerprint() == fingerprint
    rubric.allow("b")
    assert rubric.fingerprint() != fingerprint


@pytest.mark.parametrize(("name", "value"), [("limit", 4), ("words", ["b"])])
def test_fingerprint_changes_with_an_attribute_that_is_assigned(name, value):
    rubric = ClueQuality()
    before = rubric.fingerprint()
    setattr(rubric, name, value)
    assert rubric.fingerprint() != before
    assert rubric.state_dict()[name] == value
    assert ClueQuality().state_dict()[name] != value


def test_load_state_dict_makes_another_tree_equal():
    rubric, other = tree(), tree()
    other.rubric_0.threshold = 0.1
    other.rubric_0.rubric.longest = 1
    other.rubric_1.weights = [1, 1]
    other.rubric_1.rubric_1.gamma = 0.5
    other.rubric_2["a"].timeout = None
    other.rubric_3[0].limit = 9.0
    other.load_state_dict(json.loads(json.dumps(rubric.state_dict())))
    assert other.state_dict() == rubric.state_dict()
    assert other.fingerprint() == rubric.fingerprint()


def test_load_state_dict_restores_tuples():
    rubric = Short(words=("x", "y"))
    rubric.load_state_dict(json.loads(json.dumps(rubric.state_dict())))
    assert rubric.words == ("x", "y")
    rubric.words = ["x"]
    rubric.load_state_dict({**short(5), "words": ["z"]})
    assert rubric.words == ["z"]


def test_load_state_dict_copies_values():
    rubric, words = Short(words=["x"]), ["y"]
    rubric.load_state_dict({**short(5), "words": words})
    words.append("z")
    assert rubric.words == ["y"]


def test_load_state_dict_takes_effect_in_evaluation():
    rubric = WeightedSum([Strict(1.0), Gate(Strict(0.5), threshold=1.0)], [1.0, 1.0])
    assert rubric(None, None) == 1.0
    state = rubric.state_dict()
    state.update({"weights": [2.0, 4.0], "rubric_1.threshold": 0.5})
    rubric.load_state_dict(state)
    assert rubric(None, None) == 4.0


@pytest.mark.parametrize("strict", [True, False])
def test_load_state_dict_names_missing_and_unexpected_keys(strict):
    rubric = Gate(Short())
    state = rubric.state_dict()
    del state["rubric.longest"]
    state["threshold"] = 0.25
    state["rubric.colour"] = "red"
    if strict:
        with pytest.raises(
            StateError, match=r"missing \['rubric.longest'\].*\['rubric.colour'\]"
        ) as c:
            rubric.load_state_dict(state)
        assert c.value.missing == ("rubric.longest",)
        assert c.value.unexpected == ("rubric.colour",)
        assert rubric.threshold == 1.0
    else:
        rubric.load_state_dict(state, strict=False)
        assert (rubric.threshold, rubric.rubric.longest) == (0.25, 5)
        assert not hasattr(rubric.rubric, "colour")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rubric_1.weights", [float("nan"), 1.0]),
        ("rubric_1.weights", [1.0]),
        ("rubric_1.weights", "12"),
        ("rubric_0.threshold", None),
        ("rubric_0.threshold", float("inf")),
        ("rubric_1.rubric_1.gamma", 1.5),
        ("rubric_2.a.on_error", "ignore"),
        ("rubric_2.a.timeout", -1.0),
        ("rubric_3.rubric_0.limit", -1.0),
        ("rubric_0.rubric.longest", {1, 2}),
        ("rubric_0.rubric.longest", Short),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_load_state_dict_rejected_state_changes_nothing(key, value, strict):
    rubric = tree()
    before = rubric.state_dict()
    state = {name: old * 2 if type(old) is int else old for name, old in before.items()}
    state[key] = value
    with pytest.raises(StateError):
        rubric.load_state_dict(state, strict=strict)
    assert rubric.state_dict() == before


@pytest.mark.parametrize("state", [None, [("threshold", 1.0)], "threshold"])
def test_load_state_dict_rejects_what_is_not_a_mapping(state):
    with pytest.raises(StateError, match="a state must be a mapping"):
        Gate(Short()).load_state_dict(state)


def test_state_dict_may_be_overridden():
    class Own(Rubric):
        def __init__(self, table):
            super().__init__()
            self._table = table

        def forward(self, action, observation):
            return self._table[action]

        def state_dict(self):
            return {"table": dict(self._table)}

        def load_state_dict(self, state, strict=True):
            self._table = dict(state["table"])

    rubric, other = Gate(Own({"x": 1.0})), Gate(Own({}))
    other.load_state_dict(rubric.state_dict())
    assert other("x", None) == 1.0


trees = st.recursive(
    st.builds(Strict, st.floats(0.1, 2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda r: Sequential(*r)),
        st.builds(Gate, inner, st.floats(-1, 1)),
        st.lists(st.tuples(inner, st.floats(-2, 2)), max_size=3).map(
            lambda p: WeightedSum([r for r, _ in p], [w for _, w in p])
        ),
        st.builds(Guarded, inner, timeout=st.none() | st.floats(1, 9), retries=st.integers(0, 3)),
        st.builds(
            Ensemble,
            st.lists(inner, min_size=1, max_size=3),
            st.sampled_from(["mean", "min"]),
            agree=st.none() | st.floats(0, 1),
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(trees, st.randoms(use_true_random=False))
def test_state_dict_can_be_loaded_again(rubric, random):
    state = rubric.state_dict()
    for node in (rubric, *rubric.rubrics()):
        if isinstance(node, Strict):
            node.limit = random.uniform(3, 4)
        elif isinstance(node, Gate):
            node.threshold = random.uniform(3, 4)
        elif isinstance(node, WeightedSum):
            node.weights = [random.uniform(3, 4) for _ in node.weights]
        elif isinstance(node, Ensemble):
            node.agree, node.reduce = random.uniform(0, 1), "majority"
    rubric.load_state_dict(json.loads(json.dumps(state)))
    assert rubric.state_dict() == state


# fingerprint


def test_fingerprint_is_16_hexadecimal_digits_and_repeats():
    assert len(tree().fingerprint()) == 16
    int(tree().fingerprint(), 16)
    assert tree().fingerprint() == tree().fingerprint()


def test_fingerprint_does_not_change_by_use():
    rubric = Sequential(Short(), Won())
    before = rubric.fingerprint()
    rubric("x", {"done": True})
    rubric.score("x", {"done": True})
    rubric.register_forward_hook(lambda *args: None)
    assert rubric.fingerprint() == before
    rubric.reset()
    assert rubric.fingerprint() == before


def test_fingerprint_distinguishes_configurations():
    a, b = Short(), Strict()
    rubrics = [
        Sequential(a, b),
        Sequential(b, a),
        Sequential(a),
        Sequential(Short(longest=6), b),
        Sequential(Gate(a), b),
        Sequential(Gate(a, threshold=0.5), b),
        WeightedSum([a, b], [1, 2]),
        WeightedSum([a, b], [2, 1]),
        WeightedSum([b, a], [1, 2]),
        Sequential(Guarded(a), b),
        Sequential(Guarded(a, timeout=1), b),
        RubricDict({"a": a, "b": b}),
        RubricDict({"a": a, "c": b}),
        RubricList([a, b]),
        Won(),
        Won(gamma=0.5),
        Won(intermediate_reward=0.1),
        RubricComposer({"a": a, "b": b}, [1, 2]),
        RubricComposer({"a": a, "b": b}, [1, 2], episode_end=["b"]),
    ]
    assert len({rubric.fingerprint() for rubric in rubrics}) == len(rubrics)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (decimal.Decimal("0.1"), decimal.Decimal("0.2")),
        (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
        (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
        (datetime.timedelta(seconds=1), datetime.timedelta(seconds=2)),
        (types.SimpleNamespace(limit=1), types.SimpleNamespace(limit=2)),
        (re.compile("a"), re.compile("b")),
        (range(3), range(4)),
        (slice(3), slice(4)),
        (bytearray(b"a"), bytearray(b"b")),
        (uuid.UUID(int=1), uuid.UUID(int=2)),
        (operator.itemgetter("a"), operator.itemgetter("b")),
        ([decimal.Decimal(1)], [decimal.Decimal(2)]),
    ],
)
def test_fingerprint_distinguishes_values_of_the_library(one, other):
    rubrics = Short(one), Short(copy.deepcopy(one)), Short(other)
    same, again, different = (rubric.fingerprint() for rubric in rubrics)
    assert same == again != different


def test_fingerprint_accepts_values_that_can_not_be_pickled():
    assert Short({}.keys()).fingerprint() == Short({}.keys()).fingerprint()


def test_fingerprint_distinguishes_the_values_of_an_enumeration():
    kinds = [enum.Enum("Kind", {"A": value}) for value in (1, 1, 2)]
    for kind in kinds:
        kind.__qualname__ = "Kind"
    same, again, different = (Short(kind.A).fingerprint() for kind in kinds)
    assert same == again != different


def closed_over(limit):
    return lambda action, observation: float(action > limit)


def class_over(limit):
    class Over(Rubric):
        def forward(self, action, observation):
            return float(action > limit)

    return Over


def class_with(limit):
    class With(Rubric):
        top = limit

        def forward(self, action, observation):
            return float(action > self.top)

    return With


def default(limit):
    def over(action, observation, limit=limit):
        return float(action > limit)

    return over


def keyword_default(limit):
    def over(action, observation, *, limit=limit):
        return float(action > limit)

    return over


def scaled(action, observation, limit):
    return float(action > limit)


class Limit:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, action, observation):
        return float(action > self.limit)

    def method(self, action, observation):
        return float(action > self.limit)


def decorated(limit):
    def decorate(function):
        @functools.wraps(function)
        def wrapped(action, observation):
            return float(function(action, observation) > limit)

        return wrapped

    return decorate(lambda action, observation: action)


@pytest.mark.parametrize(
    "make",
    [
        closed_over,
        lambda limit: class_over(limit)(),
        lambda limit: class_with(limit)(),
        default,
        keyword_default,
        lambda limit: functools.partial(scaled, limit=limit),
        lambda limit: functools.partial(closed_over(limit)),
        Limit,
        lambda limit: Limit(limit).method,
        decorated,
    ],
    ids=[
        "closure", "class closure", "class attribute", "default", "keyword default",
        "partial", "partial of closure", "object", "method", "decorated",
    ],
)  # fmt: skip
def test_fingerprint_changes_with_the_values_in_a_function(make):
    one, same, other = (Sequential(make(limit)).fingerprint() for limit in (1.0, 1.0, 2.0))
    assert one == same
    assert one != other


def test_fingerprint_changes_with_the_source():
    def one(action, observation):
        return 1.0

    def two(action, observation):
        return 2.0

    two.__name__, two.__qualname__ = one.__name__, one.__qualname__
    assert Sequential(one).fingerprint() != Sequential(two).fingerprint()


PROGRAM = '''
import functools, re
from guerdon.rubrics import *

class Mine(Rubric):
    """Mine."""
    def __init__(self, limit=LIMIT):
        super().__init__()
        self.limit = limit
        self.names = {"alpha", "beta", "gamma", "delta"}
        self.frozen = frozenset({"x", "y", "z"})
        self.pattern = re.compile("a|b", re.I)
        self.mapping = {("a", 1): {"p", "q"}, "b": object}
        self.thing = object()
        self.function = lambda x: x
    def forward(self, action, observation):
        return 1.0 if action in {"a", "b", "c"} else BODY

def make(closed):
    return lambda action, observation: float(action in closed)

tree = WeightedSum(
    [Mine(), Gate(make({"x", "y", "z"})), functools.partial(make, 1), RegexMatch("x")],
    [1, 2, 3, 4],
)
print(tree.fingerprint())
'''


def run(path, seed, limit="3", body="0.0", unwritten=False):
    text = PROGRAM.replace("LIMIT", limit).replace("BODY", body)
    text = text.replace("functools.partial(make, 1)", "make(('k',))")
    path.write_text(textwrap.dedent(text))
    command = [sys.executable, "-c", text] if unwritten else [sys.executable, str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.edge
def test_fingerprint_is_the_same_in_every_process(tmp_path: pathlib.Path):
    first = run(tmp_path / "reward.py", "1")
    assert run(tmp_path / "reward.py", "2") == first
    (tmp_path / "elsewhere").mkdir()
    assert run(tmp_path / "elsewhere" / "reward.py", "3") == first
    assert run(tmp_path / "reward.py", "4", limit="4") != first
    assert run(tmp_path / "reward.py", "4", body="0.5") != first


@pytest.fixture(params=["checkout", "installed"])
def place(request, monkeypatch):
    """Where guerdon's modules are."""
    if request.param == "installed":
        for name in [name for name in sys.modules if name.split(".")[0] == "guerdon"]:
            path = f"/site-packages/{name}.py"
            monkeypatch.setattr(sys.modules[name], "__file__", path, raising=False)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("wrap", [lambda rubric: rubric, as_reward_function])
def test_fingerprint_distinguishes_the_rubrics_that_a_function_or_an_object_contains(wrap):
    def closing_over(rubric):
        wrapped = wrap(rubric)
        return reward_function(lambda messages: wrapped(messages))

    def containing(rubric):
        return Contains(Holds(wrap(rubric)))

    for contain in (closing_over, containing):
        one, same, other = (as_rubric(contain(RegexMatch(each))) for each in ("a", "a", "b"))
        assert one.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.mark.usefixtures("place")
def test_fingerprint_does_not_change_by_use_of_a_rubric_in_an_object():
    rubric, member = Contains(Holds(RegexMatch("a"))), RegexMatch("a")
    member("abc", None)
    assert Contains(Holds(member)).fingerprint() == rubric.fingerprint()


@pytest.mark.edge
def test_fingerprint_is_stable_without_source(tmp_path: pathlib.Path):
    first = run(tmp_path / "reward.py", "1", unwritten=True)
    assert run(tmp_path / "reward.py", "2", unwritten=True) == first
    assert run(tmp_path / "reward.py", "2", body="0.5", unwritten=True) != first


# What a fingerprint can take -------------------------------------------------------------------


class Holds:
    """Holds a rubric, which is no child."""

    def __init__(self, rubric):
        self.rubric = rubric


class Contains(Rubric):
    """Contains anything."""

    def __init__(self, thing):
        super().__init__()
        self.thing = thing

    def forward(self, action, observation):
        return 1.0


def test_fingerprint_accepts_methods_from_c_and_objects_that_contain_themselves():
    assert Contains(str.lower).fingerprint() != Contains(str.upper).fingerprint()
    assert Contains("a".startswith).fingerprint() != Contains("b".startswith).fingerprint()
    itself = [{1}]
    itself.append(itself)
    assert Contains(itself).fingerprint() == Contains(itself).fingerprint()


def test_fingerprint_reads_a_repeated_object_once():
    thing = [{1}]
    for _ in range(60):
        thing = [thing, thing]
    assert Contains(thing).fingerprint() == Contains(thing).fingerprint()


def test_fingerprint_of_too_deeply_nested_attributes_is_an_error():
    thing = [{1}]
    for _ in range(2000):
        thing = [thing]
    with pytest.raises(RubricError, match="nested more than 100 levels deep"):
        Contains(thing).fingerprint()


def test_fingerprint_of_a_logger_is_that_of_its_name():
    logger = logging.getLogger("guerdon.tests.one")
    before = Contains(logger).fingerprint()
    logging.getLogger("guerdon.tests.two").isEnabledFor(10)
    logger.isEnabledFor(10)
    assert Contains(logger).fingerprint() == before
    assert Contains(logging.getLogger("guerdon.tests.two")).fingerprint() != before


def test_fingerprint_changes_with_a_helper_of_the_same_file(tmp_path):
    def of(text):
        path = tmp_path / f"reward_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        return load_reward(f"{path}:reward").fingerprint()

    text = (
        "LIMIT = 1.0\n"
        "def helper(a): return LIMIT\n"
        "def reward(action, observation): return helper(action)\n"
    )
    assert of(text) == of(text)
    assert of(text) != of(text.replace("1.0", "0.5"))
