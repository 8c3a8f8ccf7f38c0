"""The credit arena with a small language model: two of its worlds as text.

``make arena-lm`` trains a transformer with each method, and compares the order of the methods with
that of the arena. A world's observation is the prompt, and the model writes an action, character by
character. The credit of a step multiplies the log-probabilities of its characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from guerdon.arena import (
    WORLDS,
    Lock,
    Method,
    Model,
    WorldAction,
    WorldEnvironment,
    exact_values,
    find_world,
)
from guerdon.arena.episodes import episode_seeds
from guerdon.arena.training import Loop
from guerdon.credit import StepBatch
from guerdon.errors import InvalidActionError
from trainers.character_model import END, SMALL, Answers, CharacterModel, Size

Floats = NDArray[np.float64]

WORLDS.register("short-lock", partial(Lock, dials=3, digits=3))

PATIENCE = 20  # how often the model is asked again before an episode is given up
EVEN, QUIZZES = ">>>>", "abcdefgh"
WARM_UP, BATCH, WARM_UP_RATE = 600, 64, 2e-3  # steps, prompts of a step, Adam's highest rate


class Turn(NamedTuple):
    """A turn of an episode: the number of the state, that of the action, and the reward."""

    state: int
    action: int
    reward: float


class TextWorld:
    """A world of the arena as text.

    Args:
        name: The name of the world.
        device: Where the model is.
    """

    def __init__(self, name: str, device: str = "cpu") -> None:
        self.model, self.device = Model.of(find_world(name)), device
        self.environment, world = WorldEnvironment(self.model), self.model.world
        actions = ", ".join(world.actions)
        self.texts = [f"{world.describe(state)}\nactions: {actions}" for state in self.model.states]
        self.numbers = {text: number for number, text in enumerate(self.texts)}
        self.actions = list(world.actions)
        self.answers = self.answers_after(">")

    def answers_after(self, signs: str) -> Answers:
        """Return the answers to the text of each state with each of some signs after it."""
        prompts = [f"{text}\n{sign} " for sign in signs for text in self.texts]
        return Answers(prompts, [action + END for action in self.actions], self.device)

    def policy(self, predicted: Tensor) -> Floats:
        """Return π(a|s), the probability of each action among those that are accepted, (S, A)."""
        logprobs = self.answers.logprobs(predicted.detach()).double()
        table: Floats = logprobs.softmax(-1).cpu().numpy()
        return table


class Player:
    """Plays episodes, and counts the texts of the model and those that were refused.

    Args:
        world: The world.
        seed: The seed of the characters.
    """

    def __init__(self, world: TextWorld, seed: int) -> None:
        self.world, self.random = world, np.random.default_rng(seed)
        self.texts = self.refused = 0

    def play(self, predicted: Tensor, seeds: Sequence[int]) -> dict[int, list[Turn]]:
        """Play an episode for each seed; return those that ended, by the number of the seed.

        Args:
            predicted: The log-probabilities of characters, (S, N, 128); see `Answers.predict`.
            seeds: The seeds of the episodes.
        """
        chances = np.cumsum(predicted.detach().double().exp().cpu().numpy(), -1)
        chances /= chances[..., -1:]
        played = {number: self._episode(chances, seed) for number, seed in enumerate(seeds)}
        return {number: turns for number, turns in played.items() if turns is not None}

    def _episode(self, chances: Floats, seed: int) -> list[Turn] | None:
        environment, turns, in_a_row = self.world.environment, [], 0
        observation = environment.reset(seed=seed)
        while not observation.done:
            state = self.world.numbers[observation.text]
            text = self._write(chances[state]).removesuffix(END)
            self.texts += 1
            try:
                observation = environment.step(WorldAction(action=text))
            except InvalidActionError:  # nothing has changed: the model is asked again
                self.refused, in_a_row = self.refused + 1, in_a_row + 1
                if in_a_row == PATIENCE:
                    return None
            else:
                turns.append(Turn(state, self.world.actions.index(text), observation.reward))
                in_a_row = 0
        return turns

    def _write(self, chances: Floats) -> str:
        """Sample characters up to the end of an action, or the first that is in no action."""
        text, nodes = "", self.world.answers.nodes
        while text in nodes:
            place = np.searchsorted(chances[nodes[text]], self.random.random(), "right")
            text += chr(place)
        return text


def warm_up(world: TextWorld, *, size: Size = SMALL, steps: int = WARM_UP) -> dict[str, Tensor]:
    """Return the weights of a model that was taught the form of an answer and to read its prompt.

    After ``>`` it writes each action equally often. After each letter of `QUIZZES` it writes an
    action that was drawn at random for each state. They say nothing about which action is good, but
    without them the model doesn't distinguish its prompts: an update in one state changes all.

    Args:
        world: The world.
        size: The size of the model.
        steps: The number of steps.
    """
    states, actions = world.model.next.shape[:2]
    random, signs = np.random.default_rng(0), EVEN + QUIZZES
    drawn = np.eye(actions)[random.integers(0, actions, len(QUIZZES) * states)]
    wanted = np.concatenate([np.full((len(EVEN) * states, actions), 1 / actions), drawn])
    targets = torch.tensor(wanted, dtype=torch.float32, device=world.device)
    answers = world.answers_after(signs)
    model = CharacterModel(0, size=size).to(world.device)
    optimizer = torch.optim.Adam(model.parameters(), WARM_UP_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, WARM_UP_RATE, steps, pct_start=0.1)
    for _ in range(steps):
        rows = torch.from_numpy(random.integers(0, len(targets), BATCH)).to(world.device)
        logprobs = answers.logprobs(answers.predict(model, rows))
        optimizer.zero_grad()
        (-(targets[rows] * logprobs).sum(-1).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.state_dict()


class Run(NamedTuple):
    """How a model learned.

    Attributes:
        returns: Its expected return before each of U updates and at the end, (U + 1,).
        refused: The share of its texts that were no action.
        seconds: The time of the run.
    """

    returns: Floats
    refused: float
    seconds: float


class Trainer:
    """Trains a model in a world with the credit of one method, as `guerdon.arena.train` does.

    Args:
        world: The world.
        method: The method.
        seed: The seed of the episodes and of the characters.
        rate: The learning rate of gradient ascent.
        weights: The weights to begin with.
        loop: The size of a batch and the rate of the critic.
        size: The size of the model.
    """

    def __init__(
        self, world: TextWorld, method: Method, *, seed: int, rate: float,
        weights: Mapping[str, Tensor], loop: Loop, size: Size = SMALL,
    ) -> None:  # fmt: skip
        self.world, self.method, self.seed, self.loop = world, method, seed, loop
        self.model = CharacterModel(0, size=size).to(world.device)
        self.model.load_state_dict(weights)
        self.optimizer = torch.optim.SGD(self.model.parameters(), rate)
        self.player, self.updates = Player(world, seed), 0
        self.critic = np.zeros(len(world.texts))

    def run(self, updates: int) -> Run:
        """Take updates."""
        began = perf_counter()
        returns = [self.update() for _ in range(updates)]
        policy = self.world.policy(self.world.answers.predict(self.model))
        returns.append(float(exact_values(self.world.model, policy).value))
        player = self.player
        return Run(np.array(returns), player.refused / player.texts, perf_counter() - began)

    def update(self) -> float:
        """Play a batch of episodes and train on it; return the expected return before."""
        predicted = self.world.answers.predict(self.model)
        exact = exact_values(self.world.model, self.world.policy(predicted))
        seeds = episode_seeds(self.seed, self.updates, self.loop.episodes).tolist()
        episodes = self.player.play(predicted, seeds)
        if episodes:
            self._ascend(predicted, episodes, exact.advantage)
        self.updates += 1
        return float(exact.value)

    def _ascend(
        self, predicted: Tensor, episodes: Mapping[int, Sequence[Turn]], exact: Floats
    ) -> None:
        """Follow the gradient of the log-probabilities of the texts, each with its advantage."""
        state, action, reward = map(
            np.array, zip(*(turn for turns in episodes.values() for turn in turns), strict=True)
        )
        step = np.concatenate([np.arange(len(turns)) for turns in episodes.values()])
        if self.method.estimate is None:
            advantage = exact[step, state, action]
        else:
            trajectory = np.repeat([*episodes], [len(turns) for turns in episodes.values()])
            advantage = self._credit(trajectory, step, state, action, reward)
        advantage = advantage / (np.sqrt(np.mean(advantage**2)) or 1.0)
        weights = torch.from_numpy(advantage).to(predicted)
        written = self.world.answers.logprobs(predicted)[state, action]
        self.optimizer.zero_grad()
        (-(written * weights).sum() / self.loop.episodes).backward()
        self.optimizer.step()

    def _credit(self, trajectory: Any, step: Any, state: Any, action: Any, reward: Any) -> Floats:
        batch = StepBatch.from_arrays(
            reward,
            trajectory=trajectory,
            step=step,
            group=trajectory // self.loop.group_size,
            state=[self.world.texts[number] for number in state],
            action=[self.world.actions[number] for number in action],
            values=self.critic[state] if self.method.needs_critic else None,
        )
        credit = self.method.credit(batch, self.world.model)
        if self.method.needs_critic:
            visits = np.bincount(state, minlength=len(self.critic))
            error = np.bincount(state, credit.returns - self.critic[state], len(self.critic))
            self.critic += self.loop.critic_rate * error / np.maximum(visits, 1)
        return credit.advantage
