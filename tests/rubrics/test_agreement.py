"""The three ways of evaluating a plain tree agree: calling, scoring, replaying rollouts."""

import contextvars
import threading
from types import SimpleNamespace

import pytest

from guerdon import (
    Ensemble,
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    RegexMatch,
    Rollout,
    Rubric,
    RubricScorer,
    Sequential,
    WeightedSum,
)
from guerdon.errors import InvalidScoreError

ROLLOUT = Rollout.from_row({"id": 1, "messages": [{"role": "assistant", "content": "x"}]})


class Fixed(Rubric):
    """The same score."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Contains(Rubric):
    """Calls a rubric that it keeps outside the registry."""

    def __init__(self, rubric):
        super().__init__()
        self.inner = SimpleNamespace(rubric=rubric)

    def forward(self, action, observation):
        return self.inner.rubric(action, observation)


def replayed(rubric):
    with RubricScorer(rubric) as scorer:
        return scorer.score(ROLLOUT)


def trees():
    shared, inner = Fixed(0.25), Fixed(0.5)
    yield WeightedSum([Sequential(Fixed(0.0), shared), shared], [1, 1])
    yield WeightedSum([inner, Contains(inner)], [1, 1])
    yield Sequential(Gate(Fixed(0.5), 0.5), Gate(Fixed(0.25), 0.5), Fixed(1.0))
    yield WeightedSum([Guarded(Fixed(OSError("down")), on_error="zero"), Fixed(1)], [1, 0.5])
    yield Sequential(WeightedSum([Fixed(0.5), Sequential()], [1, 1]), Gate(Gate(Fixed(1.0))))
    yield Sequential()
    yield Sequential(Ensemble([Fixed(0.5), Gate(Fixed(1.0)), Fixed(0.5)], "majority"), Fixed(0.5))


@pytest.mark.parametrize("rubric", list(trees()), ids=range(7))
@pytest.mark.parametrize("hooked", [False, True])
def test_score_values_and_components_agree_with_evaluate_step(rubric, hooked):
    if hooked:
        rubric.register_forward_hook(lambda *args: None)
    action, observation = ROLLOUT.steps[0]
    score, row = rubric.score(action, observation), replayed(rubric)
    assert row["score"] == score.value == rubric(action, observation) == rubric.last_score
    assert row["components"] == score.components()


@pytest.mark.parametrize("hooked", [False, True])
def test_score_reports_a_failure_where_it_happened(hooked):
    shared = Fixed(ValueError("no"))
    rubric = WeightedSum([Sequential(Fixed(0.0), shared), shared], [1, 1])
    if hooked:
        rubric.register_forward_hook(lambda *args: None)
    row = replayed(rubric)
    assert row["error"] == "step 0: rubric 'rubric_1': ValueError: no"
    assert row["components"] == {"rubric_0": 0.0, "rubric_0.rubric_0": 0.0}


def test_register_forward_hook_between_rollouts_takes_effect():
    rubric = WeightedSum([Fixed(0.5), Gate(Fixed(1.0))], [1, 1])
    with RubricScorer(rubric) as scorer:
        before = scorer.score(ROLLOUT)
        seen = []
        rubric.rubric_0.register_forward_hook(lambda *args: seen.append(args[-1]))
        rubric.rubric_1.rubric.register_forward_hook(lambda *args: seen.append(args[-1]))
        assert scorer.score(ROLLOUT) == before
    assert seen == [0.5, 1.0]


def test_weighted_sum_is_rounded_once():
    """The same on every Python: 3.12 and later add up otherwise than 3.11."""
    rubric = WeightedSum([Fixed(1.0)] * 3, [0.7, 0.2, 0.1])
    assert rubric(None, None) == 1.0
    assert Gate(rubric)(None, None) == 1.0


def test_weighted_sum_that_overflows_is_an_error():
    rubric = WeightedSum([Fixed(1e308), Fixed(1e308)], [1, 1])
    with pytest.raises(InvalidScoreError, match=r"WeightedSum\.forward returned inf"):
        rubric(None, None)


def test_guarded_minimum_without_a_declared_range_raises():
    rubric = Guarded(RegexMatch("x"), on_error="minimum")
    rubric.rubric = Fixed(OSError("down"))
    with pytest.raises(OSError, match="down"):
        rubric(None, None)


def test_guarded_late_call_does_not_change_the_next_episode():
    late = threading.Event()
    back = threading.Event()

    class Slow(ExponentialDiscountingTrajectoryRubric):
        def score_trajectory(self, trajectory):
            if trajectory[-1][0] != "slow":
                return 0.0
            late.wait(10)
            return 1.0

    class Reported(Rubric):
        def __init__(self):
            super().__init__()
            self.slow = Slow(gamma=1.0)

        def forward(self, action, observation):
            score = self.slow(action, observation)
            if action == "slow":
                back.set()
            return score

    rubric = Guarded(Reported(), timeout=0.05, on_error="zero")
    done = SimpleNamespace(done=True)
    rubric("slow", done)
    rubric.reset()
    assert rubric("fast", done) == 0.0
    late.set()
    assert back.wait(10)
    assert rubric.compute_step_rewards() == [0.0]


def test_rubric_forward_may_call_children_in_threads():
    meet = threading.Barrier(2, timeout=10)

    class Meets(Fixed):
        def forward(self, action, observation):
            meet.wait()
            return self.value

    class Both(Rubric):
        def __init__(self):
            super().__init__()
            self.one, self.two = Meets(0.5), Meets(0.25)

        def forward(self, action, observation):
            threads = [
                threading.Thread(target=contextvars.copy_context().run, args=(child, action, None))
                for child in self.children()
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return 1.0

    assert Both().score("a", None).components() == {"one": 0.5, "two": 0.25}
