"""Text games: offline, with random generators of their own, scored by rubrics."""

import doctest
import importlib
import itertools
import random
import string
import subprocess
import sys
from pathlib import Path

import pytest

from examples.textarena import offline
from examples.textarena.environment import TextArenaEnvironment
from examples.textarena.models import TextArenaAction, TextArenaObservation
from examples.textarena.offline import GAMES, WORDS, make_game
from examples.textarena.play import GAMES as PLAYED
from examples.textarena.play import act, play
from examples.textarena.rubrics import ByGame, Invalid, Marks, Outcome, Pegs, WordleHints
from guerdon import EnvPool, RewardConfig, check_environment, create_app
from guerdon.envs import ConfiguredEnv
from guerdon.errors import EpisodeError, InvalidArgumentError, MissingExtraError
from tests.envs.client.servers import Served, run

ROOT = Path(__file__).parents[2]
REWARD = ROOT / "examples" / "textarena" / "reward.yaml"
MODULES = ["environment", "models", "offline", "play", "rubrics"]

WALKS = ["[up]", "[down]", "[left]", "[right]"]
ANSWERS = {
    "2048": WALKS,
    "Bandit": ["[red]", "[blue]"],
    "Blackjack": ["[hit]", "[stand]"],
    "FifteenPuzzle": WALKS,
    "FrozenLake": WALKS,
    "Hangman": [*(f"[{letter}]" for letter in string.ascii_lowercase), "[plant]"],
    "Mastermind": [f"[{' '.join(code)}]" for code in itertools.permutations("123456", 4)],
    "Minesweeper": [f"[{row} {column}]" for row in range(8) for column in range(8)],
    "PegJump": [f"[{start}->{end}]" for start in range(1, 16) for end in range(1, 16)],
    "Secretary": ["[continue]", "[accept]"],
    "Sudoku": [f"[{' '.join(cell)}]" for cell in itertools.product("123456789", repeat=3)],
    "TowerOfHanoi": [f"[{one} {other}]" for one, other in itertools.permutations("ABC", 2)],
    "Wordle": [f"[{word}]" for word in WORDS],
}
RUBBISH = ["", "no brackets", "[]", "[[", "[-1]", "[9 9 9 9 9]", f"[{'9' * 990}]", "[²]", "💥"]


def answer(environment, message):
    return environment.step(TextArenaAction(message=message))


def observed(text="", game="Wordle-v0", **fields):
    return TextArenaObservation(game_id=game, text=text, transcript=text, **fields)


# Games -----------------------------------------------------------------------------------------


