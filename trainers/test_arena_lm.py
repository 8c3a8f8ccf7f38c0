"""The language model of the arena: its texts, their log-probabilities, and one update."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from guerdon.arena import METHODS, exact_values
from guerdon.arena.training import Loop
from trainers.arena_lm import PATIENCE, Player, TextWorld, Trainer, warm_up
from trainers.character_model import CHARACTERS, END, SMALL, Answers, CharacterModel, codes

LOOP = Loop(groups=1, group_size=8)


@pytest.fixture(scope="module")
def lock():
    return TextWorld("short-lock")


@pytest.fixture(scope="module")
def weights(lock):
    return warm_up(lock, steps=100)


def predicted(world, weights):
    model = CharacterModel(0)
    model.load_state_dict(weights)
    with torch.no_grad():
        return world.answers.predict(model)


def test_the_character_model_has_about_100_000_parameters():
    size = sum(each.numel() for each in CharacterModel(0, size=SMALL).parameters())
    assert 90_000 < size < 130_000


def test_answers_have_the_log_probabilities_of_the_prompt_and_answer_as_one_text():
    prompts, words = ["one> ", "number two> "], ["go" + END, "go on" + END, "stay" + END]
    model = CharacterModel(1)
    answers = Answers(prompts, words)
    found = answers.logprobs(answers.predict(model)).tolist()
    for row, prompt in enumerate(prompts):
        for column, word in enumerate(words):
            text = torch.tensor([codes(prompt + word)])
            length = text.shape[1]
            mask = torch.ones(1, length, length, dtype=torch.bool).tril()
            logprobs = model(text, torch.arange(length)[None], mask)[0]
            places = torch.arange(len(prompt) - 1, length - 1)
            expected = logprobs[places, text[0, len(prompt) :]].sum().item()
            assert math.isclose(found[row][column], expected, abs_tol=1e-3)


def test_player_draws_actions_with_the_probabilities_of_the_policy(lock, weights):
    table = predicted(lock, weights)
    player = Player(lock, seed=3)
    episodes = player.play(table, range(2_000))
    first = [turns[0].action for turns in episodes.values()]
    shares = np.bincount(first, minlength=len(lock.actions)) / len(first)
    assert np.abs(shares - lock.policy(table)[0]).max() < 0.05
    assert player.texts - player.refused == sum(map(len, episodes.values()))


def test_player_gives_an_episode_up_after_texts_that_are_no_action(lock):
    never = torch.full((len(lock.texts), len(lock.answers.nodes), CHARACTERS), -1e9)
    never[..., ord("?")] = 0.0
    player = Player(lock, seed=0)
    assert player.play(never, [1, 2]) == {}
    assert (player.texts, player.refused) == (2 * PATIENCE, 2 * PATIENCE)


def test_warm_up_teaches_the_form_of_an_answer(lock, weights):
    accepted = lock.answers.logprobs(predicted(lock, weights)).exp().sum(-1)
    assert accepted.min() > 0.8


@pytest.mark.parametrize("method", ["exact", "gigpo", "gae"])
def test_trainer_update_changes_the_model(lock, weights, method):
    trainer = Trainer(lock, METHODS[method], seed=1, rate=1e-3, weights=weights, loop=LOOP)
    trainer.update()
    after = trainer.model.state_dict()
    assert any(not torch.equal(after[name], weights[name]) for name in weights)


def test_trainer_update_with_exact_advantages_increases_the_expected_return(lock, weights):
    loop = Loop(groups=32, group_size=8)
    trainer = Trainer(lock, METHODS["exact"], seed=1, rate=1e-4, weights=weights, loop=loop)
    before = trainer.update()
    policy = lock.policy(lock.answers.predict(trainer.model))
    assert exact_values(lock.model, policy).value > before


def test_trainer_skips_an_update_without_episodes(lock, weights):
    trainer = Trainer(lock, METHODS["grpo"], seed=1, rate=1.0, weights=weights, loop=LOOP)
    trainer.player = SimpleNamespace(play=lambda predicted, seeds: {})
    trainer.update()
    after = trainer.model.state_dict()
    assert all(torch.equal(after[name], weights[name]) for name in weights)
