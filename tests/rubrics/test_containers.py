"""Sequential, Gate, WeightedSum, Ensemble: how they aggregate, sync and async."""

import copy
import math
import statistics

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError, RubricDefinitionError, StateError
from guerdon.rubrics import (
    Ensemble,
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    Sequential,
    WeightedSum,
)
from guerdon.rubrics.containers import gates_of
from guerdon.types import Observation


class Fixed(Rubric):
    """Counts how often it is called."""

    def __init__(self, value=1.0):
        super().__init__()
        self.value = value
        self.calls = 0

    def forward(self, action, observation):
        self.calls += 1
        return self.value


class AsyncFixed(Fixed):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        self.calls += 1
        return self.value


KINDS = {"s": Fixed, "a": AsyncFixed}
PATTERNS = ["sss", "ass", "sas", "ssa", "aas", "asa", "saa", "aaa"]


async def value_of(rubric):
    """The score, awaited where it is awaitable."""
    result = rubric(None, None)
    return await result if hasattr(result, "__await__") else result


# Sequential


def test_sequential_without_rubrics_scores_one():
    assert Sequential()(None, None) == 1.0


def test_sequential_without_rubrics_is_true():
    assert Sequential()
    assert len(Sequential()) == 0


def test_sequential_returns_the_last_score():
    assert Sequential(Fixed(0.9), Fixed(0.5), Fixed(0.25))(None, None) == 0.25


def test_sequential_stops_at_zero():
    first, zero, last = Fixed(1.0), Fixed(0.0), Fixed(1.0)
    assert Sequential(first, zero, last)(None, None) == 0.0
    assert (first.calls, zero.calls, last.calls) == (1, 1, 0)


def test_sequential_stops_at_minus_zero_and_at_an_integer_zero():
    for zero in (-0.0, 0):
        last = Fixed()
        assert Sequential(Fixed(zero), last)(None, None) == 0.0
        assert last.calls == 0


def test_sequential_continues_after_a_negative_score():
    assert Sequential(Fixed(-1.0), Fixed(0.5))(None, None) == 0.5


def test_sequential_getitem_and_len():
    rubric = Sequential(Fixed(1.0), Fixed(0.5))
    assert len(rubric) == 2
    assert rubric[0] is rubric.rubric_0
    assert rubric[-1] is rubric.rubric_1
    assert list(rubric) == [rubric.rubric_0, rubric.rubric_1]


@pytest.mark.anyio
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("stop", [None, 0, 1, 2])
async def test_sequential_calls_each_child_once_wherever_it_is_async(pattern, stop):
    children = [KINDS[kind](0.0 if i == stop else (i + 1) / 4) for i, kind in enumerate(pattern)]
    assert await value_of(Sequential(*children)) == (0.75 if stop is None else 0.0)
    expected = [1, 1, 1] if stop is None else [1] * (stop + 1) + [0] * (2 - stop)
    assert [child.calls for child in children] == expected


@pytest.mark.anyio
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_weighted_sum_calls_each_child_once_wherever_it_is_async(pattern):
    children = [KINDS[kind](float(10**i)) for i, kind in enumerate(pattern)]
    assert await value_of(WeightedSum(children, [1, 2, 3])) == 321.0
    assert [child.calls for child in children] == [1, 1, 1]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Fixed, AsyncFixed])
async def test_gate_calls_its_child_once(kind):
    child = kind(0.5)
    assert await value_of(Gate(child, threshold=0.5)) == 0.5
    assert child.calls == 1


@pytest.mark.anyio
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_call_of_a_tree_with_an_async_member_always_returns_an_awaitable(pattern):
    for make in (
        lambda: Sequential(Fixed(0.0), *[KINDS[kind]() for kind in pattern]),
        lambda: WeightedSum([KINDS[kind]() for kind in pattern], [1, 1, 1]),
        lambda: Gate(Sequential(*[KINDS[kind]() for kind in pattern])),
    ):
        result = make()(None, None)
        if "a" in pattern:
            assert hasattr(result, "__await__")
            result = await result
            assert type(result) is float
        assert isinstance(result, float)


@pytest.mark.anyio
async def test_call_of_a_sync_tree_returns_a_float_inside_a_running_loop():
    for rubric in (
        Sequential(),
        Sequential(Fixed(1.0), Fixed(0.5)),
        WeightedSum([Fixed(0.5)], [1.0]),
        Gate(Fixed(0.5), threshold=0.5),
    ):
        assert isinstance(rubric(None, None), float)


