"""`TurnTokens`: the engine's tokens of one turn, which trainers need unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from guerdon._validation import shown, summarize
from guerdon.errors import InvalidArgumentError

__all__ = ["TurnTokens"]

# The column of a rollout with the tokens of each played turn.
TURN_TOKENS = "turn_tokens"

TokenIds: TypeAlias = list[Annotated[int, Field(ge=0)]]
LogProb: TypeAlias = Annotated[float, Field(le=0, allow_inf_nan=False)]


class TurnTokens(BaseModel):
    """The engine's tokens of one assistant turn; what was not recorded is None.

    Example:
        >>> from guerdon.types import TurnTokens
        >>> tokens = TurnTokens(prompt_token_ids=[1, 2], completion_token_ids=[7], logprobs=[-0.5],
        ...                     loss_mask=[0, 0, 1])
        >>> tokens.completion_token_ids
        [7]

    Attributes:
        prompt_token_ids: The whole prompt, with all earlier turns.
        completion_token_ids: The sampled tokens.
        logprobs: The log-probability of each sampled token, at most 0.
        loss_mask: 1 for each token of prompt and completion that is trained on, otherwise 0; always
            0 in the prompt.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    prompt_token_ids: TokenIds | None = None
    completion_token_ids: TokenIds | None = None
    logprobs: list[LogProb] | None = None
    loss_mask: list[Annotated[int, Field(ge=0, le=1)]] | None = None

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        prompt, sampled, mask = self.prompt_token_ids, self.completion_token_ids, self.loss_mask
        if None not in (self.logprobs, sampled) and len(self.logprobs) != len(sampled):  # type: ignore[arg-type]
            raise ValueError(
                f"{len(self.logprobs or ())} log-probabilities for {len(sampled or ())} sampled "
                "tokens"
            )
        if mask is None:
            return self
        if prompt is None or sampled is None:
            raise ValueError("`loss_mask` requires prompt_token_ids and completion_token_ids")
        if len(mask) != len(prompt) + len(sampled):
            raise ValueError(
                f"`loss_mask` must have {len(prompt)} + {len(sampled)} entries, for prompt and "
                f"completion, got {len(mask)}"
            )
        if any(mask[: len(prompt)]):
            raise ValueError(f"`loss_mask` must be 0 in the prompt, got 1 at {mask.index(1)}")
        return self


def check_turn_tokens(row: Mapping[str, Any], played: int) -> None:
    """Check the tokens of a rollout's row: an entry for each played turn, None for an unknown one.

    Args:
        row: The row.
        played: How many turns were played.

    Raises:
        InvalidArgumentError: There isn't one valid entry for each turn.
    """
    given = row.get(TURN_TOKENS)
    if not isinstance(given, list) or len(given) != played:
        raise InvalidArgumentError(
            f"`{TURN_TOKENS}` must be a list with an entry for each of the {played} played "
            f"assistant turns, got {shown(given)}"
        )
    for number, tokens in enumerate(given):
        try:
            _ = None if tokens is None else TurnTokens.model_validate(tokens)
        except ValidationError as error:
            raise InvalidArgumentError(f"{TURN_TOKENS}[{number}]: {summarize(error)}") from None