def test_make_game_needs_no_network():
    program = (
        "import socket\n"
        "def refuse(*args): raise AssertionError(f'asked for {args}')\n"
        "socket.getaddrinfo = socket.socket.connect = refuse\n"
        "import random\n"
        "from examples.textarena.offline import GAMES, make_game, random_of\n"
        "generator = random.Random(1)\n"
        "for game in GAMES:\n"
        "    with random_of(generator): make_game(game, generator).reset(num_players=1)\n"
        "import nltk\n"
        "print(nltk.download.__qualname__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == "Downloader.download\n"  # nltk is as before


def test_words_are_english_words_of_five_letters():
    wordle = make_game("Wordle-v0", random.Random())
    assert len(WORDS) == len(set(WORDS)) > 400
    assert {len(word) for word in WORDS} == {5}
    assert [word for word in WORDS if not wordle.dictionary.is_english_word(word)] == []


@pytest.mark.parametrize("game", GAMES)
def test_step_scores_any_answers(game):
    rng = random.Random(game)
    answers = ANSWERS[game.partition("-")[0]]
    with TextArenaEnvironment(game) as environment:
        for seed in range(12):
            observation = environment.reset(seed=seed)
            while not observation.done:
                observation = answer(environment, rng.choice(rng.choice([RUBBISH, answers])))
                assert observation.reward is not None
                assert observation.text or not observation.invalid
            assert -1 <= observation.outcome <= 1


def test_random_of_leaves_pythons_generator_unchanged():
    random.seed(4)
    expected = random.Random(4).random()
    with TextArenaEnvironment("Minesweeper-v0") as environment:
        environment.reset(seed=1)
        answer(environment, "[0 0]")  # the mines are drawn in a step
    assert random.random() == expected


def test_environments_have_generators_of_their_own():
    with TextArenaEnvironment("Minesweeper-v0") as one, TextArenaEnvironment("Bandit-v0") as other:
        texts = []
        for disturb in False, True:
            one.reset(seed=3)
            other.reset(seed=8)
            if disturb:
                answer(other, "[red]")
            texts.append(answer(one, "[0 0]").text)
        assert texts[0] == texts[1]


# The environment -------------------------------------------------------------------------------


def test_textarena_environment_passes_check_environment():
    report = check_environment(TextArenaEnvironment)
    assert [line.status for line in report.lines] == ["ok"] * len(report.lines)


@pytest.mark.parametrize("game", PLAYED)
def test_act_wins(game):
    with TextArenaEnvironment(game) as environment:
        outcomes = [play(environment, seed=seed)[-1].outcome for seed in range(5)]
    assert sum(outcome == 1.0 for outcome in outcomes) >= 3


@pytest.mark.parametrize("game", GAMES)
def test_reset_seed_determines_the_game(game):
    transcripts = []
    with TextArenaEnvironment(game) as one, TextArenaEnvironment("Bandit-v0") as other:
        for environment in one, other, one:
            observation, rng = environment.reset(seed=6, game=game), random.Random(6)
            while not observation.done:
                message = rng.choice(ANSWERS[game.partition("-")[0]])
                observation = answer(environment, message)
            transcripts.append(observation.transcript)
    assert len(set(transcripts)) == 1
    assert other.state.game_id == game


def test_transcript_has_the_rules_the_answers_and_the_texts():
    with TextArenaEnvironment("TowerOfHanoi-v0") as environment:
        first = environment.reset()
        second = answer(environment, "I begin: [A C]")
    assert "with 3 disks" in first.text
    assert second.text.startswith("You moved disk 1 from A to C.\nCurrent Board:")
    assert second.transcript == f"{first.transcript}\n> I begin: [A C]\n{second.text}"


def test_max_steps_ends_a_game_without_an_outcome():
    with TextArenaEnvironment("Hangman-v0", max_steps=2) as environment:
        environment.reset(seed=1)
        answer(environment, "[zebra]")
        last = answer(environment, "[yacht]")
    assert (last.done, last.outcome, last.reward) == (True, None, 0.0)
    assert last.metadata["reward_components"]["outcome"] == 0.0


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["Wordle", "Chess-v0", "TwentyQuestions-v0", "os:path", "", None])
def test_textarena_environment_rejects_an_unknown_game(game):
    with pytest.raises(InvalidArgumentError, match=r"one of 2048-v0, .*, Wordle-v0; got "):
        TextArenaEnvironment(game)
    with TextArenaEnvironment("Bandit-v0") as environment:
        if game is not None:
            with pytest.raises(InvalidArgumentError, match="one of 2048-v0"):
                environment.reset(game=game)
        assert environment.reset().game_id == "Bandit-v0"


@pytest.mark.parametrize(
    ("game", "message", "reason"),
    [
        ("Wordle-v0", "crane", "wrong format"),
        ("Wordle-v0", "[cranes]", "exactly 5 letters"),
        ("Wordle-v0", "[xqzvw]", "not an English word"),
        ("FrozenLake-v0", "[up]", "hit a wall"),
        ("TowerOfHanoi-v0", "[B C]", "empty tower"),
        ("Mastermind-v0", "[1 1 2 3]", "Duplicate numbers"),
        ("Hangman-v0", "7", "Invalid move format"),
    ],
)
def test_step_with_an_invalid_answer_is_scored_by_the_games_rules(game, message, reason):
    with TextArenaEnvironment(game) as environment:
        environment.reset(seed=1)
        first = answer(environment, message)
        assert (first.invalid, first.done, first.reward) == (True, False, -0.1)
        assert reason in first.text
        second = answer(environment, message)
        assert (second.invalid, second.done, second.outcome) == (True, True, 0.0)
        assert reason in second.text
        assert second.metadata["reward_components"]["invalid"] == 1.0
        assert environment.state.invalid_answers == 2


def test_step_after_an_invalid_answer_continues_the_game():
    with TextArenaEnvironment("TowerOfHanoi-v0") as environment:
        environment.reset()
        answer(environment, "[B C]")
        assert not answer(environment, "[A C]").invalid
        assert not answer(environment, "[B C]").done  # invalid again, but not in a row


def test_step_before_reset_or_after_the_end_raises():
    with TextArenaEnvironment("FrozenLake-v0") as environment:
        for begin in (lambda: None, lambda: play(environment, seed=1)):
            begin()
            with pytest.raises(EpisodeError, match=r"call reset\(\)"):
                answer(environment, "[up]")


