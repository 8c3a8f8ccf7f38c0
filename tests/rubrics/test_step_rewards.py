"""compute_step_rewards through a tree: one number for each environment step."""

import contextlib
import math
import statistics
import threading

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import GuardTimeoutError, InvalidScoreError, TrajectoryError
from guerdon.rubrics import (
    Ensemble,
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    Rubric,
    RubricComposer,
    RubricDict,
    RubricList,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)


class Final(ExponentialDiscountingTrajectoryRubric):
    """The observation contains how it ended."""

    def __init__(self, gamma=0.5, **kwargs):
        super().__init__(gamma=gamma, **kwargs)
        self.scored = 0

    def score_trajectory(self, trajectory):
        self.scored += 1
        return trajectory[-1][1]["final"]


class Step(Rubric):
    """The action itself is the score."""

    def forward(self, action, observation):
        return action


class AsyncStep(Rubric):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return action


def play(rubric, actions, final=1.0, **more):
    rubric.reset()
    last = len(actions) - 1
    for step, action in enumerate(actions):
        observation = {"done": step == last, "final": final, "step": step}
        rubric(action, observation | {key: value[step] for key, value in more.items()})
    return rubric.compute_step_rewards()


# Containers


def test_compute_step_rewards_of_weighted_sum_weighs_those_of_its_children():
    rubric = WeightedSum([Final(0.5), Final(0.0), Step()], [4.0, -1.0, 10.0])
    assert play(rubric, [0.5, 0.25, 0.0]) == [1.0 + 5.0, 2.0 + 2.5, 4.0 - 1.0]


def test_compute_step_rewards_of_weighted_sum_uses_the_present_weights():
    rubric = WeightedSum([Final(0.5), Step()], [1.0, 1.0])
    play(rubric, [0.0, 1.0])
    rubric.weights = [2.0, 0.0]
    assert rubric.compute_step_rewards() == [1.0, 2.0]


def test_compute_step_rewards_of_sequential_are_those_of_its_last_child():
    assert play(Sequential(Step(), Final(0.5)), [1.0, 1.0, 1.0]) == [0.25, 0.5, 1.0]
    assert play(Sequential(Final(0.5), Step()), [0.25, 0.5, 0.75]) == [0.25, 0.5, 0.75]


def test_compute_step_rewards_of_sequential_are_zero_where_an_earlier_child_stopped():
    assert play(Sequential(Step(), Final(0.5)), [0.0, 1.0, 0.0]) == [0.0, 0.5, 0.0]


def test_compute_step_rewards_of_a_format_rubric_before_the_outcome_of_a_game():
    class FormatRubric(Rubric):
        def forward(self, action, observation):
            return float(action != "bad")

    class ChessWinLossRubric(ExponentialDiscountingTrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0 if len(trajectory) == 3 else 0.0  # it counts every step

    rubric = Sequential(FormatRubric(), ChessWinLossRubric(gamma=0.5))
    for action, done in (("bad", False), ("e4", False), ("bad", True)):
        rubric(action, {"done": done})
    assert rubric.compute_step_rewards() == [0.0, 0.5, 0.0]


def test_compute_step_rewards_of_a_child_that_was_not_reached_are_zero():
    rubric = Sequential(Step(), WeightedSum([Final(0.5), Step()], [0.0, 1.0]))
    assert play(rubric, [0.5, 0.0, 0.25]) == [0.5, 0.0, 0.25]


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0.75, [0.1875, 0.375, 0.75]), (0.76, [0.0, 0.0, 0.0])]
)
def test_compute_step_rewards_of_gate_are_those_of_its_child_if_the_final_score_passes(
    threshold, expected
):
    rubric = Gate(Final(0.5), threshold=threshold)
    assert play(rubric, [0.0] * 3, final=0.75) == expected


def test_compute_step_rewards_of_gate_depend_on_the_final_score_not_on_the_steps():
    rubric = Gate(WeightedSum([Final(0.0), Step()], [1.0, 1.0]), threshold=1.0)
    assert play(rubric, [0.5, 0.25, 0.5], final=0.5) == [0.5, 0.25, 1.0]
    assert play(rubric, [2.0, 2.0, 0.25], final=0.5) == [0.0, 0.0, 0.0]