# Gate


def test_gate_passes_at_the_threshold():
    assert Gate(Fixed(0.5), threshold=0.5)(None, None) == 0.5


def test_gate_passes_above_the_threshold_with_the_score_itself():
    assert Gate(Fixed(0.75), threshold=0.5)(None, None) == 0.75


def test_gate_returns_zero_below_the_threshold():
    assert Gate(Fixed(0.5 - 1e-8), threshold=0.5)(None, None) == 0.0
    rounded = math.nextafter(0.5, 0)
    assert Gate(Fixed(rounded), threshold=0.5)(None, None) == rounded


def test_gate_threshold_is_one_by_default():
    assert Gate(Fixed(0.999))(None, None) == 0.0
    assert Gate(Fixed(1.0))(None, None) == 1.0
    assert Gate(Fixed()).threshold == 1.0


def test_gate_accepts_a_negative_threshold():
    assert Gate(Fixed(-0.5), threshold=-1.0)(None, None) == -0.5


@pytest.mark.parametrize("threshold", [math.nan, math.inf, True, None, "1"])
def test_gate_rejects_a_threshold_that_is_not_a_number(threshold):
    with pytest.raises(InvalidArgumentError, match=r"`threshold` must be a finite number"):
        Gate(Fixed(), threshold=threshold)


def test_gate_keeps_the_old_threshold_if_a_new_one_is_rejected():
    gate = Gate(Fixed(0.5), threshold=0.5)
    with pytest.raises(InvalidArgumentError):
        gate.threshold = math.nan
    assert gate(None, None) == 0.5
    gate.threshold = 0.6
    assert gate(None, None) == 0.0


@pytest.mark.parametrize("threshold", [10, 1.01, -0.01, False, True])
def test_gate_rejects_a_threshold_outside_of_the_score_range_of_its_rubric(threshold):
    class InRange(Fixed):
        score_range = (0.0, 1.0)

    with pytest.raises(InvalidArgumentError, match=r"`threshold` must be in \[0, 1\], got"):
        Gate(InRange(), threshold=threshold)
    gate = Gate(InRange(), threshold=0.5)
    with pytest.raises(StateError, match=r"`threshold` must be in \[0, 1\], got"):
        gate.load_state_dict({"threshold": threshold}, strict=False)
    assert gate.threshold == 0.5


def test_gate_compares_its_threshold_with_the_score_range_that_is_declared():
    class Wide(Fixed):
        score_range = (-10.0, math.inf)

    assert Gate(Wide(), threshold=10).threshold == 10.0
    with pytest.raises(InvalidArgumentError, match=r"`threshold` must be a finite number >= -10"):
        Gate(Wide(), threshold=-11)
    Wide.score_range = (1.0, 0.0)
    with pytest.raises(InvalidArgumentError, match=r"`Wide.score_range` must be \(low, high\)"):
        Gate(Wide())


# WeightedSum


def test_weighted_sum_multiplies_scores_by_weights():
    assert WeightedSum([Fixed(1.0), Fixed(0.5)], [0.7, 0.3])(None, None) == 0.7 + 0.15


def test_weighted_sum_weights_need_not_sum_to_one_and_may_be_negative():
    assert WeightedSum([Fixed(1.0), Fixed(0.5)], [3, -4])(None, None) == 1.0


def test_weighted_sum_without_rubrics_is_zero():
    assert WeightedSum([], [])(None, None) == 0.0


def test_weighted_sum_weights_are_a_copy():
    rubric = WeightedSum([Fixed(1.0)], [0.5])
    rubric.weights.append(3.0)
    rubric.weights[0] = 9.0
    assert rubric.weights == [0.5]
    assert rubric(None, None) == 0.5


def test_weighted_sum_does_not_keep_the_list_of_weights():
    weights = [0.5]
    rubric = WeightedSum([Fixed(1.0)], weights)
    weights[0] = 2.0
    assert rubric(None, None) == 0.5


def test_weighted_sum_weights_can_be_set():
    rubric = WeightedSum([Fixed(1.0), Fixed(1.0)], [0.5, 0.5])
    rubric.weights = [1.0, -3.0]
    assert rubric(None, None) == -2.0


