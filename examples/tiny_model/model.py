"""`TinyModel`: a causal language model with random weights, and `Sampler`, an answer of it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from examples.tiny_model.tokens import TOKENS

__all__ = ["Sampled", "Sampler", "Sampling", "TinyModel"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are sampled.

    Example:
        >>> from examples.tiny_model.model import Sampling
        >>> Sampling(temperature=0.0).top_p
        1.0

    Attributes:
        temperature: At least 0; with 0 the most probable token is taken.
        top_p: Only the most probable tokens that together have this probability are sampled.
        seed: Equal seeds give equal answers to equal prompts; None is a random one.
        bias: What is added to the logits of tokens.
        top_logprobs: How many of the most probable tokens are reported; None reports nothing.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    bias: Mapping[int, float] = field(default_factory=dict)
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token, its log-probability and those of the most probable ones.

    The log-probabilities are the model's own, before the temperature, the bias and the grammar.
    """

    token: int
    logprob: float | None = None
    top: Sequence[tuple[int, float]] = ()


class TinyModel:
    """A Llama of about 108,000 parameters with random weights, on the CPU.

    It requires the packages torch and transformers; see ``make live``.

    Args:
        seed: The seed of the weights.
        context: The most tokens of a prompt and its answer together.
    """

    def __init__(self, *, seed: int = 0, context: int = 16384) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        self.context = context
        config = LlamaConfig(
            vocab_size=TOKENS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=context,
            initializer_range=0.1, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.network: Any = LlamaForCausalLM(config).eval()

    def start(self, prompt: Sequence[int], sampling: Sampling) -> Sampler:
        """Begin an answer.

        Args:
            prompt: The tokens of the prompt, at least one.
            sampling: How its tokens are sampled.
        """
        return Sampler(self.network, prompt, sampling)


class Sampler:
    """Samples one answer, token by token.

    Args:
        network: The model.
        prompt: The tokens of the prompt.
        sampling: How tokens are sampled.
    """

    def __init__(self, network: Any, prompt: Sequence[int], sampling: Sampling) -> None:
        import torch
        from transformers import DynamicCache

        self._network, self._sampling = network, sampling
        self._unread = list(prompt)  # what the network hasn't read yet
        self._cache = DynamicCache()
        seed = random.getrandbits(62) if sampling.seed is None else sampling.seed
        # Such a model hardly depends on the prompt, so that equal seeds would give similar answers.
        seed += zlib.crc32(repr(self._unread).encode())
        self._random = torch.Generator().manual_seed(seed)

    def sample(self, allowed: Collection[int]) -> Sampled:
        """Sample the next token.

        Args:
            allowed: The tokens that may come next, at least one.
        """
        if len(allowed) == 1 and self._sampling.top_logprobs is None:
            [token] = allowed  # the network reads it together with the next ones
            self._unread.append(token)
            return Sampled(token)
        logits = self._logits()
        token = self._choose(logits, sorted(allowed))
        self._unread.append(token)
        if self._sampling.top_logprobs is None:
            return Sampled(token)
        logprobs = logits.log_softmax(-1)
        best = logprobs.topk(self._sampling.top_logprobs)
        top = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Sampled(token, float(logprobs[token]), tuple(top))

    def _logits(self) -> Any:
        import torch

        with torch.inference_mode():
            output = self._network(
                input_ids=torch.tensor([self._unread]), past_key_values=self._cache,
                use_cache=True, logits_to_keep=1,
            )  # fmt: skip
        self._unread = []
        return output.logits[0, -1].double()

    def _choose(self, logits: Any, allowed: list[int]) -> int:
        import torch

        given = self._sampling
        left = logits[allowed] + torch.tensor([given.bias.get(token, 0.0) for token in allowed])
        if given.temperature == 0.0:
            return allowed[int(left.argmax())]
        ordered, places = (left / given.temperature).softmax(-1).sort(descending=True)
        # A token is kept if those before it have less than `top_p` together.
        ordered[ordered.cumsum(-1) - ordered >= given.top_p] = 0.0
        return allowed[int(places[torch.multinomial(ordered, 1, generator=self._random)])]
