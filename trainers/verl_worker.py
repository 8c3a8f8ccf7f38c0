"""verl's agent loops on a CPU: its configuration, a tiny tokenizer, and answers to give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from tensordict import TensorDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict
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
    """The client of an LLM server that gives answers to the locks of `make_batch`.

    Args:
        plays: For each seed, the answers of each of its rollouts, one for each turn.
    """

    def __init__(self, plays: Mapping[int, Sequence[Sequence[str]]]) -> None:
        self._plays = {seed: [list(play) for play in given] for seed, given in plays.items()}
        self._of_rollout: dict[str, list[str]] = {}
        self._tokenizer = make_tokenizer()

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        """Return the next answer of the rollout, with the token that ends the turn."""
        if request_id not in self._of_rollout:
            seed = re.search(r"lock (\d+)", self._tokenizer.decode(prompt_ids))[1]
            self._of_rollout[request_id] = self._plays[int(seed)].pop(0)
        answer = self._of_rollout[request_id].pop(0)
        tokens = self._tokenizer(answer + END)["input_ids"]
        versions = {"min_global_steps": 1, "max_global_steps": 1}
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens), extra_fields=versions)


def make_batch(seeds: Sequence[int], agent: str) -> TensorDict:
    """Return prompts as verl's trainer passes them to its agent loops, ``prompt-<seed>`` by uid.

    Args:
        seeds: The seed of each prompt.
        agent: The name of the agent loop.
    """
    prompts = [f"Open lock {seed}: {{observation}}" for seed in seeds]
    rows = {
        "uid": [f"prompt-{seed}" for seed in seeds],
        "raw_prompt": [[{"role": "user", "content": prompt}] for prompt in prompts],
        "extra_info": [{"seed": seed, "index": place} for place, seed in enumerate(seeds)],
        "index": list(range(len(seeds))),
        "agent_name": [agent] * len(seeds),
    }
    batch = get_tensordict(rows)
    assign_non_tensor_data(batch, "global_steps", 1)
    return batch
