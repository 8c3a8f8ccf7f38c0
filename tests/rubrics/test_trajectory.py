"""Trajectory rubrics: recording, final scores, discounting, limits."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError, InvalidScoreError, TrajectoryError
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    RubricDict,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)


class Final(ExponentialDiscountingTrajectoryRubric):
    """Scores the number in the last action; counts the calls."""

    def __init__(self, gamma=0.5, **kwargs):
        super().__init__(gamma=gamma, **kwargs)
        self.scored = 0

    def score_trajectory(self, trajectory):
        self.scored += 1
        return trajectory[-1][0]


class AsyncFinal(Final):
    async def score_trajectory(self, trajectory):
        self.scored += 1
        return trajectory[-1][0]


def play(rubric, actions, done=True):
    """One episode; the scores of its steps."""
    last = len(actions) - 1
    return [
        rubric(action, SimpleNamespace(done=done and step == last))
        for step, action in enumerate(actions)
    ]


# Scores


def test_trajectory_rubric_returns_the_intermediate_reward_until_done_then_the_final_score():
    assert play(Final(), [0.1, 0.2, 0.75]) == [0.0, 0.0, 0.75]
    assert play(Final(intermediate_reward=-0.25), [0.1, 0.2, 0.75]) == [-0.25, -0.25, 0.75]


def test_trajectory_rubric_observation_may_be_a_mapping_or_have_no_done():
    rubric = Final()
    assert rubric(0.5, {"done": False}) == 0.0
    assert rubric(0.5, {}) == 0.0
    assert rubric(0.5, None) == 0.0
    assert rubric(0.5, object()) == 0.0
    assert rubric(0.5, {"done": True}) == 0.5
    assert len(rubric.trajectory) == 5


def test_trajectory_is_a_copy_of_the_steps():
    rubric = Final()
    play(rubric, [1.0, 2.0])
    steps = rubric.trajectory
    assert [action for action, _ in steps] == [1.0, 2.0]
    assert type(steps) is list
    steps.clear()
    assert len(rubric.trajectory) == 2


def test_trajectory_records_equal_steps_separately():
    rubric, observation = Final(), SimpleNamespace(done=False)
    for _ in range(3):
        rubric(1.0, observation)
    assert len(rubric.trajectory) == 3


def test_score_trajectory_is_called_once_however_often_it_is_needed():
    rubric = Final()
    play(rubric, [0.0, 1.0])
    assert rubric.scored == 1
    for _ in range(3):
        assert rubric.compute_step_rewards() == [0.5, 1.0]
    assert rubric.scored == 1
    rubric.reset()
    play(rubric, [0.0, 0.5])
    assert rubric.compute_step_rewards() == [0.25, 0.5]
    assert rubric.scored == 2


def test_score_trajectory_of_the_copy_uses_the_same_score():
    class Equal(TrajectoryRubric):
        scored = 0

        def score_trajectory(self, trajectory):
            self.scored += 1
            return 1.0

        def compute_step_rewards(self):
            score = self.score_trajectory(self.trajectory)
            return [score / len(self.trajectory)] * len(self.trajectory)

    rubric = Equal()
    play(rubric, [0, 0, 0, 0])
    assert rubric.compute_step_rewards() == [0.25] * 4
    assert rubric.compute_step_rewards() == [0.25] * 4
    assert rubric.scored == 1


def test_score_trajectory_of_another_trajectory_is_computed_anew():
    rubric = Final()
    play(rubric, [0.0, 1.0])
    assert rubric.score_trajectory([(0.25, None)]) == 0.25
    assert rubric.compute_step_rewards() == [0.5, 1.0]


def test_score_trajectory_is_computed_anew_after_the_next_step():
    rubric = Final(gamma=1.0)
    play(rubric, [0.0, 1.0])
    play(rubric, [0.5])
    assert rubric.compute_step_rewards() == [0.5, 0.5, 0.5]


def test_score_trajectory_may_extend_super():
    class Half(Final):
        def score_trajectory(self, trajectory):
            return super().score_trajectory(trajectory) / 2

    rubric = Half(gamma=0.5)
    assert play(rubric, [0.0, 1.0]) == [0.0, 0.5]
    assert rubric.compute_step_rewards() == [0.25, 0.5]
    assert rubric.scored == 1


def test_trajectory_rubric_reset_starts_the_next_episode():
    rubric = Final()
    play(rubric, [0.0, 1.0])
    rubric.reset()
    assert rubric.trajectory == []
    assert rubric.compute_step_rewards() == []


def test_trajectory_rubric_reset_without_super_starts_the_next_episode():
    class Own(Final):
        def reset(self):
            self.scored = 0

    rubric = Own()
    play(rubric, [0.0, 1.0])
    rubric.reset()
    assert (rubric.trajectory, rubric.scored) == ([], 0)


def test_trajectory_rubric_reset_as_in_openenv_works():
    class Own(Final):
        def reset(self):
            self._trajectory = []

    rubric = Own()
    play(rubric, [0.0, 1.0])
    rubric.reset()
    play(rubric, [0.5])
    assert rubric.compute_step_rewards() == [0.5]


def test_score_trajectory_with_an_invalid_score_is_an_error_with_the_path():
    with pytest.raises(InvalidScoreError, match=r"^rubric 'rubric_0': Final"):
        play(Sequential(Final()), [0.0, None])


# Async


@pytest.mark.anyio
async def test_score_trajectory_that_is_async_is_awaited_once():
    rubric = AsyncFinal(gamma=0.5)
    for action, done in ((0.0, False), (1.0, True)):
        score = await rubric(action, {"done": done})
    assert score == 1.0
    assert rubric.compute_step_rewards() == [0.5, 1.0]
    assert rubric.scored == 1


@pytest.mark.anyio
async def test_score_trajectory_that_is_async_and_was_not_awaited_is_an_error():
    rubric = AsyncFinal()
    await rubric(0.0, {"done": False})
    with pytest.raises(TrajectoryError, match="isn't known: score_trajectory is async"):
        rubric.compute_step_rewards()


@pytest.mark.anyio
async def test_trajectory_rubric_evaluate_records_steps():
    rubric = WeightedSum([Final(), AsyncFinal()], [1, 1])
    assert await rubric.evaluate(0.0, {"done": False}) == 0.0
    assert await rubric.evaluate(1.0, {"done": True}) == 2.0
    assert [len(child.trajectory) for child in rubric.children()] == [2, 2]
    assert rubric.compute_step_rewards() == [1.0, 2.0]


# Discounting


@pytest.mark.parametrize(
    ("gamma", "expected"), [(1.0, [0.5] * 3), (0.0, [0.0, 0.0, 0.5]), (0.5, [0.125, 0.25, 0.5])]
)
def test_discounting_rubric_step_rewards(gamma, expected):
    rubric = Final(gamma=gamma)
    play(rubric, [0.0, 0.0, 0.5])
    assert rubric.compute_step_rewards() == expected


@given(st.floats(0, 1), st.floats(-1, 1), st.integers(1, 30))
def test_discounting_rubric_matches_its_formula(gamma, final, steps):
    rubric = Final(gamma=gamma)
    play(rubric, [0.0] * (steps - 1) + [final])
    assert rubric.compute_step_rewards() == [final * gamma ** (steps - 1 - t) for t in range(steps)]


def test_discounting_rubric_without_steps_has_no_rewards():
    assert Final().compute_step_rewards() == []


def test_discounting_rubric_gamma_is_point_99_by_default():
    class Default(ExponentialDiscountingTrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

    assert (Default().gamma, Default().intermediate_reward) == (0.99, 0.0)


@pytest.mark.parametrize("gamma", [-0.01, 1.01, float("nan"), None, "0.9", True])
def test_discounting_rubric_rejects_gamma_outside_of_0_to_1(gamma):
    with pytest.raises(InvalidArgumentError, match="`gamma` must be"):
        Final(gamma=gamma)
    rubric = Final(gamma=0.25)
    with pytest.raises(ValueError, match="`gamma` must be"):
        rubric.gamma = gamma
    assert rubric.gamma == 0.25


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), None, "0", True])
def test_trajectory_rubric_rejects_a_bad_intermediate_reward(reward):
    with pytest.raises(InvalidArgumentError, match="`intermediate_reward` must be"):
        Final(intermediate_reward=reward)


# Limits


class Tensor:
    def __init__(self, kind):
        self.device = SimpleNamespace(type=kind)


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
@pytest.mark.parametrize(
    ("action", "observation", "where"),
    [
        (lambda t: t, lambda t: None, "action"),
        (lambda t: None, lambda t: {"done": False, "pixels": t}, r"observation\['pixels'\]"),
        (lambda t: None, lambda t: SimpleNamespace(state=[1, t]), r"observation\.state\[1\]"),
    ],
)
def test_trajectory_rubric_rejects_a_tensor_on_a_gpu(kind, action, observation, where):
    rubric = Final()
    with pytest.raises(TrajectoryError, match=f"{where} is a tensor on .*tensor.detach.*cpu"):
        rubric(action(Tensor(kind)), observation(Tensor(kind)))
    assert rubric.trajectory == []


def test_trajectory_rubric_keeps_a_tensor_on_the_cpu():
    rubric = Final()
    rubric(Tensor("cpu"), {"pixels": Tensor("cpu")})
    assert len(rubric.trajectory) == 1


def test_trajectory_rubric_rejected_tensor_names_the_path():
    for rubric, path in (
        (WeightedSum([lambda a, o: 1.0, Gate(Final())], [1, 1]), "rubric_1.rubric"),
        (Sequential(lambda a, o: 0.0, Final()), "rubric_1"),  # seen, though never called
    ):
        with pytest.raises(TrajectoryError, match="is a tensor on") as caught:
            rubric(None, Tensor("cuda"))
        assert caught.value.rubric_path == path
        score = rubric.score(None, Tensor("cuda"))
        assert (score.value, score.status) == (None, "failed")
        assert "is a tensor on" in score.error


def test_trajectory_rubric_limits_the_steps_of_an_episode():
    class Bounded(Final):
        max_steps = 3

    rubric = Bounded()
    play(rubric, [0.0] * 3, done=False)
    with pytest.raises(TrajectoryError, match=r"has seen 3 steps without a reset\(\)"):
        play(rubric, [0.0])
    assert len(rubric.trajectory) == 3
    rubric.reset()
    assert play(rubric, [0.5]) == [0.5]


# What sees a step


def test_trajectory_rubric_sees_steps_at_which_a_gate_stopped():
    for rubric in (
        Sequential(lambda a, o: float(a > 0), Final()),
        Sequential(Gate(lambda a, o: float(a > 0)), Sequential(Gate(Final(), threshold=0.0))),
    ):
        assert play(rubric, [0.0, 0.5, 0.0, 1.0]) == [0.0, 0.0, 0.0, 1.0]
        final = next(node for node in rubric.rubrics() if isinstance(node, Final))
        assert [action for action, _ in final.trajectory] == [0.0, 0.5, 0.0, 1.0]


def test_trajectory_rubric_sees_steps_at_which_a_sibling_failed():
    def fails_first(action, observation):
        if action < 0:
            raise OSError("down")
        return 1.0

    rubric = Sequential(fails_first, Final())
    with pytest.raises(OSError, match="down"):
        rubric(-1.0, {"done": False})
    rubric(1.0, {"done": True})
    assert len(rubric[1].trajectory) == 2


def test_trajectory_rubric_in_a_rubric_dict_sees_only_its_steps():
    class ByTask(Rubric):
        def __init__(self):
            super().__init__()
            self.tasks = RubricDict({"a": Final(), "b": Sequential(lambda a, o: 0.0, Final())})

        def forward(self, action, observation):
            return self.tasks[observation["task"]](action, observation)

    rubric = Sequential(ByTask())
    for task in "abba":
        rubric(1.0, {"task": task, "done": False})
    tasks = rubric[0].tasks
    assert len(tasks["a"].trajectory) == 2
    assert len(tasks["b"][1].trajectory) == 2  # dispatched to, and stopped in front of it


@pytest.mark.parametrize(
    "make",
    [
        lambda t: WeightedSum([t, t], [0.5, 0.5]),
        lambda t: Sequential(Gate(t, threshold=0.0), t),
        lambda t: WeightedSum([Gate(t, threshold=0.0), Sequential(lambda a, o: 0.0, t)], [1, 0]),
    ],
)
def test_trajectory_rubric_that_is_shared_sees_each_step_once(make):
    shared = Final()
    rubric = make(shared)
    play(rubric, [0.0, 0.0, 1.0])
    assert len(shared.trajectory) == 3
    assert shared.compute_step_rewards() == [0.25, 0.5, 1.0]
    assert rubric.compute_step_rewards() == [0.25, 0.5, 1.0]
    assert shared.scored == 1


def test_trajectory_rubric_may_be_used_alone_after_a_tree():
    child = Final()
    rubric = Sequential(child)
    play(rubric, [0.0])
    play(child, [1.0])
    assert len(child.trajectory) == 2


# Not yet


class Dispatch(Rubric):
    def __init__(self, child):
        super().__init__()
        self.child = child

    def forward(self, action, observation):
        return self.child(action, observation)


class AsyncDispatch(Dispatch):
    async def forward(self, action, observation):
        return await self.child.evaluate(action, observation)


WRAPS = {
    "itself": lambda t: t,
    "Gate": lambda t: Gate(t),
    "WeightedSum": lambda t: WeightedSum([t], [2.0]),
    "Sequential": lambda t: Sequential(lambda a, o: 1.0, t),
    "hand-written": Dispatch,
    "deep": lambda t: Gate(
        Dispatch(Sequential(Gate(WeightedSum([Dispatch(t)], [1.0])))), threshold=0.5
    ),
    "async": AsyncDispatch,
}


def run(rubric, actions):
    """One episode, on trees of either kind."""
    observations = [{"done": step == len(actions) - 1} for step in range(len(actions))]
    if not rubric._find_traits().is_async:
        return [rubric(a, o) for a, o in zip(actions, observations, strict=True)]

    async def awaited():
        return [await rubric(a, o) for a, o in zip(actions, observations, strict=True)]

    return asyncio.run(awaited())


@pytest.mark.parametrize("wrap", [*WRAPS, "Guarded"])
def test_trajectory_rubric_intermediate_zero_does_not_stop_a_sequential_but_a_final_zero_does(wrap):
    from guerdon.rubrics import Guarded

    make = WRAPS.get(wrap, lambda t: Guarded(t, timeout=5))
    calls = []
    rubric = Sequential(make(Final()), lambda a, o: calls.append(a) or 0.5)
    assert run(rubric, [0.0, 0.0, 0.0]) == [0.5, 0.5, 0.0]
    assert len(calls) == 2
    rubric.reset()
    assert run(rubric, [0.0, 1.0]) == [0.5, 0.5]
    assert len(calls) == 4


def test_sequential_stops_at_the_zero_of_a_plain_rubric_during_an_episode():
    calls = []
    rubric = Sequential(
        Final(), Sequential(Final(), lambda a, o: 0.0), lambda a, o: calls.append(a) or 0.5
    )
    assert run(rubric, [0.0, 0.0]) == [0.0, 0.0]
    assert calls == []
    dispatching = Sequential(Dispatch(lambda_rubric(0.0)), Final(), lambda a, o: 0.5)
    assert run(dispatching, [0.0, 1.0]) == [0.0, 0.0]


def lambda_rubric(value):
    class Fixed(Rubric):
        def forward(self, action, observation):
            return value

    return Fixed()


@pytest.mark.parametrize(
    "mix",
    [lambda a, b: 0.5 * a + 0.5 * b, lambda a, b: max(a, b), lambda a, b: a * b],
    ids=["sum", "max", "product"],
)
def test_sequential_continues_after_an_intermediate_zero_of_a_parent_that_mixes(mix):
    class Mixes(Rubric):
        def __init__(self):
            super().__init__()
            self.a, self.b = Final(), Final()

        def forward(self, action, observation):
            return mix(self.a(action, observation), self.b(action, observation))

    calls = []
    rubric = Sequential(Mixes(), lambda a, o: calls.append(a) or 0.5)
    assert run(rubric, [0.0, 0.0]) == [0.5, 0.0]
    assert len(calls) == 1


def test_sequential_stops_at_the_zero_of_a_policy_during_an_episode():
    from guerdon.rubrics import Guarded

    class Breaks(Final):
        def forward(self, action, observation):
            raise OSError("down")

    calls = []
    rubric = Sequential(Guarded(Breaks(), on_error="zero"), lambda a, o: calls.append(a) or 0.5)
    assert run(rubric, [0.0, 0.0]) == [0.0, 0.0]
    assert calls == []
