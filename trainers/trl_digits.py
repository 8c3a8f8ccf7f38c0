"""The smallest task that TRL learns on a CPU: a tiny model learns to say a digit, and only that.

``python -m trainers.trl_digits --seeds 0 1 2`` trains it with each seed, prints the figures and
draws the curves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from guerdon import Gate, LengthBounds, Rubric, Sequential, WeightedSum
from guerdon.integrations.trl import StepCreditGRPOTrainer, reward_func
from trainers.curves import Curve, main

WORDS = ("<pad>", "<eos>", *"0123456789", "say")
MAXIMUM = 1.25


class SaysDigit(Rubric):
    """The digit is among the words."""

    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        """Look for it."""
        return float(observation.metadata["ground_truth"] in action.content.split())


class Brief(Rubric):
    """The answer is one word."""

    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        """Count the words."""
        return float(len(action.content.split()) <= 1)


def make_tree() -> Sequential:
    """Return the reward: at most 3 words, the digit, and a little for nothing else."""
    return Sequential(
        Gate(LengthBounds(1, 3, unit="words")),
        WeightedSum([SaysDigit(), Brief()], weights=[1.0, 0.25]),
    )


def make_tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each word.

    Args:
        words: The words, from "<pad>" and "<eos>" on.
    """
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def make_model(size: int = len(WORDS)) -> Qwen2ForCausalLM:
    """Return a model with random weights.

    Args:
        size: The number of tokens.
    """
    config = Qwen2Config(
        vocab_size=size, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=2_048,
        bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def make_trainer(
    reward_funcs: Any,
    folder: Any,
    *,
    kind: Any = GRPOTrainer,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
    prompt: Callable[[int], Any] = "say {}".format,
    **options: Any,
) -> GRPOTrainer:
    """Return a trainer on the task.

    Args:
        reward_funcs: What it trains on.
        folder: Where it writes.
        kind: Its class.
        seed: The seed of the model and of the completions.
        settings: Settings of `GRPOConfig` other than those of the task.
        tokenizer: The tokenizer, in place of that of the task.
        prompt: Makes the prompt for a digit.
        **options: Further arguments of the class.
    """
    torch.manual_seed(seed)
    tokenizer = tokenizer or make_tokenizer()
    rows = [{"prompt": prompt(digit), "ground_truth": str(digit)} for digit in range(10)]
    config = {
        "output_dir": str(folder), "per_device_train_batch_size": 160, "num_generations": 16,
        "num_iterations": 2, "learning_rate": 2e-3, "lr_scheduler_type": "constant",
        "max_steps": 200, "max_completion_length": 6, "beta": 0.0, "seed": seed, "use_cpu": True,
        "logging_steps": 10, "report_to": [], "save_strategy": "no", "disable_tqdm": True,
        "bf16": False,
    }  # fmt: skip
    return kind(
        model=make_model(len(tokenizer)),
        reward_funcs=reward_funcs,
        args=GRPOConfig(**config | (settings or {})),
        train_dataset=Dataset.from_list(rows * 400),
        processing_class=tokenizer,
        **options,
    )


METHODS: dict[str, dict[str, Any]] = {
    "GRPO": {},
    "GRPO as step credit": {"kind": StepCreditGRPOTrainer, "credit": "grpo"},
}


def learn(method: str, seed: int, folder: Any, **settings: Any) -> Curve:
    """Train with a method, and return the mean reward in every ten steps.

    Args:
        method: One of `METHODS`.
        seed: The seed of the model and of the completions.
        folder: Where the trainer writes.
        **settings: Settings of `GRPOConfig` other than those of the task.
    """
    func = reward_func(make_tree(), name="digit")
    trainer = make_trainer([func], folder, seed=seed, settings=settings, **METHODS[method])
    trainer.train()
    return [(row["step"], row["reward"]) for row in trainer.state.log_history if "reward" in row]


if __name__ == "__main__":
    main(learn, [*METHODS], name="trl-digits", label="mean reward", best=MAXIMUM)
