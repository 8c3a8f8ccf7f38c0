"""The components of an episode: what they are, and that those of a sum add up to its score."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import (
    Ensemble,
    Gate,
    Guarded,
    Rollout,
    Rubric,
    RubricComposer,
    RubricDict,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
    compare_rewards,
    score_rollouts,
)


class Listed(Rubric):
    """A number for each turn."""

    def __init__(self, *values):
        super().__init__()
        self.values = values

    def forward(self, action, observation):
        return self.values[action.turn % len(self.values)]


class AsyncListed(Listed):
    async def forward(self, action, observation):
        return self.values[action.turn % len(self.values)]


class Final(TrajectoryRubric):
    """0.75, spread evenly."""

    def score_trajectory(self, trajectory):
        return 0.75

    def compute_step_rewards(self):
        return [0.75 / len(self.trajectory)] * len(self.trajectory)


class Failing(Rubric):
    """Fails at the second turn."""

    def forward(self, action, observation):
        if action.turn == 1:
            raise ValueError("no luck")
        return 1.0


class Dispatching(Rubric):
    """Each turn has a rubric of its own."""

    def __init__(self):
        super().__init__()
        self.by = RubricDict({"even": Listed(1.0), "odd": Listed(0.5)})

    def forward(self, action, observation):
        return self.by["odd" if action.turn % 2 else "even"](action, observation)


def episode(turns, id=1):
    messages = [{"role": role, "content": "x"} for role in ("user", "assistant")] * turns
    return Rollout.from_row({"id": id, "messages": messages})


def scored(rubric, turns):
    [row] = score_rollouts(rubric, [episode(turns)])
    return row


def added(rubric, row):
    weights = {name: rubric._weight_of(name) for name, _ in rubric.named_children()}
    return math.fsum(weights[name] * row["components"].get(name, 0.0) for name in weights)


def test_a_penalty_at_an_early_step_is_part_of_the_components():
    rubric = WeightedSum({"solved": Listed(0, 0, 1), "penalty": Listed(0, 1, 0)}, [1.0, -0.5])
    row = scored(rubric, 3)
    assert (row["score"], row["components"]) == (0.5, {"solved": 1.0, "penalty": 1.0})
    assert row["step_components"][1] == {"solved": 0, "penalty": 1}


SHARED = Listed(0.25, 0.5)
TREES = {
    "a gate": WeightedSum([Sequential(Gate(Listed(1, 0), 0.5), Listed(3)), Listed(2)], [1, -0.5]),
    "a shared rubric": WeightedSum([SHARED, SHARED], [1, 2]),
    "a shared rubric below": WeightedSum([Sequential(SHARED, SHARED), SHARED], [1, 2]),
    "a trajectory": WeightedSum([Final(), Listed(0.5)], [1, -0.5]),
    "a gated trajectory": WeightedSum([Gate(Final(), 0.5), Listed(0.5, 1)], [2, 1]),
    "a handled failure": WeightedSum([Guarded(Failing(), on_error="zero"), Listed(1)], [1, 0.5]),
    "async": WeightedSum([AsyncListed(0.5, 1), Listed(1)], [1, 0.5]),
    "nested": WeightedSum([WeightedSum([Listed(1, 2), Final()], [1, 1]), Listed(1)], [1, 0.5]),
    "an ensemble": WeightedSum([Ensemble([Listed(1), Listed(0)]), Listed(1)], [1, 0.5]),
    "a dispatcher": WeightedSum([Dispatching(), Listed(1)], [1, 0.5]),
    "due at the end": RubricComposer(
        {"each": Listed(1, 0), "end": Listed(0.5)}, {"each": 1, "end": 3}, normalize=False,
        episode_end=["end"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("turns", [1, 2, 3, 7, 28])
@pytest.mark.parametrize("name", TREES)
def test_weighted_components_add_up_to_the_score(name, turns):
    row = scored(TREES[name], turns)
    assert added(TREES[name], row) == pytest.approx(row["score"], abs=1e-9)
    assert len(row.get("step_components", [{}])) == turns


VALUES = st.lists(st.floats(-10, 10), min_size=1, max_size=6).map(tuple)
NODES = st.recursive(
    st.builds(lambda values: Listed(*values), VALUES) | st.builds(Final),
    lambda nodes: st.builds(
        lambda children, weight: WeightedSum(children, [weight] * len(children)),
        st.lists(nodes, min_size=1, max_size=3), st.floats(-2, 2),
    ) | st.builds(lambda node: Gate(node, 0.5), nodes)
    | st.builds(lambda first, last: Sequential(first, last), nodes, nodes),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(st.tuples(NODES, st.floats(-3, 3)), min_size=1, max_size=3), st.integers(1, 6))
def test_weighted_components_of_any_tree_and_episode_add_up(parts, turns):
    rubric = WeightedSum([node for node, _ in parts], [weight for _, weight in parts])
    row = scored(rubric, turns)
    assert added(rubric, row) == pytest.approx(row["score"], rel=1e-9, abs=1e-6)


def test_components_of_one_step_are_its_own():
    row = scored(TREES["a gate"], 1)
    assert row["components"] == TREES["a gate"].score(*episode(1).steps[0]).components()
    assert "step_components" not in row


def test_components_of_a_failed_episode_are_added_up_until_it_failed():
    row = scored(WeightedSum([Listed(2), Failing()], [1, 1]), 3)
    assert (row["score"], row["components"]) == (None, {"rubric_0": 4.0, "rubric_1": 1.0})


def test_component_of_a_trajectory_rubric_is_its_final_score():
    row = scored(Gate(Final(), 0.5), 4)
    assert (row["score"], row["components"]) == (0.75, {"rubric": 0.75})
    assert row["step_rewards"] == [0.1875] * 4


def test_components_of_a_sequential_count_at_the_steps_that_reached_them():
    row = scored(Sequential(Listed(1, 0), Listed(0.5)), 4)
    assert (row["score"], row["components"]) == (1.0, {"rubric_0": 2, "rubric_1": 1.0})


def test_a_comparison_sees_components_of_the_whole_episode():
    def penalised(weight):
        return WeightedSum({"solved": Listed(0, 0, 1), "penalty": Listed(0, weight, 0)}, [1, -1])

    comparison = compare_rewards(penalised(1.0), penalised(2.0), [episode(3)]).comparison
    movement = comparison.components["penalty"]
    assert (movement.before.value, movement.after.value, movement.rose) == (1.0, 2.0, 1)
    assert comparison.after.rubrics == {"solved": "Listed", "penalty": "Listed"}
