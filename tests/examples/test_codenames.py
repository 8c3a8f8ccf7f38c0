"""Codenames: the rules, the reward of each agent, and one trajectory for each."""

import asyncio
import doctest
import importlib
import inspect
import random
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from examples.codenames.environment import CodenamesEnvironment
from examples.codenames.game import AGENTS, CLUES, SIZE, Game
from examples.codenames.models import CodenamesAction, CodenamesObservation
from examples.codenames.play import act, play
from examples.codenames.rubrics import ClueQuality, CodenamesRubric, GuessQuality, Outcome
from examples.codenames.words import ASSOCIATIONS, WORDS, fits
from guerdon import (
    EnvPool,
    RLDataAligner,
    RLRolloutWorker,
    apply_credit,
    check_environment,
    create_app,
)
from guerdon.envs import ConfiguredEnv
from guerdon.errors import EpisodeError, InvalidArgumentError
from guerdon.rollouts import PolicyOutput, agent_results
from tests.envs.client.servers import Served

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "world-codenames.md"
REWARD = ROOT / "examples" / "codenames" / "reward.yaml"
MODULES = ["environment", "game", "models", "play", "rubrics", "words"]

PASS = CodenamesAction(kind="pass")


def clue(word="entropy", number=1):
    return CodenamesAction(kind="clue", word=word, number=number)


def guess(word):
    return CodenamesAction(kind="guess", word=word)


@pytest.fixture
def environment():
    environment = CodenamesEnvironment()
    environment.reset(seed=1)
    return environment


def words_of(environment, color):
    """The hidden words of a color."""
    game = environment._game
    return [word for word in game.hidden if game.key[word] == color]


class Scripted:
    def __init__(self, seed):
        self.rng = random.Random(f"guesser {seed}")

    async def get_action(self, observation, available_tools_specs=None):
        action = act(observation, self.rng)
        return PolicyOutput(action, action.word)


def recorded(seed, env=CodenamesEnvironment):
    return RLRolloutWorker(env, Scripted(seed), max_steps=60).run_sync(seed=seed)


# The words


def test_words_are_200_and_every_clue_is_valid_on_every_board():
    assert len(WORDS) == 200
    assert all(word.isalpha() and word.islower() for word in [*WORDS, *ASSOCIATIONS])
    assert [(clue, word) for clue in ASSOCIATIONS for word in WORDS if word in clue] == []


# The rules


@given(st.integers(0, 2**32))
def test_game_begin_has_25_words_of_the_list(seed):
    game = Game.begin(seed)
    assert (len(game.key), len(set(game.key) & set(WORDS))) == (SIZE, SIZE)
    colors = list(game.key.values())
    assert [colors.count(each) for each in ("agent", "assassin", "bystander")] == [7, 1, 17]
    assert game == Game.begin(seed)


def test_codenames_environment_shows_the_key_to_the_spymaster_only(environment):
    first = environment.reset(seed=1)
    assert (first.metadata["agent"], sorted(first.key)) == ("spymaster", sorted(first.words))
    for action, agent in [
        (clue(number=2), "guesser"),
        (guess(words_of(environment, "agent")[0]), "guesser"),
        (guess(words_of(environment, "bystander")[0]), "spymaster"),
    ]:
        observation = environment.step(action)
        assert observation.metadata["agent"] == agent
        assert bool(observation.key) == (agent == "spymaster")
    assert "key" not in environment.state.model_dump_json()
    assert environment.state.clues == ["entropy 2"]


def test_codenames_environment_allows_one_guess_more_than_the_number(environment):
    environment.step(clue(number=2))
    agents = words_of(environment, "agent")
    turns = [environment.step(guess(word)) for word in agents[:3]]
    assert [each.guesses_left for each in turns] == [2, 1, 0]
    assert [each.metadata["agent"] for each in turns] == ["guesser", "guesser", "spymaster"]
    with pytest.raises(InvalidArgumentError, match="a clue of the spymaster is expected"):
        environment.step(guess(agents[3]))


