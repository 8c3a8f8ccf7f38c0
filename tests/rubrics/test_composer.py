"""`RubricComposer`: named components with weights, due at every step or at the end."""

import copy
import json
import logging
import math
import pickle
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import (
    ExponentialDiscountingTrajectoryRubric,
    Rubric,
    RubricComposer,
    Sequential,
    WeightedSum,
)
from guerdon.errors import (
    AsyncRubricError,
    InvalidArgumentError,
    InvalidScoreError,
    RubricDefinitionError,
    StateError,
)

STEP = SimpleNamespace(done=False)
END = SimpleNamespace(done=True)


class Gives(Rubric):
    """Returns the score that it was given, and counts the calls."""

    score_range = (0.0, 1.0)

    def __init__(self, value=1.0):
        super().__init__()
        self.value = value
        self._calls = 0

    def forward(self, action, observation):
        self._calls += 1
        return self.value


class Undeclared(Rubric):
    def forward(self, action, observation):
        return action


class Penalty(Rubric):
    score_range = (-1.0, 1.0)

    def forward(self, action, observation):
        return action


class AsyncGives(Gives):
    async def forward(self, action, observation):
        return self.value


class Won(ExponentialDiscountingTrajectoryRubric):
    score_range = (0.0, 1.0)

    def score_trajectory(self, trajectory):
        return 1.0


class Fails(Rubric):
    score_range = (0.0, 1.0)

    def forward(self, action, observation):
        raise ConnectionError("the judge is down")


def composer(**options):
    return RubricComposer(
        {"a": Gives(0.5), "b": Gives(1.0)}, weights={"a": 1.0, "b": -2.0}, **options
    )


# What it computes


def test_composer_reward_is_the_weighted_sum_of_the_scores():
    assert composer().compute("x", STEP) == (-1.5, {"a": 0.5, "b": 1.0})


def test_composer_call_returns_the_reward_alone():
    assert composer()("x", STEP) == -1.5


def test_composer_of_a_list_has_numbered_names():
    rubric = RubricComposer([Gives(0.5), lambda a, o: 1.0], [1.0, 2.0], normalize=False)
    assert rubric.compute("x", STEP) == (2.5, {"rubric_0": 0.5, "rubric_1": 1.0})


def test_composer_compute_in_a_parent_is_recorded_like_a_call():
    class Halves(Rubric):
        def __init__(self):
            super().__init__()
            self.parts = RubricComposer({"a": Gives(0.5)}, [1.0])

        def forward(self, action, observation):
            return self.parts.compute(action, observation)[0] / 2

    class HalvesAsync(Halves):
        async def forward(self, action, observation):
            return (await self.parts.compute_async(action, observation))[0] / 2

    components = {"parts": 0.5, "parts.a": 0.5}
    assert Halves().score("x", STEP).components() == components
    assert anyio.run(HalvesAsync().score_async, "x", STEP).components() == components


def test_composer_compute_async_awaits_an_async_tree():
    rubric = RubricComposer({"a": AsyncGives(0.5)}, {"a": 2.0})
    assert anyio.run(rubric.compute_async, "x", STEP) == (1.0, {"a": 0.5})
    with pytest.raises(AsyncRubricError, match="compute_async"):
        rubric.compute("x", STEP)


def test_composer_components_of_components_are_in_score_and_not_in_compute():
    rubric = RubricComposer({"all": WeightedSum([Gives()], [0.5])}, {"all": 1.0}, normalize=False)
    assert rubric.compute("x", STEP) == (0.5, {"all": 0.5})
    assert rubric.score("x", STEP).components() == {"all": 0.5, "all.rubric_0": 1.0}


def test_composer_may_contain_composers():
    rubric = RubricComposer({"inner": composer(), "c": Gives()}, {"inner": 1.0, "c": 1.0}, False)
    assert rubric.compute("x", STEP) == (-0.5, {"inner": -1.5, "c": 1.0})
    assert [name for name, _ in rubric.named_rubrics()] == ["inner", "inner.a", "inner.b", "c"]


def test_composer_hooks_see_the_components():
    rubric, seen = composer(), []
    rubric.a.register_forward_hook(lambda r, a, o, result: seen.append(result))
    assert rubric.compute("x", STEP) == (-1.5, {"a": 0.5, "b": 1.0})
    assert seen == [0.5]


