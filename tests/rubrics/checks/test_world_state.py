"""The state of a world after an episode, in an environment and in recorded rows."""

import copy
import pickle
import re
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from guerdon import (
    RewardConfig,
    RewardPipeline,
    Rollout,
    RubricScorer,
    StateMatches,
    ToolEnvironment,
    check_environment,
    tool,
)
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.types import CallToolAction


class Reservation(BaseModel):
    cabin: str = "economy"
    bags: int = 0


class Airline(ToolEnvironment):
    """Change the reservation HAT001 to business, with a bag."""

    def __init__(self, rubric=None):
        super().__init__(rubric=rubric or StateMatches(self.right_state, state=self.world))

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.reservations = {"HAT001": Reservation(), "HAT002": Reservation()}
        return self.begin("Business for HAT001, and a bag.", episode_id=episode_id)

    def world(self, action, observation):
        return {"reservations": self.reservations}

    def right_state(self, action, observation):
        with Airline() as other:
            other.reset()
            other.call_tool("upgrade", id="HAT001")
            other.call_tool("add_bag", id="HAT001")
            return other.world(action, observation)

    @tool
    def upgrade(self, id: str) -> Reservation:
        self.reservations[id].cabin = "business"
        return self.reservations[id]

    @tool
    def add_bag(self, id: str) -> Reservation:
        self.reservations[id].bags += 1
        return self.reservations[id]

    @tool(ends=True)
    def finish(self) -> None: ...


class Reporting(Airline):
    """The same, with the state in the metadata of the last observation."""

    def score(self, action, observation):
        if observation.done:
            observation.metadata["world"] = {"reservations": self.reservations}
        return super().score(action, observation)


RIGHT = {
    "reservations": {
        "HAT001": {"cabin": "business", "bags": 1},
        "HAT002": {"cabin": "economy", "bags": 0},
    }
}
CALLS = [("add_bag", "HAT001"), ("upgrade", "HAT001")]


def play(environment, *calls):
    """Play an episode; return the rewards and the step rewards."""
    actions = [CallToolAction(tool_name=name, arguments={"id": each}) for name, each in calls]
    with environment:
        environment.reset()
        observations = [
            environment.step(each) for each in (*actions, CallToolAction(tool_name="finish"))
        ]
    assert all(each.reward is not None for each in observations), observations[-1].metadata
    return [each.reward for each in observations], observations[-1].metadata["step_rewards"]


def last(**metadata):
    return SimpleNamespace(done=True, metadata=metadata)


def test_state_matches_compares_the_state_after_the_last_step_of_an_environment():
    rewards, step_rewards = play(Airline(), *CALLS)
    assert rewards == [0.0, 0.0, 1.0]
    assert step_rewards == pytest.approx([0.99**2, 0.99, 1.0])
    assert play(Airline(), *CALLS, ("add_bag", "HAT002"))[0][-1] == 0.0
    rubric = StateMatches(RIGHT, state="metadata.world", gamma=0.5)
    assert play(Reporting(rubric), *CALLS) == ([0.0, 0.0, 1.0], [0.25, 0.5, 1.0])


def test_state_matches_with_methods_of_the_environment_passes_the_check():
    actions = [{"type": "call_tool", "tool_name": "upgrade", "arguments": {"id": "HAT001"}}]
    report = check_environment(Airline, actions=actions)
    assert report.problems == []


def test_state_matches_explains_the_first_differences_by_path():
    rubric = StateMatches(RIGHT)
    found = {"reservations": {"HAT001": {"cabin": "economy", "bags": 1}, "HAT003": {}}}
    assert rubric.score("", last(state=found)).reason == (
        "reservations.HAT001.cabin: 'economy', expected 'business'; "
        "reservations.HAT002: nothing, expected {'cabin': 'economy', 'bags': 0}; "
        "reservations.HAT003: {}, expected nothing"
    )


def test_state_matches_explanation_is_bounded():
    rubric = StateMatches({f"user {n}": "x" * 1000 for n in range(1000)})
    score = rubric.score("", last(state={"k" * 1000: "%s"}))
    assert score.value == 0.0
    assert score.reason.endswith("; and 996 more")
    assert len(score.reason) < 1000


@pytest.mark.parametrize(
    ("rubric", "observation", "score"),
    [
        (StateMatches({"a": 1}), last(state={"a": 1.0}), 1.0),
        (StateMatches({"a": 1}), last(state={"a": 2}), 0.0),
        (StateMatches(), last(state=[1], ground_truth=(1,)), 1.0),
        (StateMatches(state="world.tables"), {"done": True, "world": {"tables": 3},
                                              "ground_truth": 3}, 1.0),
        (StateMatches(lambda a, o: a, state=lambda a, o: o.metadata["n"]), last(n="x"), 1.0),
        (StateMatches("y", state=lambda a, o: o.metadata["n"]), last(n="x"), 0.0),
        (StateMatches(0, state="metadata.n"), last(n=0), 1.0),
    ],
)  # fmt: skip
def test_state_matches_reads_states_from_paths_functions_and_the_ground_truth(
    rubric, observation, score
):
    assert rubric("x", observation) == score