@pytest.mark.parametrize("weights", [[1.0], [1.0, 2.0, 3.0], 1.0, None, [math.nan, 1.0], ["1", 2]])
def test_weighted_sum_keeps_the_old_weights_if_new_ones_are_rejected(weights):
    rubric = WeightedSum([Fixed(1.0), Fixed(1.0)], [0.5, 0.25])
    with pytest.raises(InvalidArgumentError, match="weights"):
        rubric.weights = weights
    assert rubric.weights == [0.5, 0.25]
    assert rubric(None, None) == 0.75


@pytest.mark.parametrize(("rubrics", "weights"), [(2, 1), (1, 2), (0, 1)])
def test_weighted_sum_requires_one_weight_per_rubric(rubrics, weights):
    with pytest.raises(
        ValueError, match=f"one number per rubric, got {rubrics} rubrics and {weights} weights"
    ):
        WeightedSum([Fixed() for _ in range(rubrics)], [1.0] * weights)


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, True, None, "0.5"])
def test_weighted_sum_rejects_a_weight_that_is_not_a_finite_number(weight):
    with pytest.raises(InvalidArgumentError, match=r"`weights\[1\]` must be a finite number"):
        WeightedSum([Fixed(), Fixed()], [1.0, weight])


def test_weighted_sum_accepts_iterators():
    rubric = WeightedSum((Fixed(v) for v in (1.0, 2.0)), iter([1.0, 2.0]))
    assert rubric(None, None) == 5.0


@pytest.mark.anyio
async def test_weighted_sum_evaluates_children_concurrently():
    arrived, all_there = [], anyio.Event()

    class Meets(Rubric):
        async def forward(self, action, observation):
            arrived.append(self)
            if len(arrived) == 3:
                all_there.set()
            await all_there.wait()
            return 1.0

    with anyio.fail_after(5):
        assert await WeightedSum([Meets(), Meets(), Meets()], [1, 2, 3])(None, None) == 6.0


@pytest.mark.anyio
async def test_weighted_sum_matches_scores_to_weights_whichever_ends_first():
    second_done = anyio.Event()

    async def slow(action, observation):
        await second_done.wait()
        return 1.0

    async def quick(action, observation):
        second_done.set()
        return 10.0

    with anyio.fail_after(5):
        assert await WeightedSum([slow, quick], [3, 2])(None, None) == 23.0


@pytest.mark.anyio
async def test_sequential_evaluates_children_one_after_the_other():
    order = []

    def child(name):
        async def run(action, observation):
            order.append(f"{name} starts")
            await anyio.lowlevel.checkpoint()
            order.append(f"{name} ends")
            return 1.0

        return run

    await Sequential(child("a"), child("b"))(None, None)
    assert order == ["a starts", "a ends", "b starts", "b ends"]


# What is no rubric


@pytest.mark.parametrize(
    "make",
    [
        lambda r: Sequential(Fixed(), r),
        lambda r: Gate(r),
        lambda r: WeightedSum([r], [1.0]),
        lambda r: Ensemble([Fixed(), r]),
    ],
)
@pytest.mark.parametrize("rubric", [Fixed, 3, None, "text", [Fixed()]])
def test_containers_reject_what_is_not_a_rubric(make, rubric):
    with pytest.raises(RubricDefinitionError):
        make(rubric)


def test_sequential_rejects_a_list_of_rubrics():
    with pytest.raises(RubricDefinitionError, match="is not a rubric"):
        Sequential([Fixed(), Fixed()])


# Random trees

values = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0, 2.0])
shapes = st.recursive(
    st.tuples(st.sampled_from(["leaf", "async"]), values),
    lambda inner: st.one_of(
        st.tuples(st.just("sequential"), st.lists(inner, max_size=3)),
        st.tuples(st.just("gate"), inner, values),
        st.tuples(st.just("sum"), st.lists(st.tuples(inner, values), max_size=3)),
        st.tuples(
            st.just("ensemble"),
            st.lists(inner, min_size=1, max_size=3),
            st.sampled_from(["majority", "mean", "median", "min"]),
        ),
    ),
    max_leaves=8,
)