def test_composer_fails_if_a_component_that_is_due_fails():
    rubric = RubricComposer({"a": Gives(), "toxic": Fails()}, {"a": 1.0, "toxic": -10.0})
    with pytest.raises(ConnectionError, match="down") as caught:
        rubric.compute("x", STEP)
    assert "toxic" in caught.value.__notes__[0]
    score = rubric.score("x", STEP)
    assert (score.value, score.status) == (None, "failed")


# What is due when


def test_composer_component_due_at_the_end_is_absent_before_it():
    rubric = composer(episode_end=["a"])
    assert rubric.compute("x", STEP) == (-2.0, {"b": 1.0})
    assert rubric.a._calls == 0
    assert rubric.compute("x", END) == (-1.5, {"b": 1.0, "a": 0.5})


@pytest.mark.parametrize("ask", ["call", "score", "async"])
def test_composer_component_that_is_not_due_is_absent_in_every_method(ask):
    rubric = composer(episode_end=["a"])
    if ask == "call":
        assert (rubric("x", STEP), rubric("x", END)) == (-2.0, -1.5)
    elif ask == "score":
        score = rubric.score("x", STEP)
        assert score.value == -2.0
        assert {each.name: each.status for each in score.children}["a"] == "skipped"
    else:
        assert anyio.run(rubric.evaluate, "x", STEP) == -2.0
        assert anyio.run(rubric.compute_async, "x", END) == (-1.5, {"b": 1.0, "a": 0.5})


def test_composer_ignores_a_failure_of_a_component_that_is_not_due():
    rubric = RubricComposer({"a": Gives(), "f": Fails()}, {"a": 1.0, "f": 1.0}, episode_end=["f"])
    assert rubric.compute("x", STEP) == (1.0, {"a": 1.0})
    with pytest.raises(ConnectionError):
        rubric.compute("x", END)


def test_composer_zero_with_nothing_due_is_pending():
    rubric = RubricComposer({"a": Gives()}, {"a": 1.0}, episode_end=["a"])
    assert rubric.compute("x", STEP) == (0.0, {})
    assert Sequential(rubric, Gives())("x", END) == 1.0


def test_composer_trajectory_rubric_at_the_end_sees_every_step_and_spreads_its_score():
    rubric = RubricComposer(
        {"won": Won(gamma=0.5), "brief": Gives(1.0)},
        {"won": 2.0, "brief": 0.25},
        episode_end=["won"],
    )
    for observation in (STEP, STEP, END):
        last = rubric.compute("x", observation)
    assert last == (2.25, {"brief": 1.0, "won": 1.0})
    assert rubric.compute_step_rewards() == [0.75, 1.25, 2.25]
    rubric.reset()
    assert rubric.won.trajectory == []


# Normalising


def test_composer_maps_a_declared_range_to_zero_and_one():
    rubric = RubricComposer({"p": Penalty()}, {"p": 10.0})
    assert [rubric(score, STEP) for score in (-1.0, 0.0, 0.5, 1.0)] == [0.0, 5.0, 7.5, 10.0]
    assert rubric.ranges() == {"p": (-1.0, 1.0, "declared")}


def test_composer_does_not_clip_a_score_outside_of_the_declared_range():
    assert RubricComposer({"p": Penalty()}, {"p": 1.0})(3.0, STEP) == 2.0


def test_composer_without_normalize_uses_the_scores_themselves():
    assert RubricComposer({"p": Penalty()}, {"p": 10.0}, normalize=False)(-1.0, STEP) == -10.0


def test_composer_explains_that_it_uses_an_observed_range(caplog):
    rubric = RubricComposer({"u": Undeclared()}, {"u": 1.0}, "observed")
    with caplog.at_level(logging.WARNING, "guerdon.config"):
        assert [rubric(score, STEP) for score in (4.0, 8.0, 6.0, 0.0)] == [1.0, 1.0, 0.5, 0.0]
    assert [record.getMessage()[:39] for record in caplog.records] == [
        "'u' declares no finite score_range: the"
    ]
    assert rubric.ranges() == {"u": (0.0, 8.0, "observed")}
    assert rubric.score(2.0, STEP).reason == "u normalized by the observed range [0, 8]"