def test_compute_step_rewards_of_guarded_are_those_of_its_child():
    assert play(Guarded(Final(0.5), timeout=5), [0.0, 0.0]) == [0.5, 1.0]
    assert play(Guarded(WeightedSum([Final(0.5)], [2.0])), [0.0, 0.0]) == [1.0, 2.0]


def test_compute_step_rewards_of_deep_trees():
    rubric = Sequential(
        Gate(Step(), threshold=0.0),
        WeightedSum([Gate(Final(0.5), threshold=0.5), Sequential(Step(), Step())], [1.0, 2.0]),
    )
    assert play(rubric, [0.25, 0.5]) == [0.5 + 0.5, 1.0 + 1.0]
    assert play(rubric, [0.25, 0.5], final=0.25) == [0.5, 1.0]


def test_score_trajectory_is_called_once_per_episode_in_a_tree():
    rubric = Sequential(Step(), WeightedSum([Gate(Final(), threshold=0.0)], [1.0]))
    play(rubric, [1.0, 1.0, 1.0])
    for _ in range(3):
        rubric.compute_step_rewards()
    assert rubric.get_rubric("rubric_1.rubric_0.rubric").scored == 1


def test_score_trajectory_is_called_once_if_the_last_step_was_stopped():
    rubric = Sequential(Step(), Final())
    play(rubric, [1.0, 0.0])
    rubric.compute_step_rewards()
    assert rubric[1].scored == 1


@pytest.mark.anyio
async def test_compute_step_rewards_of_async_trees():
    for how in ("call", "evaluate"):
        rubric = Sequential(AsyncStep(), WeightedSum([Final(0.5), AsyncStep(), Step()], [1, 2, 1]))
        for step, action in enumerate([1.0, 0.0, 0.5]):
            observation = {"done": step == 2, "final": 1.0}
            if how == "call":
                await rubric(action, observation)
            else:
                await rubric.evaluate(action, observation)
        assert rubric.compute_step_rewards() == [3.25, 0.0, 2.5]


def test_compute_step_rewards_of_an_author_works_without_a_trajectory_rubric():
    class Own(Step):
        def compute_step_rewards(self):
            return [1.0, 2.0]

    assert play(Own(), [0.5, 0.5]) == [1.0, 2.0]


def test_compute_step_rewards_of_a_step_that_was_not_recorded_is_an_error():
    class Short(Final):
        max_steps = 2

    last = Short()
    rubric = Sequential(Gate(Step()), Gate(last, threshold=9))  # not passed: its steps are zeros
    with pytest.raises(TrajectoryError, match="seen 2 steps"):
        play(rubric, [0, 0, 0])
    for each in (rubric, last):
        with pytest.raises(TrajectoryError, match="seen 2 steps"):
            each.compute_step_rewards()


def test_compute_step_rewards_of_no_steps_is_empty():
    assert Sequential(Final()).compute_step_rewards() == []
    assert WeightedSum([Final(), Step()], [1, 1]).compute_step_rewards() == []
    assert Gate(Final()).compute_step_rewards() == []


def test_compute_step_rewards_after_reset_is_empty():
    rubric = WeightedSum([Final(), Step()], [1, 1])
    play(rubric, [1.0, 1.0])
    rubric.reset()
    assert rubric.compute_step_rewards() == []
    assert play(rubric, [0.5]) == [1.5]


def test_compute_step_rewards_without_trajectory_rubrics_is_an_error():
    with pytest.raises(TrajectoryError, match="Sequential contains no trajectory rubric"):
        Sequential(Step()).compute_step_rewards()


def test_compute_step_rewards_of_children():
    rubric = WeightedSum([Final(0.5), Gate(Final(0.0))], [1.0, 1.0])
    play(rubric, [0.0, 0.0])
    assert rubric.rubric_0.compute_step_rewards() == [0.5, 1.0]
    assert rubric.rubric_1.compute_step_rewards() == [0.0, 1.0]


# Dispatching


class ByTask(Rubric):
    def __init__(self, **tasks):
        super().__init__()
        self.tasks = RubricDict(tasks)

    def forward(self, action, observation):
        score = 0.0
        for task in observation["tasks"]:
            score = self.tasks[task](action, observation)
        return score


