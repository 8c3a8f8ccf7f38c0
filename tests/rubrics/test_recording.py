"""Score: the result of one evaluation, node by node, isolated from other evaluations."""

import dataclasses
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from guerdon.errors import AsyncRubricError, InvalidScoreError
from guerdon.rubrics import (
    ExactMatch,
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    WeightedSum,
)  # fmt: skip
from guerdon.rubrics.calling import evaluate_step
from guerdon.rubrics.recording import Recorder
from guerdon.types.score import Score


class Fixed(Rubric):
    def __init__(self, value=1.0):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


class AsyncFixed(Fixed):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return self.value


def fails(action, observation):
    raise OSError("down")


class Mean(Rubric):
    """Calls its grandchildren, the first of them twice."""

    def __init__(self, twice=False):
        super().__init__()
        self.parts = RubricList([Fixed(0.5), Fixed(1.0)])
        self.twice = twice

    def forward(self, action, observation):
        scores = [part(action, observation) for part in self.parts]
        if self.twice:
            self.parts[0].value = 0.0
            scores.append(self.parts[0](action, observation))
        return sum(scores) / len(scores)


class ByTask(Rubric):
    def __init__(self):
        super().__init__()
        self.tasks = RubricDict({"a": Gate(Fixed(1.0)), "b": Fixed(0.5)})

    def forward(self, action, observation):
        return self.tasks[action](action, observation)


def statuses(score):
    return {name: node.status for name, node in score.walk()}


# Sync and async


def test_score_of_a_leaf():
    score = Fixed(0.5).score(None, None)
    assert (score.name, score.value, score.status) == ("", 0.5, "scored")
    assert (score.weight, score.reason, score.error, score.exception) == (None, None, None, None)
    assert (score.children, score.components(), score.hook_errors) == ((), {}, ())
    assert score.seconds >= 0.0


def test_score_is_frozen():
    score = Fixed(0.5).score(None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        score.value = 1.0


def test_score_of_an_async_tree_suggests_score_async():
    with pytest.raises(AsyncRubricError, match=r"await rubric.score_async"):
        Sequential(AsyncFixed()).score(None, None)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Fixed, AsyncFixed])
async def test_score_and_score_async_agree(kind):
    rubric = Sequential(WeightedSum([kind(1.0), Fixed(0.5)], [1, -2]), Gate(kind(1.0)), Fixed(0.0))
    score = await rubric.score_async(None, None)
    assert (score.value, score["rubric_0"].value) == (0.0, 0.0)
    assert score.components() == {
        "rubric_0": 0.0,
        "rubric_0.rubric_0": 1.0,
        "rubric_0.rubric_1": 0.5,
    }
    assert score["rubric_1"].reason == "rubric_0 scored 0"
    assert [child.name for child in score["rubric_0"].children] == ["rubric_0", "rubric_1"]
    if kind is Fixed:
        plain = rubric.score(None, None)
        assert statuses(plain) == statuses(score)
        assert plain.components() == score.components()


# Statuses


def test_score_reports_skipped_children_without_a_value():
    score = Sequential(Fixed(0.0), Gate(Fixed(1.0))).score(None, None)
    assert statuses(score) == {
        "": "scored",
        "rubric_0": "scored",
        "rubric_1": "skipped",
        "rubric_1.rubric": "skipped",
    }
    assert score["rubric_1"].value is None
    assert score["rubric_1"].seconds == 0.0
    assert score["rubric_1"].reason == "rubric_0 scored 0"
    assert score.components() == {"rubric_0": 0.0}


def test_score_reports_a_failure_where_it_happened_and_not_as_zero():
    score = Sequential(Fixed(1.0), Gate(fails), Fixed(1.0)).score(None, None)
    assert statuses(score) == {
        "": "failed",
        "rubric_0": "scored",
        "rubric_1": "failed",
        "rubric_1.rubric": "failed",
        "rubric_2": "skipped",
    }
    assert score.value is None
    assert score["rubric_1.rubric"].value is None
    assert score["rubric_1.rubric"].error == "OSError: down"
    assert score["rubric_1.rubric"].exception is score.exception
    assert score["rubric_2"].reason == "rubric_1 failed"
    assert score.components() == {"rubric_0": 1.0}


def test_score_with_an_invalid_number_is_a_failure():
    score = Gate(Fixed(float("nan"))).score(None, None)
    assert score.status == score["rubric"].status == "failed"
    assert isinstance(score.exception, InvalidScoreError)
    assert "rubric 'rubric': Fixed.forward returned nan" in score.error