@pytest.mark.parametrize(("score", "value"), [(0.25, 0.25), (-3.0, 0.0), (7.0, 1.0)])
def test_composer_clips_the_score_until_two_scores_differ(score, value):
    rubric = RubricComposer({"u": Undeclared()}, {"u": 1.0}, "observed")
    assert rubric(score, STEP) == rubric(score, STEP) == value


def test_composer_takes_a_score_in_0_to_1_of_a_rubric_that_declares_no_range():
    rubric = RubricComposer({"u": Undeclared()}, {"u": 2.0})
    assert [rubric(score, STEP) for score in (0.9, 0.8, 0.85)] == [1.8, 1.6, 1.7]
    assert rubric.ranges() == {"u": (0.0, 1.0, "default")}


@pytest.mark.parametrize("score", [-0.5, 1.5, 8.0])
def test_composer_rejects_a_score_outside_of_0_to_1_of_a_rubric_that_declares_no_range(score):
    rubric = RubricComposer({"u": Undeclared()}, {"u": 1.0})
    with pytest.raises(InvalidScoreError, match=r"'u' returned .* declares no finite score_range"):
        rubric(score, STEP)
    assert rubric.score(score, STEP).value is None


@pytest.mark.parametrize("score", [1 - 0.9 - 0.1, 0.05 + 0.55 + 0.3 + 0.1])
def test_composer_accepts_a_rounding_error_of_a_rubric_that_declares_no_range(score):
    assert not 0 <= score <= 1
    assert RubricComposer({"u": Undeclared()}, {"u": 2.0})(score, STEP) == 2 * score


def test_composer_without_normalize_has_no_range_of_a_rubric_that_declares_none():
    rubric = RubricComposer({"u": Undeclared()}, {"u": 1.0}, normalize=False)
    assert (rubric(8.0, STEP), rubric.ranges()) == (8.0, {"u": None})


def test_composer_range_follows_from_the_weights():
    assert composer()._range() == (-2.0, 1.0)
    assert composer(episode_end=["a"])._range() == (-2.0, 1.0)
    assert RubricComposer({"u": Undeclared()}, {"u": 1.0})._range() == (0.0, 1.0)
    assert RubricComposer({"u": Undeclared()}, {"u": 1.0}, normalize=False)._range() is None


scores = st.floats(-1e6, 1e6)


@given(
    st.lists(st.tuples(scores, scores, st.booleans()), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_composer_combine_returns_the_reward_of_the_components(parts, normalize, done):
    names = [f"c{place}" for place in range(len(parts))]
    rubric = RubricComposer(
        {name: Gives(score) for name, (score, _, _) in zip(names, parts, strict=True)},
        {name: weight for name, (_, weight, _) in zip(names, parts, strict=True)},
        normalize,
        episode_end=[name for name, (_, _, late) in zip(names, parts, strict=True) if late],
    )
    reward, components = rubric.compute("x", SimpleNamespace(done=done))
    assert rubric.combine(components) == reward
    assert set(components) == {
        n for n, (_, _, late) in zip(names, parts, strict=True) if done or not late
    }
    assert reward == math.fsum(rubric.weights[name] * each for name, each in components.items())


# Weights


def test_composer_update_weights_by_name():
    rubric = composer()
    rubric.update_weights({"b": 0.5})
    assert rubric.weights == {"a": 1.0, "b": 0.5}
    assert rubric("x", STEP) == 1.0


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"a": 5.0, "c": 1.0}, "'c'; there are ['a', 'b']"),
        ({"a": 5.0, "b": math.nan}, "`weights['b']` must be a finite number, got nan"),
        ({"a": 5.0, "b": True}, "`weights['b']` must be a finite number, got True"),
        ([1.0], "must be a mapping"),
    ],
    ids=["unknown", "nan", "bool", "list"],
)
def test_composer_rejected_update_changes_nothing(update, expected):
    rubric = composer()
    with pytest.raises(InvalidArgumentError) as caught:
        rubric.update_weights(update)
    assert expected in str(caught.value)
    assert rubric("x", STEP) == -1.5