@pytest.mark.parametrize("end", ["bystander", "pass"])
def test_codenames_environment_ends_a_turn_with_a_bystander_or_a_pass(environment, end):
    environment.step(clue(number=9))
    action = PASS if end == "pass" else guess(words_of(environment, "bystander")[0])
    observation = environment.step(action)
    assert (observation.metadata["agent"], observation.done) == ("spymaster", False)
    assert (observation.clue, observation.guesses_left) == ("", 0)
    assert observation.clues_left == CLUES - 1


def test_codenames_environment_is_won_with_the_last_agent(environment):
    environment.step(clue(number=9))
    last = [environment.step(guess(word)) for word in words_of(environment, "agent")][-1]
    assert (last.done, last.ending, len(last.revealed)) == (True, "all found", AGENTS)
    assert last.metadata["agent_rewards"] == pytest.approx({"spymaster": 1.05, "guesser": 1.1})
    assert len(last.key) == SIZE


def test_codenames_environment_is_lost_with_the_assassin(environment):
    environment.step(clue())
    last = environment.step(guess(words_of(environment, "assassin")[0]))
    assert (last.done, last.ending) == (True, "assassin")
    assert last.metadata["agent_rewards"] == pytest.approx({"spymaster": -1.05, "guesser": -1.1})


@pytest.mark.parametrize("end", ["bystander", "pass"])
def test_codenames_environment_ends_when_the_clues_run_out(environment, end):
    for number in range(CLUES):
        assert environment.step(clue()).clues_left == CLUES - 1 - number
        action = PASS if end == "pass" else guess(words_of(environment, "bystander")[0])
        last = environment.step(action)
        assert last.done == (number == CLUES - 1)
    assert last.ending == "out of clues"
    assert last.reward == pytest.approx(0.0 if end == "pass" else -0.15)


# Bad input


def contains(environment):
    return clue(environment._game.hidden[0] + "s")


def board_word(environment):
    return clue(environment._game.hidden[0])


def guessed(environment):
    return guess(environment._game.guessed[0])


@pytest.mark.parametrize(
    ("turn", "action", "message"),
    [
        ("spymaster", board_word, "'.*' contains '.*'; a clue must be a word that neither is nor"),
        ("spymaster", contains, "'.*s' contains '.*'; a clue must be a word that neither is nor"),
        ("spymaster", clue(""), "it is empty; a clue must be a word"),
        ("spymaster", guess("moon"), "a clue of the spymaster is expected, got the guess 'moon'"),
        ("spymaster", PASS, "a clue of the spymaster is expected, got a pass"),
        ("guesser", clue(), "a guess or a pass of the guesser is expected, got the clue 'entropy'"),
        ("guesser", guess("entropy"), "must be a hidden word, and 'entropy' isn't on the board"),
        ("guesser", guess(""), "must be a hidden word, and '' isn't on the board"),
        ("guesser", guessed, "must be a hidden word, and '.*' was already guessed; the hidden"),
    ],
)
def test_codenames_environment_refuses_an_action_and_changes_nothing(
    environment, turn, action, message
):
    environment.step(clue(number=3))
    environment.step(guess(words_of(environment, "agent")[0]))
    if turn == "spymaster":
        environment.step(PASS)
    if callable(action):
        action = action(environment)
    game, state = environment._game, environment.state.model_copy(deep=True)
    with pytest.raises(InvalidArgumentError, match=message):
        environment.step(action)
    assert (environment._game, environment.state) == (game, state)
    environment.step(clue() if turn == "spymaster" else PASS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"number": 0}, "number\n.*greater than or equal to 1"),
        ({"number": 10}, "number\n.*less than or equal to 9"),
        ({"number": "many"}, "number\n.*valid integer"),
        ({"word": "two words"}, r"word\n.*match pattern '\^\[a-z\]\*\$'"),
        ({"kind": "hint"}, "kind\n.*'clue', 'guess' or 'pass'"),
    ],
)
def test_codenames_action_rejects_what_is_no_clue(fields, message):
    with pytest.raises(ValidationError, match=message):
        CodenamesAction.model_validate({"kind": "clue", "word": "entropy", **fields})