def test_score_reports_a_caught_failure_of_a_child_beside_the_value():
    class Tolerant(Rubric):
        def __init__(self):
            super().__init__()
            self.judge = Gate(fails)

        def forward(self, action, observation):
            try:
                return self.judge(action, observation)
            except OSError:
                return 0.25

    score = Sequential(Tolerant()).score(None, None)
    assert (score.value, score.status) == (0.25, "scored")
    assert score["rubric_0.judge"].status == "failed"
    assert score.components() == {"rubric_0": 0.25}


def test_score_of_a_guarded_failure_has_the_value_and_the_error():
    score = Sequential(Guarded(fails, on_error="zero"), Fixed()).score(None, None)
    assert score.value == 0.0
    guard = score["rubric_0"]
    assert (guard.value, guard.status, guard.error) == (0.0, "failed", "OSError: down")
    assert guard.reason == "on_error='zero'"
    assert score["rubric_0.rubric"].status == "failed"
    assert score["rubric_0.rubric"].value is None


# Weights, reasons


def test_score_reports_weights():
    score = WeightedSum([Fixed(1.0), Sequential(Fixed(0.5))], [2, -1]).score(None, None)
    assert {name: node.weight for name, node in score.walk()} == {
        "": None,
        "rubric_0": 2.0,
        "rubric_1": -1.0,
        "rubric_1.rubric_0": None,
    }


def test_score_explains_why_a_gate_did_not_pass():
    score = Sequential(Gate(Fixed(0.5), threshold=0.75)).score(None, None)
    assert score["rubric_0"].reason == "0.5 is under the threshold of 0.75"
    assert Gate(Fixed(1.0)).score(None, None).reason is None


class Explains(Rubric):
    def __init__(self, *reasons):
        super().__init__()
        self._reasons = reasons

    def forward(self, action, observation):
        for reason in self._reasons:
            self.explain(*reason)
        return 1.0


class AsyncExplains(Explains):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return super().forward(action, observation)


def test_explain_adds_reasons_of_leaves_and_roots():
    assert Explains(("all of it",)).score(None, None).reason == "all of it"
    score = WeightedSum(
        [Fixed(), Explains(("%d of %d", 2, 3)), Explains(("100%",), ("more",))], [1, 1, 1]
    ).score(None, None)
    assert [child.reason for child in score.children] == [None, "2 of 3", "100%; more"]
    assert score.reason is None


@pytest.mark.anyio
async def test_explain_adds_reasons_of_leaves_in_async_trees():
    rubric = WeightedSum(
        [AsyncExplains(("a",)), Fixed(), Explains(("c",)), AsyncExplains(("d",))], [1, 1, 1, 1]
    )
    score = await rubric.score_async(None, None)
    assert [child.reason for child in score.children] == ["a", None, "c", "d"]


def test_explain_outside_of_an_evaluation_does_nothing():
    rubric = Fixed()
    rubric.explain("no evaluation runs")
    assert rubric.score(None, None).reason is None


def test_explain_may_be_called_after_the_children():
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.a = Explains(("child",))

        def forward(self, action, observation):
            self.explain("before")
            score = self.a(action, observation)
            self.explain("after")
            return score

    score = Gate(Parent()).score(None, None)
    assert score["rubric"].reason == "before; after"
    assert score["rubric.a"].reason == "child"


# Components


def test_components_of_a_dispatcher():
    rubric = Sequential(ByTask())
    assert rubric.score("a", None).components() == {
        "rubric_0": 1.0,
        "rubric_0.tasks.a": 1.0,
        "rubric_0.tasks.a.rubric": 1.0,
    }
    score = rubric.score("b", None)
    assert score.components() == {"rubric_0": 0.5, "rubric_0.tasks.b": 0.5}
    assert score["rubric_0.tasks.a"].status == "skipped"
    assert score["rubric_0.tasks.a.rubric"].status == "skipped"
    assert score["rubric_0.tasks.a"].reason == "not called"


def test_components_of_a_rubric_list():
    assert Gate(Mean()).score(None, None).components() == {
        "rubric": 0.75,
        "rubric.parts.rubric_0": 0.5,
        "rubric.parts.rubric_1": 1.0,
    }