def test_composer_factors_multiply_weights():
    rubric = composer()
    rubric.factors = {"a": 3.0, "b": 1.0}
    assert rubric.effective_weights == {"a": 3.0, "b": -2.0}
    assert (rubric.factors, rubric("x", STEP)) == ({"a": 3.0}, -0.5)
    assert rubric.score("x", STEP).children[0].weight == 3.0


@pytest.mark.parametrize(
    ("rubrics", "weights", "options", "error", "expected"),
    [
        ({"a": Gives()}, {}, {}, InvalidArgumentError, "one weight per rubric, by its name"),
        ([Gives()], [1.0, 2.0], {}, InvalidArgumentError, "1 rubrics and 2 weights"),
        (
            {"a": Gives()},
            {"a": math.inf},
            {},
            InvalidArgumentError,
            "`weights['a']` must be a finite number, got inf",
        ),
        ({"a": Gives()}, {"a": 1.0}, {"episode_end": ["b"]}, InvalidArgumentError, "'b'"),
        ({"a": Gives()}, {"a": 1.0}, {"episode_end": "a"}, InvalidArgumentError, "a list"),
        ({"a": Gives()}, {"a": 1.0}, {"normalize": 1}, InvalidArgumentError, "True, False or"),
        (Gives(), {"a": 1.0}, {}, InvalidArgumentError, "must be a mapping"),
        (
            {"weights": Gives()},
            {"weights": 1.0},
            {},
            RubricDefinitionError,
            "would hide an attribute",
        ),
        ({"a.b": Gives()}, {"a.b": 1.0}, {}, RubricDefinitionError, "without dots"),
        ({"a": 3}, {"a": 1.0}, {}, RubricDefinitionError, "is not a rubric"),
    ],
)
def test_composer_rejects_invalid_arguments(rubrics, weights, options, error, expected):
    with pytest.raises(error) as caught:
        RubricComposer(rubrics, weights, **options)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ({"c": 1.0}, "'c'"),
        ({"a": math.nan}, "components\\['a'\\]` must be a finite"),
        (3, "must be a mapping"),
    ],
)
def test_composer_combine_rejects_other_components(components, expected):
    with pytest.raises(InvalidArgumentError, match=expected):
        composer().combine(components)


# As a rubric


def test_composer_state_can_be_loaded():
    rubric, other = composer(), composer()
    rubric.update_weights({"a": 7.0})
    rubric.factors = {"b": 0.5}
    rubric("x", STEP)
    other.load_state_dict(rubric.state_dict())
    assert other.state_dict() == rubric.state_dict()
    assert other("x", STEP) == rubric("x", STEP)


def test_composer_fingerprint_ignores_observed_scores():
    rubric = composer()
    before = rubric.fingerprint()
    rubric("x", STEP)
    assert rubric.fingerprint() == before == composer().fingerprint()
    rubric.factors = {"b": 0.5}
    assert rubric.fingerprint() != before


@pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_composer_copies_are_independent(again):
    rubric = RubricComposer(
        {"a": Gives(0.5), "u": Undeclared()}, [1.0, 1.0], "observed", episode_end=["u"]
    )
    other = again(rubric)
    other.update_weights({"a": 5.0})
    assert rubric(3.0, STEP) == 0.5
    assert other(3.0, END) == 3.5
    assert (rubric.observed, other.observed) == ({}, {"u": [3.0, 3.0]})


def test_composer_rubric_that_is_restored_has_its_old_place():
    rubric = composer()
    rubric.a = None
    assert rubric.compute("x", STEP) == (-2.0, {"b": 1.0})
    rubric.a = Gives(0.25)
    assert rubric.compute("x", STEP) == (-1.75, {"a": 0.25, "b": 1.0})


def test_composer_repr_shows_the_weights():
    assert repr(composer()) == (
        "RubricComposer(normalize=True)\n  a: 1 × Gives(value=0.5)\n  b: -2 × Gives(value=1.0)"
    )


def test_composer_score_explains_an_absent_component():
    for score in 0.0, 1.0:
        rubric = RubricComposer({"a": Gives(), "b": Gives(score)}, [1, 1], episode_end=["a"])
        reasons = {each.name: each.reason for each in rubric.score("x", STEP).children}
        assert reasons == {"a": "due at the end of the episode", "b": None}


