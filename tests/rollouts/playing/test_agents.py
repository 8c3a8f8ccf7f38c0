"""Playing episodes with several agents: who acted, their rewards, and what each sees."""

import json
import re

import pytest

from guerdon import (
    EvaluateResult,
    Message,
    RLDataAligner,
    RLRolloutWorker,
    Rollout,
    StepOutput,
    apply_credit,
    create_app,
    reward_function,
)
from guerdon.envs import ASGITransport, EnvClient
from guerdon.errors import AlignmentError, RolloutError
from guerdon.rollouts import FunctionScorer, PolicyOutput, ReplayPolicy, agent_results
from guerdon.rollouts.crediting import CreditSettings, RowCredit
from tests.envs.duel import ByHand, Duel, Heard, Say


class Speaker:
    """Says given texts, and keeps what it was given."""

    def __init__(self, *texts):
        self.texts = texts
        self.seen = []

    async def get_action(self, observation, tools=None, *, messages, turn, agent=None):
        self.seen.append((agent, [message.text for message in messages]))
        return PolicyOutput({"text": self.texts[turn]}, f"I say {self.texts[turn]}")


def play(env, *texts, task=None):
    policy = Speaker(*texts)
    return RLRolloutWorker(env, policy, max_steps=len(texts)).run_sync(task), policy


def test_rollout_worker_records_the_agent_that_acted_and_the_rewards_of_all():
    record, _ = play(Duel, "at", "again", "tt", "bye")
    assert record.ended == "done", record.error
    infos = [step.step_info for step in record.steps]
    assert [info["agent"] for info in infos] == ["asker", "teller", "teller", "asker"]
    assert [info["agent_rewards"] for info in infos] == [
        {"asker": 1.0, "teller": 1.0},
        {"asker": 2.0, "teller": 0.0},
        {"asker": 0.0, "teller": 2.0},
        {"asker": 0.0, "teller": 0.0},
    ]


def test_rollout_worker_passes_an_agent_its_own_messages():
    record, policy = play(Duel, "at", "again", "tt", "bye", task="A duel.")
    assert [agent for agent, _ in policy.seen] == ["asker", "teller", "teller", "asker"]
    assert policy.seen[2][1] == ["A duel.", "heard at", "I say again", "heard again"]
    assert policy.seen[3][1] == ["A duel.", "I say at", "heard tt"]
    assert len(record.messages) == 9
    assert [message.text for message in record.steps[2].resulting_messages_history] == [
        "A duel.", "heard at", "I say again", "heard again", "I say tt",
    ]  # fmt: skip


def test_rollout_worker_answers_the_tool_calls_of_an_agent_at_its_next_turn():
    class Calls(Speaker):
        async def get_action(self, observation, tools=None, *, messages, turn, agent=None):
            self.seen.append((agent, [message.role for message in messages]))
            call = {"id": f"c{turn}", "type": "function", "function": {"name": "say"}}
            message = Message(role="assistant", tool_calls=[call])
            return PolicyOutput({"text": self.texts[turn]}, message=message)

    policy = Calls("one", "two", "three", "bye")
    record = RLRolloutWorker(Duel, policy, max_steps=4).run_sync()
    assert record.ended == "done", record.error
    assert policy.seen[2] == ("asker", ["user", "assistant", "tool"])
    assert policy.seen[3] == ("teller", ["user", "assistant", "tool"])
    answers = [message.tool_call_id for message in record.messages if message.role == "tool"]
    assert answers == ["c0", "c1", "c2"]


def test_rollout_worker_without_agents_passes_no_agent():
    class Alone(Duel):
        agents = ()

        def reset(self, **kwargs):
            return Heard(text="begin")

        def heard(self, action):
            return Heard(text="heard", done=action.text == "bye")

    record, policy = play(Alone, "at", "bye")
    assert [agent for agent, _ in policy.seen] == [None, None]
    assert not {"agent", "agent_rewards"} & record.steps[0].step_info.keys()
    assert not {"agents", "agent_rewards"} & record.to_row().keys()