def test_codenames_environment_step_without_a_running_game_raises(environment):
    with pytest.raises(EpisodeError, match="no game has begun; call reset"):
        CodenamesEnvironment().step(clue())
    environment.step(clue())
    environment.step(guess(words_of(environment, "assassin")[0]))
    for action in clue(), guess("moon"), PASS:
        with pytest.raises(EpisodeError, match=r"the game is over \(assassin\); call reset"):
            environment.step(action)
    environment.reset(seed=2)
    environment.step(clue())


# The reward


def test_clue_quality_counts_the_words_that_the_clue_fits():
    colors = {"bee": "agent", "spider": "agent", "butterfly": "bystander", "moon": "agent"}
    observation = CodenamesObservation(words=list(colors))
    observation._colors = colors
    assert ClueQuality()(clue("insect"), observation) == 0.25
    colors["butterfly"] = "assassin"
    score = ClueQuality().score(clue("insect"), observation)
    assert (score.value, score.reason) == (-0.25, "insect fits bee, spider, butterfly")
    observation.revealed = {"butterfly": "assassin"}
    assert ClueQuality()(clue("insect"), observation) == 0.5
    score = ClueQuality().score(clue("entropy"), observation)
    assert (score.value, score.reason) == (0.0, "entropy fits no hidden word")
    assert ClueQuality()(guess("bee"), observation) == 0.0


def test_guess_quality_and_outcome_have_each_value():
    observation = CodenamesObservation(words=[], revealed={"bee": "agent", "moon": "bystander"})
    actions = [guess("bee"), guess("moon"), PASS, clue()]
    assert [GuessQuality()(each, observation) for each in actions] == [1.0, -1.0, 0.0, 0.0]
    endings = ["all found", "assassin", "out of clues", None]
    observations = [CodenamesObservation(words=[], ending=each) for each in endings]
    assert [Outcome()(PASS, each) for each in observations] == [1.0, -1.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_codenames_rubric_rewards_the_team_with_the_sum_of_both_agents(seed):
    for observation in play(CodenamesEnvironment(), seed=seed):
        rewards = observation.metadata["agent_rewards"]
        assert list(rewards) == list(CodenamesRubric().weights) == ["spymaster", "guesser"]
        assert observation.reward == pytest.approx(sum(rewards.values()))
        components = observation.metadata["reward_components"]
        assert rewards == {agent: components[agent] for agent in rewards}


def test_reward_yaml_gives_the_same_numbers():
    with ConfiguredEnv(CodenamesEnvironment, REWARD) as configured:
        for seed in range(5):
            with CodenamesEnvironment() as own, configured() as environment:
                rewards = [
                    [
                        (
                            each.reward,
                            each.metadata["reward_components"],
                            each.metadata["agent_rewards"],
                        )
                        for each in play(one, seed=seed)
                    ]
                    for one in (own, environment)
                ]
                assert rewards[0] == rewards[1]


# The trajectories of the agents


@pytest.mark.parametrize("seed", [25, 48, 1])
def test_agent_results_of_a_game_add_up_to_the_rewards_of_its_steps(seed):
    record = recorded(seed)
    assert record.ended == "done", record.error
    batch = RLDataAligner(strict=True).align_data_for_rl_processing(
        [agent_results(record.steps)], {0: record.steps}, [0]
    )
    assert [rollout.agent for rollout in batch] == ["spymaster", "guesser"]
    for rollout in batch:
        total = sum(
            Fraction(step.step_info["agent_rewards"][rollout.agent]) for step in record.steps
        )
        assert float(sum(Fraction(step.base_reward) for step in rollout.steps)) == pytest.approx(
            float(total)
        )
        assert rollout.score == float(total)
        kinds = {step.action_taken["kind"] for step in rollout.steps}
        assert kinds <= ({"clue"} if rollout.agent == "spymaster" else {"guess", "pass"})


def test_apply_credit_compares_each_agent_of_a_group_of_games_with_itself():
    records = [recorded(seed) for seed in range(4)]
    batch = RLDataAligner().align_data_for_rl_processing(
        [agent_results(record.steps) for record in records],
        {number: record.steps for number, record in enumerate(records)},
        list(range(4)),
    )
    apply_credit(batch, "grpo", group=lambda rollout: "all", normalize="mean")
    for agent in CodenamesEnvironment.agents:
        own = [rollout for rollout in batch if rollout.agent == agent]
        mean = sum(rollout.score for rollout in own) / 4
        for rollout in own:
            for step in rollout.steps:
                assert step.advantage == pytest.approx(rollout.score - mean)


def test_page_of_codenames_has_a_table_whose_totals_are_the_sums():
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in PAGE.read_text().splitlines()
        if line.startswith("│")
    ]
    *steps, total = rows
    assert total[1] == "total"
    assert len(steps) == 16
    for column in 3, 4:
        assert sum(Fraction(row[column]) for row in steps) == Fraction(total[column])
    for row in steps:
        assert Fraction(row[3]) + Fraction(row[4]) == Fraction(row[5])
    trajectories = re.findall(r"^\(0, '(\w+)'\) (\S+) .*\n +\[(.*)\]$", PAGE.read_text(), re.M)
    assert [agent for agent, _, _ in trajectories] == ["spymaster", "guesser"]
    for (_, score, rewards), column in zip(trajectories, (3, 4), strict=True):
        assert sum(map(Fraction, rewards.split(", "))) == Fraction(score) == Fraction(total[column])


