"""`SandboxedFunction`: a reward function whose calls run in a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.sandbox.evaluating.handover import Described

__all__ = ["SandboxedFunction"]


class SandboxedFunction(RewardFunction):
    """A reward function whose calls run in a sandbox; `EvalSandbox.function` is one.

    It goes wherever a `RewardFunction` goes: into `FunctionScorer`, `score_rollouts`, `as_rubric`.

    Args:
        described: What is known of the function.
        evaluate: What calls it, with messages, ground truth and what else it is given.

    Attributes:
        is_rubric: Whether it is made of a rubric.
    """

    def __init__(self, described: Described, evaluate: Callable[..., Any]) -> None:
        self.function = evaluate
        self.mode = described.mode
        self.is_async = False
        self.is_rubric = described.is_rubric
        self.parameters = described.parameters
        self.__name__ = self.__qualname__ = described.name
        self._told = described.fingerprint
        self._file = None

    @property
    def fingerprint(self) -> str:
        """That of the function or the rubric, as the sandbox told it."""
        return self._told

    def evaluate_or_raise(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """Score in the sandbox; what the function raises is told in the result.

        Raises:
            InvalidArgumentError: The messages are none, or JSON can't hold what is given.
        """
        return self.function(messages, ground_truth, others or {})

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise InvalidArgumentError(
            f"{self.__name__} runs in a sandbox of this process and can't be pickled; open an "
            "EvalSandbox where it is needed"
        )