def test_state_matches_compares_numbers_within_its_tolerances():
    rubric = StateMatches({"price": 10.0})
    assert rubric("x", last(state={"price": 10.4})) == 0.0
    rubric.absolute_tolerance = 0.5
    assert rubric("x", last(state={"price": 10.4})) == 1.0
    assert StateMatches(10.0, relative_tolerance=0.05)("x", last(state=10.4)) == 1.0
    for name in "absolute_tolerance", "relative_tolerance":
        with pytest.raises(InvalidArgumentError, match=f"`{name}` must be"):
            StateMatches(1, **{name: -1})


def test_state_matches_reads_the_ground_truth_if_nothing_else_is_expected():
    rubric = StateMatches()
    assert rubric.reads == ("state", "ground_truth")
    rubric.expected = {"a": 1}
    assert rubric.reads == ("state",)


@pytest.mark.parametrize(
    ("rubric", "observation", "message"),
    [
        (StateMatches(1), last(), "has no state at 'metadata.state'"),
        (StateMatches(1, state="metadata.a.b"), last(a=[]), "has no state at 'metadata.a.b'"),
        (StateMatches(), last(state=1), "has no ground truth"),
        (StateMatches(1, state=lambda a, o: None), last(), "`state` returned None"),
        (StateMatches(lambda a, o: None), last(state=1), "`expected` returned None"),
        (StateMatches({"a": object()}), last(state={"a": object()}), "can't be compared"),
    ],
)
def test_state_matches_without_a_state_is_refused(rubric, observation, message):
    with pytest.raises(MissingInputError, match=re.escape(message)):
        rubric("x", observation)


def test_state_matches_of_a_function_that_raises_is_a_failure():
    with Airline(StateMatches(RIGHT, state=lambda a, o: 1 / 0)) as airline:
        airline.reset()
        observation = airline.step(CallToolAction(tool_name="finish"))
    assert observation.reward is None
    assert observation.metadata["reward_error"].endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("state", ["", "metadata.", "a..b", None, 7])
def test_state_matches_invalid_paths_are_refused(state):
    with pytest.raises(InvalidArgumentError, match="`state` must be the path of an attribute"):
        StateMatches(1, state=state)


def test_state_matches_async_functions_are_refused():
    async def state(action, observation): ...

    with pytest.raises(InvalidArgumentError, match="`state` must be a plain function"):
        StateMatches(1, state=state)
    with pytest.raises(InvalidArgumentError, match="`expected` must be a plain function"):
        StateMatches(state)


def world_of(action, observation):
    return observation.metadata["world"]


def test_state_matches_keeps_its_state_in_dicts_and_pickles():
    rubric = StateMatches(RIGHT, state="metadata.world")
    again = pickle.loads(pickle.dumps(rubric))
    assert again.fingerprint() == rubric.fingerprint() != StateMatches(RIGHT).fingerprint()
    other = StateMatches()
    other.load_state_dict(rubric.state_dict())
    assert other.fingerprint() == rubric.fingerprint()
    assert other("", last(world=RIGHT)) == again("", last(world=RIGHT)) == 1.0

    rubric = StateMatches(RIGHT, state=world_of)
    again = pickle.loads(pickle.dumps(rubric))
    assert again.fingerprint() == rubric.fingerprint() != other.fingerprint()
    assert again("", last(world=RIGHT)) == 1.0


def test_state_matches_fingerprint_has_the_code_of_methods_and_not_their_object():
    one, other = Airline(), Airline()
    one.reset()
    other.reset()
    one.call_tool("upgrade", id="HAT001")
    assert one.rubric.fingerprint() == other.rubric.fingerprint()
    swapped = StateMatches(other.world, state=other.right_state)
    assert swapped.fingerprint() != other.rubric.fingerprint()
    assert pickle.loads(pickle.dumps(other.rubric)).fingerprint() == other.rubric.fingerprint()
    assert copy.deepcopy(other.rubric).fingerprint() == other.rubric.fingerprint()


REWARD = """
schema_version: "1.0"
episode_end:
  - {name: state, rubric: guerdon.rubrics.StateMatches, config: {state: metadata.world}}
"""


def test_state_matches_is_built_from_a_reward_file_and_scores_rows():
    row = {"messages": [{"role": "assistant", "content": "Done."}], "ground_truth": RIGHT}
    with RewardPipeline(RewardConfig.from_yaml(REWARD)) as pipeline:
        for world, score in ((RIGHT, 1.0), ({}, 0.0)):
            with RubricScorer(pipeline.make()) as scorer:
                assert scorer.score(Rollout.from_row({**row, "world": world}))["score"] == score
    expected = REWARD.replace("{state:", "{expected: {reservations: {}}, state:")
    with RewardPipeline(RewardConfig.from_yaml(expected)) as pipeline:
        assert play(Reporting(pipeline.make()), *CALLS)[0] == [0.0, 0.0, 0.0]