def test_composer_score_explains_a_component_that_was_due_and_skipped():
    rubric = RubricComposer({"f": Fails(), "a": Gives()}, [1.0, 1.0], episode_end=["a"])
    assert rubric.score("x", END).children[1].reason == "f failed"


# Ranges that are invalid or infinite


class Ranged(Rubric):
    def __init__(self, *ends):
        super().__init__()
        self.score_range = ends

    def forward(self, action, observation):
        return action


@pytest.mark.parametrize("ends", [(0.0, math.inf), (-math.inf, 0.0), (-math.inf, math.inf)])
def test_composer_range_with_an_infinite_end_is_observed(ends):
    rubric = RubricComposer({"r": Ranged(*ends)}, {"r": 1.0}, "observed")
    assert [rubric(score, STEP) for score in (4.0, 8.0, 6.0)] == [1.0, 1.0, 0.5]
    assert rubric.ranges()["r"].source == "observed"
    with pytest.raises(InvalidScoreError, match="score_range"):
        RubricComposer({"r": Ranged(*ends)}, {"r": 1.0})(4.0, STEP)


@pytest.mark.parametrize("ends", [(1.0, 0.0), (0.0,), (0.0, math.nan), ("a", 1)], ids=str)
def test_composer_rejects_an_invalid_score_range_when_it_is_made(ends):
    with pytest.raises(InvalidArgumentError, match="score_range"):
        RubricComposer({"r": Ranged(*ends)}, {"r": 1.0})


def test_composer_range_of_one_point_leaves_the_score():
    assert RubricComposer({"r": Ranged(0.5, 0.5)}, {"r": 2.0})(0.25, STEP) == 0.5


@pytest.mark.parametrize("source", ["declared", "observed"])
def test_composer_weight_of_0_adds_nothing(source):
    rubric = Undeclared() if source == "observed" else Gives(0.5)
    composer = RubricComposer({"u": rubric, "g": Gives()}, [0.0, 0.0], "observed")
    assert composer.compute(7.0, STEP)[0] == 0.0


# Composers in composers


def test_composer_range_of_a_nested_composer_follows_its_weights():
    outer = RubricComposer(
        {"in": RubricComposer({"p": Gives(1.0), "q": Gives(0.5)}, {"p": 0.5, "q": 0.5})}, [1.0]
    )
    assert outer.compute("x", STEP) == (0.75, {"in": 0.75})
    getattr(outer, "in").update_weights({"p": 3.5})
    assert outer.compute("x", STEP) == (0.9375, {"in": 3.75})
    getattr(outer, "in").weights = {"p": 0.5, "q": 0.5}
    assert outer.compute("x", STEP) == (0.75, {"in": 0.75})


# Invalid numbers and states


@pytest.mark.parametrize("weights", [None, 3, "ab", {"a": 10**400}, {"a": None}, [[1.0]]], ids=str)
def test_composer_rejects_an_invalid_weight(weights):
    with pytest.raises(InvalidArgumentError, match="weights"):
        RubricComposer({"a": Gives()}, weights)


@pytest.mark.parametrize("ends", [3, [1.0], [1.0, None], [2.0, 1.0], "ab"], ids=str)
def test_composer_rejects_an_invalid_observed_range(ends):
    rubric = composer()
    with pytest.raises(InvalidArgumentError, match="observed"):
        rubric.observed = {"a": ends}
    assert rubric.observed == {}


def test_composer_observed_ranges_are_in_the_state_and_not_in_the_fingerprint():
    one, other = (RubricComposer({"u": Undeclared()}, [1.0], "observed") for _ in range(2))
    one(4.0, STEP)
    one(8.0, STEP)
    assert one.fingerprint() == other.fingerprint()
    with pytest.raises(StateError, match="observed"):
        other.load_state_dict({k: v for k, v in one.state_dict().items() if k != "observed"})
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other(6.0, STEP) == one(6.0, STEP) == 0.5
    other.load_state_dict({"weights": {"u": 2.0}}, strict=False)
    assert (other.weights, other.observed) == ({"u": 2.0}, {"u": [4.0, 8.0]})