@pytest.mark.parametrize("wrap", [lambda r: r, lambda r: Sequential(r), lambda r: Guarded(r)])
def test_compute_step_rewards_of_a_dispatcher_are_those_of_the_called_child(wrap):
    rubric = wrap(ByTask(a=Final(0.5), b=Final(0.0), c=Step()))
    assert play(rubric, [0.25] * 5, tasks=["a", "b", "c", "a", "b"]) == [0.5, 0.0, 0.25, 1.0, 1.0]


def test_compute_step_rewards_of_rubric_dict_are_zero_where_no_child_was_called():
    rubric = ByTask(a=Final(0.5), b=Step())
    play(rubric, [0.25] * 4, tasks=["a", "", "b", "a"])
    assert rubric.tasks.compute_step_rewards() == [0.5, 0.0, 0.25, 1.0]
    assert rubric.compute_step_rewards() == [0.5, 0.0, 0.25, 1.0]


def test_compute_step_rewards_of_rubric_dict_with_several_calls_at_a_step_is_an_error():
    rubric = ByTask(a=Final(0.5), b=Final(0.5))
    for step, tasks in enumerate(["a", "ab", "b"]):
        rubric(0.0, {"done": step == 2, "final": 1.0, "tasks": tasks})
    with pytest.raises(TrajectoryError, match=r"at step 1 .*RubricDict.*\['a', 'b'\]"):
        rubric.tasks.compute_step_rewards()


def test_compute_step_rewards_of_a_parent_that_mixes_several_of_a_dict_is_an_error():
    class Mixes(Rubric):
        def __init__(self):
            super().__init__()
            self.parts = RubricDict({"a": Final(0.5), "b": Final(0.0)})

        def forward(self, action, observation):
            return 0.5 * self.parts["a"](action, observation) + 0.25 * self.parts["b"](
                action, observation
            )

    rubric = Mixes()
    with pytest.raises(TrajectoryError, match="several"):
        play(rubric, [0.0, 0.0])
    with pytest.raises(TrajectoryError, match="several"):
        rubric.parts.compute_step_rewards()


def test_compute_step_rewards_count_children_nested_in_a_dict():
    rubric = ByTask(a=Sequential(Step(), Final(0.5)), b=WeightedSum([Final(0.5), Step()], [1, 1]))
    assert play(rubric, [1.0, 0.5, 0.0], tasks="aba") == [0.5, 1.5, 0.0]


@pytest.mark.anyio
async def test_compute_step_rewards_of_async_children_of_a_dispatcher():
    class AsyncFinal(Final):
        async def score_trajectory(self, trajectory):
            return trajectory[-1][1]["final"]

    class Hands(Rubric):
        def __init__(self):
            super().__init__()
            self.tasks = RubricDict({"a": AsyncFinal(0.5), "b": AsyncStep()})

        def forward(self, action, observation):
            return self.tasks[observation["task"]](action, observation)

    rubric = Sequential(Hands())
    for step, task in enumerate("aba"):
        await rubric(0.25, {"task": task, "done": step == 2, "final": 1.0})
    assert rubric.compute_step_rewards() == [0.5, 0.25, 1.0]


# Hand-written parents


def test_compute_step_rewards_of_a_parent_that_returns_a_score_unchanged_are_that_childs():
    class Hands(Rubric):
        def __init__(self):
            super().__init__()
            self.rule = Step()
            self.final = Final(0.5)

        def forward(self, action, observation):
            self.rule(action, observation)
            return self.final(action, observation)

    assert play(Hands(), [0.25, 0.5]) == [0.5, 1.0]
    assert play(WeightedSum([Hands()], [2.0]), [0.25, 0.5]) == [1.0, 2.0]


def test_compute_step_rewards_of_a_parent_that_mixes_are_its_scores():
    class Mixes(Rubric):
        def __init__(self):
            super().__init__()
            self.rule = Step()
            self.final = Final(0.5)

        def forward(self, action, observation):
            return 0.5 * self.rule(action, observation) + self.final(action, observation)

    assert play(Mixes(), [0.25, 0.5]) == [0.125, 1.25]
    assert play(WeightedSum([Mixes(), Final(1.0)], [2.0, 1.0]), [0.25, 0.5]) == [1.25, 3.5]