def test_components_of_a_child_called_twice_are_numbered():
    score = Mean(twice=True).score(None, None)
    assert score.value == 0.5
    assert score.components() == {
        "parts.rubric_0": 0.5,
        "parts.rubric_0#2": 0.0,
        "parts.rubric_1": 1.0,
    }


def test_components_of_a_shared_child_are_in_each_of_its_places():
    shared = Fixed(0.5)
    score = WeightedSum([shared, shared], [1, 2]).score(None, None)
    assert score.components() == {"rubric_0": 0.5, "rubric_1": 0.5}
    assert [child.weight for child in score.children] == [1.0, 2.0]


def test_components_of_evaluate_step_are_those_of_score():
    shared = Fixed(0.5)
    for rubric in (
        Sequential(ByTask()),
        Gate(Mean()),
        Mean(twice=True),
        WeightedSum([shared, shared], [1, 2]),
        Sequential(Gate(shared), shared),
        Sequential(Fixed(0.0), shared),
        Sequential(Guarded(Sequential(Fixed(0.5), Fixed(0.25)), timeout=5)),
    ):
        with Recorder() as recorder:
            rubric("a", None)
        recorded = recorder.last(rubric)
        assert recorded.handled == {}
        if isinstance(rubric, Mean):
            rubric.parts[0].value = 0.5
        assert recorded.components == rubric.score("a", None).components()


def test_score_getitem_returns_the_node_at_a_path():
    score = Gate(Gate(Fixed(1.0))).score(None, None)
    assert score[""] is score
    assert score["rubric.rubric"].value == 1.0
    with pytest.raises(KeyError, match=r"no score at 'rubric.x'; "):
        score["rubric.x"]
    assert isinstance(score["rubric"], Score)


def test_score_sets_last_score():
    rubric = Gate(Fixed(1.0))
    rubric.score(None, None)
    assert (rubric.last_score, rubric.rubric.last_score) == (1.0, 1.0)


# Isolation


def test_score_in_threads_is_isolated():
    threads, rounds = 4, 25
    barrier = threading.Barrier(threads, timeout=10)

    class Meets(Rubric):
        def forward(self, action, observation):
            barrier.wait()
            self.explain("%s", action)
            return action

    rubric = Sequential(Meets(), WeightedSum([Meets(), Mean()], [1, 0]))

    def run(number):
        scores = [rubric.score(float(number), None) for _ in range(rounds)]
        return {
            (s.value, tuple(sorted(s.components().items())), s["rubric_0"].reason) for s in scores
        }

    with ThreadPoolExecutor(threads) as pool:
        for number, seen in enumerate(pool.map(run, range(1, threads + 1)), start=1):
            assert seen == {
                (
                    float(number),
                    (
                        ("rubric_0", float(number)),
                        ("rubric_1", float(number)),
                        ("rubric_1.rubric_0", float(number)),
                        ("rubric_1.rubric_1", 0.75),
                        ("rubric_1.rubric_1.parts.rubric_0", 0.5),
                        ("rubric_1.rubric_1.parts.rubric_1", 1.0),
                    ),
                    f"{float(number)}",
                )
            }


@pytest.mark.anyio
async def test_score_in_tasks_is_isolated():
    arrived, gate = 0, anyio.Event()

    async def meet(action, observation):
        nonlocal arrived
        arrived += 1
        if arrived == 6:
            gate.set()
        await gate.wait()
        return action

    rubric = WeightedSum([meet, meet], [1, 1])
    scores = {}

    async def run(number):
        scores[number] = await rubric.score_async(float(number), None)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(run, number)
    for number, score in scores.items():
        assert score.value == 2.0 * number
        assert score.components() == {"rubric_0": float(number), "rubric_1": float(number)}


def test_score_inside_forward_does_not_leak_into_the_outer_score():
    class Looks(Rubric):
        def __init__(self):
            super().__init__()
            self.a = Fixed(0.5)

        def forward(self, action, observation):
            return self.a.score(action, observation).value

    score = Sequential(Looks()).score(None, None)
    assert score.value == 0.5
    assert score["rubric_0.a"].status == "skipped"


def test_recorder_last_never_returns_the_evaluation_of_another_rubric():
    with Recorder() as recorder:
        for _ in range(20):
            evaluate_step(ExactMatch("yes"), "yes", None)
            gc.collect()  # a new rubric may get the `id` of the old one
            assert recorder.last(ExactMatch("no")) is None
