"""Several agents in one episode: one trajectory for each, by aligner and credit."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import EvaluateResult, RLDataAligner, StepData, StepOutput, apply_credit
from guerdon.errors import AlignmentError, CreditError
from guerdon.rollouts import (
    AlignedRollout,
    agent_results,
    system_apply_gigpo_to_batch_steps,
)

AGENTS = ("a", "b", "c")


def recorded(*pairs, group=None, error=None):
    """Steps with the agent that acted, and the rewards of all."""
    steps = []
    for place, (agent, rewards) in enumerate(pairs):
        info = {"assistant_turn_index": place, "agent": agent, "agent_rewards": rewards}
        if group is not None:
            info["group"] = group
        steps.append(StepData(system_step_index=place, observation_data=agent, step_info=info))
    if error is not None:
        steps[-1].step_info["error"] = error
    return steps


def rewards_of(result):
    return {each.step_index: each.base_reward for each in result.step_outputs}


def align(steps_of, results=None, **options):
    if results is None:
        results = [agent_results(steps) for steps in steps_of.values()]
    aligner = RLDataAligner(**options)
    return aligner.align_data_for_rl_processing(results, steps_of, list(steps_of))


# The rewards of an agent's steps


def test_agent_results_sum_the_rewards_until_the_agents_next_step():
    results = agent_results(
        recorded(
            ("a", {"a": 1, "b": 0.5}),
            ("b", {"a": 2, "b": 0.25}),
            ("b", {"a": 4, "b": 0}),
            ("a", {"a": 8, "b": 16}),
        )
    )
    assert rewards_of(results["a"]) == {0: 7.0, 3: 8.0}
    assert rewards_of(results["b"]) == {1: 0.75, 2: 16.0}  # the 0.5 before its first step, too
    assert (results["a"].score, results["b"].score) == (15.0, 16.75)


@given(
    st.lists(
        st.tuples(st.sampled_from(AGENTS), st.lists(st.integers(-64, 64), min_size=3, max_size=3)),
        min_size=1,
        max_size=30,
    )
)
def test_agent_results_of_the_steps_add_up_to_the_agents_total(moves):
    steps = recorded(
        *(
            (agent, {name: n / 8 for name, n in zip(AGENTS, given, strict=True)})
            for agent, given in moves
        )
    )
    results = agent_results(steps)
    assert list(results) == list(dict.fromkeys(agent for agent, _ in moves))
    for agent, result in results.items():
        total = sum(Fraction(step.step_info["agent_rewards"][agent]) for step in steps)
        assert sum(map(Fraction, rewards_of(result).values())) == total == Fraction(result.score)
        own = [place for place, (name, _) in enumerate(moves) if name == agent]
        assert list(rewards_of(result)) == own


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([None, 0.0, 1.0])), min_size=1, max_size=12
    )
)
def test_agent_results_an_unknown_reward_leaves_its_step_unknown(moves):
    steps = recorded(*((agent, {"a": reward, "b": 1.0}) for agent, reward in moves))
    results = agent_results(steps)
    unknown = [place for place, (_, reward) in enumerate(moves) if reward is None]
    for agent, result in results.items():
        assert result.is_score_valid == (agent == "b" or not unknown)
    if "a" in results:
        own = [place for place, (agent, _) in enumerate(moves) if agent == "a"]
        at = {max([each for each in own if each <= place], default=own[0]) for place in unknown}
        assert set(rewards_of(results["a"])) == set(own) - at
    if "a" in results and unknown:
        assert results["a"].error == f"the reward of 'a' at step {unknown[0]} is unknown"


def test_agent_results_of_a_failed_step_are_unknown_for_all_agents():
    steps = recorded(("a", {"a": 1, "b": 1}), ("b", {"a": 1, "b": 1}), ("a", None))
    results = agent_results(steps)
    assert [rewards_of(results["a"]), rewards_of(results["b"])] == [{0: 2.0}, {}]
    assert not results["a"].is_score_valid
    assert not results["b"].is_score_valid


def test_agent_results_leave_out_an_agent_that_took_no_step():
    assert list(agent_results(recorded(("a", {"a": 1, "b": 1})))) == ["a"]


def test_agent_results_of_no_steps_are_none():
    assert agent_results([]) == {}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a", {"a": 1}), (None, {"a": 1})], r"step 1 must name the agent .*'agent'\], got None"),
        ([("a", {"a": 1}), ("a", {"b": 1})], "step 1: .*lacks the reward of 'a'"),
        ([("a", {"a": 1}), ("a", {"a": 1, "b": 1})], "step 1: .*has 'b', but the agents are"),
        ([("a", {"a": float("inf")})], r"step 0: .*\['a'\]` must be a finite number.* inf"),
        ([("a", {"a": 1}), ("b", {"a": 1})], r"'b' has acted and has no rewards.*\['a'\]"),
        ([("a", [1])], "step 0: .*must be a dict"),
    ],
)
def test_agent_results_reject_invalid_rewards(pairs, message):
    with pytest.raises(AlignmentError, match=message):
        agent_results(recorded(*pairs))


def test_agent_results_reject_steps_without_rewards():
    steps = recorded(("a", {"a": 1}), ("a", {"a": 1}))
    del steps[1].step_info["agent_rewards"]
    with pytest.raises(AlignmentError, match=r"step 1 has no step_info\['agent_rewards'\]"):
        agent_results(steps)


# One trajectory for each agent

GAME = (("a", {"a": 1, "b": 0}), ("b", {"a": 0, "b": 2}), ("a", {"a": 4, "b": 8}))


def test_aligner_splits_a_rollout_by_agent():
    batch = align({"q7-0": recorded(*GAME, group="q7")})
    assert [rollout.id for rollout in batch] == [("q7-0", "a"), ("q7-0", "b")]
    mine = batch["q7-0", "a"]
    assert (mine.agent, mine.group, mine.score) == ("a", "q7", 5.0)
    assert [(step.system_step_index, step.base_reward) for step in mine.steps] == [(0, 1), (2, 4)]
    assert [step.base_reward for step in batch["q7-0", "b"].steps] == [10.0]
    assert not batch.report


def test_aligner_gives_one_result_of_a_rollout_to_all_its_agents():
    result = EvaluateResult(score=0.5, step_outputs=[StepOutput(step_index=1, base_reward=3)])
    batch = align({"q7-0": recorded(*GAME)}, [result])
    assert batch.final_scores == [0.5, 0.5]
    assert [[step.base_reward for step in each.steps] for each in batch] == [[None, None], [3.0]]
    assert not batch.report


def test_aligner_without_agents_keeps_the_id_of_a_rollout():
    steps = recorded(*GAME)
    for step in steps:
        del step.step_info["agent"]
    batch = align({"q7-0": steps}, [EvaluateResult(score=0.5)])
    assert (batch["q7-0"].agent, len(batch["q7-0"].steps)) == (None, 3)


def test_aligner_masks_only_the_agent_whose_reward_is_unknown():
    batch = align({"q7-0": recorded(("a", {"a": None, "b": 1}), ("b", {"a": 1, "b": 1}))})
    assert batch.final_scores == [None, 2.0]
    assert batch["q7-0", "a"].error == "the reward of 'a' at step 0 is unknown"


def test_aligner_masks_all_agents_of_an_episode_that_failed():
    steps = recorded(*GAME, error="the game is down")
    batch = align({"q7-0": steps})
    assert batch.final_scores == [None, None]
    assert batch.report.counts() == {"failed episode": 2}
    assert align({"q7-0": steps}, score_failed=True).final_scores == [5.0, 10.0]


def test_aligner_reports_the_results_of_agents_that_dont_fit():
    result = {
        "a": EvaluateResult(score=1, step_outputs=[StepOutput(step_index=1, base_reward=3)]),
        "c": EvaluateResult(score=1),
    }
    batch = align({"q7-0": recorded(*GAME)}, [result])
    assert [(each.problem, each.rollout) for each in batch.report] == [
        ("no such step", ("q7-0", "a")),  # it is a step of the other agent
        ("no result", ("q7-0", "b")),
        ("no recorded steps", ("q7-0", "c")),
    ]
    assert batch.final_scores == [1.0, None]


def test_aligner_rejects_a_step_without_an_agent_among_others():
    steps = recorded(*GAME)
    del steps[1].step_info["agent"]
    with pytest.raises(AlignmentError, match="step 1 must name the agent"):
        align({"q7-0": steps}, [EvaluateResult(score=1)])


def test_aligner_rejects_message_indices_of_a_rollout_with_agents():
    with pytest.raises(AlignmentError, match=r"'q7-0' has agents.*must number the assistant turns"):
        align({"q7-0": recorded(*GAME)}, step_index="message")


# Credit


def test_apply_credit_compares_an_agent_with_itself_alone():
    def game(a, b):
        return recorded(("a", {"a": a, "b": 0}), ("b", {"a": 0, "b": b}), group="q7")

    batch = align({"0": game(1, 10), "1": game(3, 30)})
    credit = apply_credit(batch, "grpo", normalize="mean")
    assert [[step.advantage for step in each.steps] for each in batch] == [
        [-1.0], [-10.0], [1.0], [10.0],
    ]  # fmt: skip
    assert credit.mask.all()
    apply_credit(batch, "gigpo", state_key=lambda step: "same", normalize="mean")
    signs = [[step.advantage > 0 for step in each.steps] for each in batch]
    assert signs == [[False], [False], [True], [True]]


def test_apply_credit_without_groups_compares_an_agent_with_itself_alone():
    batch = align({"0": recorded(*GAME), "1": recorded(("b", {"a": 0, "b": 0}))})
    apply_credit(batch, "grpo", normalize="mean")
    assert [step.advantage for step in batch["0", "a"].steps] == [0.0, 0.0]
    assert [step.advantage for step in batch["0", "b"].steps] == [5.0]


def test_apply_credit_group_may_be_a_function_or_a_mapping():
    batch = align({"0": recorded(*GAME), "1": recorded(*GAME)})
    for group in lambda rollout: "all", {each.id: ["all"] for each in batch}:
        credit = apply_credit(batch, "grpo", group=group)
        assert credit.advantage.tolist() == [0.0] * 6  # equal games


def test_apply_credit_returns_are_those_of_the_agents_own_steps():
    batch = align({"0": recorded(*GAME)})
    apply_credit(batch, "grpo", gamma=0.5)
    assert [step.return_to_go for step in batch["0", "a"].steps] == [3.0, 4.0]


def test_apply_credit_masks_an_agent_with_an_unknown_reward():
    unknown = recorded(("a", {"a": None, "b": 1}), ("b", {"a": 1, "b": 1}))
    batch = align({"0": recorded(*GAME), "1": unknown})
    apply_credit(batch, "grpo", normalize="mean")
    assert [step.advantage for step in batch["1", "a"].steps] == [None]
    assert [step.advantage for step in batch["1", "b"].steps] == [-4.0]


def test_apply_credit_rejects_a_rollout_of_several_agents():
    whole = AlignedRollout("0", recorded(*GAME), score=1.0)
    with pytest.raises(CreditError, match="'0' has the agent None and a step of 'a'; RLDataAlign"):
        apply_credit([whole], "grpo")
    one = AlignedRollout("0", recorded(*GAME), score=1.0, agent="a")
    with pytest.raises(CreditError, match="has the agent 'a' and a step of 'b'"):
        apply_credit([one], "grpo")


def test_system_apply_gigpo_takes_the_steps_of_one_agent_as_a_list():
    def game(a, b):
        return align({"0": recorded(("a", {"a": a, "b": 0}), ("b", {"a": 0, "b": b}))}).step_lists

    lists = [*game(1, 10), *game(3, 30)]
    system_apply_gigpo_to_batch_steps(
        lists, [1.0, 10.0, 3.0, 30.0], state_hashing_function=lambda step: "same"
    )
    assert [steps[0].advantage > 0 for steps in lists] == [False, False, True, True]
    with pytest.raises(CreditError, match="has the agent 'a' and a step of 'b'"):
        system_apply_gigpo_to_batch_steps([recorded(*GAME)], [1.0])
