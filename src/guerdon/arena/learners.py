"""Learners: softmax policies that follow a gradient by their logits."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from guerdon.arena.chance import uniform
from guerdon.arena.model import Floats, Model

__all__ = ["Learner", "NetworkLearner", "TabularLearner", "softmax"]


class Learner(Protocol):
    """R softmax policies of a model that are trained independently.

    Attributes:
        logits: The logits of every state, (R, S, A).
    """

    logits: Floats

    def ascend(self, gradient: Floats, learning_rate: Floats) -> None:
        """Take a step of gradient ascent.

        Args:
            gradient: The gradient by the logits, (R, S, A).
            learning_rate: One for each policy, (R,).
        """
        ...


def softmax(logits: Floats) -> Floats:
    """Return the probabilities of logits, along the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Floats = shifted / shifted.sum(-1, keepdims=True)
    return probabilities


class TabularLearner:
    """A table of logits for each policy, which start at 0.

    Args:
        model: The model.
        seeds: The seeds of the policies, (R,); the table doesn't depend on them.
    """

    def __init__(self, model: Model, seeds: np.ndarray) -> None:
        self.logits = np.zeros((len(seeds), *model.next.shape[:2]))

    def ascend(self, gradient: Floats, learning_rate: Floats) -> None:
        """Take a step; see `Learner.ascend`."""
        self.logits = self.logits + learning_rate[:, None, None] * gradient


class NetworkLearner:
    """A network with one hidden layer of tanh units for each policy.

    Its input is the text of the state, one-hot by the character at each position: states share
    parameters, as in a language model.

    Args:
        model: The model.
        seeds: The seeds of the policies, (R,), which determine the first weights.
        units: The size of the hidden layer.
    """

    def __init__(self, model: Model, seeds: np.ndarray, *, units: int = 32) -> None:
        self._inputs = _features(model)
        actions = model.next.shape[1]
        self._first = _weights(seeds, self._inputs.shape[1], units)
        self._second = np.zeros((len(seeds), units, actions))
        self._forward()

    def _forward(self) -> None:
        self._hidden = np.tanh(self._inputs @ self._first)
        self.logits = self._hidden @ self._second

    def ascend(self, gradient: Floats, learning_rate: Floats) -> None:
        """Take a step by backpropagation; see `Learner.ascend`."""
        rate = learning_rate[:, None, None]
        hidden = gradient @ self._second.swapaxes(-1, -2) * (1 - self._hidden**2)
        self._second = self._second + rate * self._hidden.swapaxes(-1, -2) @ gradient
        self._first = self._first + rate * self._inputs.T @ hidden
        self._forward()


def _features(model: Model) -> Floats:
    """Return one-hot characters of the states' texts by position, and 1, each (S, F)."""
    texts = [model.world.describe(state) for state in model.states]
    longest = max(map(len, texts))
    padded = np.array([list(text.ljust(longest)) for text in texts])
    columns = [np.ones(len(texts))]
    for place in range(longest):
        letters = sorted(set(padded[:, place]))
        if len(letters) > 1:
            columns += [(padded[:, place] == letter).astype(float) for letter in letters]
    return np.stack(columns, -1)


def _weights(seeds: np.ndarray, inputs: int, units: int) -> Floats:
    """Return uniform weights of the variance 1 / inputs, (R, inputs, units)."""
    drawn = [uniform(seeds.astype(np.uint64), each) for each in range(inputs * units)]
    weights = np.stack(drawn, -1).reshape(len(seeds), inputs, units)
    scaled: Floats = (2 * weights - 1) * np.sqrt(3 / inputs)
    return scaled