def test_textarena_action_limits_the_length_of_an_answer():
    with pytest.raises(ValueError, match="at most 1000 characters"):
        TextArenaAction(message="x" * 1001)


def test_textarena_environment_rejects_max_steps_below_1():
    with pytest.raises(InvalidArgumentError, match="`max_steps` must be at least 1, got 0"):
        TextArenaEnvironment(max_steps=0)


def test_textarena_environment_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(offline, "_textarena", offline._textarena.__wrapped__)  # not cached
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'guerdon\[textarena\]'") as caught:
        TextArenaEnvironment()
    assert caught.value.extra == "textarena"


# The reward ------------------------------------------------------------------------------------


def test_wordle_hints_and_marks_count_greens_and_yellows():
    observation = observed("You submitted [crane].\nFeedback:\nC R A N E\nG X Y Y X\nYou have 5 …")
    assert Marks("G")(None, observation) == 0.2
    assert Marks("Y")(None, observation) == 0.4
    assert WordleHints()(None, observation) == pytest.approx(0.4)
    assert Marks("G")(None, observed(outcome=1.0)) == 1.0
    assert WordleHints()(None, observed("You attempted an invalid move.", invalid=True)) == 0.0


def test_pegs_count_black_and_white():
    text = "Submitted [1 2 3 4]. Feedback: 1 black peg(s), 2 white peg(s)."
    assert Pegs()(None, observed(text)) == 0.5


@pytest.mark.parametrize(
    ("game", "paths"),
    [
        ("Wordle-v0", {"games.Wordle", "games.Wordle.greens", "games.Wordle.yellows"}),
        ("Mastermind-v0-hard", {"games.Mastermind"}),
        ("Hangman-v0", {"games.Hangman"}),
        ("FrozenLake-v0", set()),
    ],
)
def test_by_game_dispatches_on_the_game_id(game, paths):
    score = ByGame().score(TextArenaAction(message="[a]"), observed(game=game))
    assert score.value == 0.0
    assert score.components().keys() == paths
    if not paths:
        assert score.reason == "single answers of FrozenLake-v0 are not rewarded"


def test_outcome_and_invalid_explain_their_scores():
    action = TextArenaAction(message="crane")
    assert Outcome()(action, observed(outcome=-1.0)) == -1.0
    assert "not finished" in Outcome().score(action, observed(done=True)).reason
    assert "'crane': Reason" in Invalid().score(action, observed("Reason", invalid=True)).reason


@pytest.mark.parametrize("game", PLAYED)
def test_reward_yaml_gives_the_rewards_of_the_environment(game):
    def rewards(make):
        with make() as environment:
            observation, rng, rewards = environment.reset(seed=4, game=game), random.Random(4), []
            while not observation.done:
                observation = environment.step(act(observation, rng))
                rewards.append((observation.reward, observation.metadata["reward_components"]))
        return rewards

    with ConfiguredEnv(TextArenaEnvironment, RewardConfig.from_file(REWARD)) as configured:
        assert rewards(configured) == rewards(TextArenaEnvironment)


# The wire --------------------------------------------------------------------------------------


@pytest.mark.edge
def test_env_pool_plays_16_games_over_the_wire():
    options = [{"game": PLAYED[slot % len(PLAYED)]} for slot in range(16)]

    async def over_the_wire(url):
        rngs = [random.Random(f"agent {slot}") for slot in range(16)]
        async with EnvPool(url, n=16, observation_type=TextArenaObservation) as pool:
            last = await pool.reset_batch(seeds=0, options=options)
            while not all(each.done for each in last):
                actions = [
                    None if each.done else act(each, rng)
                    for each, rng in zip(last, rngs, strict=True)
                ]
                stepped = await pool.step_batch(actions)
                last = [new or old for new, old in zip(stepped, last, strict=True)]
        return last

    served = Served(create_app(TextArenaEnvironment))
    try:
        last = run(over_the_wire(served.url))
    finally:
        served.stop()
    for slot, observation in enumerate(last):
        with TextArenaEnvironment(options[slot]["game"]) as environment:
            assert observation == play(environment, seed=slot)[-1]


@pytest.mark.edge
def test_textarena_play_prints_a_table():
    output = subprocess.run(
        [sys.executable, "-m", "examples.textarena.play", "3"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "[A C]" in output
    assert "1.100" in output


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_of_textarena_run(name):
    assert doctest.testmod(importlib.import_module(f"examples.textarena.{name}")).failed == 0
