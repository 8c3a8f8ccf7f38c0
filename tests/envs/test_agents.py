"""Environments with several agents: the rewards of each in the metadata of an observation."""

import pytest

from guerdon import (
    EnvClient,
    EnvPool,
    Rubric,
    RubricDict,
    WeightedSum,
    check_environment,
    create_app,
)
from guerdon.envs import ASGITransport
from guerdon.envs.runner import EnvAdapter
from guerdon.errors import InvalidObservationError
from guerdon.types.agents import check_agent_rewards
from tests.envs.duel import ByHand, Duel, Heard, Letters, Say, by_letter


def step(environment, text="that"):
    """A step as a server, a pool or a worker takes it."""
    adapter = EnvAdapter(environment)
    adapter.reset()
    return adapter.step(Say(text=text))


def test_score_puts_the_scores_of_the_agents_into_agent_rewards():
    environment = Duel()
    environment.reset()
    observation = environment.step(Say(text="that"))
    assert observation.metadata["agent_rewards"] == {"asker": 1.0, "teller": 2.0}
    assert observation.reward == 3.0


@pytest.mark.parametrize("rubric", [by_letter, lambda: by_letter(other=Letters("h"))])
def test_agent_rewards_are_those_of_the_agents_alone(rubric):
    observation = step(Duel(rubric()))
    assert observation.metadata["agent_rewards"] == {"asker": 1.0, "teller": 2.0}


def test_score_without_agents_adds_no_agent_rewards():
    class Alone(Duel):
        agents = ()

    assert "agent_rewards" not in step(Alone()).metadata


def test_agent_rewards_are_unknown_if_the_rubric_failed():
    observation = step(Duel(), "what!")
    assert observation.reward is None
    assert observation.metadata["agent_rewards"] == {"asker": None, "teller": None}


def test_agent_rewards_of_an_author_who_calls_the_rubric():
    class Called(Duel):
        def step(self, action, timeout_s=None, **kwargs):
            heard = self.heard(action)
            try:
                heard.reward = self.rubric(action, heard)
            except OSError:
                heard.reward = -1.0
            return heard

    assert step(Called()).metadata["agent_rewards"] == {"asker": 1.0, "teller": 2.0}
    handled = step(Called(), "what!")
    assert handled.reward == -1.0
    assert handled.metadata["agent_rewards"] == {"asker": None, "teller": None}


def test_agent_rewards_of_a_rubric_dict_that_calls_one_agent_name_the_other():
    class Dispatched(Duel):
        def step(self, action, timeout_s=None, **kwargs):
            heard = self.heard(action)
            return heard.with_reward(self.rubric["asker"](action, heard))

    rubric = RubricDict({"asker": Letters("a"), "teller": Letters("t")})
    with pytest.raises(InvalidObservationError, match="lacks the reward of 'teller'"):
        step(Dispatched(rubric))


def test_agent_rewards_can_be_set_by_the_environment():
    environment = ByHand()
    environment.given = {"asker": 1, "teller": None}
    assert step(environment).metadata["agent_rewards"] == {"asker": 1, "teller": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none", "must be a dict of rewards by agent, got 'none'"),
        ([1.0, 2.0], "must be a dict"),
        ({"asker": 1.0}, r"lacks the reward of 'teller'; the agents are \['asker', 'teller'\]"),
        ({"asker": 1.0, "teller": 0.0, "judge": 0.0}, "has 'judge', but the agents are"),
        ({"asker": float("nan"), "teller": 0.0}, r"\['asker'\]` must be a finite number, .* nan"),
        ({"asker": 1.0, "teller": "2"}, r"\['teller'\]` must be a finite number, .* '2'"),
    ],
)
def test_agent_rewards_that_are_invalid_are_an_error(given, message):
    environment = ByHand()
    environment.given = given
    with pytest.raises(InvalidObservationError, match=message):
        step(environment)
    with pytest.raises(InvalidObservationError, match=message):
        check_agent_rewards(given, environment.agents, error=InvalidObservationError)


def test_agents_with_rubrics_of_other_names_need_agent_rewards():
    message = (
        r"no `metadata\['agent_rewards'\]`: name a child of the rubric after each of the agents"
    )
    with pytest.raises(InvalidObservationError, match=message):
        step(Duel(WeightedSum([Letters("a"), Letters("t")], weights=[1.0, 1.0])))


def test_step_must_name_the_agent_that_acts_next():
    class Nameless(Duel):
        def heard(self, action):
            return Heard(text="heard", done=action.text == "bye")

    with pytest.raises(InvalidObservationError, match=r"\['asker', 'teller'\], got None"):
        step(Nameless())
    assert step(Nameless(), "bye").done


def test_agent_rewards_travel_over_the_wire():
    with EnvClient(transport=ASGITransport(create_app(Duel))).sync() as client:
        assert client.reset().metadata["agent"] == "asker"
        result = client.step(Say(text="that"))
    assert result.metadata["agent"] == "teller"
    assert result.metadata["agent_rewards"] == {"asker": 1.0, "teller": 2.0}


def test_agent_rewards_of_a_pool():
    with EnvPool(Duel, n=2).sync() as pool:
        pool.reset_batch()
        observations = pool.step_batch([Say(text="a"), Say(text="tt")])
    rewards = [each.metadata["agent_rewards"] for each in observations]
    assert rewards == [{"asker": 1.0, "teller": 0.0}, {"asker": 0.0, "teller": 2.0}]


def test_agent_rewards_of_an_async_rubric():
    class Slow(Rubric):
        async def forward(self, action, observation):
            return 0.5

    observation = step(Duel(by_letter(judge=Slow())))
    assert observation.metadata["agent_rewards"] == {"asker": 1.0, "teller": 2.0}


def test_check_environment_reports_a_reset_that_names_no_agent():
    class Silent(Duel):
        def reset(self, **kwargs):
            return Heard(text="begin")

    assert check_environment(Duel).ok
    [problem] = check_environment(Silent).problems
    assert "the reset must name one of the agents ['asker', 'teller'] in metadata['agent']" in (
        problem.detail
    )