# The scripted agents, the server, the command


def test_act_plays_to_each_ending():
    endings = {play(CodenamesEnvironment(), seed=seed)[-1].ending for seed in (1, 2, 25, 26)}
    assert endings == {"all found", "assassin", "out of clues"}


def test_act_gives_clues_of_the_table_and_guesses_words_that_fit():
    environment = CodenamesEnvironment()
    rng = random.Random(3)
    observation = environment.reset(seed=3)
    while not observation.done:
        action = act(observation, rng)
        if action.kind == "clue":
            assert action.word in ASSOCIATIONS
        elif action.kind == "guess":
            assert action.word in fits(observation.clue)
        observation = environment.step(action)


def test_check_environment_finds_nothing():
    report = check_environment(CodenamesEnvironment)
    assert report.ok, report.problems


def test_codenames_observation_round_trips_through_json():
    for observation in play(CodenamesEnvironment(), seed=1):
        text = observation.model_dump_json()
        assert CodenamesObservation.model_validate_json(text).model_dump_json() == text
        assert "_colors" not in text


@pytest.mark.edge
def test_env_pool_of_16_plays_codenames_environment_over_the_wire():
    def expected(seed):
        return [each.metadata["agent_rewards"] for each in play(CodenamesEnvironment(), seed=seed)]

    async def games(url):
        async with EnvPool(url, n=16) as pool:
            rngs = [random.Random(f"guesser {seed}") for seed in range(16)]
            observations = await pool.reset_batch(seeds=list(range(16)))
            rewards = [[] for _ in range(16)]
            while not all(each.done for each in observations):
                actions = [
                    None if each.done else act(each, rng).model_dump()
                    for each, rng in zip(observations, rngs, strict=True)
                ]
                for slot, each in enumerate(await pool.step_batch(actions)):
                    if each is not None:
                        observations[slot] = each
                        rewards[slot].append(each.metadata["agent_rewards"])
            return rewards

    served = Served(create_app(CodenamesEnvironment))
    try:
        rewards = asyncio.run(asyncio.wait_for(games(served.url), 60))
    finally:
        served.stop()
    assert rewards == [expected(seed) for seed in range(16)]


@pytest.mark.edge
def test_codenames_play_prints_the_table_of_the_page():
    output = subprocess.run(
        [sys.executable, "-m", "examples.codenames.play"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert output.strip() in PAGE.read_text()


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(f"examples.codenames.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_codenames_public_names_are_sorted_and_have_examples(name):
    module = importlib.import_module(f"examples.codenames.{name}")
    assert module.__all__ == sorted(module.__all__)
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or (inspect.isfunction(value) and public != "main"):
            assert ">>>" in inspect.getdoc(value), public