def build(shape, allow_async):
    kind, *rest = shape
    if kind in ("leaf", "async"):
        return (AsyncFixed if kind == "async" and allow_async else Fixed)(rest[0])
    if kind == "sequential":
        return Sequential(*[build(part, allow_async) for part in rest[0]])
    if kind == "gate":
        return Gate(build(rest[0], allow_async), threshold=rest[1])
    if kind == "ensemble":
        return Ensemble([build(part, allow_async) for part in rest[0]], rest[1])
    return WeightedSum(
        [build(part, allow_async) for part, _ in rest[0]], [weight for _, weight in rest[0]]
    )


def reference(shape):
    kind, *rest = shape
    if kind in ("leaf", "async"):
        return rest[0]
    if kind == "sequential":
        score = 1.0
        for part in rest[0]:
            score = reference(part)
            if score == 0.0:
                return 0.0
        return score
    if kind == "gate":
        score = reference(rest[0])
        return score if score >= rest[1] else 0.0
    if kind == "ensemble":
        scores = sorted(reference(part) for part in rest[0])
        reduce = {"majority": statistics.mode, "min": min}.get(rest[1])
        return (reduce or getattr(statistics, rest[1]))(scores)
    return math.fsum(weight * reference(part) for part, weight in rest[0])


@settings(max_examples=60)
@given(shapes)
def test_containers_call_score_and_evaluate_agree_with_the_rules(shape):
    expected = reference(shape)
    assert build(shape, False)(None, None) == expected
    assert build(shape, False).score(None, None).value == expected
    for allow_async in (False, True):
        for backend in ("asyncio", "trio"):

            async def both(allow_async=allow_async):
                rubric = build(shape, allow_async)
                return (
                    await rubric.evaluate(None, None),
                    (await rubric.score_async(None, None)).value,
                    await value_of(rubric),
                )

            assert anyio.run(both, backend=backend) == (expected,) * 3


# In an event loop


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_sequential_of_sync_rubrics_can_be_awaited_in_an_event_loop_as_openenv_has_it():
    seen = []
    rubric = Sequential(Fixed(1.0), Fixed(0.8))
    assert await rubric("action", "observation") == 0.8
    assert type(await rubric("action", "observation")) is float
    assert await Sequential()("action", "observation") == 1.0

    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.checks = Sequential(Fixed(0.5))

        async def forward(self, action, observation):
            return await self.checks(action, observation)

    parent = Parent()
    assert await parent("action", "observation") == 0.5
    assert (parent.last_score, parent.checks.last_score) == (0.5, 0.5)
    with rubric.register_forward_hook(lambda *call: seen.append(call[-1])):
        assert await rubric("action", "observation") == 0.8
    assert seen == [0.8]


def test_sequential_scores_are_plain_floats_outside_of_an_event_loop():
    assert type(Sequential(Fixed(0.8))("action", "observation")) is float


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_sequential_score_becomes_a_plain_number_where_it_is_kept():
    rubric = Sequential(Fixed(0.8))
    observation = Observation(reward=rubric("action", "observation"))
    observation.reward = rubric("action", "observation")
    assert type(observation.reward) is float
    assert type(rubric.last_score) is float
    assert type(copy.copy(rubric("action", "observation"))) is float
    assert (await anyio.to_thread.run_sync(rubric, "action", "observation")) == 0.8


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_sequential_that_is_awaited_credits_its_steps():
    class Won(ExponentialDiscountingTrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.game = Sequential(Won(gamma=0.5))

        async def forward(self, action, observation):
            return await self.game(action, observation)

    parent = Parent()
    for done in (False, True):
        await parent("move", {"done": done})
    assert parent.compute_step_rewards() == [0.5, 1.0]


# Which gates there are


def test_gates_of_yields_gates_and_all_but_the_last_of_a_sequential():
    rubric = Sequential(Fixed(1.0), Gate(WeightedSum([Gate(Fixed(1.0))], [1.0])), Fixed(1.0))
    assert list(gates_of(rubric)) == ["rubric_0", "rubric_1", "rubric_1.rubric.rubric_0"]


def test_gates_of_yields_a_gate_at_the_end_of_a_sequential():
    assert list(gates_of(Sequential(Fixed(1.0), Gate(Fixed(1.0))))) == ["rubric_0", "rubric_1"]


def test_gates_of_a_tree_without_gates_yields_nothing():
    assert list(gates_of(WeightedSum([Fixed(1.0), Fixed(1.0)], [1.0, 1.0]))) == []


def test_gates_of_yields_the_root():
    assert list(gates_of(Gate(Fixed(1.0)))) == [""]