def test_rollout_record_to_row_has_the_agents_and_their_rewards():
    row = play(Duel, "a", "bye")[0].to_row()
    assert row["agents"] == ["asker", "teller"]
    assert row["agent_rewards"] == [{"asker": 1.0, "teller": 0.0}, {"asker": 0.0, "teller": 0.0}]


def test_rollout_worker_replays_an_episode_with_agents():
    record, _ = play(Duel, "at", "again", "tt", "bye")
    for recording in record, record.steps:
        again = RLRolloutWorker(Duel, ReplayPolicy(recording), max_steps=4).run_sync()
        assert [step.step_info for step in again.steps] == [
            {**step.step_info, "group": again.group}
            if "group" in step.step_info
            else step.step_info
            for step in record.steps
        ]


def test_rollout_worker_records_agents_over_the_wire():
    def connect():
        return EnvClient(transport=ASGITransport(create_app(Duel)))

    here, there = (play(each, "at", "again", "bye")[0] for each in (Duel, connect))
    for one, other in zip(here.steps, there.steps, strict=True):
        for name in "agent", "agent_rewards", "env_reward":
            assert one.step_info[name] == other.step_info[name]


def test_agent_results_of_a_played_episode_add_up_and_get_credit():
    records = [play(Duel, *texts)[0] for texts in (("at", "tat", "bye"), ("a", "t", "bye"))]
    batch = RLDataAligner(strict=True).align_data_for_rl_processing(
        [agent_results(record.steps) for record in records],
        {record.id: record.steps for record in records},
        [record.id for record in records],
    )
    assert batch.final_scores == [2.0, 3.0, 1.0, 1.0]
    assert [[step.base_reward for step in each.steps] for each in batch] == [
        [2.0, 0.0], [3.0], [1.0, 0.0], [1.0],
    ]  # fmt: skip
    apply_credit(batch, "grpo", group=lambda rollout: "one", normalize="mean")
    assert [each.steps[0].advantage for each in batch] == [0.5, 1.0, -0.5, -1.0]


def test_agent_results_of_a_step_whose_rubric_failed_are_masked():
    record, _ = play(Duel, "at", "what!", "bye")
    assert record.ended == "done"
    assert record.steps[1].step_info["agent_rewards"] == {"asker": None, "teller": None}
    results = agent_results(record.steps)
    assert [each.is_score_valid for each in results.values()] == [False, False]
    assert [len(each.step_outputs) for each in results.values()] == [1, 0]


# What an environment of another kind may return: nothing else has checked it.


class Foreign:
    """Returns the given metadata, one after the other."""

    def __init__(self, *metadata):
        self.metadata = [*metadata]

    def reset(self):
        return {"text": "begin", "metadata": self.metadata.pop(0)}

    def step(self, action):
        metadata = self.metadata.pop(0)
        return {"text": "go on", "done": not self.metadata, "reward": 0.0, "metadata": metadata}


A = {"agent": "a"}


@pytest.mark.parametrize(
    ("metadata", "step", "message"),
    [
        ([A, {}, {}], 0, "must name the agent that acts next.* after 'a' it is None"),
        ([{}, A, {}], 0, "must name the agent that acts next.* after None it is 'a'"),
        ([{}, {"agent_rewards": {"a": 1}}], 0, r"'agent_rewards'\] requires metadata\['agent'\]"),
        ([A, {**A, "agent_rewards": {"a": "1"}}], 0, r"\['a'\]` must be a finite number"),
        ([A, {**A, "agent_rewards": {"a": 1}}, {**A}], 1, "must be a dict of rewards.* None"),
        (
            [A, {**A, "agent_rewards": {"a": 1}}, {**A, "agent_rewards": {"b": 1}}],
            1,
            "lacks the reward of 'a'",
        ),
        ([A, {"agent": 3}, {}], 0, "must be the name of the agent that acts next, got 3"),
    ],
)
def test_rollout_worker_invalid_agents_are_an_error_of_the_step(metadata, step, message):
    record, _ = play(lambda: Foreign(*metadata), *["go"] * len(metadata))
    assert record.ended == "error"
    assert re.search(message, record.error)
    assert len(record.steps) == step + 1
    info = record.steps[step].step_info
    assert info["error"] == record.error
    assert info["env_reward"] is None
    assert info.get("agent_rewards") is None


