"""A lock with three dials, which a tiny model learns to open with TRL: GRPO and GiGPO side by side.

``python -m trainers.trl_lock --seeds 0 1 2`` trains both with each seed, prints the figures and
draws the curves; see `trainers.curves`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import GRPOTrainer

from guerdon import Action, Environment, EnvPool, Observation, Rubric, State
from guerdon.credit import gigpo
from guerdon.integrations.trl import (
    StepCreditGRPOTrainer,
    environment_factory,
    episode_reward,
    rollout_func,
)
from trainers.curves import Curve, main
from trainers.trl_digits import make_tokenizer, make_trainer

DIALS = ("first", "second", "third")
COMBINATION = (3, 1, 4)
MAX_TURNS, BEST = 8, 3
WORDS = ("<pad>", "<eos>", *"01234567", "open", *DIALS)
BATCH = 160

METHODS: dict[str, dict[str, Any]] = {
    "GRPO": {"kind": GRPOTrainer},
    "GiGPO": {
        "kind": StepCreditGRPOTrainer,
        "credit": partial(gigpo, gamma=0.95),
        "states": "states",
        "step_rewards": "step_rewards",
    },
}


class Turn(Action):
    """Turns the dial to a digit."""

    digit: int


class Dial(Observation):
    """The dial that is next."""

    text: str
    is_open: bool = False


class Opened(Rubric):
    """The lock is open."""

    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        """Look at it."""
        return float(observation.is_open)


class Lock(Environment[Turn, Dial, State]):
    """Three dials, one after another, which move on at the right digit, and 8 turns."""

    def __init__(self) -> None:
        super().__init__(rubric=Opened())
        self.opened = self.turns = 0

    def reset(self, **kwargs: Any) -> Dial:
        """Lock it."""
        self._reset_rubric()
        self.opened = self.turns = 0
        return Dial(text=DIALS[0])

    def step(self, action: Turn, **kwargs: Any) -> Dial:
        """Turn the dial."""
        self.turns += 1
        self.opened += action.digit == COMBINATION[self.opened]
        is_open = self.opened == len(DIALS)
        done = is_open or self.turns == MAX_TURNS
        text = "open" if is_open else DIALS[self.opened]
        return self.score(action, Dial(text=text, is_open=is_open, done=done))

    @property
    def state(self) -> State:
        """The state, which is empty."""
        return State()


def lock_trainer(pool: Any, folder: Any, *, settings: dict[str, Any], **options: Any) -> Any:
    """Return a trainer that plays the locks of a pool; a turn is one word.

    Args:
        pool: The locks.
        folder: Where it writes.
        settings: Settings of `GRPOConfig` other than those of the digit task.
        **options: Further arguments of `make_trainer`.
    """
    play = rollout_func(
        pool,
        max_turns=MAX_TURNS,
        turn=" {observation}",
        to_action=lambda text: {"digit": int(text)},
    )
    return make_trainer(
        [episode_reward()],
        folder,
        tokenizer=make_tokenizer(WORDS),
        prompt=lambda digit: "open {observation}",
        rollout_func=play,
        settings={"max_completion_length": 1, **settings},
        **options,
    )


def make_tool_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with Qwen3's chat template, in which each call of the lock is a token."""
    special = ["<|im_start|>", "<|im_end|>", "<tool_response>", "</tool_response>"]
    words = ["<unk>", "<pad>", *special, "user", "assistant", "open", *DIALS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    call = '<tool_call>\n{"name": "turn", "arguments": {"digit": %d}}\n</tool_call>'
    tokenizer.add_tokens([AddedToken(token, special="|" in token) for token in special])
    tokenizer.add_tokens([call % digit for digit in range(8)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="<|im_end|>"
    )
    templates = Path(trl.__file__).parent / "chat_templates"
    made.chat_template = (templates / "qwen3.jinja").read_text()
    return made


def tool_trainer(folder: Any, *, settings: dict[str, Any], **options: Any) -> Any:
    """Return a trainer whose model turns the dials of a lock by calls of a tool.

    Args:
        folder: Where it writes.
        settings: Settings of `GRPOConfig` other than those of the digit task.
        **options: Further arguments of `make_trainer`.
    """
    return make_trainer(
        [episode_reward()],
        folder,
        tokenizer=make_tool_tokenizer(),
        prompt=lambda digit: [{"role": "user", "content": "open "}],
        environment_factory=environment_factory(Lock),
        settings={"max_completion_length": 96, **settings},
        **options,
    )


def learn(method: str, seed: int, folder: Any, **settings: Any) -> Curve:
    """Train with a method, and return the mean number of turns in every ten steps.

    Args:
        method: One of `METHODS`.
        seed: The seed of the model and of its words.
        folder: Where the trainer writes.
        **settings: Settings of `GRPOConfig` other than those of the task.
    """
    with EnvPool(Lock, n=BATCH).sync() as pool:
        trainer = lock_trainer(pool, folder, seed=seed, settings=settings, **METHODS[method])
        trainer.train()
    rows = [row for row in trainer.state.log_history if "episode/steps" in row]
    return [(row["step"], row["episode/steps"]) for row in rows]


if __name__ == "__main__":
    main(learn, [*METHODS], name="trl-lock", label="turns to open the lock", best=BEST)
