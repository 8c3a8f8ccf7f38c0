"""verl's agent loop worker without a GPU: a configuration, a tiny tokenizer, and given answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config
from verl.workers.rollout.replica import TokenOutput

END = "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes with the template of Qwen."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, chat_template=TEMPLATE, eos_token=END, pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip


def make_config(folder: Path, *overrides: str) -> DictConfig:
    """Return verl's configuration of a run whose model is a Qwen without weights.

    Args:
        folder: Where the tokenizer and the configuration of the model are written.
        overrides: Further settings, as on the command line of `verl.trainer.main_ppo`.
    """
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    Qwen2Config(vocab_size=len(tokenizer), architectures=["Qwen2ForCausalLM"]).save_pretrained(
        folder
    )
    settings = [f"actor_rollout_ref.model.path={folder}", "actor_rollout_ref.rollout.name=vllm"]
    settings += ["actor_rollout_ref.rollout.agent.num_workers=1"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[*settings, *overrides])


class Client:
    """An LLM server's client: the first rollout that asks gets the first list of answers.

    Args:
        plays: The answers of each rollout, one for each turn.
    """

    def __init__(self, plays: Sequence[Sequence[str]]) -> None:
        self._plays = [list(play) for play in plays]
        self._rollouts: dict[str, list[str]] = {}
        self.prompts: list[list[int]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        """Return the next answer of the rollout, as vLLM does with the token that ends the turn."""
        self.prompts.append(prompt_ids)
        if request_id not in self._rollouts:
            self._rollouts[request_id] = self._plays.pop(0)
        answer = self._rollouts[request_id].pop(0)
        tokens = make_tokenizer()(answer + END)["input_ids"]
        versions = {"min_global_steps": 1, "max_global_steps": 1}
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens), extra_fields=versions)
