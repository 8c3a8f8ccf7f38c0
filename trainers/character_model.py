"""`CharacterModel`: a causal transformer over characters that answers many prompts at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

CHARACTERS = 128  # ASCII
END = "\n"  # the end of an answer


class Size(NamedTuple):
    """The size of a transformer: its layers, its units, and its attention heads."""

    layers: int
    units: int
    heads: int


SMALL = Size(2, 64, 4)  # about 125,000 parameters
LARGE = Size(6, 256, 8)  # about 4.8 million


class Layer(nn.Module):
    """Attention and a hidden layer, each after a normalization."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.before, self.between = nn.LayerNorm(size.units), nn.LayerNorm(size.units)
        self.read = nn.Linear(size.units, 3 * size.units)
        self.write = nn.Linear(size.units, size.units)
        self.hidden = nn.Sequential(
            nn.Linear(size.units, 4 * size.units), nn.GELU(), nn.Linear(4 * size.units, size.units)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the next activations, (B, T, units).

        Args:
            x: The activations, (B, T, units).
            mask: Whether a character reads another one, (B, 1, T, T).
        """
        batch, length, units = x.shape
        parts = self.read(self.before(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        read = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.write(read.transpose(1, 2).reshape(batch, length, units))
        return x + self.hidden(self.between(x))


class CharacterModel(nn.Module):
    """A transformer with random weights that predicts the next character of a text.

    Args:
        seed: The seed of the weights.
        size: The size of the transformer.
        context: The most characters of a text.
    """

    def __init__(self, seed: int, *, size: Size = SMALL, context: int = 128) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.character = nn.Embedding(CHARACTERS, size.units)
            self.place = nn.Embedding(context, size.units)
            self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
            self.last = nn.LayerNorm(size.units)
            self.next = nn.Linear(size.units, CHARACTERS)

    def forward(self, characters: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """Return the log-probabilities of the character after each one, (B, T, 128).

        Args:
            characters: The characters, (B, T).
            places: The place of each one in its text, (B, T).
            mask: Whether a character reads another one, (B, T, T).
        """
        x = self.character(characters) + self.place(places)
        for layer in self.layers:
            x = layer(x, mask[:, None])
        return self.next(self.last(x)).log_softmax(-1)


def codes(text: str) -> list[int]:
    """Return the characters of a text as numbers."""
    return list(text.encode("ascii"))


class Answers:
    """The answers that a model may give to each of some prompts, in one batch.

    A row is a prompt with all answers after it. A character of an answer reads the prompt and this
    answer alone, so that its probability is that in a text of the prompt and the answer.

    Args:
        prompts: The prompts, P of them.
        answers: The answers, A of them, each of which ends with `END`.
        device: Where the model is.
    """

    def __init__(self, prompts: Sequence[str], answers: Sequence[str], device: str = "cpu") -> None:
        longest = max(map(len, prompts))
        total = longest + sum(map(len, answers))
        characters = np.zeros((len(prompts), total), np.int64)
        places = np.zeros_like(characters)
        mask = np.tile(np.eye(total, dtype=np.bool_), (len(prompts), 1, 1))
        for row, prompt in enumerate(prompts):
            length = len(prompt)
            characters[row, :length], places[row, :length] = codes(prompt), np.arange(length)
            mask[row, :length, :length] = np.tri(length)
            start = longest
            for answer in answers:
                end = start + len(answer)
                characters[row, start:end] = codes(answer)
                places[row, start:end] = np.arange(length, length + len(answer))
                mask[row, start:end, :length] = True
                mask[row, start:end, start:end] = np.tri(len(answer))
                start = end
        self._inputs = [torch.from_numpy(each).to(device) for each in (characters, places, mask)]
        self._lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        starts = longest + np.cumsum([0, *map(len, answers)])
        # The first character of an answer comes after the prompt, another one after that before it.
        self.nodes: dict[str, int] = {"": 0}
        columns = []
        for start, answer in zip(starts.tolist(), answers, strict=False):
            for length in range(1, len(answer)):
                if answer[:length] not in self.nodes:
                    self.nodes[answer[:length]] = len(self.nodes)
                    columns.append(start + length - 1)
        self._columns = torch.tensor(columns, device=device)
        # Short answers are padded with places that count as 0.
        most = max(map(len, answers))
        path = np.zeros((3, len(answers), most), np.int64)
        for number, answer in enumerate(answers):
            path[0, number, : len(answer)] = [self.nodes[answer[:n]] for n in range(len(answer))]
            path[1, number, : len(answer)], path[2, number, : len(answer)] = codes(answer), 1
        self._path = torch.from_numpy(path).to(device)

    def predict(self, model: CharacterModel, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return the log-probability of each character after each beginning, (R, N, 128).

        The beginnings of answers are numbered in ``nodes``.

        Args:
            model: The model.
            rows: The prompts, R of them; by default all.
        """
        logprobs = model(*(each[rows] for each in self._inputs))
        lengths = self._lengths[rows]
        first = logprobs[torch.arange(len(lengths), device=lengths.device), lengths - 1]
        return torch.cat([first[:, None], logprobs[:, self._columns]], 1)

    def logprobs(self, predicted: Tensor) -> Tensor:
        """Return the log-probability of each answer to each of these prompts, (R, A)."""
        node, code, counts = self._path
        return (predicted[:, node, code] * counts).sum(-1)
