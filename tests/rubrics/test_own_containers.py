"""Containers that a user writes, with `forward` alone, beside the built-in ones."""

import anyio
import pytest

from guerdon.errors import InvalidScoreError
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    Sequential,
    WeightedSum,
    is_pending,
)
from guerdon.rubrics.replay import Replay, replay


class Action(Rubric):
    """The action itself is the score."""

    def forward(self, action, observation):
        if isinstance(action, Exception):
            raise action
        return action


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


class Final(ExponentialDiscountingTrajectoryRubric):
    """The last action is the score of the episode."""

    def score_trajectory(self, trajectory):
        return trajectory[-1][0]


class OwnSequential(Rubric):
    """`Sequential`, as a user would write it."""

    def __init__(self, *rubrics):
        super().__init__()
        for place, rubric in enumerate(rubrics):
            setattr(self, f"rubric_{place}", rubric)

    def forward(self, action, observation):
        score = 1.0
        for child in self.children():
            score = child(action, observation)
            if score == 0.0 and not is_pending(score):
                break
        return score


class OwnWeightedSum(OwnSequential):
    """`WeightedSum`, as a user would write it."""

    def __init__(self, rubrics, weights):
        super().__init__(*rubrics)
        self.weights = weights

    def forward(self, action, observation):
        scores = [child(action, observation) for child in self.children()]
        return sum(weight * score for weight, score in zip(self.weights, scores, strict=True))

    def compute_step_rewards(self):
        columns = [child.compute_step_rewards() for child in self.children()]
        return [
            sum(weight * reward for weight, reward in zip(self.weights, row, strict=True))
            for row in zip(*columns, strict=True)
        ]


class OwnAsyncWeightedSum(OwnWeightedSum):
    """One that awaits its children concurrently."""

    async def forward(self, action, observation):
        scores = {}

        async def evaluate(name, child):
            scores[name] = await child.evaluate(action, observation)

        async with anyio.create_task_group() as group:
            for name, child in self.named_children():
                group.start_soon(evaluate, name, child)
        return sum(self.weights[name] * score for name, score in scores.items())


def described(score):
    """What a `Score` reports of each node."""
    return {name: (node.value, node.status, node.weight, node.error) for name, node in score.walk()}


PAIRS = [
    (lambda *r: Sequential(*r), lambda *r: OwnSequential(*r)),
    (lambda *r: WeightedSum(r, [2.0] * len(r)), lambda *r: OwnWeightedSum(r, [2.0] * len(r))),
]


@pytest.mark.parametrize(("ours", "own"), PAIRS, ids=["sequential", "weighted sum"])
@pytest.mark.parametrize("action", [0.0, 0.5, 1.0, ValueError("no"), float("nan")], ids=str)
def test_own_container_has_the_components_weights_and_errors_of_a_built_in_one(ours, own, action):
    def tree(make):
        return Gate(make(Fixed(0.5), Gate(Action(), 0.25), make(Action(), Fixed(0.25))), 0.0)

    theirs, mine = tree(ours).score(action, None), tree(own).score(action, None)
    assert described(mine) == described(theirs)
    assert mine.components() == theirs.components()


@pytest.mark.parametrize(("ours", "own"), PAIRS, ids=["sequential", "weighted sum"])
def test_own_container_raises_errors_with_the_path_of_the_child(ours, own):
    for make in ours, own:
        with pytest.raises(InvalidScoreError) as caught:
            make(Fixed(), make(Fixed(), Action()))(None, None)
        assert caught.value.rubric_path == "rubric_1.rubric_1"


@pytest.mark.parametrize(("ours", "own"), PAIRS, ids=["sequential", "weighted sum"])
@pytest.mark.parametrize("actions", [[1.0], [0.0, 0.0, 0.5], [0.5, 0.0], [0.0, 1.0, 0.0]], ids=str)
def test_own_container_has_the_step_rewards_of_a_built_in_one(ours, own, actions):
    last = len(actions) - 1
    steps = [(action, {"done": place == last}) for place, action in enumerate(actions)]
    replays = []
    for make in ours, own:
        done = Replay()
        replay(make(Fixed(0.5), make(Fixed(0.25), Final(gamma=0.5))), steps, done)
        replays.append((done.values, done.rewards, done.steps))
    assert replays[0] == replays[1]


def test_own_container_continues_after_a_pending_zero():
    for make in Sequential, OwnSequential:
        rubric = make(Final(), Fixed(0.5))
        assert [rubric(0.0, {"done": done}) for done in (False, True)] == [0.5, 0.0]


@pytest.mark.anyio
async def test_own_async_container_awaits_its_children_concurrently_and_is_recorded():
    arrived, all_there = [], anyio.Event()

    class Meets(AsyncFixed):
        async def forward(self, action, observation):
            arrived.append(self)
            if len(arrived) == 2:
                all_there.set()
            await all_there.wait()
            return self.value

    rubric = Gate(OwnAsyncWeightedSum([Meets(0.5), Meets(1.0)], {"rubric_0": 1.0, "rubric_1": 2.0}))
    with anyio.fail_after(5):
        score = await rubric.score_async(None, None)
    assert score.components().keys() == {"rubric", "rubric.rubric_0", "rubric.rubric_1"}
    assert [child.weight for child in score["rubric"].children] == [1.0, 2.0]


def test_own_container_that_is_a_subclass_of_a_built_in_one_extends_its_forward():
    class Halved(Sequential):
        def forward(self, action, observation):
            return super().forward(action, observation) / 2

    rubric = Halved(Fixed(1.0), Fixed(0.5))
    assert rubric(None, None) == 0.25
    assert Gate(rubric, 0.0).score(None, None).components() == {
        "rubric": 0.25,
        "rubric.rubric_0": 1.0,
        "rubric.rubric_1": 0.5,
    }


@pytest.mark.anyio
async def test_own_async_subclass_of_a_built_in_container_extends_its_forward():
    class Halved(WeightedSum):
        async def forward(self, action, observation):
            return await super().forward(action, observation) / 2

    rubric = Halved([AsyncFixed(1.0), Fixed(0.5)], [1.0, 2.0])
    assert await rubric(None, None) == 1.0
    assert (await rubric.score_async(None, None)).components() == {"rubric_0": 1.0, "rubric_1": 0.5}