def test_compute_step_rewards_of_a_parent_that_compares_are_its_scores():
    """The verdict may be the very float object of the child: constants of a module are one."""

    class Won(ExponentialDiscountingTrajectoryRubric):
        def __init__(self):
            super().__init__(gamma=0.5, intermediate_reward=0.0)

        def score_trajectory(self, trajectory):
            return 1.0

    class Verdict(Rubric):
        def __init__(self):
            super().__init__()
            self.won = Won()

        def forward(self, action, observation):
            return 1.0 if self.won(action, observation) > 0.5 else 0.0

    assert play(Verdict(), [0.0, 0.0]) == [0.0, 1.0]


def test_compute_step_rewards_of_a_parent_with_a_list_are_those_of_its_choice():
    class Chooses(Rubric):
        def __init__(self):
            super().__init__()
            self.parts = RubricList([Final(0.5), Final(0.0)])

        def forward(self, action, observation):
            return self.parts[observation["part"]](action, observation)

    rubric = Chooses()
    assert play(rubric, [0.0] * 3, part=[0, 1, 0]) == [0.25, 0.0, 1.0]


def test_compute_step_rewards_may_be_overridden_in_a_parent():
    class Own(Rubric):
        def __init__(self, *rewards):
            super().__init__()
            self.final = Final(0.5)
            self.rewards = list(rewards)

        def forward(self, action, observation):
            return self.final(action, observation)

        def compute_step_rewards(self):
            return self.rewards

    assert play(WeightedSum([Own(1, 2.0)], [10.0]), [0.0, 0.0]) == [10.0, 20.0]
    with pytest.raises(TrajectoryError, match="returned 1 rewards for 2 steps"):
        play(WeightedSum([Own(1.0)], [10.0]), [0.0, 0.0])
    with pytest.raises(InvalidScoreError):
        play(WeightedSum([Own(1.0, float("nan"))], [10.0]), [0.0, 0.0])


