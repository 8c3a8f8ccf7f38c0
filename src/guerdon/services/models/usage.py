"""`Usage`: what was asked of a model, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Prices", "Usage"]


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model costs.

    Example:
        >>> from guerdon.services import Prices
        >>> Prices(prompt=0.15, completion=0.6).cost(prompt_tokens=1_000_000, completion_tokens=0)
        0.15

    Args:
        prompt: Per million tokens of the prompt, in whatever currency.
        completion: Per million tokens of the answer.
    """

    prompt: float
    completion: float

    def cost(self, *, prompt_tokens: int, completion_tokens: int) -> float:
        """What a call cost."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1_000_000


@dataclass(slots=True)
class Usage:
    """Counters, which only grow.

    Example:
        >>> from guerdon.services import Usage
        >>> Usage().calls
        0

    Attributes:
        calls: Answers that came.
        prompt_tokens: Tokens that were sent, as the endpoint counts them.
        completion_tokens: Tokens that came back.
        cost: What they cost, in the currency of the prices; None where no prices are known.
        retries: Attempts beyond the first.
        failures: Calls that gave no answer after all attempts.
        without_usage: Answers that didn't say their tokens, so that the counts are too low.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    retries: int = 0
    failures: int = 0
    without_usage: int = 0
    prices: Prices | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.prices is not None and self.cost is None:
            self.cost = 0.0

    def count(self, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Add one answer."""
        self.calls += 1
        if prompt_tokens is None or completion_tokens is None:
            self.without_usage += 1
            return
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if self.prices is not None:
            self.cost = (self.cost or 0.0) + self.prices.cost(
                prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
            )