def test_rollout_worker_a_failed_first_step_leaves_the_rewards_unknown():
    record, _ = play(lambda: Foreign(A, {"agent_rewards": {"a": "1"}}), "go")
    [result] = agent_results(record.steps).values()
    assert (result.is_score_valid, result.error) == (
        False,
        "the reward of 'a' at step 0 is unknown",
    )


def test_agent_results_of_an_environment_without_agent_rewards_raise():
    record, _ = play(lambda: Foreign(A, A, A), "go", "on")
    assert record.ended == "done"
    with pytest.raises(AlignmentError, match=r"step 0 has no step_info\['agent_rewards'\]"):
        agent_results(record.steps)


def test_rollout_worker_takes_agent_rewards_that_the_environment_sets():
    environment = ByHand()
    environment.given = {"asker": 0.5, "teller": -0.5}
    record, _ = play(environment, "a", "bye")
    assert {agent: each.score for agent, each in agent_results(record.steps).items()} == {
        "asker": 1.0, "teller": -1.0,
    }  # fmt: skip
    assert record.steps[0].action_taken == Say(text="a").model_dump(exclude={"metadata"})


# In a file of rollouts


def test_rollout_record_to_row_and_back_keeps_the_agents():
    record, _ = play(Duel, "at", "what!", "tt", "bye")
    again = Rollout.from_row(json.loads(json.dumps(record.to_row()))).to_step_data()
    for name in "agent", "agent_rewards":
        assert [step.step_info[name] for step in again] == [
            step.step_info[name] for step in record.steps
        ]
    assert agent_results(again) == agent_results(record.steps)


@pytest.mark.parametrize("columns", [{"agents": ["a"]}, {"agents": None}, {"agent_rewards": [{}]}])
def test_rollout_from_row_rejects_agents_that_are_not_one_for_each_turn(columns):
    row = {**play(Duel, "at", "bye")[0].to_row(), **columns}
    with pytest.raises(RolloutError, match=f"`{next(iter(columns))}` must be a list with an entry"):
        Rollout.from_row(row)


def test_row_credit_compares_an_agent_with_itself_alone():
    @reward_function
    def totals(messages, agents, agent_rewards):
        outputs = [
            StepOutput(step_index=turn, base_reward=rewards[agent])
            for turn, (agent, rewards) in enumerate(zip(agents, agent_rewards, strict=True))
        ]
        return EvaluateResult(score=0.5, step_outputs=outputs)

    records = [play(Duel, *texts)[0] for texts in (("a", "tt", "bye"), ("aaa", "tttt", "bye"))]
    rollouts = [record.to_rollout() for record in records]
    with FunctionScorer(totals) as scorer:
        rows = scorer.score_group(rollouts)
    options = {"normalize": "mean", "gamma": 0.0}
    RowCredit(CreditSettings("gigpo", "last-2", options)).add(
        list(zip(rollouts, rows, strict=True))
    )
    steps = [[(step["step_index"], step["advantage"]) for step in row["steps"]] for row in rows]
    assert steps == [[(0, -1.0), (1, 0.0), (2, 0.0)], [(0, 1.0), (1, 0.0), (2, 0.0)]]
    assert [[step["anchor"] for step in row["steps"]] for row in rows] == [[0, 3, 1], [0, 4, 2]]