def test_compute_step_rewards_with_too_few_rewards_is_an_error():
    class Short(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

        def compute_step_rewards(self):
            return [1.0]

    with pytest.raises(TrajectoryError, match=r"Short.compute_step_rewards returned 1 reward.* 2"):
        play(Sequential(Short()), [0.0, 0.0])


# Failures


def failing(action, observation):
    if action < 0:
        raise OSError("down")
    return action


def test_compute_step_rewards_of_a_failed_step_is_an_error_that_names_it():
    rubric = WeightedSum([Final(0.5), failing], [1, 1])
    rubric(1.0, {"done": False})
    with pytest.raises(OSError, match="down"):
        rubric(-1.0, {"done": False})
    rubric(1.0, {"done": True, "final": 1.0})
    with pytest.raises(
        TrajectoryError, match=r"reward of step 1 isn't known: .*OSError: down"
    ) as c:
        rubric.compute_step_rewards()
    assert isinstance(c.value.__cause__, OSError)
    rubric.reset()
    assert play(rubric, [1.0]) == [2.0]


@pytest.mark.anyio
async def test_compute_step_rewards_of_a_failed_step_of_an_async_tree_is_an_error():
    async def fails(action, observation):
        await anyio.lowlevel.checkpoint()
        return failing(action, observation)

    rubric = WeightedSum([Final(0.5), fails, AsyncStep()], [1, 1, 1])
    with pytest.raises(OSError, match="down"):
        await rubric.evaluate(-1.0, {"done": False})
    await rubric.evaluate(1.0, {"done": True, "final": 1.0})
    with pytest.raises(TrajectoryError, match="reward of step 0 isn't known"):
        rubric.compute_step_rewards()


def test_compute_step_rewards_of_a_failure_handled_by_a_guard_are_the_guards():
    rubric = WeightedSum([Final(0.5), Guarded(failing, on_error="zero")], [1, 1])
    assert play(rubric, [1.0, -1.0, 1.0]) == [1.25, 0.5, 2.0]


@pytest.mark.parametrize("wrap", [lambda tree: tree, lambda tree: WeightedSum([tree], [1.0])])
@pytest.mark.parametrize("check", [lambda: failing, lambda: Gate(failing)])
def test_compute_step_rewards_reports_a_step_at_which_a_check_before_the_episode_failed(
    wrap, check
):
    rubric = wrap(Sequential(check(), Final(0.5)))
    with pytest.raises(OSError, match="down"):
        rubric(-1.0, {"done": False})
    rubric(1.0, {"done": True, "final": 1.0})
    with pytest.raises(TrajectoryError, match=r"reward of step 0 isn't known: .* OSError: down"):
        rubric.compute_step_rewards()


def test_compute_step_rewards_reports_a_step_at_which_the_root_itself_failed():
    class Halves(Rubric):
        def __init__(self):
            super().__init__()
            self.final = Final(0.5)

        def forward(self, action, observation):
            score = self.final(action, observation)
            return 0.5 * score + failing(action, observation)

    rubric = Halves()
    with pytest.raises(OSError, match="down"):
        rubric(-1.0, {"done": False})
    rubric(1.0, {"done": True, "final": 1.0})
    with pytest.raises(TrajectoryError, match=r"reward of step 0 isn't known: Halves failed"):
        rubric.compute_step_rewards()


def test_compute_step_rewards_of_a_child_without_trajectory_rubrics_are_its_scores():
    rubric = WeightedSum([Final(0.5), Step()], [1, 1])
    play(rubric, [0.25, 0.5])
    assert rubric.rubric_1.compute_step_rewards() == [0.25, 0.5]


def test_compute_step_rewards_credits_a_child_only_if_its_score_is_returned_unchanged():
    """An ordinary float made from the score is the parent's own, though the number is the same."""

    class Converts(Rubric):
        def __init__(self, convert):
            super().__init__()
            self.final, self.convert = Final(0.5), convert

        def forward(self, action, observation):
            return self.convert(self.final(action, observation))

    assert play(Converts(lambda score: score), [0.0, 0.0]) == [0.5, 1.0]
    assert play(Converts(lambda score: score * 1.0), [0.0, 0.0]) == [0.0, 1.0]
    for reduce in statistics.mean, statistics.median, statistics.fmean:
        assert play(Converts(lambda score, of=reduce: of([score, 0.5])), [0.0, 0.0]) == [0.25, 0.75]


def test_compute_step_rewards_of_a_trajectory_rubric_that_failed_at_a_step_is_an_error():
    class Fragile(Final):
        def forward(self, action, observation):
            super().forward(action, observation)
            return failing(action, observation)

    for rubric in Fragile(), WeightedSum([Guarded(Fragile())], [1.0]):
        rubric(1.0, {"done": False})
        with pytest.raises(OSError, match="down"):
            rubric(-1.0, {"done": False})
        rubric(1.0, {"done": True, "final": 1.0})
        with pytest.raises(TrajectoryError, match=r"reward of step 1 isn't known: .*OSError: down"):
            rubric.compute_step_rewards()


def test_compute_step_rewards_does_not_score_a_trajectory_again_that_has_no_score():
    class Flaky(Final):
        def score_trajectory(self, trajectory):
            self.scored += 1
            if self.scored == 1:
                raise OSError("down")
            return 1.0

    rubric = Flaky()
    with pytest.raises(OSError, match="down"):
        rubric(1.0, {"done": True})
    with pytest.raises(TrajectoryError, match=r"reward of step 0 isn't known: .*OSError: down"):
        rubric.compute_step_rewards()
    assert rubric.scored == 1


@pytest.mark.parametrize("late", [1, 2])
@pytest.mark.parametrize("wrap", [lambda tree: tree, lambda tree: WeightedSum([tree], [1.0])])
def test_compute_step_rewards_reports_a_step_at_which_a_guarded_trajectory_rubric_was_late(
    wrap, late
):
    release = threading.Event()

    class Slow(Final):
        def forward(self, action, observation):
            if len(self.trajectory) == late + 1:
                release.wait(10)
            return super().forward(action, observation)

    rubric = wrap(Guarded(Slow(0.5), timeout=0.1))
    for step in range(3):
        expected = pytest.raises(GuardTimeoutError) if step == late else contextlib.nullcontext()
        with expected:
            rubric(1.0, {"done": step == 2, "final": 1.0})
    release.set()
    with pytest.raises(TrajectoryError, match=f"reward of step {late} isn't known: .*longer than"):
        rubric.compute_step_rewards()


def test_compute_step_rewards_of_guarded_are_its_substitute_at_the_step_that_failed():
    rubric = Guarded(Sequential(failing, Final(0.5)), on_error="zero")
    assert play(rubric, [1.0, -1.0, 1.0]) == [0.25, 0.0, 1.0]
    assert play(rubric, [1.0, 1.0, -1.0]) == [0.0, 0.0, 0.0]  # the episode has no other score


def test_compute_step_rewards_reports_a_step_that_a_trajectory_rubric_could_not_record():
    class OnGpu:
        is_cuda = True

    rubric = Sequential(lambda action, observation: float("gpu" not in observation), Final(0.5))
    rubric(1.0, {"done": False})
    with pytest.raises(TrajectoryError, match="tensor"):
        rubric(1.0, {"done": False, "gpu": OnGpu()})
    rubric(1.0, {"done": True, "final": 1.0})
    with pytest.raises(TrajectoryError, match="reward of step 1 isn't known"):
        rubric.compute_step_rewards()


def test_compute_step_rewards_reports_a_step_that_was_cancelled():
    class Cancelled(Step):
        async def forward(self, action, observation):
            await anyio.sleep_forever() if action < 0 else await anyio.lowlevel.checkpoint()
            return action

    async def episode():
        rubric = WeightedSum([Cancelled(), Final(0.5)], [1.0, 1.0])
        with anyio.move_on_after(0.05):
            await rubric.evaluate(-1.0, {"done": False})
        await rubric.evaluate(1.0, {"done": True, "final": 1.0})
        return rubric

    rubric = anyio.run(episode)
    with pytest.raises(TrajectoryError, match=r"reward of step 0 isn't known: .* was cancelled"):
        rubric.compute_step_rewards()


def test_compute_step_rewards_that_overflow_are_an_error():
    rubric = WeightedSum([Final(1.0), Final(1.0)], [1e308, 1e308])
    rubric(0.0, {"done": False, "final": 1.0})
    with pytest.raises(InvalidScoreError, match="inf"):
        rubric.compute_step_rewards()


def test_compute_step_rewards_of_a_subclass_extend_those_of_its_base():
    class Doubled(Final):
        def compute_step_rewards(self):
            return [2 * reward for reward in super().compute_step_rewards()]

    assert play(Guarded(Doubled(0.5)), [0.0, 0.0]) == [1.0, 2.0]


def test_compute_step_rewards_count_a_bool_as_zero_or_one():
    class Won(Final):
        def score_trajectory(self, trajectory):
            return trajectory[-1][1]["final"] > 0

        def compute_step_rewards(self):
            return [action > 0 for action, _ in self.trajectory]

    rewards = play(Won(), [1.0, -1.0])
    assert (rewards, list(map(type, rewards))) == ([1.0, 0.0], [float, float])
    assert play(Gate(Won()), [1.0, -1.0]) == [1.0, 0.0]


# Random trees, in which checks and trajectory rubrics fail at random steps

STEPS = 4


class Fails:
    """Fails at some steps, and notes at which; without `failures` it never does."""

    def __init__(self, shape, failures, **kwargs):
        super().__init__(**kwargs)
        _, self.scores, self.bad = shape
        self.failures = failures

    def fail(self, observation):
        if self.failures is not None and observation["step"] in self.bad:
            self.failures.add(observation["step"])
            raise OSError("down")


class Check(Fails, Rubric):
    def forward(self, action, observation):
        self.fail(observation)
        return self.scores[observation["step"]]


class AsyncCheck(Check):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return super().forward(action, observation)


class Ended(Fails, ExponentialDiscountingTrajectoryRubric):
    def __init__(self, shape, failures):
        super().__init__(shape, failures, gamma=0.5)

    def forward(self, action, observation):
        self.fail(observation)
        return super().forward(action, observation)

    def score_trajectory(self, trajectory):
        return self.scores[-1]


class Falls(Rubric):
    """The first child, or where it fails the second."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, action, observation):
        try:
            return self.first(action, observation)
        except OSError:
            return self.second(action, observation)


class Alternates(Rubric):
    """The children of a dict or a list take turns."""

    def __init__(self, children):
        super().__init__()
        self.parts = children

    def forward(self, action, observation):
        children = list(self.parts.children())
        return children[observation["step"] % len(children)](action, observation)


LEAVES = {"check": Check, "async": AsyncCheck, "ended": Ended}
PARENTS = {
    "sequential": lambda parts: Sequential(*parts),
    "gate": lambda parts: Gate(parts[0], threshold=0.5),
    "sum": lambda parts: WeightedSum(parts, [1.0, -0.5, 2.0][: len(parts)]),
    "composer": lambda parts: RubricComposer(
        parts, [1.0, -0.5, 2.0][: len(parts)], normalize=False, episode_end=["rubric_0"]
    ),
    "mean": lambda parts: Ensemble(parts),
    "majority": lambda parts: Ensemble(parts, "majority"),
    "guarded": lambda parts: Guarded(parts[0]),
    "retried": lambda parts: Guarded(parts[0], retries=1),
    "in thread": lambda parts: Guarded(parts[0], timeout=60),
    "zero": lambda parts: Guarded(parts[0], on_error="zero"),
    "falls": lambda parts: Falls(parts[0], parts[-1]) if len(parts) > 1 else parts[0],
    "dict": lambda parts: Alternates(RubricDict({f"part{i}": p for i, p in enumerate(parts)})),
    "list": lambda parts: Alternates(RubricList(parts)),
}
leaves = st.tuples(
    st.sampled_from([*LEAVES]),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=STEPS, max_size=STEPS),
    st.frozensets(st.integers(0, STEPS - 1), max_size=2),
)
shapes = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from([*PARENTS]), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=6,
).map(lambda shape: ("sum", [shape, ("ended", [1.0] * STEPS, frozenset())]))


def build(shape, failures):
    kind, *rest = shape
    if kind in LEAVES:
        return LEAVES[kind](shape, failures)
    return PARENTS[kind]([build(part, failures) for part in rest[0]])


def episode(shape, failures=None):
    """A rubric after an episode, and the reward of each step; None where it failed."""
    rubric, rewards = build(shape, failures), []

    async def steps():
        for step in range(STEPS):
            rewards.append(None)
            with contextlib.suppress(OSError):
                observation = {"done": step == STEPS - 1, "step": step}
                rewards[-1] = await rubric.evaluate(None, observation)

    anyio.run(steps)
    return rubric, rewards


@settings(max_examples=100)
@given(shapes)
def test_compute_step_rewards_of_any_tree_are_numbers_only_where_the_tree_has_one(shape):
    failures = set()
    rubric, rewards = episode(shape, failures)
    if None in rewards:
        step = rewards.index(None)
        with pytest.raises(TrajectoryError, match=f"reward of step {step} isn't known: .*down"):
            rubric.compute_step_rewards()
    elif STEPS - 1 in failures or "falls" in repr(shape):
        # Without a final score there may be no step rewards, and `Falls` may have its own scores.
        with contextlib.suppress(TrajectoryError):
            assert all(map(math.isfinite, rubric.compute_step_rewards()))
    else:
        expected = episode(shape)[0].compute_step_rewards()
        for step, reward in enumerate(rubric.compute_step_rewards()):
            assert reward == expected[step] or (step in failures and math.isfinite(reward))


@settings(max_examples=50)
@given(shapes)
def test_compute_step_rewards_of_any_guarded_tree_are_its_reward_where_the_tree_failed(shape):
    failures = set()
    _, of_tree = episode(shape, failures)
    rubric, rewards = episode(("zero", [shape]), set())
    if STEPS - 1 not in failures or of_tree[-1] is None:
        found = rubric.compute_step_rewards()
        assert [found[step] for step in range(STEPS) if of_tree[step] is None] == [
            rewards[step] for step in range(STEPS) if of_tree[step] is None
        ]
